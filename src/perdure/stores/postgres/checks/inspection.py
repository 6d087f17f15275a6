"""A look at a Postgres database that changes nothing: opening a store would make tables and take locks.

In:   a URL.
Out:  a connection for one moment of the database, whether it has tables of ours, the workers in it, and what is due.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from perdure.stores.dialects import NOW_MS, prepare
from perdure.stores.health import Due, WorkerSeen
from perdure.stores.postgres.address import Address, address_of
from perdure.stores.postgres.connections import Connection, dial_first
from perdure.stores.postgres.errors import is_about_database, unavailable
from perdure.stores.postgres.names import key_of
from perdure.stores.postgres.presence import LOCKS
from perdure.stores.postgres.schema import version_of
from perdure.stores.queries import named


@asynccontextmanager
async def dialled(address: Address) -> AsyncIterator[Connection]:
    """A connection; StoreUnavailable when it cannot be had, or is lost."""
    try:
        connection, _ = await dial_first(address, "look")
        try:
            yield connection
        finally:
            await connection.close(timeout=1.0)
    except Exception as error:
        if not is_about_database(error):
            raise
        raise unavailable(address.shown, error) from None


@asynccontextmanager
async def looking_at(address: Address) -> AsyncIterator[Connection]:
    """A connection that only reads, and sees one moment."""
    async with (
        dialled(address) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        yield connection


async def has_tables(url: str) -> bool:
    """Whether the schema has tables of ours."""
    address = address_of(url)
    async with looking_at(address) as connection:
        return await version_of(connection, address) > 0


async def workers_of(url: str) -> tuple[WorkerSeen, ...]:
    """The workers of a schema that has our tables."""
    address = address_of(url)
    async with looking_at(address) as connection:
        return await workers_seen(connection, address)


async def workers_seen(connection: Connection, address: Address) -> tuple[WorkerSeen, ...]:
    """The workers, and whether the server holds their locks; None for one without, whose lease lasts still."""
    held = {number for (number,) in await connection.fetch(LOCKS)}
    rows = await connection.fetch(prepare(named("health")["workers"], address.schema).sql)
    now = int(await connection.fetchval(f"select {NOW_MS}"))
    found = []
    for row in rows:
        is_held = key_of(address.schema, row["worker_id"]) in held
        # Behind a pooler workers hold no lock, and whoever has just died has a lease still.
        found.append(_worker(dict(row), is_alive=True if is_held else None if row["lease_until"] >= now else False))
    return tuple(worker for worker in found if worker is not None)


async def due_of(url: str) -> tuple[Due, ...]:
    """What a worker should have taken, by queue and workflow, in a schema that has our tables; the most first."""
    address = address_of(url)
    async with looking_at(address) as connection:
        now = int(await connection.fetchval(f"select {NOW_MS}"))
        rows = await connection.fetch(prepare(named("health")["due_kinds"], address.schema).sql, now)
    return tuple(Due(*row) for row in rows)


def _worker(row: dict[str, object], *, is_alive: bool | None) -> WorkerSeen | None:
    """A worker; None when its row is not one, which the audit tells."""
    try:
        queues, workflows = (
            msgspec.json.decode(str(row["queues"])),
            msgspec.json.decode(str(row["workflows"] or "null")),
        )
        return msgspec.convert(row | {"queues": queues, "workflows": workflows, "is_alive": is_alive}, WorkerSeen)
    except (msgspec.MsgspecError, ValueError):
        return None
