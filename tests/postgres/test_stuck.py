"""Somebody's open transaction on a run's row stalls that run, and nothing else."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from perdure import Perdure, Signal, activity, workflow
from perdure.errors import StoreUnavailable
from perdure.stores.postgres_address import address_of

word = Signal("word", str)


@activity
async def said_twice(text: str) -> str:
    return text * 2


@workflow
async def repeats_a_word() -> str:
    return await said_twice(await word.receive())


@workflow
async def says_twice(text: str) -> str:
    return await said_twice(text)


@asynccontextmanager
async def in_a_transaction(url: str, sql: str, *parameters: object) -> AsyncIterator[None]:
    """What somebody does with the database, and does not commit."""
    address = address_of(url)
    db = await asyncpg.connect(
        address.dsn, server_settings={"search_path": address.schema, "application_name": "lunch"}
    )
    transaction = db.transaction()
    await transaction.start()
    await db.execute(sql, *parameters)
    try:
        yield
    finally:
        await transaction.rollback()
        await db.close()


async def test_an_open_transaction_on_a_row_stalls_only_that_run(postgres_url: str) -> None:
    async with Perdure(postgres_url) as app:
        run = await app.start(repeats_a_word)
        lock = "update runs set priority = priority where run_id = $1"
        async with in_a_transaction(postgres_url, lock, run.run_id):
            signal = asyncio.ensure_future(run.signal(word, "ab"))
            began = time.monotonic()
            for number in range(20):
                assert await app.run(says_twice, f"{number}") == f"{number}{number}"
            assert time.monotonic() - began < 3
            assert not signal.done()
        await signal
        assert await run.result() == "abab"


@pytest.mark.parametrize(
    "lock",
    [
        "select 1 from runs where run_id = '{}' for update",
        "savepoint s; update runs set priority = 0 where run_id = '{}'; release s",
    ],
)
async def test_who_waits_for_a_row_for_long_is_told_who_holds_it(postgres_url: str, lock: str) -> None:
    async with Perdure(postgres_url) as app:
        run = await app.start(repeats_a_word.options(id="w-17"))
        async with in_a_transaction(postgres_url, lock.format(run.run_id)):
            told = r"process \d+ \(lunch\), for \d+ s holds the row of run 'w-17'"
            with pytest.raises(StoreUnavailable, match=told):
                await run.signal(word, "ab")
        await run.signal(word, "cd")
        assert await run.result() == "cdcd"


async def test_an_end_that_meets_an_open_transaction_is_written_when_that_is_over(postgres_url: str) -> None:
    """What an owner has done is not lost, and comes in its order."""
    async with Perdure(postgres_url) as app:
        run = await app.start(repeats_a_word)
        await run.signal(word, "ab")
        result = asyncio.ensure_future(run.result())
        lock = "select 1 from runs where run_id = $1 for update"
        async with in_a_transaction(postgres_url, lock, run.run_id):
            assert await app.run(says_twice, "x") == "xx"
        assert await result == "abab"


async def test_an_id_that_is_being_taken_stalls_only_who_wants_it_too(postgres_url: str) -> None:
    async with Perdure(postgres_url, worker=False) as app:
        insert = """
            insert into runs (run_id, namespace, workflow_id, workflow, queue, status, seed, created_at, updated_at)
            values ('theirs', 'main', 'same', 'other', 'default', 'PENDING', 1, 1, 1)"""
        async with in_a_transaction(postgres_url, insert):
            same = asyncio.ensure_future(app.start(says_twice.options(id="same"), "a"))
            began = time.monotonic()
            for number in range(5):
                await app.start(says_twice.options(id=f"other {number}"), "a")
            assert time.monotonic() - began < 3
            assert not same.done()
        assert (await same).id == "same"
