"""Stopping runs: cancel with clean-up, terminate, and the end that comes by the clock."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import (
    Perdure,
    RunCancelled,
    RunClosed,
    RunFailed,
    RunTerminated,
    RunTimedOut,
    Signal,
    Status,
    activity,
    info,
    sleep,
    workflow,
)
from perdure.testing import Environment

wake = Signal("wake", str)
done: list[str] = []


@activity
async def note_down(text: str) -> None:
    done.append(text)


@activity
async def takes_for_ever(name: str) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        done.append(f"{name} was cancelled")
        raise


@workflow
async def cleans_up_slowly(seconds: float) -> str:
    try:
        return await wake.receive()
    except asyncio.CancelledError as cancelled:
        await note_down(f"cleaning up: {cancelled}, asked: {info().cancel_requested}")
        await sleep(seconds)
        await note_down("cleaned up")
        raise


@workflow
async def cleans_up_for_ever() -> str:
    try:
        return await wake.receive()
    finally:
        await takes_for_ever("cleaning")


@workflow
async def will_not_hear() -> str:
    try:
        return await wake.receive()
    except asyncio.CancelledError:
        return "I go on"


@workflow
async def stumbles_cleaning() -> str:
    try:
        return await wake.receive()
    finally:
        raise OSError("the mop is gone")


@workflow
async def is_busy(name: str) -> None:
    await takes_for_ever(name)


@workflow
async def waits_long() -> str:
    await sleep(timedelta(days=1))
    return "late"


@pytest.fixture(autouse=True)
def _forget() -> None:
    done.clear()


async def test_cancel_arrives_where_the_code_waits_and_clean_up_may_wait(env: Environment) -> None:
    async with env:
        run = await env.start(cleans_up_slowly.options(id="c"), 5)
        await env.settle()
        await run.cancel("no more")
        with pytest.raises(RunCancelled, match="run 'c' was cancelled: no more") as caught:
            await env.result(run)
        assert caught.value.reason == "no more"
        assert done == ["cleaning up: no more, asked: True", "cleaned up"]
        described = await run.describe()
        assert (described.status, described.cancel_reason, described.error) == (Status.CANCELLED, "no more", "no more")
        assert [event.kind for event in await env.events("c")] == [
            "RunStarted",
            "CancelRequested",
            "ActivityCompleted",
            "TimerFired",
            "ActivityCompleted",
            "RunCancelled",
        ]


async def test_whoever_swallows_a_cancel_and_returns_has_completed(env: Environment) -> None:
    async with env:
        run = await env.start(will_not_hear)
        await env.settle()
        await run.cancel()
        assert await env.result(run) == "I go on"


async def test_an_error_in_clean_up_fails_the_run(env: Environment) -> None:
    async with env:
        run = await env.start(stumbles_cleaning)
        await env.settle()
        await run.cancel()
        with pytest.raises(RunFailed, match="the mop is gone"):
            await env.result(run)


async def test_after_the_deadline_there_is_no_more_waiting_for_clean_up(env: Environment) -> None:
    async with env:
        run = await env.start(cleans_up_slowly, 3600)
        await env.settle()
        await run.cancel("quick", deadline=30)
        await env.pass_time(29)
        assert (await run.describe()).closed_at is None
        await env.pass_time(1)
        with pytest.raises(RunCancelled, match="quick"):
            await env.result(run)
        assert done == ["cleaning up: quick, asked: True"]


async def test_a_deadline_holds_when_the_run_was_parked_or_its_worker_died(env: Environment) -> None:
    async with env:
        run = await env.start(cleans_up_slowly.options(id="c"), 3600)
        await env.settle()
        await run.cancel("quick", deadline=300)
        await env.pass_time(20)
        await env.pass_time(20)
        assert (await run.describe()).status is Status.SUSPENDED
        await env.crash()
        await env.pass_time(258)
        run = await env.app.get("c", workflow=cleans_up_slowly)
        assert (await run.describe()).closed_at is None
        await env.pass_time(3)
        assert (await run.describe()).status is Status.CANCELLED


@pytest.mark.parametrize("how", ["timeout", "deadline"])
async def test_an_end_by_the_clock_holds_for_a_run_that_another_worker_goes_on_with(env: Environment, how: str) -> None:
    """Its code is busy and never parked: only who has it can end it, and has not heard of that itself."""
    async with env:
        ends_at = env.clock.now() + 60_000
        run = await env.start(cleans_up_for_ever.options(id="c", timeout=60 if how == "timeout" else None))
        await env.settle()
        await run.cancel("quick", deadline=None if how == "timeout" else 60)
        await env.settle()
        await env.crash()
        await env.pass_time(59.9)
        run = await env.app.get("c", workflow=cleans_up_for_ever)
        assert (await run.describe()).status is Status.RUNNING
        await env.pass_time(0.1)
        assert (await run.describe()).status is (Status.TIMED_OUT if how == "timeout" else Status.CANCELLED)
        assert (await env.events("c"))[-1].at.timestamp() * 1000 == ends_at


async def test_a_second_cancel_does_not_disturb_clean_up_but_may_shorten_it(env: Environment) -> None:
    async with env:
        run = await env.start(cleans_up_slowly, 100)
        await env.settle()
        await run.cancel("first")
        await env.settle()
        await run.cancel("second")
        await env.pass_time(50)
        assert (await run.describe()).closed_at is None
        await run.cancel("third", force=True)
        described = await run.describe()
        assert (described.status, described.error) == (Status.CANCELLED, "third")
        assert done == ["cleaning up: first, asked: True"]


@pytest.mark.parametrize("parks", [True, False])
async def test_a_later_cancel_with_a_longer_deadline_postpones_nothing(env: Environment, *, parks: bool) -> None:
    """Somebody was promised that the run is over by then; another one who asks more patiently must not break that."""
    async with env:
        # One that waits for an activity stays in memory.
        run = await env.start(cleans_up_slowly, 36_000) if parks else await env.start(cleans_up_for_ever)
        await env.settle()
        await run.cancel("quick", deadline=200)
        for _ in range(2):
            await env.pass_time(20)
        described = await run.describe()
        assert described.status is (Status.SUSPENDED if parks else Status.RUNNING)
        await run.cancel("whenever", deadline=7200)
        assert (await run.describe()).deadline_at == described.deadline_at
        await env.pass_time(150)
        assert (await run.describe()).closed_at is None
        await env.pass_time(10)
        await env.pass_time(1)
        assert (await run.describe()).status is Status.CANCELLED


async def test_a_running_activity_is_cancelled_with_its_run(env: Environment) -> None:
    async with env:
        run = await env.start(is_busy, "a")
        await env.settle()
        await run.cancel("stop")
        with pytest.raises(RunCancelled, match="stop"):
            await env.result(run)
        await env.settle()
        assert done == ["a was cancelled"]


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_what_has_not_begun_is_closed_at_once_with_no_worker_alive(tmp_path: Path, how: str) -> None:
    async with Environment(str(tmp_path / "t.db"), worker=False) as env:
        run = await env.start(waits_long)
        await getattr(run, how)("never mind")
        expected = RunCancelled if how == "cancel" else RunTerminated
        with pytest.raises(expected, match="never mind"):
            await env.result(run)
        with pytest.raises(RunClosed):
            await getattr(run, how)("again")
        assert [event.seq async for event in run.events()] == [1, 2]


async def test_with_no_worker_alive_a_cancel_waits_for_one_to_clean_up(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    async with Environment(path) as first:
        await first.start(cleans_up_slowly.options(id="c"), 1)
        await first.pass_time(30)
    async with Environment(path, clock=first.clock, worker=False) as client:
        run = await client.app.get("c")
        await run.cancel("later")
        described = await run.describe()
        assert (described.closed_at, described.cancel_reason) == (None, "later")
        assert described.cancel_requested_at is not None
    async with Environment(path, clock=first.clock) as second:
        run = await second.app.get("c")
        with pytest.raises(RunCancelled, match="later"):
            await second.result(run)
        assert done == ["cleaning up: later, asked: True", "cleaned up"]


@pytest.mark.parametrize("dies", [True, False])
async def test_with_no_worker_alive_the_deadline_is_the_end(tmp_path: Path, *, dies: bool) -> None:
    """Whether its worker went in peace or was killed: somebody who can only look closes the run."""
    path = str(tmp_path / "t.db")
    first = Environment(path)
    await first.open()
    await first.start(cleans_up_slowly.options(id="c"), 1)
    await first.settle()
    if dies:
        first.bury()
    else:
        await first.__aexit__()
    async with Environment(path, clock=first.clock, worker=False) as client:
        run = await client.app.get("c")
        await run.cancel("now or never", deadline=60)
        await client.pass_time(58)
        assert (await run.describe()).closed_at is None
        await client.pass_time(31)
        await client.pass_time(2)
        with pytest.raises(RunCancelled, match="now or never"):
            await client.result(run)


@pytest.mark.parametrize("how", ["terminate", "force"])
async def test_a_run_whose_worker_died_can_be_ended_by_whoever_comes(tmp_path: Path, how: str) -> None:
    path = str(tmp_path / "t.db")
    first = Environment(path)
    await first.open()
    await first.start(waits_long.options(id="w"))
    await first.settle()
    first.bury()
    async with Environment(path, clock=first.clock, worker=False) as client:
        run = await client.app.get("w")
        await (run.terminate("enough") if how == "terminate" else run.cancel("enough", force=True))
        assert (await run.describe()).status is (Status.TERMINATED if how == "terminate" else Status.CANCELLED)


async def test_terminate_ends_at_once_without_clean_up(env: Environment) -> None:
    async with env:
        run = await env.start(cleans_up_slowly.options(id="c"), 1)
        await env.settle()
        await run.terminate("fire")
        with pytest.raises(RunTerminated, match="fire"):
            await env.result(run)
        assert done == []
        assert [event.kind for event in await env.events("c")] == ["RunStarted", "RunTerminated"]


async def test_terminate_ends_a_parked_run(env: Environment) -> None:
    async with env:
        run = await env.start(waits_long)
        await env.pass_time(60)
        assert (await run.describe()).status is Status.SUSPENDED
        await run.terminate()
        assert (await run.describe()).status is Status.TERMINATED
        await env.pass_time(timedelta(days=2))
        assert (await run.describe()).status is Status.TERMINATED


@pytest.mark.parametrize("parks", [True, False])
async def test_a_run_ends_when_its_timeout_is_over(env: Environment, *, parks: bool) -> None:
    async with env:
        run = await env.start(cleans_up_slowly.options(timeout=timedelta(hours=1)), 1)
        await env.pass_time(30 if parks else 1)
        await env.pass_time(timedelta(hours=1) - timedelta(seconds=32))
        assert (await run.describe()).closed_at is None
        await env.pass_time(33)
        await env.pass_time(1)
        with pytest.raises(RunTimedOut, match="its timeout of 3600 s"):
            await env.result(run)
        assert done == []


async def test_the_timeout_of_a_delayed_run_begins_when_its_delay_is_over(env: Environment) -> None:
    """A run that is to begin tomorrow and may take an hour must not be over before it has begun."""
    async with env:
        run = await env.start(cleans_up_slowly.options(delay=3600, timeout=60), 1)
        assert (await run.describe()).deadline_at == (await run.describe()).created_at + timedelta(seconds=3660)
        await env.pass_time(3599)
        assert (await run.describe()).status is Status.PENDING
        await env.pass_time(1)
        await env.pass_time(58)
        assert (await run.describe()).closed_at is None
        await env.pass_time(2)
        await env.pass_time(1)
        with pytest.raises(RunTimedOut, match="its timeout of 60 s"):
            await env.result(run)


async def test_a_timeout_holds_for_a_run_that_nobody_has_code_for(tmp_path: Path) -> None:
    async with Environment(str(tmp_path / "t.db"), worker=False) as env:
        run = await env.start(waits_long.options(timeout=10))
        await env.pass_time(12)
        assert (await run.describe()).status is Status.TIMED_OUT


async def test_a_run_of_another_process_is_stopped_by_its_owner(tmp_path: Path) -> None:
    """Two Perdure objects on one file are two owners; one asks, the other does."""
    url = f"sqlite:///{tmp_path / 't.db'}"
    async with Perdure(url), Perdure(url, worker=False) as client:
        run = await client.start(cleans_up_slowly.options(id="there"), 0)
        other = await client.start(waits_long.options(id="there too"))
        while len(await client.list(status="running")) < 2:  # noqa: ASYNC110 - another owner's work
            await asyncio.sleep(0.01)
        await run.cancel("from afar")
        with pytest.raises(RunCancelled, match="from afar"):
            await run.result(timeout=60)
        await other.terminate("from afar")
        assert (await other.describe()).status is Status.TERMINATED
        assert done == ["cleaning up: from afar, asked: True", "cleaned up"]


@pytest.mark.parametrize("how", ["timeout", "deadline"])
async def test_a_parked_run_ends_to_the_millisecond(env: Environment, how: str) -> None:
    """It is a timer as others are; looked for once a second, it would be late by as long."""
    async with env:
        started = env.clock.now()
        options = cleans_up_slowly.options(id="c", timeout=60) if how == "timeout" else cleans_up_slowly.options(id="c")
        run = await env.start(options, 3600)
        await env.settle()
        if how == "deadline":
            await run.cancel("quick", deadline=60)
        await env.pass_time(30)
        assert (await run.describe()).status is Status.SUSPENDED

        # Some way into the second that lies between two looks at everything.
        await env.pass_time(29.7)
        assert (await run.describe()).closed_at is None
        await env.pass_time(0.3)

        assert (await run.describe()).status is (Status.TIMED_OUT if how == "timeout" else Status.CANCELLED)
        last = (await env.events("c"))[-1]
        assert last.at.timestamp() * 1000 == started + 60_000


async def test_an_end_by_the_clock_that_another_process_sets_is_kept_to_the_millisecond(env: Environment) -> None:
    """Its process may be gone by then; whoever is left has seen that there is a nearer end than it knew of."""
    async with env:
        await env.start(waits_long.options(timeout=3600))
        await env.pass_time(2.2)
        async with Environment(env.path, clock=env.clock, worker=False) as other:
            run = await other.start(waits_long.options(id="short", queue="nobody's", timeout=0.7))
            ends_at = env.clock.now() + 700
        await env.pass_time(0.1)
        assert (await (await env.app.get("short")).describe()).closed_at is None
        await env.pass_time(0.6)

        last = (await env.events(run.id))[-1]
        assert (last.kind, last.at.timestamp() * 1000) == ("RunTimedOut", ends_at)


async def test_many_parked_runs_that_end_at_once_end_together(env: Environment) -> None:
    """One after the other, each with a commit of its own, the last of a thousand would be late by seconds."""
    async with env:
        runs = [await env.start(waits_long.options(id=f"r{n}", timeout=60)) for n in range(450)]
        await env.pass_time(30)
        commits = env.store.commits
        await env.pass_time(30)

        assert {(await run.describe()).status for run in runs} == {Status.TIMED_OUT}
        assert env.store.commits - commits < 20
