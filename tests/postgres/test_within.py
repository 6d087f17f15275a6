"""Runs and signals inside the caller's own transaction: both commit together, or neither does."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from perdure import Deferred, Perdure, Signal, workflow
from perdure.errors import AlreadyResolved, BadOption, IdConflict, InboxFull, RunClosed, RunNotFound
from perdure.ids import RandomIds
from perdure.stores.postgres.address import address_of

paid = Signal("paid", int)
price = Deferred("price", int)


@workflow
async def settles(order: str) -> str:
    return f"{order}: {await paid.receive()}"


@workflow
async def prices() -> int:
    return await price.wait()


@workflow
async def dials(connection: str) -> str:
    return connection


@workflow
async def settles_at_once(order: str) -> str:
    return order


async def orders_of(url: str) -> "asyncpg.Connection[asyncpg.Record]":
    """A connection of the application's own, with a table of its own."""
    address = address_of(url)
    db = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    await db.execute("create table if not exists orders (id text primary key)")
    return db


@contextlib.asynccontextmanager
async def database(server: str) -> AsyncIterator[str]:
    """A database of its own, as the guide has it."""
    name = f"guide_{RandomIds().token()}"
    db = await asyncpg.connect(server)
    await db.execute(f"create database {name}")
    try:
        yield f"{server.rpartition('/')[0]}/{name}"
    finally:
        await db.execute(f"drop database {name} with (force)")
        await db.close()


async def test_a_run_and_a_row_commit_together(postgres_url: str) -> None:
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        async with db.transaction():
            await db.execute("insert into orders values ('o-1')")
            run = await app.start_within(db, settles.options(id="o-1"), "o-1")
            await run.signal(paid, 7, connection=db)
            with pytest.raises(RunNotFound):
                await app.get("o-1")
        assert await run.result() == "o-1: 7"
        await db.close()


async def test_a_deferred_and_a_row_commit_together(postgres_url: str) -> None:
    """Another value is refused inside the transaction, which goes on."""
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        run = await app.start(prices)
        with contextlib.suppress(ZeroDivisionError):
            async with db.transaction():
                await run.resolve(price, 1, connection=db)
                raise ZeroDivisionError
        async with db.transaction():
            await db.execute("insert into orders values ('o-2')")
            await run.resolve(price, 2, connection=db)
            await run.resolve(price, 2, connection=db)
            with pytest.raises(AlreadyResolved):
                await run.resolve(price, 3, connection=db)
        assert await run.result() == 2
        assert await db.fetchval("select count(*) from orders where id = 'o-2'") == 1
        await db.close()


async def test_a_start_takes_a_connection_unless_its_workflow_does(postgres_url: str) -> None:
    """Nobody reads the manual for this; only type checkers cannot know it."""
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        start: Any = app.start
        async with db.transaction():
            run = await start(settles.options(id="o-8"), "o-8", connection=db)
            with pytest.raises(RunNotFound):
                await app.get("o-8")
        await run.signal(paid, 8)
        assert await run.result() == "o-8: 8"
        assert await (await start(dials, connection="by wire")).result() == "by wire"
        with pytest.raises(BadOption, match="no connection of asyncpg or psycopg"):
            await start(settles, "x", connection="by wire")
        await db.close()


async def test_the_example_of_the_guide_does_what_it_says(postgres: str) -> None:
    """Whoever copies it must find a row and a run, or neither."""
    guide = Path(__file__).parents[2] / "docs" / "postgres.md"
    (example,) = re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
    written: dict[str, Any] = {}
    exec(compile(example, str(guide), "exec"), written)
    async with database(postgres) as url, Perdure(url) as app:
        db = await asyncpg.connect(url)
        await db.execute("create table orders (id text primary key)")
        await written["place"](app, db, "o-17")
        await asyncio.to_thread(written["place_from_a_thread"], url, "o-18")
        for id in ("o-17", "o-18"):
            assert await (await app.get(id)).result() == f"{id} is on its way"
            with pytest.raises(asyncpg.UniqueViolationError):
                await written["place"](app, db, id)
        assert [id for (id,) in await db.fetch("select id from orders order by id")] == ["o-17", "o-18"]
        await db.close()


async def test_a_run_is_not_there_when_its_transaction_is_undone(postgres_url: str) -> None:
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        transaction = db.transaction()
        await transaction.start()
        undone = await app.start_within(db, settles.options(id="o-2"), "o-2")
        told = "no run 'o-2' in namespace 'main'; the transaction .* is not committed yet, or was undone"
        with pytest.raises(RunNotFound, match=told):
            await undone.result()
        await transaction.rollback()
        with pytest.raises(RunNotFound, match=told):
            await undone.describe()
        with pytest.raises(RunNotFound):
            await app.get("o-2")
        run = await app.start(settles.options(id="o-2"), "o-2")
        transaction = db.transaction()
        await transaction.start()
        await run.signal(paid, 1, connection=db)
        await transaction.rollback()
        await run.signal(paid, 2)
        assert await run.result() == "o-2: 2"
        await db.close()


async def test_the_same_id_gives_the_same_run_and_leaves_the_transaction_whole(postgres_url: str) -> None:
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        first = await app.start(settles.options(id="o-3"), "o-3")
        async with db.transaction():
            await db.execute("insert into orders values ('o-3')")
            again = await app.start_within(db, settles.options(id="o-3"), "o-3")
            with pytest.raises(IdConflict, match="it has other arguments; use another id$"):
                await app.start_within(db, settles.options(id="o-3"), "another")
            with pytest.raises(BadOption, match="cannot be terminated inside your transaction"):
                await app.start_within(db, settles.options(id="o-3", on_conflict="terminate"), "o-3")
        assert again.run_id == first.run_id
        assert await db.fetchval("select count(*) from orders") == 1
        await db.close()


async def test_a_signal_to_a_run_that_has_ended_is_refused_and_leaves_the_transaction_whole(postgres_url: str) -> None:
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        run = await app.start(settles_at_once.options(id="o-4"), "o-4")
        await run.result()
        async with db.transaction():
            await db.execute("insert into orders values ('o-4')")
            with pytest.raises(RunClosed):
                await run.signal(paid, 1, connection=db)
        assert await db.fetchval("select count(*) from orders") == 1
        await db.close()


async def test_a_full_inbox_refuses_a_signal_and_leaves_the_transaction_whole(postgres_url: str) -> None:
    """The limit holds for whoever sends, in a transaction of their own as well."""
    async with Perdure(postgres_url, worker=False, max_unread=2) as app:
        db = await orders_of(postgres_url)
        run = await app.start(settles.options(id="o-9"), "o-9")
        await run.signal(paid, 1)
        async with db.transaction():
            await db.execute("insert into orders values ('o-9')")
            await run.signal(paid, 2, connection=db)
            with pytest.raises(InboxFull, match="'o-9' has 2 unread messages"):
                await run.signal(paid, 3, connection=db)
        assert await db.fetchval("select count(*) from orders") == 1
        assert [message.payload for message in await run.unread()] == [1, 2]
        await db.close()


async def test_a_signal_of_a_transaction_that_commits_late_is_not_missed(postgres_url: str) -> None:
    """Its number was given long before those of others that arrived meanwhile."""
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        late = await app.start(settles.options(id="late"), "late")
        transaction = db.transaction()
        await transaction.start()
        await late.signal(paid, 1, connection=db)
        for number in range(3):
            other = await app.start(settles.options(id=f"other {number}"), f"{number}")
            await other.signal(paid, number)
            assert await other.result() == f"{number}: {number}"
        await transaction.commit()
        assert await late.result(timeout=60) == "late: 1"
        await db.close()


@pytest.mark.parametrize("begins", ["by itself", "by hand"])
async def test_psycopg_works_as_well(postgres_url: str, begins: str) -> None:
    async with Perdure(postgres_url) as app:
        db = await psycopg.AsyncConnection.connect(address_of(postgres_url).dsn)
        if begins == "by itself":
            run = await app.start_within(db, settles.options(id="o-5"), "o-5")
            await run.signal(paid, 3, connection=db)
            with pytest.raises(RunNotFound):
                await app.get("o-5")
            await db.commit()
        else:
            async with db.transaction():
                run = await app.start_within(db, settles.options(id="o-5"), "o-5")
                await run.signal(paid, 3, connection=db)
        assert await run.result() == "o-5: 3"
        await db.close()


def test_the_bridge_takes_connections_that_block(postgres_url: str) -> None:
    with Perdure(postgres_url).sync() as app, psycopg.connect(address_of(postgres_url).dsn) as db:
        with db.transaction():
            run = app.start_within(db, settles.options(id="o-6"), "o-6")
            run.signal(paid, 4, connection=db)
        assert run.result() == "o-6: 4"


async def test_a_connection_of_psycopg_that_answers_nothing_is_refused(postgres_url: str) -> None:
    """What the driver says itself, a ValueError without a word of the connection, helps nobody."""
    async with Perdure(postgres_url) as app:
        db = await psycopg.AsyncConnection.connect(address_of(postgres_url).dsn)
        async with db.pipeline():
            with pytest.raises(BadOption, match="is in a pipeline, .* start and signal after it"):
                await app.start_within(db, settles.options(id="o-8"), "o-8")
        await db.close()
        with pytest.raises(BadOption, match="the connection is closed"):
            await app.start_within(db, settles.options(id="o-8"), "o-8")
        assert list(await app.list(workflow=settles)) == []


async def test_a_connection_without_a_transaction_is_refused(postgres_url: str) -> None:
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        with pytest.raises(BadOption, match="in no transaction"):
            await app.start_within(db, settles, "x")
        with pytest.raises(BadOption, match="no connection of asyncpg or psycopg"):
            await app.start_within(object(), settles, "x")
        with pytest.raises(BadOption, match="None is no connection"):
            await app.start_within(None, settles, "x")
        await db.close()
        with pytest.raises(BadOption, match="the connection is closed"):
            await app.start_within(db, settles, "x")
        assert list(await app.list()) == []


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("set search_path = nowhere", None),
        ("select 1/0", "has failed before; roll it back"),
        ("set transaction read only", "only reads"),
        ("set role pg_monitor", "may not do this: permission denied"),
    ],
)
async def test_a_connection_that_cannot_write_says_why(postgres_url: str, spoil: str, told: str | None) -> None:
    """What the server says of it is about tables that the caller has never heard of."""
    async with Perdure(postgres_url) as app:
        db = await orders_of(postgres_url)
        transaction = db.transaction()
        await transaction.start()
        with contextlib.suppress(asyncpg.DivisionByZeroError):
            await db.execute(spoil)
        if told is None:
            assert await app.start_within(db, settles, "x")
        else:
            with pytest.raises(BadOption, match=told):
                await app.start_within(db, settles, "x")
        await transaction.rollback()
        await db.close()


async def test_a_connection_to_another_database_is_refused(postgres_url: str) -> None:
    other = re.sub(r"/\w+$", "/template1", address_of(postgres_url).dsn)
    async with Perdure(postgres_url) as app:
        db = await asyncpg.connect(other)
        async with db.transaction():
            with pytest.raises(BadOption, match="no tables of Perdure in the schema"):
                await app.start_within(db, settles, "x")
        await db.close()


async def test_a_file_has_no_transactions_for_guests() -> None:
    async with Perdure("sqlite://") as app:
        with pytest.raises(BadOption, match="on Postgres only"):
            await app.start_within(object(), settles, "x")
