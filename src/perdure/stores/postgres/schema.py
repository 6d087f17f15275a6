"""The schema of a Postgres database: looked at, made, and brought up to date under a lock.

In:   a connection.
Out:  tables of the version this Perdure knows; NewerSchema or NotADatabase where they are not ours to change.
"""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from perdure.errors import NewerSchema, NotADatabase, StoreError
from perdure.stores.dialects import TABLES, migrations_for, quoted
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import Connection
from perdure.stores.postgres.names import key_of
from perdure.stores.postgres.writing.function import Function, write_batch

OLDEST = 14
NO_VERSION = "the table perdure_schema does not say one version"
# Settings under which what was answered with success may be lost, and what they lose it to.
UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


async def check_server(connection: Connection, address: Address) -> None:
    """StoreError for a server that is too old, that does not keep what it commits, or that cannot be written."""
    version = connection.get_server_version()
    if version.major < OLDEST:
        raise StoreError(
            address.shown, f"Postgres {version.major} is too old; {OLDEST} or newer is needed, nothing was changed"
        )
    if (encoding := await connection.fetchval("show server_encoding")) not in ("UTF8", "SQL_ASCII"):
        raise StoreError(
            address.shown,
            f"the database is encoded in {encoding}, which cannot hold every text; "
            "`createdb --encoding=UTF8 --template=template0` makes one that can",
        )
    if (level := await connection.fetchval("show transaction_isolation")) != "read committed":
        raise StoreError(
            address.shown,
            f"transactions are {level} by default, and behind a pooler that cannot be changed by us; "
            "`alter role ... set default_transaction_isolation = 'read committed'`",
        )
    if address.relaxed:
        return
    for name, value in UNSAFE.items():
        if await connection.fetchval(f"select current_setting('{name}')") == value:
            raise StoreError(
                address.shown,
                f"the server has {name} = {value}, so that what it answered with success may be lost; set it to on, "
                "or say relaxed=on in the URL if that is what you want",
            )


class Plan(NamedTuple):
    """The version that was found, the one that is wanted, and the statements that lead there."""

    found: int
    wanted: int
    statements: tuple[str, ...]


async def plan(connection: Connection, address: Address) -> Plan:
    """What there is to do; changes nothing."""
    found, steps = await version_of(connection, address), migrations_for(address.schema)
    statements = []
    # Whoever owns a schema may not be allowed to make one, and to ask for it is refused even where it is there.
    if not found and not await connection.fetchval("select 1 from pg_namespace where nspname = $1", address.schema):
        statements.append(f"create schema {quoted(address.schema)};")
    for number, step in enumerate(steps[found:], start=found + 1):
        table = f"{quoted(address.schema)}.perdure_schema"
        statements += [step.strip(), f"update {table} set version = {number};"]  # noqa: S608 - a quoted name
    function = write_batch(address.schema)
    if not found or not await _has(connection, function):
        statements.append(function.sql.strip())
    return Plan(found, len(steps), tuple(statements))


def script_of(address: Address, statements: Sequence[str]) -> str:
    """The statements as one transaction that anybody may run in our place."""
    lock = f"select pg_advisory_xact_lock({key_of(address.schema, 'migrations')});"
    return "\n\n".join(["begin;", lock, *statements, "commit;"])


async def migrate(connection: Connection, address: Address) -> Plan:
    """Bring the schema up to date; processes that do so at the same time wait for each other."""
    todo = await plan(connection, address)
    if not todo.statements:
        return todo
    async with connection.transaction(isolation="read_committed"):
        await connection.execute("set local lock_timeout = '60s'")
        await connection.execute(f"select pg_advisory_xact_lock({key_of(address.schema, 'migrations')})")
        todo = await plan(connection, address)
        try:
            for statement in todo.statements:
                await connection.execute(statement)
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreError(
                address.shown,
                f"its tables cannot be made: {error}; run `perdure migrate` as a role that may, nothing was changed",
            ) from None
    return todo


async def _has(connection: Connection, function: Function) -> bool:
    return await connection.fetchval("select to_regproc($1) is not null", function.name) is True


async def version_of(connection: Connection, address: Address) -> int:
    """The schema the database has, 0 for none; refuses one that is not ours or newer than we are."""
    found = {
        name
        for (name,) in await connection.fetch(
            "select relname from pg_class join pg_namespace on relnamespace = pg_namespace.oid "
            "where nspname = $1 and relkind in ('r', 'p', 'v', 'm', 'f')",
            address.schema,
        )
    }
    if "perdure_schema" not in found:
        if clash := found & set(TABLES):
            names = ", ".join(sorted(clash))
            raise NotADatabase(
                address.shown,
                f"the schema {address.schema!r} has tables of its own named {names}; name another one in the URL "
                "(schema=...), nothing was changed",
            )
        return 0
    sql = f"select version from {quoted(address.schema)}.perdure_schema"  # noqa: S608 - a quoted name
    versions = [number for (number,) in await connection.fetch(sql)]
    if len(versions) != 1:
        raise NotADatabase(
            address.shown,
            f"{NO_VERSION}; bring back a backup, or insert the number that was there; nothing was changed",
        )
    version = int(versions[0])
    known = len(migrations_for(address.schema))
    if version > known:
        raise NewerSchema(address.shown, version, known)
    return version
