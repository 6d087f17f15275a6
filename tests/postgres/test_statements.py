"""Every statement is one that Postgres takes, also the oldest one there is at hand."""

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from perdure.stores.postgres_address import address_of
from perdure.stores.postgres_migrating import migrated
from perdure.stores.postgres_sql import prepared
from perdure.stores.queries import queries
from tools import servers

OLDEST_AT_HAND = next((each for n in (14, 15) if (each := Path(f"/usr/lib/postgresql/{n}/bin")).is_dir()), None)


@pytest.fixture(scope="module")
def oldest() -> Iterator[str]:
    if OLDEST_AT_HAND is None:
        pytest.skip("no Postgres 14 or 15 is installed")
    server = servers.Server(servers.folder(in_memory=True), OLDEST_AT_HAND).make().start()
    try:
        yield server.url
    finally:
        server.end()


async def test_every_statement_can_be_prepared_by_an_old_server(oldest: str) -> None:
    """A subquery without a name, for one, is taken since Postgres 16 only: `perdure list` failed on all before."""
    await migrated(oldest)
    db = await asyncpg.connect(address_of(oldest).dsn)
    refused = {}
    # What Postgres cannot hold nobody has to hold.
    for name in queries("postgres").keys() - {"hold_unclaimable"}:
        try:
            await db.prepare(prepared(name, "perdure").sql)
        except asyncpg.PostgresError as error:
            refused[name] = str(error)
    await db.close()
    assert refused == {}
