"""Named queries: the SQL of a file by the names its comments give."""

import re
from functools import cache
from importlib.resources import files

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


@cache
def named(file: str) -> dict[str, str]:
    """The queries of `sql/<file>.sql`."""
    text = files("perdure.stores").joinpath("sql", f"{file}.sql").read_text()
    return dict(_QUERY.findall(text))


@cache
def queries(database: str) -> dict[str, str]:
    """Everything that is asked of a database, by name: the same for all, but for what it has a way of its own for."""
    shared = {**named("reads"), **named("writes")}
    if database == "sqlite":
        return {name: for_sqlite(sql) for name, sql in shared.items()}
    timed = {name: _AT_ONCE.sub(r"\1", sql) for name, sql in shared.items() if name not in ONLY_SQLITE}
    return timed | named(database)


def for_sqlite(sql: str) -> str:
    """A query that is shared, as SQLite takes it."""
    # The largest of several values is what SQLite calls max; of none that may be null here.
    return _AT_ONCE.sub(TURN, sql.replace("greatest(", "max(").replace("least(", "min("))


@cache
def migrations(database: str) -> list[str]:
    """The migrations of a database, in order; the first one leads to schema 1."""
    folder = files("perdure.stores").joinpath("sql", "migrations")
    found = sorted((f for f in folder.iterdir() if f.name.endswith(f"_{database}.sql")), key=lambda f: f.name)
    return [f.read_text() for f in found]
