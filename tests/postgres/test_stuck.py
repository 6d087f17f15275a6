"""Somebody's open transaction on a run's row stalls that run, and nothing else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from perdure import Perdure, Signal, Status, activity, workflow
from perdure.engine import committer
from perdure.errors import RunCancelled, RunNotFound, StoreUnavailable
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.writing import locked_rows
from perdure.stores.postgres.writing.splitting import pieces_of
from perdure.testing import Environment
from tests.test_store_contract import a_run

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


REFUSES_UNLUCKY = """
create function refuse() returns trigger language plpgsql as $$
begin
    if new.workflow_id = 'unlucky' then
        raise exception 'no luck';
    end if;
    return new;
end $$;
create trigger refuses before insert on runs for each row execute function refuse()"""


async def started(app: Perdure, id: str) -> str:
    """The run_id of a run, once it is there."""
    for _ in range(1000):
        with contextlib.suppress(RunNotFound):
            return (await app.get(id)).run_id
        await asyncio.sleep(0.01)
    raise AssertionError(f"{id} was never started")


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


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gives up on a row that is held, however long the others take."""
    monkeypatch.setattr(committer, "BUSY_MS", 3_600_000)


@pytest.mark.usefixtures("patient")
async def test_an_open_transaction_on_a_row_stalls_only_that_run(postgres_url: str) -> None:
    async with Perdure(postgres_url) as app:
        run = await app.start(repeats_a_word)
        lock = "update runs set priority = priority where run_id = $1"
        async with in_a_transaction(postgres_url, lock, run.run_id):
            signal = asyncio.ensure_future(run.signal(word, "ab"))
            for number in range(20):
                assert await app.run(says_twice, f"{number}") == f"{number}{number}"
            assert not signal.done()
        await signal
        assert await run.result() == "abab"


@workflow
async def hears_three_words() -> list[str]:
    return [await word.receive() for _ in range(3)]


async def test_signals_that_waited_for_a_row_arrive_in_the_order_they_were_sent(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written is tried again; a sender who says "open" and then "close" must not be turned round."""
    monkeypatch.setattr(locked_rows, "LOOK_SECONDS", 0)
    async with Environment(empty_url) as env:
        run = await env.start(hears_three_words)
        await env.settle()
        async with in_a_transaction(empty_url, "select 1 from runs where run_id = $1 for update", run.run_id):
            sending = asyncio.gather(*(run.signal(word, text) for text in ("a", "b", "c")))
            await env.settle()
            assert not sending.done()
        await env.pass_time(0.05)
        await sending
        assert await env.result(run) == ["a", "b", "c"]


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


@workflow
async def has_a_child() -> str:
    child = asyncio.create_task(repeats_a_word.options(id="a child")())
    said = await word.receive()
    return f"{said} {child.done()}"


async def test_a_row_of_a_child_stalls_only_the_end_of_its_parent(postgres_url: str) -> None:
    """The end of a run is told to its children; nobody else waits for the row of one of them."""
    async with Perdure(postgres_url) as app:
        parent = await app.start(has_a_child)
        child = await started(app, "a child")
        async with in_a_transaction(postgres_url, "update runs set priority = 0 where run_id = $1", child):
            await parent.signal(word, "!")
            for number in range(20):
                assert await app.run(says_twice, f"{number}") == f"{number}{number}"
            assert (await parent.describe()).status is Status.RUNNING
        assert await parent.result(timeout=60) == "! False"
        with pytest.raises(RunCancelled):
            await (await app.get("a child")).result(timeout=60)


async def test_a_run_that_a_trigger_refuses_harms_no_other(postgres_url: str) -> None:
    """Somebody's own rule on our tables is a trouble of whom it strikes."""
    async with Perdure(postgres_url) as app:
        db = await asyncpg.connect(address_of(postgres_url).dsn)
        await db.execute(f"set search_path = {address_of(postgres_url).schema}")
        await db.execute(REFUSES_UNLUCKY)
        good = [app.run(says_twice, f"{number}") for number in range(10)]
        unlucky = app.run(says_twice.options(id="unlucky"), "13")
        *told, error = await asyncio.gather(*good, unlucky, return_exceptions=True)
        await db.close()
        assert told == [f"{number}{number}" for number in range(10)]
        assert isinstance(error, StoreUnavailable)
        assert "no luck" in str(error)


async def test_what_is_too_much_for_one_transaction_is_written_in_several(postgres_url: str) -> None:
    """A server that is busy with a hundred megabytes is taken for one that hangs, and they are sent again and again."""
    large = "x" * 700_000
    async with Perdure(postgres_url) as app:
        results = await asyncio.gather(*(app.run(says_twice, f"{number}{large}") for number in range(12)))
        assert [result[:2] for result in results] == [f"{number}{large}"[:2] for number in range(12)]


def test_a_batch_goes_in_pieces_by_what_is_long_in_it() -> None:
    small, large = [a_run("r1")], [a_run("r2", input="x" * 1_500_000)]
    assert pieces_of([small] * 5) == [range(5)]
    assert pieces_of([small, large, small, large, small]) == [range(3), range(3, 5)]
    assert pieces_of([[*large, *large], large]) == [range(1), range(1, 2)]


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


@pytest.mark.usefixtures("patient")
async def test_an_id_that_is_being_taken_stalls_only_who_wants_it_too(postgres_url: str) -> None:
    async with Perdure(postgres_url, worker=False) as app:
        insert = """
            insert into runs (run_id, namespace, workflow_id, workflow, queue, status, seed, created_at, updated_at)
            values ('theirs', 'main', 'same', 'other', 'default', 'PENDING', 1, 1, 1)"""
        async with in_a_transaction(postgres_url, insert):
            same = asyncio.ensure_future(app.start(says_twice.options(id="same"), "a"))
            for number in range(5):
                await app.start(says_twice.options(id=f"other {number}"), "a")
            assert not same.done()
        assert (await same).id == "same"
