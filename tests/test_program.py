"""Programs: workflow code in memory, and how it leaves it without a trace."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import RunFailed, Signal, Status, activity, sleep, workflow
from perdure.testing import Environment
from perdure.worker.loop import loop as run_loop
from perdure.worker.loop.eviction import graveyard
from perdure.worker.loop.loop import RunLoop

never = Signal("never", int)
log: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    log.clear()


@activity
async def note(text: str) -> None:
    log.append(text)


@workflow
async def cleans_up() -> None:
    try:
        await never.receive()
    finally:
        log.append("finally")
        await note("an activity in a finally block of an evicted run")


@workflow
async def clings_to_life() -> None:
    while True:
        try:
            await never.receive()
        except BaseException:  # noqa: BLE001 - on purpose
            continue


async def numbers() -> AsyncIterator[int]:
    try:
        for number in range(10):
            await note(f"number {number}")
            yield number
    finally:
        await note("closed")


@workflow
async def breaks_off() -> str:
    async for number in numbers():
        if number == 2:
            break
    await sleep(1)
    return "left"


@workflow
async def abandons_generators() -> None:
    async for _ in numbers():
        await never.receive()


@workflow
async def leaves_tasks_behind() -> str:
    async def background() -> None:
        try:
            await never.receive()
        finally:
            await note("must not run")

    tasks = [asyncio.create_task(background()) for _ in range(3)]
    await sleep(1)
    return f"{len(tasks)} left"


@workflow
async def spins() -> None:
    while True:  # noqa: ASYNC110 - on purpose
        await asyncio.sleep(0)


@workflow
async def gathers(width: int) -> int:
    async def leaf(n: int) -> int:
        await sleep(n % 7)
        return n

    return sum(await asyncio.gather(*(leaf(n) for n in range(width))))


@workflow
async def orders_by_sets() -> list[int]:
    async def leaf(n: int) -> int:
        await sleep(5)
        return n

    done, _ = await asyncio.wait({asyncio.create_task(leaf(n)) for n in range(20)})
    return [task.result() for task in done]


@pytest.mark.parametrize("workflow", [cleans_up, abandons_generators, leaves_tasks_behind])
async def test_an_evicted_run_leaves_no_code_behind(tmp_path: Path, workflow: object) -> None:
    """A coroutine left to the collector would run its finally blocks inside another run."""
    async with Environment(str(tmp_path / "evict.db")) as env:
        await env.start(workflow)  # type: ignore[arg-type]  # one of those above
        await env.settle()
        (live,) = env.worker._live.values()
        loops = [weakref.ref(live.program.loop)]
        del live
        log.clear()
        await env.pass_time(30)
        gc.collect()
        assert [text for text in log if text != "finally"] == []
        assert [reference() for reference in loops] == [None]


async def test_every_program_is_evicted_before_it_is_freed(tmp_path: Path) -> None:
    """Finished, parked or stopped: no loop that still counts as alive is left for the collector."""
    async with Environment(str(tmp_path / "all.db")) as env:
        runs = [await env.start(gathers, 5) for _ in range(5)]
        for run in runs:
            assert await env.result(run) == 10
        await env.start(cleans_up)
        await env.settle()
    gc.collect()
    assert [loop for loop in gc.get_objects() if type(loop) is RunLoop and not loop.is_dead] == []


async def test_code_that_will_not_end_is_kept_away_from_others(tmp_path: Path) -> None:
    buried = len(graveyard)
    async with Environment(str(tmp_path / "clings.db")) as env:
        await env.start(clings_to_life)
        await env.pass_time(30)
        other = await env.start(gathers, 3)
        assert await env.result(other) == 3
    assert len(graveyard) == buried + 1


async def test_a_generator_is_closed_inside_its_own_run(env: Environment) -> None:
    async with env:
        run = await env.start(breaks_off)
        assert await env.result(run) == "left"
        assert log == ["number 0", "number 1", "number 2", "closed"]


async def test_tasks_left_over_end_with_their_run(env: Environment) -> None:
    async with env:
        run = await env.start(leaves_tasks_behind)
        assert await env.result(run) == "3 left"
        assert log == []


async def test_a_workflow_that_spins_fails_and_the_others_go_on(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loop, "MOST_CALLBACKS", 10_000)
    async with env:
        run = await env.start(spins)
        other = await env.start(gathers, 3)
        with pytest.raises(RunFailed, match="without waiting for anything"):
            await env.result(run)
        assert await env.result(other) == 3


async def test_a_wide_gather_replays(tmp_path: Path) -> None:
    """A history longer than a slice is replayed with pauses, and signals meanwhile are not lost."""
    async with Environment(str(tmp_path / "wide.db")) as env:
        run = await env.start(gathers.options(id="wide"), 1500)
        await env.pass_time(3)
        await env.crash()
        found = await env.app.get("wide")
        assert found.run_id == run.run_id
        assert await env.result(found) == sum(range(1500))


async def test_sets_of_tasks_have_one_order_for_ever(tmp_path: Path) -> None:
    async with Environment(str(tmp_path / "sets.db")) as env:
        run = await env.start(orders_by_sets.options(id="sets"))
        order = await env.result(run)
    async with Environment(str(tmp_path / "sets.db"), replay_always=True) as env:
        assert sorted(order) == list(range(20))
        assert await (await env.app.get("sets")).result() == order


async def test_a_run_waits_for_years_without_a_row_more(env: Environment) -> None:
    @workflow
    async def patient() -> str:
        await sleep(timedelta(days=3650))
        return "still here"

    async with env:
        run = await env.start(patient)
        await env.pass_time(timedelta(days=3649))
        assert (await run.describe()).status is Status.SUSPENDED
        assert len(await env.events(run.id)) == 1
        await env.pass_time(timedelta(days=1))
        assert await env.result(run) == "still here"
