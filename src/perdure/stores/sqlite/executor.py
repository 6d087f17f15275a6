"""How SQLite is asked: questions of the rules become statements on a connection.

In:   a connection, and steps.
Out:  what they come to.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TypeVar, assert_never

import msgspec

from perdure.stores.queries import queries
from perdure.stores.rules.questions import (
    NOTHING,
    Found,
    ManyRows,
    Query,
    Question,
    Release,
    Savepoint,
    Several,
    Steps,
    Text,
)
from perdure.stores.sqlite.unreadable import bytes_for_garbage, is_about_file, is_undecodable

T = TypeVar("T")

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def answer(db: sqlite3.Connection, steps: Steps[T]) -> T:
    """Ask one question after the other until there is an answer."""
    try:
        question = next(steps)
        while True:
            try:
                found = _ask(db, question)
            except Exception as error:
                if is_about_file(error):
                    raise
                question = steps.throw(error)
            else:
                question = steps.send(found)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the steps return


def _ask(db: sqlite3.Connection, question: Question) -> Found:
    match question:
        case ManyRows(name, rows):
            return _ask_in_bulk(db, name, rows)
        case Query(name, parameters):
            return _fetched(db, queries("sqlite")[name], _all_bound(parameters))
        case Several(names, parameters):
            bound = _all_bound(parameters)
            found = [_fetched(db, queries("sqlite")[name], bound).rows for name in names]
            return Found(names, found, len(found))
        case Text(sql, parameters):
            return _fetched(db, sql, _all_bound(parameters))
        case Savepoint():
            db.execute("savepoint one_group")
            return NOTHING
        case Release(undo):
            if undo:
                db.execute("rollback to one_group")
            db.execute("release one_group")
            return NOTHING
        case _:
            assert_never(question)


def _fetched(db: sqlite3.Connection, sql: str, bound: dict[str, object]) -> Found:
    cursor = db.execute(sql, bound)
    if cursor.description is None:
        return Found((), (), cursor.rowcount)
    try:
        rows = cursor.fetchall()
    except sqlite3.OperationalError as error:
        if not is_undecodable(error) or not sql.startswith("select"):
            raise
        with bytes_for_garbage(db):
            rows = db.execute(sql, bound).fetchall()
    return Found([column[0] for column in cursor.description], rows, len(rows))


def _all_bound(parameters: Mapping[str, object]) -> dict[str, object]:
    return {name: _bound(value) for name, value in parameters.items()}


def _bound(value: object) -> object:
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else value


def _ask_in_bulk(db: sqlite3.Connection, name: str, rows: Sequence[Sequence[object]]) -> Found:
    count = 0
    returned: list[Sequence[object]] = []
    for sql, parameters in _statement(name, len(rows[0])).pieces(rows):
        cursor = db.execute(sql, parameters)
        if cursor.description is not None:
            returned += cursor.fetchall()
        count += cursor.rowcount
    return Found((), returned, count)


@cache
def _statement(name: str, columns: int) -> "Statement":
    return Statement(queries("sqlite")[name], columns)


def forget_statements() -> None:
    """Look up all queries again."""
    _statement.cache_clear()


class Statement:
    """A statement over many rows at once, in a few fixed sizes so that each is compiled only once."""

    def __init__(self, sql: str, columns: int) -> None:
        self._columns = columns
        row = f"({', '.join('?' * columns)})"
        self._by_size = {size: sql.replace(":rows", ", ".join([row] * size)) for size in SIZES}

    def pieces(self, rows: Sequence[Sequence[object]]) -> list[tuple[str, list[object]]]:
        """The statements and parameters that carry these rows; what a size has too many is null."""
        pieces = []
        for start in range(0, len(rows), SIZES[-1]):
            piece = rows[start : start + SIZES[-1]]
            size = next(size for size in SIZES if size >= len(piece))
            parameters = list(chain.from_iterable(piece))
            parameters += [None] * (self._columns * (size - len(piece)))
            pieces.append((self._by_size[size], parameters))
        return pieces
