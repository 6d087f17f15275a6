"""Closing while nothing can be written, or while nobody waits for it: whoever waits is told, no run is kept."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from perdure import NotOpen, Perdure, Run, Signal, StoreUnavailable, activity, workflow
from perdure.app.internals import engine_of
from perdure.engine import committer
from perdure.engine.engine import StoreEngine
from perdure.stores.answers import Failed, Outcome
from perdure.stores.operations import Batch
from perdure.stores.postgres.store import PostgresStore
from perdure.testing import Environment

nudge = Signal("nudge", int)


@workflow
async def waits_for_nudges() -> int:
    return await nudge.receive() + await nudge.receive()


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return Environment(str(tmp_path / "closing.db"))


@pytest.fixture(params=["sqlite", "postgres"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_url"))
    return f"sqlite:///{tmp_path}/closing.db"


def refuse_all(env: Environment) -> None:
    """The disk is full: nothing can be written, and that is known."""

    def refused(batch: Batch, done: Callable[[Outcome], None]) -> None:
        done(Failed(StoreUnavailable(env.store.url, "injected: the disk is full")))

    env.store.commit = refused  # type: ignore[method-assign]  # a disk that stays full


async def stall(env: Environment) -> Run[int]:
    """A run whose step cannot be written, and waits until it can."""
    run = await env.start(waits_for_nudges.options(id="stalled"))
    await env.settle()
    await run.signal(nudge, 1)
    refuse_all(env)
    await env.settle()
    assert env.engine.is_stalled
    return run


async def told(work: Awaitable[object]) -> None:
    """Whoever waits for this learns that the engine is not open; without time passing, for nobody lets it pass."""
    async with asyncio.timeout(60):
        with pytest.raises(NotOpen):
            await work


async def test_a_start_under_way_when_its_engine_closes_on_a_full_disk_is_answered(env: Environment) -> None:
    """Its first group was dropped, the second came too late to be, and the caller waited for ever."""
    await env.open()
    await stall(env)
    starting = asyncio.ensure_future(env.app.start(waits_for_nudges.options(id="late")))
    await asyncio.sleep(0)
    await env.engine.close()
    await told(starting)
    env.bury()


async def test_callers_that_wait_for_a_new_epoch_are_answered_when_the_engine_closes(env: Environment) -> None:
    """Nothing was stalled, only stopped until there is a new epoch; nobody was left to bring one."""
    await env.open()
    run = await env.start(waits_for_nudges.options(id="kept"))
    await env.settle()
    env.store.is_broken = True
    with pytest.raises(StoreUnavailable):
        await env.alive(run.signal(nudge, 1))
    signalling = asyncio.ensure_future(run.signal(nudge, 2))
    starting = asyncio.ensure_future(env.app.start(waits_for_nudges.options(id="late")))
    await env.settle()
    assert not signalling.done()
    await env.engine.close()
    await told(signalling)
    await told(starting)
    env.bury()


async def test_callers_that_wait_for_room_are_answered_when_the_engine_closes(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue was emptied under them, and nobody said so."""
    await env.open()
    run = await stall(env)
    monkeypatch.setattr(committer, "FULL_QUEUE", 0)
    callers = [
        asyncio.ensure_future(env.app.start(waits_for_nudges.options(id="late"))),
        asyncio.ensure_future(run.signal(nudge, 2)),
    ]
    await env.settle()
    await env.engine.close()
    for caller in callers:
        await told(caller)
    env.bury()


begun: list[int] = []


@activity
async def drags_on_once() -> int:
    begun.append(1)
    if len(begun) == 1:
        await asyncio.Event().wait()
    return len(begun)


@workflow
async def drags_on_a_while() -> int:
    return await drags_on_once()


@pytest.mark.parametrize("times", [1, 2])
async def test_a_closing_that_is_cancelled_hands_its_runs_back(any_url: str, times: int) -> None:
    """A timeout around it left an engine open that nobody knew: its lease was renewed, its runs stood still."""
    begun.clear()
    app = await Perdure(any_url, grace=3600).__aenter__()
    await app.start(drags_on_a_while.options(id="kept"))
    while not begun:  # noqa: ASYNC110 - an event would belong to the loop of one test
        await asyncio.sleep(0)
    closing = asyncio.create_task(app.__aexit__(None, None, None))
    for _ in range(times):
        await asyncio.sleep(0.01)
        closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with Perdure(any_url) as other:
        assert await (await other.get("kept", workflow=drags_on_a_while)).result(timeout=60) == len(begun)


async def closes_after_a_moment(url: str) -> None:
    async with asyncio.timeout(None) as patience, Perdure(url, grace=3600) as app:
        await app.start(drags_on_a_while)
        while not begun:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        patience.reschedule(asyncio.get_running_loop().time() + 0.01)


async def test_a_timeout_around_a_closing_is_told_as_one(any_url: str) -> None:
    begun.clear()
    with pytest.raises(TimeoutError):
        await closes_after_a_moment(any_url)


async def test_a_closing_that_is_broken_off_leaves_no_connection_open(postgres_url: str) -> None:
    """Those who were told twice to hurry left connections to the garbage collector, which complained elsewhere."""
    app = await Perdure(postgres_url, worker=False).__aenter__()
    store = cast("PostgresStore", app._store)
    await app.list()
    links = [link for link in store.readers.links._all if not link.is_lost]
    closing = asyncio.create_task(cast("StoreEngine", engine_of(app)).close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert links
    assert all(link.is_lost for link in links)
