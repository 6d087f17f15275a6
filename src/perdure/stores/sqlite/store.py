"""SQLite: one file, one writer per process, every commit synced to disk.

In:   batches, on the loop's thread.
Out:  their outcomes, and reads from a connection of their own.

A batch is one `begin immediate … commit` under a file lock that all Perdure
processes on the file share. Where the disk is quick it is written on the loop's
own thread, which saves two thread switches a commit; where it is slow, or another
process has the lock, a writer thread does it and the loop goes on.
Knows nothing of workflows, leases or retries.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from perdure.clock import Clock, SystemClock
from perdure.errors import BadOption, StoreError
from perdure.stores.answers import Answer, Outcome
from perdure.stores.listing import SQLITE
from perdure.stores.operations import Batch, Operation
from perdure.stores.rules.reads import Reads
from perdure.stores.sqlite.activity_transactions import SqliteActivityTransactions
from perdure.stores.sqlite.changes import SqliteChanges
from perdure.stores.sqlite.connection import SqliteFile
from perdure.stores.sqlite.files import create_private
from perdure.stores.sqlite.locks import Presence
from perdure.stores.sqlite.migration import migrate, refuse_foreign_file
from perdure.stores.sqlite.presence import SqlitePresence
from perdure.stores.sqlite.reads import SqliteReader
from perdure.stores.sqlite.transactions import Transactions
from perdure.stores.sqlite.writer import Writer

OLDEST_SQLITE = (3, 38, 0)
# While a typical commit takes less than this many seconds, it is made on the loop's own thread.
INLINE_BELOW = 0.002


class SqliteStore:
    """A SQLite file, or with path None a database in memory."""

    def __init__(self, path: str | None, *, threads: bool = True) -> None:
        self.file = file = SqliteFile(path)
        self.url = file.url
        self._threads = threads and path is not None
        self._reader = SqliteReader(file)
        self.reads = Reads(file.url, self._reader.ask, SQLITE)
        self.presence = SqlitePresence(file)
        self.changes = SqliteChanges()
        self.activity_transactions = SqliteActivityTransactions(file)
        self.transactions: Transactions
        self._writer: Writer | None = None
        # Shows to other programs that the file is in use.
        self._in_use: Presence | None = None

    # Opening and closing

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(self.url, f"SQLite {sqlite3.sqlite_version} is too old; 3.38 or newer is needed")
        opened: list[sqlite3.Connection] = []
        try:
            await self._open_file(opened)
        except BaseException:
            self._let_go(opened)
            raise
        self._reader.begin(threads=self._threads)
        if self._threads:
            assert self.file.write_lock is not None
            self._writer = Writer(self.url, self.file.write_lock, self.transactions.write_patiently)
            self.activity_transactions.writer = self._writer

    async def _open_file(self, opened: list[sqlite3.Connection]) -> None:
        file = self.file
        if file.path is not None:
            refuse_foreign_file(file)
            file.write_lock = file.lock("write")
            create_private(self.url, file.path)
        opened.append(file.connect())
        await migrate(file, opened[0])
        if file.path is not None:
            self._in_use = Presence(file.path)
            for _ in ("reads", "looks at changes"):
                opened.append(file.connect(readonly=True))  # noqa: PERF401 - each is closed when the next one fails
        self.transactions = self.activity_transactions.transactions = Transactions(file, opened[0])
        # In memory there is one connection for all; where there is a file, a look must not wait for a long read.
        self._reader.db, self.changes.db = opened[-2:] if file.path is not None else opened * 2
        self.changes.has_changed()

    def _let_go(self, connections: Sequence[sqlite3.Connection]) -> None:
        for connection in connections:
            connection.close()
        for held in (self.file.write_lock, self._in_use):
            if held is not None:
                held.close()
        self.file.write_lock = self._in_use = None

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.end()
        self._reader.end()
        self.presence.close()
        if self._in_use is not None:
            self._in_use.release()
        self._let_go(self._connections())

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        self.presence.close()
        self._let_go(self._connections())

    def _connections(self) -> list[sqlite3.Connection]:
        return [*{self.changes.db: None, self._reader.db: None, self.transactions.db: None}]

    # Writing

    @property
    def is_inline(self) -> bool:
        """Whether the next commit is made on the caller's thread."""
        return self._writer is None or self.transactions.commit_seconds < INLINE_BELOW

    @property
    def is_held_up(self) -> bool:
        """Whether another process has kept all others from writing for long."""
        return self.presence.is_held_up or (self._writer is not None and self._writer.held_up is not None)

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        if self._writer is None:
            done(self.transactions.write(batch))
            return
        # A thread that is held up still waits with the only lock there is.
        if self.is_inline and self._writer.held_up is None:
            lock = self.file.write_lock
            assert lock is not None
            if lock.acquire(wait=False):
                try:
                    outcome = self.transactions.transact(batch, waits=False)
                finally:
                    lock.release()
                if outcome is not None:
                    done(outcome)
                    return
        self._writer.write(batch, done)

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        raise BadOption("runs are started and signalled inside a transaction of your own on Postgres only")

    def clock(self) -> Clock:
        return SystemClock()


def has_runs(path: Path) -> bool:
    """Whether opening this file leaves it as it is: an empty one, or one to be adopted, would get our tables."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("select 1 from sqlite_schema where name = 'perdure_schema'").fetchone() is not None
    except sqlite3.Error:
        # open() knows better what is wrong with it, and changes nothing.
        return True
