"""Every statement is one that Postgres takes, also the oldest one there is at hand."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest

from perdure import Perdure, workflow
from perdure.errors import BadOption
from perdure.stores.postgres_address import address_of
from perdure.stores.postgres_migrating import migrated
from perdure.stores.postgres_sql import prepared, quoted
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


@workflow
async def adds_one(number: int) -> int:
    return number + 1


@workflow
async def has_one_added(number: int) -> int:
    return await adds_one(number)


@pytest.mark.parametrize("schema", ["returning_x", " :limit", 'From "runs"', "a%b", "Ü"])
async def test_a_schema_may_be_called_what_stands_for_something_else_in_a_query(postgres: str, schema: str) -> None:
    """One that was called after a word of SQL had its runs held: what was changed could not be counted."""
    db = await asyncpg.connect(postgres)
    try:
        async with Perdure(f"{postgres}?schema={quote(schema)}") as app:
            assert await app.run(has_one_added, 1) == 2
    finally:
        await db.execute(f"drop schema if exists {quoted(schema)} cascade")
        await db.close()


@pytest.mark.parametrize("schema", ["", "a$$b", "{function}", "x" * 64])
def test_a_schema_that_cannot_be_named_is_refused(schema: str) -> None:
    with pytest.raises(BadOption, match="is no name for one"):
        address_of(f"postgresql:///shop?schema={quote(schema)}")
