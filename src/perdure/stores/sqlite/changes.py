"""Hints that another process has written to a SQLite file: its data version, which is cheap to look at."""

import sqlite3
from collections.abc import Callable


class SqliteChanges:
    """A connection of its own, so that a look does not wait for a long read."""

    def __init__(self) -> None:
        self.db: sqlite3.Connection
        self._data_version: object = None

    def on_change(self, changed: Callable[[bool], None]) -> None:
        """Nobody tells; it is cheap enough to look."""

    def has_changed(self) -> bool:
        before, self._data_version = self._data_version, self._version()
        return before != self._data_version

    async def mark(self) -> object:
        return self._version()

    def _version(self) -> object:
        try:
            return self.db.execute("pragma data_version").fetchone()[0]
        except sqlite3.Error:
            # It cannot be told now, so another process may have written.
            return object()
