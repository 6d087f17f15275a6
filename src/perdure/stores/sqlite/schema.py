"""The schema of a SQLite file, compared with what the migrations lead to.

In:   a connection that reads.
Out:  the version the file says it has, and where its tables and indexes differ from that version.
Tables and plain indexes that are not ours are nobody's business.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import msgspec

from perdure.errors import NewerSchema, NotADatabase
from perdure.stores.differences import Difference, columns_apart
from perdure.stores.queries import VERSION, migrations, tables

# The variable that lets a database of another program get our tables; and how many of its own are named.
ADOPT = "PERDURE_ADOPT"
FEW_NAMES = 3


class Foreign(msgspec.Struct, frozen=True):
    """A database in which our tables are not made: what it is, and what to do."""

    what: str
    remedy: str


class Schema(msgspec.Struct, frozen=True):
    """Columns with their kinds by table, statements by index, and by which columns each table is unique."""

    columns: dict[str, dict[str, str]]
    indexes: dict[str, str]
    unique: dict[str, frozenset[str]]


def version_of(db: sqlite3.Connection) -> int:
    """The version the file says it has; 0 when it has no tables of ours, or does not say."""
    if db.execute("select 1 from sqlite_schema where type = 'table' and name = 'perdure_schema'").fetchone() is None:
        return 0
    found = db.execute("select version from perdure_schema").fetchall()
    return found[0][0] if len(found) == 1 and isinstance(found[0][0], int) else 0


def version_in(path: Path) -> int:
    """The version that a file says it has; it is left as it is."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            found, known = version_of(db), len(migrations("sqlite"))
    except sqlite3.DatabaseError as error:
        raise NotADatabase(f"sqlite:///{path}", f"the file cannot be used as a database: {error}") from None
    if found > known:
        raise NewerSchema(f"sqlite:///{path}", found, known)
    return found


def foreign_in(db: sqlite3.Connection) -> Foreign | None:
    """Why our tables may not be made in a database without a version of ours; None when they may."""
    present = {name for (name,) in db.execute("select name from sqlite_schema where name not glob 'sqlite_*'")}
    if clash := present & {*tables("sqlite")} - {VERSION}:
        return Foreign(f"it has tables of its own named {', '.join(sorted(clash))}", "name another file")
    if not present or VERSION in present or os.environ.get(ADOPT) == "1":
        return None
    few = ", ".join(sorted(present)[:FEW_NAMES]) + (", ..." if len(present) > FEW_NAMES else "")
    return Foreign(
        f"it is the database of another program (tables: {few})",
        f"name another file, or set {ADOPT}=1 to have the tables of Perdure made in this one",
    )


def foreign_file(path: Path) -> Foreign | None:
    """The same of a file that can be read as a database; it is left as it is."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return foreign_in(db)


def script_from(found: int) -> tuple[int, int, str]:
    """The version found, the one wanted, and the statements in between; none when there is nothing to do."""
    steps = migrations("sqlite")
    todo = [
        f"begin immediate;\n\n{step.strip()}\n\nupdate perdure_schema set version = {number};\ncommit;"
        for number, step in enumerate(steps[found:], start=found + 1)
    ]
    return found, len(steps), "\n\n".join(todo)


def differences(db: sqlite3.Connection, version: int) -> list[Difference]:
    """Where the file is not what the migrations up to a version make."""
    return list(_differences(_schema_of(db), _expected(version)))


@cache
def _expected(version: int) -> Schema:
    with closing(sqlite3.connect(":memory:")) as db:
        for step in migrations("sqlite")[:version]:
            db.executescript(step)
        return _schema_of(db)


def _schema_of(db: sqlite3.Connection) -> Schema:
    tables = [name for (name,) in db.execute("select name from sqlite_schema where type = 'table'")]
    indexes = db.execute("select name, sql from sqlite_schema where type = 'index' and sql is not null")
    return Schema(
        {table: _columns(db, table) for table in tables},
        # The words of a statement say the same, however they stand on lines.
        {name: " ".join(sql.split()) for name, sql in indexes},
        {table: frozenset(_unique(db, table)) for table in tables},
    )


def _columns(db: sqlite3.Connection, table: str) -> dict[str, str]:
    found = db.execute('select name, type, "notnull", pk from pragma_table_info(?)', (table,))
    return {name: f"{kind}{' not null' if needed else ''}{' key' if key else ''}" for name, kind, needed, key in found}


def _unique(db: sqlite3.Connection, table: str) -> Iterator[str]:
    """The columns of each index that stands in the table's own statement."""
    found = db.execute("select name from pragma_index_list(?) where origin <> 'c' and \"unique\"", (table,))
    for (index,) in found.fetchall():
        yield ", ".join(str(name) for (name,) in db.execute("select name from pragma_index_info(?)", (index,)))


def _differences(found: Schema, expected: Schema) -> Iterator[Difference]:
    for table, columns in expected.columns.items():
        if table not in found.columns:
            yield Difference(f"the table {table} is missing", hinders=True)
        else:
            yield from columns_apart(table, found.columns[table], columns)
            for key in sorted(expected.unique[table] - found.unique[table]):
                yield Difference(f"the table {table} is not kept unique by {key}", hinders=False)
    for index, sql in expected.indexes.items():
        if index not in found.indexes:
            yield Difference(f"the index {index} is missing", hinders=False)
        elif found.indexes[index] != sql:
            yield Difference(f"the index {index} is another one", hinders=False)
