"""Connections to a SQLite file, and the lock under which all processes of Perdure write to it.

In:   the path of a file, or none for a database in memory.
Out:  connections that are set up as ours are, locks beside the file, and what an error of SQLite means.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from perdure.errors import StoreUnavailable
from perdure.stores.sqlite.files import lock_rights, locks_of, make_lock_folder
from perdure.stores.sqlite.locks import FileLock

# How long the writer thread waits for a lock that a program other than Perdure holds.
BUSY_MS = 5000
# Each connection keeps so many pages at most; what is read again and again is few, and the system has the others.
CACHE_KB = 4096


class SqliteFile:
    """A SQLite file, or with path None a database in memory; `write_lock` is there while a file is open."""

    def __init__(self, path: str | None) -> None:
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        self.path = Path(path) if path else None
        self.write_lock: FileLock | None = None

    def unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        """What an error of SQLite means for the caller."""
        if type(error) is sqlite3.DatabaseError:
            return StoreUnavailable(self.url, f"the file is damaged: {error}; restore a backup of it")
        return StoreUnavailable(self.url, f"{error}; nothing was changed, try again")

    def identity(self) -> tuple[int, int] | None:
        """Which file is behind the path now."""
        try:
            found = None if self.path is None else self.path.stat()
        except OSError:
            return None
        return None if found is None else (found.st_dev, found.st_ino)

    def connect(self, *, readonly: bool = False) -> sqlite3.Connection:
        """A new connection."""
        address = ":memory:" if self.path is None else f"{self.path.absolute().as_uri()}?mode=rw"
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
            raise self.unavailable(error) from None
        return db

    def _use_log(self, db: sqlite3.Connection) -> None:
        """Let changes go through a write-ahead log; of several processes that make a file, one sets that at a time.

        SQLite does not wait there for another process that does the same, it says that the database is locked.
        """
        if db.execute("pragma journal_mode").fetchone() != ("wal",):
            with self.locked():
                db.execute("pragma journal_mode = wal")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """While this lasts, no other process of Perdure writes."""
        if self.write_lock is not None:
            self.write_lock.acquire(wait=True)
        try:
            yield
        finally:
            if self.write_lock is not None:
                self.write_lock.release()

    # Locks beside the file

    def lock_path(self, name: str) -> Path:
        """Where the lock of this name is."""
        assert self.path is not None
        folder = locks_of(self.path)
        try:
            make_lock_folder(folder, self.path)
        except OSError as error:
            raise StoreUnavailable(self.url, f"the folder {str(folder)!r} cannot be used: {error.strerror}") from None
        return folder / name

    def lock(self, name: str) -> FileLock:
        """The lock of this name, not taken yet."""
        assert self.path is not None
        path = self.lock_path(name)
        try:
            return FileLock(path, lock_rights(self.path))
        except OSError as error:
            raise StoreUnavailable(self.url, f"the lock {str(path)!r} cannot be used: {error.strerror}") from None
