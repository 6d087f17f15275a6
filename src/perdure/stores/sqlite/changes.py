"""Hints that another process has written to a SQLite file: its data version, which is cheap to look at."""

import sqlite3
from collections.abc import Callable


class SqliteChanges:
    """A connection of its own, so that a look does not wait for a long read."""

    def __init__(self) -> None:
        self.db: sqlite3.Connection
        self._data_version = -1

    def on_change(self, changed: Callable[[bool], None]) -> None:
        """Nobody tells; it is cheap enough to look."""

    def has_changed(self) -> bool:
        try:
            (version,) = self.db.execute("pragma data_version").fetchone()
        except sqlite3.Error:
            # It cannot be told now, so another process may have.
            return True
        changed = version != self._data_version
        self._data_version = version
        return bool(changed)
