"""Named queries: the SQL of files by the names their comments give, and the migrations with the tables they make.

What both databases are asked alike stands in `sql/`, what one is asked in its own way in its own folder, a file per
table. A parameter is text unless the query says its type, as in `:now::bigint`.
"""

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

# The table that says which migrations were made.
VERSION = "perdure_schema"
# Turns lie below zero, so that none can be a time.
BEFORE_ALL_TURNS = -4_000_000_000_000_000_000
# Ripe at once: the turn after all that have one; the same for all rows of a statement.
TURN = (
    f"(select coalesce(max(wake_at), {BEFORE_ALL_TURNS}) + 1 from runs indexed by runs_in_turn"  # noqa: S608 - ours
    " where owner is null and wake_at < 0)"
)
# A server has one clock: what is ripe at once is ripe by its time, and what is due needs no turn.
ONLY_SQLITE = {"ripen"}
_AT_ONCE = re.compile(r"at_once\(([^()]*)\)")
# `-- name: purpose` opens a query; its statement ends with a semicolon at the end of a line.
_QUERY = re.compile(r"^-- (\w+): [^\n]*\n(.*?);$", re.MULTILINE | re.DOTALL)


# A parameter that is not text says its type.
_TYPE = re.compile(r"(?<![:\w])(:[a-z_]\w*)::\w+(?:\[\])?")
_TABLE = re.compile(r"^create table (?:\{schema\}\.)?(\w+) \(", re.MULTILINE)
STORES = files("perdure.stores")


@cache
def named(file: str) -> dict[str, str]:
    """The queries of `sql/<file>.sql`."""
    return dict(_QUERY.findall(STORES.joinpath("sql", f"{file}.sql").read_text()))


@cache
def queries(database: str) -> dict[str, str]:
    """Everything that is asked of a database, by name: the same for all, but for what it has a way of its own for."""
    shared, own = _of_tables(database, STORES), _of_tables(database, STORES.joinpath(database))
    if database == "sqlite":
        return {name: for_sqlite(sql) for name, sql in (shared | own).items()}
    return {name: _AT_ONCE.sub(r"\1", sql) for name, sql in shared.items()} | own


def _of_tables(database: str, room: Traversable) -> dict[str, str]:
    found: dict[str, str] = {}
    for table in tables(database):
        if (file := room.joinpath("sql", f"{table}.sql")).is_file():
            found |= _QUERY.findall(file.read_text())
    return found


def for_sqlite(sql: str) -> str:
    """A query that is shared, as SQLite takes it."""
    # The largest of several values is what SQLite calls max; of none that may be null here.
    return _AT_ONCE.sub(TURN, _TYPE.sub(r"\1", sql).replace("greatest(", "max(").replace("least(", "min("))


@cache
def migrations(database: str) -> list[str]:
    """The migrations of a database, in order; the first one leads to schema 1."""
    folder = STORES.joinpath(database, "migrations")
    found = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [f.read_text() for f in found]


@cache
def tables(database: str) -> tuple[str, ...]:
    """The tables that the migrations of a database make."""
    return tuple(table for step in migrations(database) for table in _TABLE.findall(step))
