"""The shape of a schema in Postgres, compared with what the migrations say.

In:   a connection that reads.
Out:  where tables, columns, indexes and functions differ from those of our version.
The migrations are read as text: to run them somewhere else would take rights that a look does not have.
Tables and indexes that are not ours are nobody's business.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from perdure.stores.differences import Difference, columns_apart
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import Connection
from perdure.stores.postgres.writing.function import write_batch
from perdure.stores.queries import migrations

_TABLE = re.compile(r"^create table \{schema\}\.(\w+) \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"^    (?!constraint\b)(\w+) +(double precision|\w+)\b([^\n]*)$", re.MULTILINE)
_ADDED = re.compile(r"^alter table \{schema\}\.(\w+) add column (\w+) (\w+)\b([^\n]*);$", re.MULTILINE)
_DROPPED = re.compile(r"^alter table \{schema\}\.(\w+) drop column (\w+);$", re.MULTILINE)
_FUNCTION = re.compile(r"^create function \{schema\}\.(\w+)\(", re.MULTILINE)
_KEY = re.compile(r"^    constraint (\w+) ", re.MULTILINE)
_INDEX = re.compile(r"^create (unique )?index (\w+) on", re.MULTILINE)
_DROPPED_INDEX = re.compile(r"^drop index \{schema\}\.(\w+);$", re.MULTILINE)

COLUMNS = """
select relname, attname, format_type(atttypid, atttypmod), attnotnull
  from pg_attribute
  join pg_class on pg_class.oid = attrelid
 where relnamespace = $1::regnamespace
   and relkind in ('r', 'p')
   and attnum > 0
   and not attisdropped
"""
INDEXES = """
select relname, indisunique, indisvalid
  from pg_index
  join pg_class on pg_class.oid = indexrelid
 where relnamespace = $1::regnamespace
"""


class Shape(NamedTuple):
    """Columns with their kinds by table; indexes, and whether each keeps something unique."""

    columns: Mapping[str, Mapping[str, str]]
    indexes: Mapping[str, bool]


@cache
def expected() -> Shape:
    """What the migrations lead to."""
    columns: dict[str, dict[str, str]] = {}
    indexes: dict[str, bool] = {}
    for step in migrations("postgres"):
        for table, body in _TABLE.findall(step):
            columns[table] = {name: _kind(kind, rest) for name, kind, rest in _COLUMN.findall(body)}
            indexes |= dict.fromkeys(_KEY.findall(body), True)
        for table, name, kind, rest in _ADDED.findall(step):
            columns[table][name] = _kind(kind, rest)
        for table, name in _DROPPED.findall(step):
            del columns[table][name]
        for index in _DROPPED_INDEX.findall(step):
            del indexes[index]
        indexes |= {name: bool(unique) for unique, name in _INDEX.findall(step)}
    return Shape(columns, indexes)


def _kind(kind: str, rest: str) -> str:
    is_needed = "not null" in rest or "as identity" in rest
    return f"{kind} not null" if is_needed else kind


async def differences(connection: Connection, address: Address) -> list[Difference]:
    """Where the schema is not what the migrations make."""
    columns: dict[str, dict[str, str]] = {}
    schema = '"' + address.schema.replace('"', '""') + '"'
    for table, name, kind, needed in await connection.fetch(COLUMNS, schema):
        columns.setdefault(table, {})[name] = f"{kind} not null" if needed else kind
    indexes = {name: unique for name, unique, valid in await connection.fetch(INDEXES, schema) if valid}
    found = list(_differences(Shape(columns, indexes)))
    return found + [
        Difference(f"the function {name} is missing", hinders=False)
        for name in (write_batch(address.schema).name.rpartition(".")[2], *_functions())
        if not await connection.fetchval("select to_regproc($1) is not null", f"{schema}.{name}")
    ]


def _functions() -> list[str]:
    return [name for step in migrations("postgres") for name in _FUNCTION.findall(step)]


def _differences(found: Shape) -> Iterator[Difference]:
    for table, columns in expected().columns.items():
        if table not in found.columns:
            yield Difference(f"the table {table} is missing", hinders=True)
        else:
            yield from columns_apart(table, found.columns[table], columns)
    for index, is_unique in expected().indexes.items():
        if index not in found.indexes:
            yield Difference(f"the index {index} is missing", hinders=False)
        elif found.indexes[index] != is_unique:
            yield Difference(f"the index {index} is another one", hinders=False)
