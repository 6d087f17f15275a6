"""The schema of a Postgres database: looked at, made, and brought up to date under a lock.

In:   a connection.
Out:  tables of the version this Perdure knows; NewerSchema or NotADatabase where they are not ours to change.
"""

import asyncpg

from perdure.errors import NewerSchema, NotADatabase, StoreError
from perdure.stores.postgres_address import Address
from perdure.stores.postgres_life import key_of
from perdure.stores.postgres_links import Connection
from perdure.stores.postgres_sql import TABLES, Function, migrations_for, quoted, write_batch

OLDEST = 14
# Settings under which what was answered with success may be lost, and what they lose it to.
UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


async def check_server(connection: Connection, address: Address) -> None:
    """StoreError for a server that is too old, that does not keep what it commits, or that cannot be written."""
    version = connection.get_server_version()
    if version.major < OLDEST:
        raise StoreError(
            address.shown, f"Postgres {version.major} is too old; {OLDEST} or newer is needed, nothing was changed"
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


async def migrate(connection: Connection, address: Address) -> None:
    """Bring the schema up to date; processes that do so at the same time wait for each other."""
    steps = migrations_for(address.schema)
    function = write_batch(address.schema)
    table = f"{quoted(address.schema)}.perdure_schema"
    if await version_of(connection, address) == len(steps) and await _has(connection, function):
        return
    async with connection.transaction(isolation="read_committed"):
        await connection.execute("set local lock_timeout = '60s'")
        await connection.execute(f"select pg_advisory_xact_lock({key_of(address.schema, 'migrations')})")
        found = await version_of(connection, address)
        try:
            if not found:
                await connection.execute(f"create schema if not exists {quoted(address.schema)}")
            for number, step in enumerate(steps[found:], start=found + 1):
                await connection.execute(step)
                await connection.execute(f"update {table} set version = {number}")  # noqa: S608 - a quoted name
            await connection.execute(function.sql)
        except asyncpg.InsufficientPrivilegeError as error:
            raise StoreError(
                address.shown,
                f"its tables cannot be made: {error}; run `perdure migrate` as a role that may, nothing was changed",
            ) from None


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
    version = int(await connection.fetchval(sql))
    known = len(migrations_for(address.schema))
    if version > known:
        raise NewerSchema(address.shown, version, known)
    return version
