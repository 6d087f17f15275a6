"""Writes batches to SQLite, each in one transaction, when the write lock is taken.

In:   a batch.
Out:  what became of it.
"""

import contextlib
import sqlite3

from perdure.clock import elapsed
from perdure.errors import StoreUnavailable
from perdure.stores.answers import Committed, Failed, Fenced, Outcome, Unknown
from perdure.stores.operations import Batch, Fence
from perdure.stores.queries import queries
from perdure.stores.rules.batch import is_torn
from perdure.stores.sqlite.connection import BUSY_MS, SqliteFile
from perdure.stores.sqlite.unreadable import is_about_file
from perdure.stores.sqlite.writes import apply_singly, apply_together

# What a commit is thought to take before one was made.
FIRST_GUESS_SECONDS = 0.0005
_DEFINITE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}


class Transactions:
    """The connection that writes; `commit_seconds` is what a commit takes at present."""

    def __init__(self, file: SqliteFile, db: sqlite3.Connection) -> None:
        self.url = file.url
        self._file = file
        self._identity = file.identity()
        self.db = db
        self._waits = True
        self.commit_seconds = FIRST_GUESS_SECONDS

    def write(self, batch: Batch) -> Outcome:
        """Write a batch as soon as the write lock is free."""
        with self._file.locked():
            return self.write_patiently(batch)

    def write_patiently(self, batch: Batch) -> Outcome:
        """Write a batch; the lock is ours, but a program other than Perdure may be writing."""
        outcome = self.transact(batch, waits=True)
        assert outcome is not None
        return outcome

    def _begin(self, *, waits: bool) -> bool:
        """Begin to write; False when a program other than Perdure does so now, and this is not to wait for it.

        On the loop's thread nobody waits: the transaction may be that of a coroutine, which can only
        end while the loop turns.
        """
        if waits != self._waits:
            self.db.execute(f"pragma busy_timeout = {BUSY_MS if waits else 0}")
            self._waits = waits
        try:
            self.db.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if waits or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def begin(self, fence: Fence) -> Failed | Fenced | None:
        """Begin a transaction under the epoch of a worker, however long that takes; why not, when that cannot be."""
        if self._is_gone():
            return self._gone()
        try:
            self._begin(waits=True)
            if self._heard(fence) is None:
                self.db.execute("rollback")
                return Fenced()
        except sqlite3.DatabaseError as error:
            self.roll_back()
            return Failed(self.unavailable(error))
        return None

    def _is_gone(self) -> bool:
        return self._identity is not None and self._file.identity() != self._identity

    def _gone(self) -> Failed:
        # What is written to a file nobody can find any more is not on disk.
        trouble = "the file was removed or replaced while it was open; put it back, or restart"
        return Failed(StoreUnavailable(self.url, trouble))

    def unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        """What an error of SQLite means for the caller."""
        return self._file.unavailable(error)

    def transact(self, batch: Batch, *, waits: bool) -> Outcome | None:
        """Write a batch in one transaction; None when it would have to wait."""
        return self._gone() if self._is_gone() else self._transact_together(batch, waits=waits)

    def _transact_together(self, batch: Batch, *, waits: bool) -> Outcome | None:
        db = self.db
        try:
            if not self._begin(waits=waits):
                return None
            is_heard = self._heard(batch)
            if is_heard is None:
                db.execute("rollback")
                return Fenced()
            answers = apply_together(db, batch.groups, is_heard=is_heard)
        except Exception as error:  # noqa: BLE001 - the file is to blame, or one group, which is found and answered below
            self.roll_back()
            return Failed(self._file.unavailable(error)) if is_about_file(error) else self._transact_singly(batch)
        if answers and is_torn(batch.groups, answers):
            self.roll_back()
            return self._transact_singly(batch)
        return self.finish(Committed(answers))

    def _heard(self, fenced: Batch | Fence) -> bool | None:
        """Whether anybody may listen for the batch; None when the worker's epoch is not the batch's any more.

        Asked in the transaction that writes: nobody else can begin to listen before it has ended.
        """
        if fenced.worker_id is None:
            return True
        fence = {"worker_id": fenced.worker_id, "epoch": fenced.epoch}
        found = self.db.execute(queries("sqlite")["fence"], fence).fetchone()
        return None if found is None else bool(found[0])

    def _transact_singly(self, batch: Batch) -> Outcome:
        """Each group for itself, so that one that fails, or is refused half-way, harms no other."""
        try:
            self.db.execute("begin immediate")
            # This is another transaction: what held in the first one may not hold in it.
            if self._heard(batch) is None:
                self.db.execute("rollback")
                return Fenced()
            answers = apply_singly(self.db, batch.groups)
        except sqlite3.DatabaseError as error:
            self.roll_back()
            return Failed(self._file.unavailable(error))
        return self.finish(Committed(answers))

    def finish(self, committed: Committed) -> Outcome:
        """Commit."""
        began = elapsed()
        try:
            self.db.execute("commit")
        except sqlite3.DatabaseError as error:
            self.roll_back()
            if error.sqlite_errorcode & 0xFF in _DEFINITE:
                return Failed(self._file.unavailable(error))
            return Unknown(StoreUnavailable(self.url, f"{error}; whether the change is on disk is not known"))
        # A moving median: a checkpoint now and then takes long and says nothing of the next commit.
        self.commit_seconds *= 1.1 if elapsed() - began > self.commit_seconds else 0.9
        return committed

    def roll_back(self) -> None:
        """Undo what was not committed."""
        # SQLite rolls back by itself on some errors, and says so when asked again.
        with contextlib.suppress(sqlite3.Error):
            self.db.execute("rollback")
