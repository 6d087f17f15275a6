"""The role that works can work, and can do nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from perdure import Perdure, Signal, activity, sleep, workflow
from perdure.errors import StoreError
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.migration import migrated, planned, roles

nod = Signal("nod", str)


@activity
async def bows(text: str) -> str:
    return text * 3000


@workflow
async def folds(text: str) -> str:
    await sleep(0.01)
    return await bows(text)


@workflow
async def serves(text: str) -> int:
    """Events, payloads, a timer, a message and a child: something of every table."""
    return len(await folds(text)) + len(await nod.receive())


@asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    address = address_of(url)
    db = await asyncpg.connect(address.dsn, server_settings={"search_path": f'"{address.schema}"'})
    try:
        yield db
    finally:
        await db.close()


def as_role(url: str, role: str) -> str:
    return f"postgresql://{role}@{url.partition('@')[2]}"


async def made(url: str) -> str:
    """The URL of a worker, on a schema that has been made by its owner."""
    async with connected(url) as db:
        await db.execute(roles(url))
    await migrated(as_role(url, "perdure_owner"))
    return as_role(url, "perdure_worker")


async def test_a_worker_without_rights_of_its_own_works(postgres_url: str) -> None:
    async with Perdure(await made(postgres_url)) as app:
        run = await app.start(serves, "ab")
        await run.signal(nod, "yes")
        assert await run.result() == 6003


@pytest.mark.parametrize(
    "sql",
    [
        "create table mine (x int)",
        "drop table attempts",
        "truncate events",
        "alter table runs add column x int",
        "create index mine on runs (step)",
        "create function mine() returns int language sql as 'select 1'",
        "create role mine",
        "create schema mine",
        "create trigger mine before insert on runs execute function suppress_redundant_updates_trigger()",
    ],
)
async def test_a_worker_can_do_nothing_else(postgres_url: str, sql: str) -> None:
    """What a stolen password opens is no more than what a worker does anyway."""
    async with connected(await made(postgres_url)) as db:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await db.execute(sql)


async def test_a_worker_that_finds_no_tables_says_who_can_make_them(postgres_url: str) -> None:
    async with connected(postgres_url) as db:
        await db.execute(roles(postgres_url))
    with pytest.raises(StoreError, match="run `perdure migrate` as a role that may, nothing was changed"):
        async with Perdure(as_role(postgres_url, "perdure_worker")):
            pass


async def test_roles_can_be_given_to_a_schema_that_is_in_use(postgres_url: str) -> None:
    """Who began as a superuser must not have to begin anew."""
    async with Perdure(postgres_url, worker=False) as app:
        await app.start(serves.options(id="before"), "a")
    async with connected(postgres_url) as db:
        for _ in range(2):
            await db.execute(roles(postgres_url))
    async with Perdure(as_role(postgres_url, "perdure_worker")) as app:
        run = await app.get("before")
        await run.signal(nod, "yes")
        assert await run.result() == 3003


async def test_the_printed_script_does_what_migrate_does(postgres_url: str) -> None:
    """Some let nobody but a person change their tables."""
    todo, script = await planned(postgres_url)
    assert (todo.found, script[:6]) == (0, "begin;")
    async with connected(postgres_url) as db:
        assert await db.fetchval("select to_regnamespace($1)", address_of(postgres_url).schema) is None
        await db.execute(script)
    todo, script = await planned(postgres_url)
    assert (todo.found, todo.statements, script) == (todo.wanted, (), "")
    assert not (await migrated(postgres_url)).statements
