"""SQLite: one file, one writer per process, every commit synced to disk.

In:   batches, on the loop's thread.
Out:  their outcomes, and reads from a connection of their own.

A batch is one `begin immediate … commit` under a file lock that all Perdure
processes on the file share. Where the disk is quick it is written on the loop's
own thread, which saves two thread switches a commit; where it is slow, or another
process has the lock, a writer thread does it and the loop goes on.
Knows nothing of workflows, leases or retries.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from perdure.clock import Clock, SystemClock, elapsed
from perdure.errors import BadOption, NewerSchema, NotADatabase, StoreError, StoreUnavailable
from perdure.stores.answers import Answer, Committed, Failed, Fenced, Outcome, Unknown
from perdure.stores.operations import Batch, Operation
from perdure.stores.queries import migrations, queries
from perdure.stores.rules.batch import is_torn
from perdure.stores.sqlite.files import create_private, lock_rights, make_lock_folder, refuse_unfit
from perdure.stores.sqlite.locks import FileLock, Presence, is_held
from perdure.stores.sqlite.reads import SqliteReads
from perdure.stores.sqlite.schema import foreign_in, version_of
from perdure.stores.sqlite.unreadable import is_about_file
from perdure.stores.sqlite.writer import HELD_UP_SECONDS, Renewals, Writer, blame
from perdure.stores.sqlite.writes import apply_singly, apply_together
from perdure.threads import Threads

OLDEST_SQLITE = (3, 38, 0)
# While a typical commit takes less than this many seconds, it is made on the loop's own thread.
INLINE_BELOW = 0.002
# How long the writer thread waits for a lock that somebody outside Perdure holds.
BUSY_MS = 5000
# Each connection keeps so many pages at most; what is read again and again is few, and the system has the others.
CACHE_KB = 4096
LOOK_SECONDS = 0.02
LONGEST_FILE_NAME = 200

T = TypeVar("T")
_DEFINITE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}


class SqliteStore(SqliteReads):
    """A SQLite file, or with path None a database in memory."""

    def __init__(self, path: str | None, *, threads: bool = True) -> None:
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        self._path = Path(path) if path else None
        self._threads = threads and path is not None
        self._commit_seconds = INLINE_BELOW / 4
        self._keepalives: dict[str, FileLock] = {}
        self._data_version = -1
        self._writer: Writer | None = None
        self._lock: FileLock | None = None
        self._presence: Presence | None = None
        self._waits = True
        self._renewals: Renewals | None = None

    # Opening and closing

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(self.url, f"SQLite {sqlite3.sqlite_version} is too old; 3.38 or newer is needed")
        try:
            await self._open_file()
        except BaseException:
            self._let_go()
            raise
        if self._threads:
            assert self._lock is not None
            self._readers = Threads(1, "perdure-reader")
            self._writer = Writer(self.url, self._lock, self._transact_patiently)

    async def _open_file(self) -> None:
        if self._path is not None:
            self._refuse_foreign_file()
            self._lock = self._file_lock("write")
            create_private(self.url, self._path)
        self._db = self._connect()
        await self._migrate()
        self._file = None if self._path is None else _identity(self._path)
        self._presence = Presence(self._path) if self._path is not None else None
        self._reader = self._connect(readonly=True) if self._path is not None else self._db
        # Watching has a connection of its own: it must not wait for a long read.
        self._watcher = self._connect(readonly=True) if self._path is not None else self._db
        self.has_changed()

    def _let_go(self) -> None:
        """Close what an opening that failed has opened."""
        for opened in ("_watcher", "_reader", "_db", "_lock", "_presence"):
            if (found := vars(self).pop(opened, None)) is not None:
                found.close()
        self._lock = self._presence = None

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.end()
        if self._readers is not None:
            self._readers.close()
            self._readers.join()
        # A worker that could not give its row back leaves its lock behind, free: others see at once that it is gone.
        for lock in self._keepalives.values():
            lock.close()
        self._keepalives.clear()
        if self._presence is not None:
            self._presence.release()
        if self._renewals is not None:
            self._renewals.close()
            self._renewals = None
        for connection in {self._watcher, self._reader, self._db}:
            connection.close()
        for held in (self._lock, self._presence):
            if held is not None:
                held.close()
        self._waits = True

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        for lock in [*self._keepalives.values(), self._lock]:
            if lock is not None:
                lock.close()
        self._keepalives.clear()
        if self._renewals is not None:
            self._renewals.close()
        for connection in {self._watcher, self._reader, self._db}:
            connection.close()
        if self._presence is not None:
            self._presence.close()

    def _lock_path(self, name: str) -> Path:
        assert self._path is not None
        folder = self._path.with_name(self._path.name + ".locks")
        try:
            make_lock_folder(folder, self._path)
        except OSError as error:
            raise StoreUnavailable(self.url, f"the folder {str(folder)!r} cannot be used: {error.strerror}") from None
        return folder / name

    def _file_lock(self, name: str) -> FileLock:
        assert self._path is not None
        path = self._lock_path(name)
        try:
            return FileLock(path, lock_rights(self._path))
        except OSError as error:
            raise StoreUnavailable(self.url, f"the lock {str(path)!r} cannot be used: {error.strerror}") from None

    def _refuse_foreign_file(self) -> None:
        assert self._path is not None
        refuse_unfit(self.url, self._path)
        if not self._path.exists():
            return
        # Through SQLite only: closing the file would take away the locks that other connections
        # of this process have on it.
        try:
            db = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)
        except sqlite3.Error as error:
            raise self._unavailable(error) from None
        with contextlib.closing(db):
            self._schema_version(db)

    def _connect(self, *, readonly: bool = False) -> sqlite3.Connection:
        address = ":memory:" if self._path is None else f"{self._path.absolute().as_uri()}?mode=rw"
        try:
            db = sqlite3.connect(
                address,
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
            db.execute(f"pragma busy_timeout = {BUSY_MS}")
            if not readonly:
                self._use_log(db)
                db.execute("pragma synchronous = full")
            db.execute("pragma temp_store = memory")
            db.execute(f"pragma cache_size = -{CACHE_KB}")
            if readonly:
                db.execute("pragma query_only = on")
        except sqlite3.Error as error:
            raise self._unavailable(error) from None
        return db

    def _use_log(self, db: sqlite3.Connection) -> None:
        """Let changes go through a write-ahead log; of several processes that make a file, one sets that at a time.

        SQLite does not wait there for whoever else does the same, it says that the database is locked.
        """
        if db.execute("pragma journal_mode").fetchone() != ("wal",):
            with self._locked():
                db.execute("pragma journal_mode = wal")

    async def _migrate(self) -> None:
        """Bring the schema up to date under the write lock; refuse what is not ours or newer than we are."""
        steps = migrations("sqlite")
        if self._schema_version(self._db) == len(steps):
            return
        await self._acquired()
        try:
            found = self._schema_version(self._db)
            for number, step in enumerate(steps[found:], start=found + 1):
                try:
                    self._db.executescript(
                        f"begin immediate;\n{step}\nupdate perdure_schema set version = {number};\ncommit;"
                    )
                except sqlite3.OperationalError as error:
                    raise StoreUnavailable(self.url, f"{error}; its tables could not be made, try again") from None
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _acquired(self) -> None:
        """Take the write lock without keeping the loop from turning."""
        began = elapsed()
        while self._lock is not None and not self._lock.acquire(wait=False):
            if elapsed() - began > HELD_UP_SECONDS:
                raise StoreUnavailable(self.url, blame(self._lock))
            await asyncio.sleep(LOOK_SECONDS)

    def _schema_version(self, db: sqlite3.Connection) -> int:
        """The schema the file has, 0 for none; refuses one that is not ours or newer than we are."""
        try:
            found = version_of(db)
            foreign = None if found else foreign_in(db)
        except sqlite3.OperationalError as error:
            raise self._unavailable(error) from None
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                trouble = "the file is not a SQLite database; name another one, nothing was changed"
                raise NotADatabase(self.url, trouble) from None
            raise NotADatabase(
                self.url, f"the file cannot be used as a database: {error}; nothing was changed"
            ) from None
        known = len(migrations("sqlite"))
        if found > known:
            raise NewerSchema(self.url, found, known)
        if foreign is not None:
            raise NotADatabase(self.url, f"{foreign.what}; {foreign.remedy}; nothing was changed")
        return found

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._lock is not None:
            self._lock.acquire(wait=True)
        try:
            yield
        finally:
            if self._lock is not None:
                self._lock.release()

    # Writing

    @property
    def is_inline(self) -> bool:
        """Whether the next commit is made on the caller's thread."""
        return self._writer is None or self._commit_seconds < INLINE_BELOW

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        if self._writer is None:
            done(self._apply(batch))
            return
        # A thread that is held up still waits with the only lock there is.
        if self.is_inline and self._writer.held_up is None:
            assert self._lock is not None
            if self._lock.acquire(wait=False):
                try:
                    outcome = self._transact(batch, waits=False)
                finally:
                    self._lock.release()
                if outcome is not None:
                    done(outcome)
                    return
        self._writer.write(batch, done)

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        raise BadOption("runs are started and signalled inside a transaction of your own on Postgres only")

    @property
    def is_held_up(self) -> bool:
        """Whether another process has kept everybody from writing for long."""
        is_renewal_held_up = self._renewals is not None and self._renewals.is_held_up
        return is_renewal_held_up or (self._writer is not None and self._writer.held_up is not None)

    def _apply(self, batch: Batch) -> Outcome:
        """Write the batch, when the lock is ours."""
        with self._locked():
            return self._transact_patiently(batch)

    def _transact_patiently(self, batch: Batch) -> Outcome:
        """Write the batch; the lock is ours, but somebody outside Perdure may be writing."""
        outcome = self._transact(batch, waits=True)
        assert outcome is not None
        return outcome

    def _begin(self, *, waits: bool) -> bool:
        """Begin to write; False when somebody outside Perdure does so now, and this is not to wait for them.

        On the loop's thread nobody waits: the transaction may be that of a coroutine, which can only
        end while the loop turns.
        """
        if waits != self._waits:
            self._db.execute(f"pragma busy_timeout = {BUSY_MS if waits else 0}")
            self._waits = waits
        try:
            self._db.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if waits or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def _transact(self, batch: Batch, *, waits: bool) -> Outcome | None:
        """Write a batch in one transaction; None when it would have to wait."""
        if self._path is not None and _identity(self._path) != self._file:
            # What is written to a file nobody can find any more is not on disk.
            trouble = "the file was removed or replaced while it was open; put it back, or restart"
            return Failed(StoreUnavailable(self.url, trouble))
        return self._transact_together(batch, waits=waits)

    def _transact_together(self, batch: Batch, *, waits: bool) -> Outcome | None:
        db = self._db
        try:
            if not self._begin(waits=waits):
                return None
            if self._is_fenced(batch):
                db.execute("rollback")
                return Fenced()
            answers = apply_together(db, batch.groups)
        except Exception as error:  # noqa: BLE001 - the file is to blame, or one group, which is found and answered below
            self._roll_back()
            return Failed(self._unavailable(error)) if is_about_file(error) else self._transact_singly(batch)
        if answers and is_torn(batch.groups, answers):
            self._roll_back()
            return self._transact_singly(batch)
        return self._finish(Committed(answers))

    def _is_fenced(self, batch: Batch) -> bool:
        """Whether the worker's epoch is not the batch's any more; asked in the transaction that writes."""
        if batch.worker_id is None:
            return False
        fence = {"worker_id": batch.worker_id, "epoch": batch.epoch}
        return self._db.execute(queries("sqlite")["fence"], fence).fetchone() is None

    def _transact_singly(self, batch: Batch) -> Outcome:
        """Each group for itself, so that one that fails, or is refused half-way, harms no other."""
        try:
            self._db.execute("begin immediate")
            # This is another transaction: what held in the first one may not hold in it.
            if self._is_fenced(batch):
                self._db.execute("rollback")
                return Fenced()
            answers = apply_singly(self._db, batch.groups)
        except sqlite3.DatabaseError as error:
            self._roll_back()
            return Failed(self._unavailable(error))
        return self._finish(Committed(answers))

    def _finish(self, committed: Committed) -> Outcome:
        began = elapsed()
        try:
            self._db.execute("commit")
        except sqlite3.DatabaseError as error:
            self._roll_back()
            if error.sqlite_errorcode & 0xFF in _DEFINITE:
                return Failed(self._unavailable(error))
            return Unknown(StoreUnavailable(self.url, f"{error}; whether the change is on disk is not known"))
        # A moving median: a checkpoint now and then takes long and says nothing of the next commit.
        self._commit_seconds *= 1.1 if elapsed() - began > self._commit_seconds else 0.9
        return committed

    def _roll_back(self) -> None:
        # SQLite rolls back by itself on some errors, and says so when asked again.
        with contextlib.suppress(sqlite3.Error):
            self._db.execute("rollback")

    # Being alive

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        if self._path is None:
            return True
        renewals = self._renewals
        if renewals is None:
            lock = self._file_lock("write")
            renewals = self._renewals = Renewals(self._connect(), lock, queries("sqlite")["renew_worker"])
        return renewals.renew(worker_id, epoch, lease_until)

    async def keep_alive(self, worker_id: str) -> None:
        if self._path is not None:
            self._hold_lock(worker_id)

    def _hold_lock(self, worker_id: str) -> None:
        lock = self._file_lock(worker_id)
        lock.acquire(wait=True)
        self._keepalives[worker_id] = lock

    async def let_die(self, worker_id: str) -> None:
        lock = self._keepalives.pop(worker_id, None)
        if lock is not None:
            lock.close(remove=True)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        if self._path is None:
            return set()
        known = [worker_id for worker_id in worker_ids if _is_file_name(worker_id)]
        return {worker_id for worker_id in known if is_held(self._lock_path(worker_id)) is False}

    def forget(self, worker_id: str) -> None:
        """Remove what a dead worker left beside the database."""
        if self._path is not None and _is_file_name(worker_id):
            self._lock_path(worker_id).unlink(missing_ok=True)

    # Watching

    def clock(self) -> Clock:
        return SystemClock()

    def on_change(self, changed: Callable[[bool], None]) -> None:
        """Nobody tells; it is cheap enough to look."""

    def has_changed(self) -> bool:
        try:
            (version,) = self._watcher.execute("pragma data_version").fetchone()
        except sqlite3.Error:
            # It cannot be told now, so somebody may have.
            return True
        changed = version != self._data_version
        self._data_version = version
        return bool(changed)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is behind a path now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def has_runs(path: Path) -> bool:
    """Whether opening this file leaves it as it is: an empty one, or one to be adopted, would get our tables."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("select 1 from sqlite_schema where name = 'perdure_schema'").fetchone() is not None
    except sqlite3.Error:
        # open() knows better what is wrong with it, and changes nothing.
        return True


def _is_file_name(worker_id: str) -> bool:
    """Whether it can be one of ours; a row that somebody has spoilt must lead to no other file."""
    return worker_id.isalnum() and len(worker_id) < LONGEST_FILE_NAME
