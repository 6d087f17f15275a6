"""Events out on Postgres: what transactions that are open do to sinks, and what they tell them when they commit."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from perdure import Log, OutboxEvent, SinkNotReady, sink, workflow
from perdure.authoring.sinks import sinks
from perdure.stores.postgres.address import address_of
from perdure.testing import Environment
from tests.processes.outbox_writers import BITE, UNWORKED, counting, ids_of, outbox_written, until_told


@workflow
async def outbox_late(order: str) -> str:
    return order


@asynccontextmanager
async def caller(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection of the application's own."""
    address = address_of(url)
    db = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    try:
        yield db
    finally:
        await db.close()


def adding(env: Environment) -> "asyncio.Task[object]":
    return asyncio.ensure_future(env.app.outbox.add("late", Log(), events=("run.*",)))


async def told(env: Environment, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log was told once nothing waits any more."""
    while (await env.app.outbox.get("late")).backlog:
        await env.pass_time(1)
    return [record.getMessage() for record in caplog.records if record.name == "perdure.events"]


async def test_a_sink_is_made_when_the_transactions_before_it_have_ended(
    empty_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They may not have seen it, and what they change could be missed after `add` had answered."""
    caplog.set_level("INFO", "perdure.events")
    async with Environment(empty_url) as env, caller(empty_url) as db:
        transaction = db.transaction()
        await transaction.start()
        await env.app.start_within(db, outbox_late.options(id="before"), "before")
        task = adding(env)
        await env.pass_time(1)
        assert not task.done()
        await transaction.commit()
        while not task.done():
            await env.pass_time(1)
        await task
        await env.run(outbox_late.options(id="after"), "after")
        assert [line for line in await told(env, caplog) if "after" in line] == [
            "run.started after",
            "run.completed after",
        ]


async def test_a_worker_opens_at_once_where_its_sinks_have_been_for_long(empty_url: str) -> None:
    """A transaction that is open for hours is no reason to wait: it began to write when the sink was there."""

    async def known_for_long(_: OutboxEvent) -> None: ...

    kept = sink(events=("run.*",))(known_for_long)
    try:
        async with Environment(empty_url) as env, caller(empty_url) as db:
            await env.pass_time(60)
            async with db.transaction():
                await env.app.start_within(db, outbox_late.options(id="open"), "open")
                began = env.clock.now()
                async with Environment(empty_url, clock=env.clock):
                    assert env.clock.now() - began < 5000
    finally:
        sinks._known.pop(kept.name)


async def test_transactions_that_stay_open_are_named(empty_url: str) -> None:
    """Ten seconds are waited for them; the sink is there, and whoever made it knows what it may miss."""
    async with Environment(empty_url) as env, caller(empty_url) as db:
        async with db.transaction():
            await env.app.start_within(db, outbox_late.options(id="open"), "open")
            began = env.clock.now()
            task = adding(env)
            while not task.done():
                await env.pass_time(1)
            with pytest.raises(SinkNotReady, match="still open") as refused:
                await task
            assert env.clock.now() - began >= 10_000
            (named,) = refused.value.transactions
            assert str(db.get_server_pid()) in named
        assert [sink.name for sink in await env.app.outbox.list()] == ["late"]


async def test_a_transaction_that_commits_late_is_told(empty_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its events have smaller numbers than those that were delivered meanwhile; one rolled back tells nothing."""
    caplog.set_level("INFO", "perdure.events")
    async with Environment(empty_url) as env, caller(empty_url) as db, caller(empty_url) as undone:
        await env.app.outbox.add("late", Log(), events=("run.*",))
        committed, rolled_back = db.transaction(), undone.transaction()
        await committed.start()
        await rolled_back.start()
        run = await env.app.start_within(db, outbox_late.options(id="slow"), "slow")
        await env.app.start_within(undone, outbox_late.options(id="never"), "never")
        await env.run(outbox_late.options(id="quick"), "quick")
        assert await told(env, caplog) == ["run.started quick", "run.completed quick"]
        await rolled_back.rollback()
        await committed.commit()
        assert await env.result(run) == "slow"
        assert (await told(env, caplog))[2:] == ["run.started slow", "run.completed slow"]


async def write_and_count(url: str, writers: int, events: int, longest_delay: float) -> None:
    """Writers with transactions of their own, which commit late and in any order; one of ten is rolled back."""
    share, began = events // writers, time.monotonic()
    committed: set[str] = set()
    undone: set[str] = set()

    async def write(number: int) -> None:
        chance, ids = random.Random(number), ids_of(number, share)
        async with caller(url) as db:
            for first in range(0, share, BITE):
                transaction, bite = db.transaction(), ids[first : first + BITE]
                await transaction.start()
                for id in bite:
                    await app.start_within(db, outbox_written.options(id=id, queue=UNWORKED), "x")
                await asyncio.sleep(chance.random() * longest_delay)
                is_undone = first % (10 * BITE) == BITE * (number % 10)
                await (transaction.rollback() if is_undone else transaction.commit())
                (undone if is_undone else committed).update(bite)

    async with counting(url) as (app, told):
        await asyncio.gather(*(write(number) for number in range(writers)))
        written = time.monotonic() - began
        await until_told(app)
    took, twice = time.monotonic() - began, sum(count > 1 for count in told.values())
    assert told.keys() == committed
    assert undone
    print(
        f"{writers} writers, {len(committed):,} events told, 0 lost, {twice} twice, {len(undone):,} rolled back "
        f"and not told; {written:.0f} s written, {took:.0f} s told"
    )


async def test_events_of_writers_that_commit_late_are_told(empty_url: str) -> None:
    """None is lost whatever the order of their commits, and none of a change that was rolled back is told."""
    await write_and_count(empty_url, 4, 4 * 3 * BITE, 0)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_a_hundred_thousand_events_of_late_writers_are_told(empty_url: str) -> None:
    await write_and_count(empty_url, 32, int(os.environ.get("EVENTS") or 100_000), 0.2)
