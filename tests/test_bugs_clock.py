"""Bugs of others, about time: clocks that jump, differ or stand still, and timers next to each other.

The numbers in the docstrings are those of docs/bugs-of-others.md.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import Signal, Status, sleep, workflow
from perdure.stores.answers import Outcome
from perdure.stores.operations import Batch, RaiseEpoch
from perdure.testing import Environment, VirtualClock
from perdure.testing.clock import FIRST_MS

ring = Signal("ring", str)
HOUR_MS = 3_600_000


@workflow
async def sleeps_an_hour() -> str:
    await sleep(timedelta(hours=1))
    return "awake"


@workflow
async def sleeps_twice(first: float, second: float) -> list[str]:
    woken = []

    async def nap(name: str, seconds: float) -> None:
        await sleep(seconds)
        woken.append(name)

    await asyncio.gather(nap("first", first), nap("second", second))
    return woken


@workflow
async def drops_one_of_two_timers() -> str:
    first, second = asyncio.create_task(sleep(10.0)), asyncio.create_task(sleep(10.001))
    word = await ring.receive()
    first.cancel()
    await second
    return word


@pytest.mark.parametrize("state", ["live", "parked"])
async def test_a_clock_that_goes_back_loses_no_timer(tmp_path: Path, state: str) -> None:
    """R33: the wall clock went back after the timer was claimed; it was dropped, and the run hung."""
    async with Environment(str(tmp_path / "back.db"), park_after=5 if state == "parked" else 7200) as env:
        run = await env.start(sleeps_an_hour)
        await env.pass_time(30)
        await env.pass_time(30)
        assert (await run.describe()).status is (Status.SUSPENDED if state == "parked" else Status.RUNNING)
        env.clock.advance(-20 * 60_000)
        await env.pass_time(timedelta(minutes=60))
        assert (await run.describe()).status is not Status.COMPLETED
        assert await env.result(run, patience=timedelta(hours=2)) == "awake"
        fired = [event.at for event in await env.events(run.id) if event.kind == "TimerFired"]
        started = (await run.describe()).created_at
        assert fired[0] - started >= timedelta(hours=1)


@pytest.mark.parametrize("skew_ms", [-30 * 60_000, 10 * 60_000], ids=["behind", "ahead"])
async def test_a_node_with_another_clock_takes_over_and_loses_no_timer(tmp_path: Path, skew_ms: int) -> None:
    """R34: the level up to which timers had been read went back with the new node's clock."""
    path = str(tmp_path / "skew.db")
    dead, heir = Environment(path, seed=1), Environment(path, seed=2, clock=VirtualClock(FIRST_MS + skew_ms))
    await dead.open()
    run = await dead.start(sleeps_an_hour.options(id="skewed"))
    await dead.settle()
    created = (await run.describe()).created_at
    dead.bury()
    async with heir:
        theirs = await heir.app.get("skewed")
        await heir.pass_time(timedelta(minutes=49))
        assert (await theirs.describe()).status is not Status.COMPLETED
        assert await heir.result(theirs, patience=timedelta(hours=3)) == "awake"
        times = [event.at for event in await heir.events("skewed")]
        assert times == sorted(times)
        assert times[-1] - created >= timedelta(hours=1)


async def test_timers_of_two_nodes_with_different_clocks_all_fire(tmp_path: Path) -> None:
    """R35: new timers of the slower node lay below the level the faster one had read, and were never seen."""
    path = str(tmp_path / "nodes.db")
    fast, slow = Environment(path, seed=1, clock=VirtualClock(FIRST_MS + HOUR_MS)), Environment(path, seed=2)
    async with fast, slow:
        runs = [await env.start(sleeps_twice, 5.0, 20.0) for env in (slow, fast, slow, fast)]
        for _ in range(30):
            for env in (fast, slow):
                await env.pass_time(1)
        for number, run in enumerate(runs):
            assert await (slow if number % 2 == 0 else fast).result(run) == ["first", "second"]


async def test_a_cancelled_timer_does_not_take_its_neighbour_along(env: Environment) -> None:
    """R36: compared by the second, cancelling one of two timers fired the other one early, or not at all."""
    async with env:
        run = await env.start(drops_one_of_two_timers)
        await run.signal(ring, "now")
        await env.pass_time(10)
        assert (await run.describe()).status is Status.RUNNING
        await env.pass_time(0.001)
        assert (await run.describe()).status is Status.COMPLETED
        fired = [event for event in await env.events(run.id) if event.kind == "TimerFired"]
        assert len(fired) == 1


async def test_after_a_machine_slept_every_timer_fires_once_and_in_order(env: Environment) -> None:
    """R46, R18: a clock that stood still with the machine; every missed moment was made up for afterwards."""
    async with env:
        run = await env.start(sleeps_twice, 2400.0, 1200.0)
        await env.settle()
        env.clock.advance(78 * 60_000)
        assert await env.result(run) == ["second", "first"]
        assert [event.kind for event in await env.events(run.id)].count("TimerFired") == 2


async def test_a_timer_set_before_a_loss_fires_after_it(env: Environment) -> None:
    """R72: what was remembered as under way was never forgotten, and kept the timer from firing for ever."""
    async with env:
        run = await env.start(sleeps_an_hour)
        await env.settle()
        for epoch in (1, 2, 3):
            told: list[Outcome] = []
            env.store.commit(Batch([[RaiseEpoch(env.engine.worker_id, epoch)]], None, 0), told.append)
            await env.pass_time(60)
        assert await env.result(run, patience=timedelta(hours=2)) == "awake"
        assert [event.kind for event in await env.events(run.id)].count("TimerFired") == 1
