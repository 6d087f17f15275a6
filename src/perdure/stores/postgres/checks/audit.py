"""The audit of a Postgres database: its tables, copied as they are at one moment, answer the questions a file is asked.

In:   a URL, of a database at rest or with workers at work on it.
Out:  what was looked at, and every violation found; nothing in the database is changed or locked.

Most questions are about what is in the rows, and are answered by the engine's own ways to read; so all rows have to
come here anyway. The copy is a SQLite file in the folder for temporary files, and is gone afterwards.
"""

import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import asyncpg

from perdure.errors import NewerSchema, NotADatabase, StoreError
from perdure.stores.audit import Audit, Row, audited, columns_of_file
from perdure.stores.dialects import migrations_for, quoted
from perdure.stores.differences import Difference
from perdure.stores.postgres.address import Address, address_of
from perdure.stores.postgres.checks.inspection import looking_at
from perdure.stores.postgres.checks.schema_diff import differences
from perdure.stores.postgres.connections import Connection
from perdure.stores.postgres.schema import NO_VERSION

ROWS_AT_ONCE = 5000
# What the questions look for in large tables. Nothing in the copy is unique: what is there twice is to be found.
INDEXES = {
    "runs": ["run_id", "namespace, workflow_id", "parent_id, parent_place"],
    "events": ["run_id, seq"],
    "payloads": ["run_id, seq"],
    "inbox": ["run_id, message_id"],
    "attempts": ["run_id, place, attempt"],
    "progress": ["run_id, place"],
    "snapshots": ["run_id"],
    "streams": ["run_id, name, n"],
    "stream_heads": ["run_id, name, source"],
    "workers": ["worker_id"],
}


async def audit_of(url: str) -> Audit:
    """The audit of a database; NotADatabase, NewerSchema or StoreUnavailable when it cannot be read as ours."""
    address = address_of(url)
    with _copy() as db:
        async with looking_at(address) as connection:
            apart = await _apart(connection, address)
            damage = (
                [] if any(each.hinders for each in apart) else [row async for row in _copied(connection, address, db)]
            )
        _index(db)
        return audited(db, damage, apart)


async def _apart(connection: Connection, address: Address) -> list[Difference]:
    known = len(migrations_for(address.schema))
    tables = await connection.fetch("select tablename from pg_tables where schemaname = $1", address.schema)
    names = {name for (name,) in tables}
    if "perdure_schema" not in names:
        if "runs" not in names:
            raise NotADatabase(address.shown, f"the schema {address.schema!r} has no runs of Perdure")
        return [Difference("the table perdure_schema is missing", hinders=True)]
    sql = f"select version from {quoted(address.schema)}.perdure_schema"  # noqa: S608 - a quoted name
    versions = [number for (number,) in await connection.fetch(sql)]
    if len(versions) != 1:
        return [Difference(NO_VERSION, hinders=True)]
    if versions[0] > known:
        raise NewerSchema(address.shown, versions[0], known)
    apart = await differences(connection, address)
    if versions[0] < known and apart:
        told = f"the database has schema {versions[0]}, the audit is for {known}; `perdure migrate` makes it so"
        raise StoreError(address.shown, told)
    if versions[0] < known:
        apart.append(Difference(f"the tables are those of {known}, not of {versions[0]}", hinders=False))
    return apart


@contextmanager
def _copy() -> Iterator[sqlite3.Connection]:
    """An empty file with our tables, for a while."""
    with (
        tempfile.TemporaryDirectory(prefix="perdure-audit-") as folder,
        closing(sqlite3.connect(Path(folder) / "copy.db", isolation_level=None)) as db,
    ):
        # Nobody needs it after a crash.
        db.executescript("pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -65536;")
        for table, columns in columns_of_file().items():
            db.execute(f"create table {table} ({', '.join(columns)})")
        yield db


async def _copied(connection: Connection, address: Address, db: sqlite3.Connection) -> AsyncIterator[Row]:
    """Copy every row; answers with what could not be read, if there is anything."""
    db.execute("begin")
    for table, columns in columns_of_file().items():
        try:
            await _copy_table(connection, address, db, table, [column.split()[0] for column in columns])
        except (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError) as error:
            yield None, None, f"the table {table} cannot be read: {error}"
            break
    db.execute("commit")


async def _copy_table(
    connection: Connection, address: Address, db: sqlite3.Connection, table: str, columns: list[str]
) -> None:
    names = ", ".join(columns)
    insert = f"insert into {table} ({names}) values ({', '.join('?' * len(columns))})"  # noqa: S608 - names of ours
    # A cursor of asyncpg's own is a statement with a name, which behind a pooler somebody else may have taken.
    sql = f"declare {table}_rows no scroll cursor for select {names} from {quoted(address.schema)}.{table}"  # noqa: S608 - as above
    await connection.execute(sql)
    while rows := await connection.fetch(f"fetch {ROWS_AT_ONCE} from {table}_rows"):
        db.executemany(insert, map(tuple, rows))


def _index(db: sqlite3.Connection) -> None:
    for table, several in INDEXES.items():
        for number, columns in enumerate(several):
            db.execute(f"create index {table}_{number} on {table} ({columns})")
