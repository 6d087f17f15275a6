"""Heartbeats: a sign of life of an activity, what it says with it, and how it learns that nobody waits any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from perdure import NotInActivity, Retry, RunFailed, activity, attempt, heartbeat, workflow
from perdure.errors import BadOption
from perdure.stores.operations import Operation, RecordBeat
from perdure.testing import Environment

said: list[object] = []
TRIED_AGAIN = Retry(max_attempts=3, initial_interval=1)


@pytest.fixture(autouse=True)
def _forget() -> None:
    said.clear()


@activity(heartbeat=30, timeout=3600, retry=TRIED_AGAIN)
async def counts_up(falls_silent_at: int) -> int:
    done = attempt().details
    start = done if isinstance(done, int) else 0
    said.append(start)
    for number in range(start, 10):
        heartbeat(number)
        await asyncio.sleep(0)
        if number == falls_silent_at and attempt().number == 1:
            await asyncio.Event().wait()
    return attempt().number


@activity(heartbeat=30, retry=TRIED_AGAIN)
async def fails_with_details() -> object:
    """Has no await, and is run without a task."""
    if attempt().number > 1:
        return attempt().details
    heartbeat({"page": 7})
    raise ConnectionError("down")


@activity(heartbeat=30, retry=TRIED_AGAIN)
def fails_in_a_thread() -> object:
    if attempt().number > 1:
        return attempt().details
    heartbeat(3)
    heartbeat("half")
    heartbeat()
    raise ConnectionError("down")


@activity(heartbeat=30, timeout=3600, retry=Retry(max_attempts=1))
async def says_how_far_it_is() -> None:
    heartbeat({"done": 4})
    await asyncio.Event().wait()


@activity
async def says_what_cannot_be_kept() -> None:
    heartbeat(object())


@workflow
async def counting(falls_silent_at: int) -> int:
    return await counts_up(falls_silent_at)


@workflow
async def counting_elsewhere(falls_silent_at: int) -> int:
    return await counts_up.options(queue="gpu")(falls_silent_at)


@workflow
async def failing() -> list[object]:
    return [await fails_with_details(), await fails_in_a_thread()]


@workflow
async def failing_elsewhere() -> list[object]:
    there = [fails_with_details.options(queue="gpu"), fails_in_a_thread.options(queue="gpu")]
    return [await each() for each in there]


@workflow
async def showing() -> None:
    await says_how_far_it_is()


@workflow
async def showing_elsewhere() -> None:
    await says_how_far_it_is.options(queue="gpu")()


@workflow
async def saying_the_unsayable() -> None:
    await says_what_cannot_be_kept()


@asynccontextmanager
async def both_queues(env: Environment) -> AsyncIterator[Environment]:
    env._queues = ("default", "gpu")
    async with env:
        yield env


async def test_an_activity_that_falls_silent_is_tried_again_from_where_it_was(env: Environment) -> None:
    async with both_queues(env):
        for each in (counting, counting_elsewhere):
            said.clear()
            run = await env.start(each, 3)
            await env.pass_time(29)
            assert said == [0]
            await env.pass_time(3)
            assert (await env.result(run), said) == (2, [0, 3])


async def test_an_activity_that_beats_is_left_alone(env: Environment) -> None:
    beaten = 0

    @activity(name="beats_on", heartbeat=30, timeout=3600, retry=Retry(max_attempts=1))
    async def beats_on() -> str:
        nonlocal beaten
        beaten += 1
        for _ in range(5):
            said.append("beat")
            heartbeat()
            await moved()
        return "done"

    steps = asyncio.Condition()

    async def moved() -> None:
        async with steps:
            await steps.wait()

    @workflow(name="beating_on")
    async def beating_on() -> str:
        return await beats_on()

    async with env:
        run = await env.start(beating_on)
        for _ in range(5):
            await env.pass_time(25)
            async with steps:
                steps.notify_all()
        assert (await env.result(run), beaten) == ("done", 1)


async def test_silence_is_told_as_such(env: Environment) -> None:
    async with env:
        run = await env.start(showing)
        await env.pass_time(31)
        with pytest.raises(RunFailed, match=r"TimeoutError: the activity did not call heartbeat\(\) for its heartbeat"):
            await env.result(run)


async def test_details_reach_the_next_attempt_after_a_failure(env: Environment) -> None:
    async with both_queues(env):
        for each in (failing, failing_elsewhere):
            assert await env.run(each) == [{"page": 7}, "half"]


async def test_details_reach_the_next_attempt_after_a_crash(env: Environment) -> None:
    async with both_queues(env):
        for number, each in enumerate((counting, counting_elsewhere)):
            said.clear()
            run = await env.start(each.options(id=f"c{number}"), 4)
            # What was said is on disk after a third of the time it may be silent for.
            await env.pass_time(11)
            assert said == [0]
            await env.crash()
            await env.settle()
            again = await env.app.get(run.id)
            await env.pass_time(5)
            # The attempt that was lost is not counted, so that this one falls silent where the other did.
            assert said == [0, 4]
            await env.pass_time(40)
            assert (await env.result(again), said) == (2, [0, 4, 4])


@activity(heartbeat=30, timeout=3600)
async def beats_twice() -> object:
    if (found := attempt().details) is not None:
        return found
    heartbeat("first")
    await asyncio.sleep(0)
    heartbeat("newest")
    said.append("newest")
    await asyncio.Event().wait()
    return None


@workflow
async def is_handed_on() -> object:
    return await beats_twice()


async def test_details_that_are_not_due_yet_are_written_when_the_run_is_handed_back(env: Environment) -> None:
    """A deployment must not cost what the last second has brought."""
    async with env:
        run = await env.start(is_handed_on)
        await env.settle()
        assert said == ["newest"]
        env.worker._parking.hand_back_all(list(env.worker._live.values()))
        assert await env.result(run) == "newest"


async def test_the_details_are_shown_while_it_runs(env: Environment) -> None:
    async with both_queues(env):
        for each in (showing, showing_elsewhere):
            run = await env.start(each)
            await env.pass_time(3)
            await env.pass_time(3)
            (wait,) = (await run.describe()).waiting_for
            assert (wait.kind, wait.name, wait.details) == ("activity", "says_how_far_it_is", {"done": 4})
            assert wait.beat_at is not None
            await run.terminate()
            await env.settle()


async def test_many_heartbeats_are_few_writes(env: Environment) -> None:
    """Whoever beats in a loop must not fill the disk."""

    @activity(name="beats_fast", timeout=3600, retry=Retry(max_attempts=1))
    async def beats_fast() -> None:
        for number in range(200):
            heartbeat(number)
            await asyncio.sleep(0)
        await asyncio.Event().wait()

    @workflow(name="beating_fast")
    async def beating_fast() -> None:
        await beats_fast()

    async with env:
        beats: list[Operation] = []
        env.store.after_commit = lambda batch: beats.extend(
            operation for group in batch.groups for operation in group if isinstance(operation, RecordBeat)
        )
        run = await env.start(beating_fast)
        await env.pass_time(5)
        assert len(beats) <= 6
        (wait,) = (await run.describe()).waiting_for
        assert wait.details == 199


async def test_details_that_cannot_be_kept_are_refused(env: Environment) -> None:
    async with env:
        with pytest.raises(RunFailed, match=r"the details of heartbeat\(\)"):
            await env.run(saying_the_unsayable)


def test_only_an_activity_has_a_heart() -> None:
    with pytest.raises(NotInActivity, match=r"heartbeat\(\) works only .* leave it out"):
        heartbeat(1)


@pytest.mark.parametrize("silence", [0, -1, True, "30", float("inf")])
def test_a_heartbeat_is_a_duration(silence: float) -> None:
    with pytest.raises(BadOption, match="heartbeat"):
        counts_up.options(heartbeat=silence)
