"""How Postgres is asked: questions of the rules become statements on a connection."""

from typing import TypeVar, assert_never

from perdure.stores.postgres_links import Connection
from perdure.stores.postgres_sql import Prepared, prepare, prepared, rows_as_json
from perdure.stores.steps import Bulk, Found, Query, Question, Steps, Text

T = TypeVar("T")


async def answer(connection: Connection, schema: str, steps: Steps[T]) -> T:
    """Ask one question after the other until there is an answer."""
    try:
        question = next(steps)
        while True:
            question = steps.send(await _ask(connection, schema, question))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what the steps return


async def _ask(connection: Connection, schema: str, question: Question) -> Found:
    match question:
        case Query(name, parameters):
            query = prepared(name, schema)
            return await _fetch(connection, query, query.bound(parameters))
        case Bulk(name, rows):
            return await _fetch(connection, prepared(name, schema), [rows_as_json(rows)])
        case Text(sql, parameters):
            query = prepare(sql, schema)
            return await _fetch(connection, query, query.bound(parameters))
        case _:
            assert_never(question)


async def _fetch(connection: Connection, query: Prepared, parameters: list[object]) -> Found:
    rows = await connection.fetch(query.sql, *parameters)
    return Found(tuple(rows[0].keys()) if rows else (), rows, len(rows))
