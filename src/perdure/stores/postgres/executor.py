"""How Postgres is asked: questions of the rules become statements on a connection."""

from collections.abc import Mapping
from functools import partial
from typing import TypeVar, assert_never

import asyncpg
import msgspec

from perdure.clock import elapsed
from perdure.stores.dialects import Prepared, prepare, prepared, prepared_together, rows_as_json
from perdure.stores.postgres.connections import Connection
from perdure.stores.postgres.errors import is_about_database
from perdure.stores.postgres.scan_floor import LOWEST, Floors
from perdure.stores.queries import ONLY_SQLITE
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

T = TypeVar("T")


# What is asked after ripe runs, each time from its floor on.
LOOKS = {"ripe_levels", "ripest", "ripest_of", "claim_ripest", "next_wakes"}
# What several queries find is one value each, which has an end at a gigabyte.
TOO_MUCH = (asyncpg.ProgramLimitExceededError, asyncpg.OutOfMemoryError, asyncpg.InternalServerError)


async def answer(connection: Connection, schema: str, steps: Steps[T], floors: Floors | None = None) -> T:
    """Ask one question after the other until there is an answer."""
    floors = floors or Floors()
    try:
        question = next(steps)
        while True:
            try:
                found = await _ask(connection, schema, question, floors)
            except Exception as error:
                if is_about_database(error):
                    raise
                question = steps.throw(error)
            else:
                question = steps.send(found)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the steps return


async def _ask(connection: Connection, schema: str, question: Question, floors: Floors) -> Found:
    match question:
        case Query(name) if name in ONLY_SQLITE:
            found = NOTHING
        case Query(name, parameters) if name in LOOKS:
            found = await floors.ask(partial(ask_named, connection, schema), name, parameters)
        case Query(name, parameters):
            found = await ask_named(connection, schema, name, parameters)
        case Several(names, parameters):
            found = await _ask_several(connection, schema, names, parameters, floors)
        case ManyRows(name, rows):
            found = await _fetch(connection, prepared(name, schema), [rows_as_json(rows)])
        case Text(sql, parameters):
            query = prepare(sql, schema)
            found = await _fetch(connection, query, query.bound(parameters))
        case Savepoint():
            await connection.execute("savepoint one_group")
            found = NOTHING
        case Release(undo):
            await connection.execute(f"{'rollback to one_group; ' if undo else ''}release one_group")
            found = NOTHING
        case _:
            assert_never(question)
    return found


async def ask_named(connection: Connection, schema: str, name: str, parameters: Mapping[str, object]) -> Found:
    """Ask a named query."""
    query = prepared(name, schema)
    return await _fetch(connection, query, query.bound(parameters))


async def _ask_several(
    connection: Connection, schema: str, names: tuple[str, ...], parameters: Mapping[str, object], floors: Floors
) -> Found:
    """In one round trip; or one by one, when it is to be learnt which of them is slow, or all are too much at once."""
    is_look = not LOOKS.isdisjoint(names)
    if not (is_look and floors.must_be_learnt()):
        query, began = prepared_together(names, schema), elapsed()
        try:
            found = (await _fetch(connection, query, query.bound({"since": LOWEST, **parameters}))).rows[0]
        except TOO_MUCH:
            if connection.is_in_transaction():
                raise
        else:
            if is_look:
                floors.note_together(elapsed() - began)
            return Found(names, [_rows(text) for text in found], len(names))
    each = [(await _ask(connection, schema, Query(name, parameters), floors)).rows for name in names]
    return Found(names, each, len(names))


def _rows(text: str | None) -> list[tuple[object, ...]]:
    """Rows that came as JSON."""
    return [] if text is None else [tuple(row.values()) for row in msgspec.json.decode(text)]


async def _fetch(connection: Connection, query: Prepared, parameters: list[object]) -> Found:
    rows = await connection.fetch(query.sql, *parameters)
    return Found(tuple(rows[0].keys()) if rows else (), rows, len(rows))
