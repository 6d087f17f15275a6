"""Closing while nothing can be written: whoever waits is told, whatever it waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from perdure import NotOpen, Run, Signal, StoreUnavailable, workflow
from perdure.engine import committer
from perdure.stores.answers import Failed, Outcome
from perdure.stores.operations import Batch
from perdure.testing import Environment

nudge = Signal("nudge", int)


@workflow
async def waits_for_nudges() -> int:
    return await nudge.receive() + await nudge.receive()


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return Environment(str(tmp_path / "closing.db"))


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
