"""The SQL of Postgres: named queries with positions for names, and a schema before tables.

In:   a query as SQLite could take it, or one of Postgres' own.
Out:  the same for asyncpg, and the order in which it wants its parameters.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from perdure.stores.queries import migrations, queries, tables

TABLES = tables("postgres")

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)(?:::(\w+(?:\[\])?))?")
_TABLE = re.compile(rf"\b(from|join|into|update) ({'|'.join(TABLES)})\b")
# Functions that migrations make; SQLite has its own.
_FUNCTION = re.compile(r"\b(perdure_json_field)\(")
COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_INDEXED_BY = re.compile(r" indexed by \w+")
_IN_LIST = re.compile(r"in \(select value from json_each\((:\w+(?:::[\w\[\]]+)?)\)\)")
_CHANGES = re.compile(r"^(with\b.*?\)\s*)?(insert|update|delete)\b", re.DOTALL)

# The server's time, in milliseconds.
NOW_MS = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
# The same as exactly as it is known: in milliseconds it would be rounded, and might be one that is still to come.
NOW_US = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"


class Prepared(NamedTuple):
    """A query for asyncpg, and the names of its parameters in order."""

    sql: str
    names: tuple[str, ...]

    def bound(self, parameters: Mapping[str, object]) -> list[object]:
        return [_bound(parameters[name]) for name in self.names]


def _bound(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


@cache
def prepared(name: str, schema: str) -> Prepared:
    """A named query."""
    return prepare(queries("postgres")[name], schema)


@cache
def prepared_together(names: tuple[str, ...], schema: str) -> Prepared:
    """Named queries in one, each of whose columns have names of their own; it answers with one row, all as JSON.

    Arrays of rows would need no JSON, but asyncpg looks up their type on every connection, and changes `jit` for that,
    which behind a pooler is somebody else's.
    """
    found = [f"(select json_agg(row_to_json(found)) from (\n{queries('postgres')[name]}\n) as found)" for name in names]  # noqa: S608 - ours
    return prepare(f"select {', '.join(found)}", schema)


def prepare(sql: str, schema: str) -> Prepared:
    """Any query; one that changes rows answers with one for each."""
    sql = _INDEXED_BY.sub("", COMMENT.sub("", sql))
    sql = _IN_LIST.sub(r"= any(\1)", sql)
    if _CHANGES.match(sql) and "returning" not in sql:
        sql += "\nreturning 1"
    found = _PARAMETER.findall(sql)
    names = list(dict.fromkeys(name for name, _ in found))
    types = {name: kind for name, kind in found if kind}
    positions = {name: f"${place}::{types.get(name, 'text')}" for place, name in enumerate(names, start=1)}
    placed = _PARAMETER.sub(lambda found: positions[found[1]], sql)
    # Last, since a schema may be called whatever stands for something else in a query.
    return Prepared(qualified(placed, schema), tuple(names))


def rows_as_json(rows: object) -> str:
    """Rows of a bulk statement as its one parameter."""
    return msgspec.json.encode(rows).decode()


def quoted(name: str) -> str:
    """A name of the database as it stands in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as it stands in SQL."""
    return "'" + text.replace("'", "''") + "'"


def qualified(sql: str, schema: str) -> str:
    """SQL with the schema before the names of our tables and functions."""
    sql = _TABLE.sub(lambda found: f"{found[1]} {quoted(schema)}.{found[2]}", sql)
    return _FUNCTION.sub(lambda found: f"{quoted(schema)}.{found[1]}(", sql)


def migrations_for(schema: str) -> list[str]:
    """The migrations, for tables in this schema."""
    return [step.replace("{schema}", quoted(schema)) for step in migrations("postgres")]
