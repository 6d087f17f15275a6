"""The connection that a transactional activity gets on SQLite: the engine's own, lent for one transaction.

In:   the connection that writes, inside a transaction, and the code that is to use it.
Out:  a `sqlite3.Connection` that runs SQL and refuses whatever would end the transaction or outlast it.

The object is never connected itself: it hands on what is allowed. When the transaction is over it does nothing any
more, so that code which keeps it cannot write into a batch of the engine's.
"""

import sqlite3
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, Protocol

from perdure.errors import TransactionEnded

# After so many steps of SQLite's machine it is looked whether a long statement is still wanted.
STEPS = 10_000
# What is said of a statement that ends the transaction by failing.
ROLLED_BACK = "a statement of it rolled everything back, as `insert or rollback` does"

# Of pragmas with a value, those that only look, and one that ends with the transaction.
_HARMLESS = frozenset(
    {
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "foreign_key_list",
        "foreign_key_check",
        "integrity_check",
        "quick_check",
        "defer_foreign_keys",
    }
)
# Of those without one, those that do something.
_HARMFUL = frozenset(["incremental_vacuum", "optimize", "shrink_memory", "wal_checkpoint"])
# What stays on the connection: a temporary table would stand before one of the engine's of the same name.
_TEMPORARY = frozenset(
    {
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
    }
)
# What would end the transaction, outlast it, or stand between us and the connection.
_REFUSED = (
    "backup",
    "blobopen",
    "create_aggregate",
    "create_collation",
    "create_function",
    "create_window_function",
    "deserialize",
    "enable_load_extension",
    "executescript",
    "interrupt",
    "iterdump",
    "load_extension",
    "serialize",
    "set_authorizer",
    "set_progress_handler",
    "set_trace_callback",
    "setconfig",
    "setlimit",
)


class Borrower(Protocol):
    """The code that uses the connection."""

    activity: str

    def unwanted(self) -> BaseException | None: ...


class LentCursor(sqlite3.Cursor):
    """A cursor of a lent connection."""

    lender: "LentConnection"

    @property
    def connection(self) -> "LentConnection":
        return self.lender

    def execute(self, sql: str, parameters: Any = (), /) -> "LentCursor":
        self.lender.guarded(super().execute, sql, parameters)
        return self

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> "LentCursor":
        self.lender.guarded(super().executemany, sql, parameters)
        return self

    def executescript(self, script: str, /) -> NoReturn:
        self.lender.refuse("executescript")


class LentConnection(sqlite3.Connection):
    """A connection that is good for one transaction, and does not end it."""

    def __init__(
        self, db: sqlite3.Connection, borrower: Borrower
    ) -> None:  # never connected, hence no super().__init__
        self._db: sqlite3.Connection | None = db
        self._borrower = borrower
        self._cursors: weakref.WeakSet[LentCursor] = weakref.WeakSet()
        self._text_factory = db.text_factory
        self._refused: str | None = None
        db.set_authorizer(self._authorize)
        db.set_progress_handler(self._is_unwanted, STEPS)

    def take_back(self) -> None:
        """The transaction is to be ended by its owner."""
        db, self._db = self._db, None
        assert db is not None
        # A statement that is still being read would keep its view of the database beyond the transaction.
        for cursor in list(self._cursors):
            cursor.close()
        db.set_progress_handler(None, 0)
        db.set_authorizer(None)
        db.text_factory = self._text_factory

    @property
    def trouble(self) -> TransactionEnded | None:
        """What the code did that it must not, or was about to."""
        return None if self._refused is None else TransactionEnded(self._borrower.activity, self._refused)

    # What it does

    def cursor(self, factory: type[LentCursor] = LentCursor, /) -> LentCursor:  # type: ignore[override]  # one of ours
        if factory is not LentCursor:
            self.refuse("a cursor of another type")
        cursor = self._lent().cursor(LentCursor)
        cursor.lender = self
        cursor.row_factory = self.row_factory
        self._cursors.add(cursor)
        return cursor

    def execute(self, sql: str, parameters: Any = (), /) -> LentCursor:
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> LentCursor:
        return self.cursor().executemany(sql, parameters)

    @property
    def in_transaction(self) -> bool:
        return self._lent().in_transaction

    @property
    def total_changes(self) -> int:
        return self._lent().total_changes

    @property
    def isolation_level(self) -> str | None:  # type: ignore[override]  # it cannot be set
        return None

    @property
    def text_factory(self) -> Any:
        return self._lent().text_factory

    @text_factory.setter
    def text_factory(self, factory: Any) -> None:
        self._lent().text_factory = factory

    # What it refuses

    def commit(self) -> NoReturn:
        self.refuse("commit")

    def rollback(self) -> NoReturn:
        self.refuse("rollback")

    def close(self) -> NoReturn:
        self.refuse("close")

    def __enter__(self) -> NoReturn:
        # It would commit at its end.
        self.refuse("with connection:")

    def note(self, what: str) -> None:
        """Remember what must not be; the first of it is told."""
        self._refused = self._refused or what

    def refuse(self, what: str) -> NoReturn:
        """Note what must not be, and say so."""
        self.note(what)
        assert self.trouble is not None
        raise self.trouble

    def guarded(self, execute: Callable[[str, Any], object], sql: str, parameters: Any) -> None:
        """Run a statement, as long as the code is wanted and its transaction open."""
        if (why := self._borrower.unwanted()) is not None:
            raise why
        if not self._lent().in_transaction:
            self.refuse(ROLLED_BACK)
        try:
            execute(sql, parameters)
        except sqlite3.Error as error:
            if (why := self._borrower.unwanted()) is not None:
                raise why from error
            if (trouble := self.trouble) is not None:
                raise trouble from error
            raise

    def _lent(self) -> sqlite3.Connection:
        if self._db is None:
            raise sqlite3.ProgrammingError(
                f"the transaction of the activity {self._borrower.activity!r} is over, and its connection with it"
            )
        return self._db

    def _is_unwanted(self) -> bool:
        return self._borrower.unwanted() is not None

    def _authorize(self, action: int, one: str | None, two: str | None, *_: object) -> int:
        """Whether a statement may do this; asked while it is compiled."""
        what = None
        if action == sqlite3.SQLITE_TRANSACTION:
            what = str(one).lower()
        elif action in {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}:
            what = "attach" if action == sqlite3.SQLITE_ATTACH else "detach"
        elif action in _TEMPORARY:
            what = "temporary tables, which would outlast it"
        elif action == sqlite3.SQLITE_PRAGMA and (one in _HARMFUL if two is None else one not in _HARMLESS):
            what = f"pragma {one}"
        if what is None:
            return sqlite3.SQLITE_OK
        self.note(what)
        return sqlite3.SQLITE_DENY


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refused(self: LentConnection, *_: object, **__: object) -> NoReturn:
        self.refuse(name)

    return refused


for _name in _REFUSED:
    setattr(LentConnection, _name, _refusing(_name))
