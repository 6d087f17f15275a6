"""Asks SQLite on a connection of its own, so that no read waits for a write."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from perdure.stores.rules.questions import Steps
from perdure.stores.sqlite.connection import SqliteFile
from perdure.stores.sqlite.executor import answer
from perdure.stores.sqlite.unreadable import ask, is_about_file
from perdure.threads import Threads

T = TypeVar("T")


class SqliteReader:
    """One connection that reads; on a thread of its own where there are threads."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._threads: Threads | None = None
        self.db: sqlite3.Connection

    def begin(self, *, threads: bool) -> None:
        """Read on a thread, or on the caller's."""
        self._threads = Threads(1, "perdure-reader") if threads else None

    async def ask(self, quickly: Callable[[], Steps[T]], slowly: Callable[[], Steps[T]] | None = None) -> T:
        """Ask; when the answer cannot be read, row by row."""
        asked = partial(ask, self.db, lambda db: answer(db, quickly()), lambda db: answer(db, (slowly or quickly)()))
        try:
            if self._threads is None:
                return asked()
            return cast("T", await self._threads.run(asked))
        except sqlite3.DatabaseError as error:
            if not is_about_file(error):
                raise
            raise self._file.unavailable(error) from None

    def end(self) -> None:
        """Let the thread end, when it has answered."""
        if self._threads is not None:
            self._threads.close()
            self._threads.join()
