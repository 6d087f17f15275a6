"""Notices: what others are told, and that it leaves nothing behind."""

import asyncio
import time
from typing import Any

import asyncpg
import pytest

from perdure import Perdure, Signal, activity, workflow
from perdure.engine import watch
from perdure.stores.operations import FreeRuns, Operation, RaiseEpoch
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.names import channel_of
from perdure.stores.postgres.notify import Notices
from perdure.stores.rules.table import News, news_of
from tests.processes.sites import until
from tests.test_store_contract import a_claim, a_message, a_park, a_ripe_run, a_run, an_end, an_event


async def test_a_notice_does_not_take_the_sync_from_later_commits(postgres_url: str) -> None:
    """A transaction pooler hands the same connection to the next batch, and what that commits must be on disk."""
    address = address_of(postgres_url)
    heard: asyncio.Queue[str] = asyncio.Queue()
    listening = await asyncpg.connect(address.dsn)
    await listening.add_listener(channel_of(address.schema), lambda *said: heard.put_nowait(str(said[3])))
    notices = Notices(address, "somebody")
    connection = await notices._link.connection()
    problems: list[object] = []
    connection.add_log_listener(lambda _, message: problems.append(message))

    notices.tell(News.WORK)
    assert notices._telling is not None
    await notices._telling
    await heard.get()

    assert await connection.fetchval("show synchronous_commit") == "on"
    assert problems == []
    await notices.close()
    await listening.close()


@activity
async def looks_up(name: str) -> str:
    return name


@workflow
async def looks_up_once(name: str) -> str:
    return await looks_up(name)


go = Signal("go", str)


@workflow
async def ends_when_told() -> str:
    return await go.receive()


async def test_whoever_has_just_come_is_told_of_an_end(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was alone told nobody of anything, and saw only a second later that somebody waits by now."""
    monkeypatch.setattr(watch, "RESCUE_MS", 3_600_000)
    async with Perdure(postgres_url) as worker:
        run = await worker.start(ends_when_told.options(id="told"))
        # As it is when it has seen that it is alone.
        store: Any = worker._store
        store.presence.life.has_listeners = False
        async with Perdure(postgres_url, worker=False) as client:
            waiting = asyncio.create_task((await client.get("told")).result())
            await until(lambda: store.presence.life.has_listeners, "it has heard of the other one")
            await run.signal(go, "gone")
            async with asyncio.timeout(120):
                assert await waiting == "gone"


QUIET_SECONDS = 0.5


async def test_workers_that_have_nothing_to_do_tell_each_other_nothing(postgres_url: str) -> None:
    """One that told of each look would wake the others, who look and tell: all of them at work for nothing."""
    heard: list[str] = []
    async with Perdure(postgres_url) as first, Perdure(postgres_url):
        listening = await asyncpg.connect(address_of(postgres_url).dsn)
        channel = channel_of(address_of(postgres_url).schema)
        await listening.add_listener(channel, lambda *said: heard.append(str(said[3])))
        # They tell nobody until they have seen that somebody listens.
        while len({said.partition(":")[0] for said in heard}) < 2:
            run = await first.start(looks_up_once.options(delay=0.001), "for whoever takes it")
            assert await run.result() == "for whoever takes it"
        heard.clear()
        settled = time.monotonic()
        await until(lambda: time.monotonic() - settled > QUIET_SECONDS, "they have looked a few times")
        await listening.close()
    # Had each look woken another, it would be hundreds.
    assert len(heard) <= 10, heard


@pytest.mark.parametrize(
    ("operation", "news"),
    [
        (a_run("r1"), News.NOTHING),
        (a_ripe_run("r1"), News.WORK),
        (a_message("r1"), News.WORK),
        (a_park("r1"), News.WORK),
        (an_end("r1", 2), News.ENDS),
        (an_event("r1", 2), News.NOTHING),
        (a_claim(), News.NOTHING),
        (FreeRuns("w-1", 1000, 10), News.WORK | News.ENDS),
        (RaiseEpoch("w-1", 1), News.NOTHING),
    ],
)
def test_others_are_told_of_what_they_can_do_something_with(operation: Operation, news: News) -> None:
    assert news_of([[operation], [an_event("r2", 1)]]) == news
