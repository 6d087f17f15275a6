"""What the SQLite store reads, from a connection of its own, so that no read waits for a write."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from perdure.errors import StoreUnavailable
from perdure.stores.listing import SQLITE
from perdure.stores.rules.questions import Steps
from perdure.stores.rules.reads import Reads
from perdure.stores.sqlite.executor import answer
from perdure.stores.sqlite.unreadable import ask, is_about_file
from perdure.threads import Threads

T = TypeVar("T")


class SqliteReads(Reads):
    """The reading half of the store; on a thread of its own where there are threads."""

    _dialect = SQLITE
    _reader: sqlite3.Connection
    _readers: Threads | None = None

    async def _ask(self, quickly: Callable[[], Steps[T]], slowly: Callable[[], Steps[T]] | None = None) -> T:
        asked = partial(
            ask, self._reader, lambda db: answer(db, quickly()), lambda db: answer(db, (slowly or quickly)())
        )
        try:
            if self._readers is None:
                return asked()
            return cast("T", await self._readers.run(asked))
        except sqlite3.DatabaseError as error:
            if not is_about_file(error):
                raise
            raise self._unavailable(error) from None

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        if type(error) is sqlite3.DatabaseError:
            return StoreUnavailable(self.url, f"the file is damaged: {error}; restore a backup of it")
        return StoreUnavailable(self.url, f"{error}; nothing was changed, try again")
