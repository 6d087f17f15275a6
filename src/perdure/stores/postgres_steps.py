"""How Postgres is asked: questions of the rules become statements on a connection."""

from collections.abc import Mapping
from functools import partial
from typing import TypeVar, assert_never

from perdure.stores.postgres_floors import Floors
from perdure.stores.postgres_links import Connection
from perdure.stores.postgres_sql import Prepared, prepare, prepared, rows_as_json
from perdure.stores.steps import Bulk, Found, Query, Question, Steps, Text

T = TypeVar("T")


# What is asked after ripe runs, each time from its floor on.
LOOKS = {"ripe_levels", "ripest", "ripest_of", "claim_ripest", "next_wake"}


async def answer(connection: Connection, schema: str, steps: Steps[T], floors: Floors | None = None) -> T:
    """Ask one question after the other until there is an answer."""
    floors = floors or Floors()
    try:
        question = next(steps)
        while True:
            question = steps.send(await _ask(connection, schema, question, floors))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the steps return


async def _ask(connection: Connection, schema: str, question: Question, floors: Floors) -> Found:
    match question:
        case Query(name, parameters) if name in LOOKS:
            return await floors.ask(partial(ask_named, connection, schema), name, parameters)
        case Query(name, parameters):
            return await ask_named(connection, schema, name, parameters)
        case Bulk(name, rows):
            return await _fetch(connection, prepared(name, schema), [rows_as_json(rows)])
        case Text(sql, parameters):
            query = prepare(sql, schema)
            return await _fetch(connection, query, query.bound(parameters))
        case _:
            assert_never(question)


async def ask_named(connection: Connection, schema: str, name: str, parameters: Mapping[str, object]) -> Found:
    """Ask a named query."""
    query = prepared(name, schema)
    return await _fetch(connection, query, query.bound(parameters))


async def _fetch(connection: Connection, query: Prepared, parameters: list[object]) -> Found:
    rows = await connection.fetch(query.sql, *parameters)
    return Found(tuple(rows[0].keys()) if rows else (), rows, len(rows))
