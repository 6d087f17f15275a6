"""Paused runs: what is under way ends and is recorded, nothing more begins, and nobody but a person lets them go on."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Retry,
    Run,
    RunCancelled,
    RunClosed,
    RunNotHeld,
    RunTerminated,
    RunTimedOut,
    Signal,
    Status,
    activity,
    sleep,
    workflow,
)
from perdure.testing import Environment

nod = Signal("nod", int)
done: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _anew() -> None:
    done.clear()
    gates.clear()


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


@activity
async def slow_to_pause(name: str) -> str:
    await gate(name).wait()
    done.append(name)
    return name


@activity
async def quick_to_pause(name: str) -> str:
    done.append(name)
    return name


@activity(queue="parcels")
async def paused_wrap(what: str) -> str:
    done.append(what)
    return f"wrapped {what}"


@activity(at_most_once=True)
async def once_paused(name: str) -> str:
    await gate(name).wait()
    done.append(name)
    return name


@workflow
async def two_paused_steps() -> list[str]:
    return [await slow_to_pause("one"), await quick_to_pause("two")]


@workflow
async def nods_paused() -> int:
    return await nod.receive()


@workflow
async def paused_naps() -> str:
    await sleep(timedelta(minutes=1))
    return await quick_to_pause("awake")


@workflow
async def has_paused_branches() -> list[str]:
    async def two_steps() -> str:
        return await quick_to_pause(f"after {await slow_to_pause('one')}")

    async def naps() -> str:
        await sleep(timedelta(minutes=1))
        return await quick_to_pause("awake")

    return list(await asyncio.gather(two_steps(), naps(), slow_to_pause("two")))


@activity(queue="parcels", retry=Retry(initial_interval=3600))
async def wraps_at_the_second_try() -> str:
    done.append("tried")
    if len(done) == 1:
        raise ConnectionError("no paper")
    return "wrapped"


@workflow
async def wraps_late() -> str:
    return await wraps_at_the_second_try()


@workflow
async def wraps_paused() -> str:
    return await paused_wrap("a book")


@workflow
async def begins_once_paused() -> str:
    return await once_paused("only")


@workflow
async def paused_parent() -> str:
    return await two_steps_of_a_paused_child()


@workflow
async def two_steps_of_a_paused_child() -> str:
    return await quick_to_pause("child") + await slow_to_pause("of a child")


async def is_paused(run: Run[Any]) -> bool:
    info = await run.describe()
    return (info.status, info.held) == (Status.SUSPENDED, "paused")


async def test_what_is_under_way_ends_and_is_recorded_and_no_further_step_begins(env: Environment) -> None:
    async with env:
        run = await env.start(two_paused_steps)
        await env.settle()
        await run.pause("the bank is down")
        await env.settle()
        assert not await is_paused(run)
        gate("one").set()
        await env.settle()
        assert await is_paused(run)
        assert done == ["one"]
        assert [event.kind for event in await env.events(run.id)] == ["RunStarted", "ActivityCompleted"]
        await env.pass_time(timedelta(hours=1))
        assert await is_paused(run)
        assert "the bank is down" in str((await run.describe()).held_report)
        await run.resume()
        assert await env.result(run) == ["one", "two"]
        assert done == ["one", "two"]


async def test_a_run_that_has_ended_its_code_is_closed_when_it_goes_on(env: Environment) -> None:
    """The last step was under way; the end is one more event, and nothing is appended to a paused run."""

    async with env:
        run = await env.start(two_steps_of_a_paused_child)
        await env.settle()
        await run.pause()
        gate("of a child").set()
        await env.settle()
        assert await is_paused(run)
        await run.resume()
        assert await env.result(run) == "childof a child"


async def test_it_works_without_a_worker_and_survives_restarts(env: Environment) -> None:
    async with env:
        run = await env.start(nods_paused)
        await env.pass_time(20)
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        there = await client.app.get(run.id)
        await there.pause("why")
        assert await is_paused(there)
        await there.signal(nod, 7)
    for _ in range(2):
        async with env:
            await env.pass_time(timedelta(minutes=5))
            assert await is_paused(await env.app.get(run.id))
    async with env:
        again = await env.app.get(run.id)
        await again.resume()
        assert await env.result(again) == 7


async def test_a_run_that_has_not_begun_is_paused_and_its_delay_goes_on(env: Environment) -> None:
    async with env:
        run = await env.start(paused_naps.options(delay=timedelta(minutes=10)))
        await run.pause()
        assert await is_paused(run)
        await env.pass_time(60)
        await run.resume()
        await env.pass_time(60)
        assert (await run.describe()).status == Status.PENDING
        assert await env.result(run, timedelta(minutes=30)) == "awake"


async def test_timers_fire_when_the_run_goes_on_and_none_early(env: Environment) -> None:
    async with env:
        late, early = await env.start(paused_naps), await env.start(paused_naps.options(id="early"))
        await env.settle()
        await late.pause()
        await early.pause()
        await env.pass_time(30)
        await early.resume()
        await env.pass_time(20)
        assert done == []
        await env.pass_time(30)
        assert done == ["awake"]
        assert await is_paused(late)
        await late.resume()
        assert await env.result(late) == "awake"
        fired = next(event for event in await env.events(late.id) if event.kind == "TimerFired")
        assert fired.at - (await late.describe()).created_at >= timedelta(seconds=80)


async def test_messages_wait_and_are_taken_in_their_order(env: Environment) -> None:
    async with env:
        run = await env.start(nods_paused)
        await env.settle()
        await run.pause()
        await env.settle()
        await run.signal(nod, 1)
        await run.signal(nod, 2)
        await env.pass_time(20)
        assert await is_paused(run)
        assert [message.payload for message in await run.unread()] == [1, 2]
        await run.resume()
        assert await env.result(run) == 1


async def test_the_timeout_of_a_paused_run_goes_on(env: Environment) -> None:
    async with env:
        held, busy = (
            await env.start(nods_paused.options(timeout=60)),
            await env.start(two_paused_steps.options(timeout=60)),
        )
        await env.settle()
        await held.pause()
        await busy.pause()
        await env.pass_time(70)
        for run in (held, busy):
            with pytest.raises(RunTimedOut):
                await env.result(run)


async def test_cancel_waits_unless_it_has_a_deadline_or_force(env: Environment) -> None:
    async with env:
        waits, dated, forced, busy = [await env.start(nods_paused.options(id=f"n-{n}")) for n in range(3)] + [
            await env.start(two_paused_steps)
        ]
        await env.settle()
        for run in (waits, dated, forced, busy):
            await run.pause()
        await env.settle()
        await waits.cancel("enough")
        await dated.cancel(deadline=30)
        await busy.cancel(deadline=30)
        await forced.cancel(force=True)
        await env.settle()
        assert (await forced.describe()).status == Status.CANCELLED
        assert await is_paused(waits)
        assert await is_paused(dated)
        await env.pass_time(40)
        assert [(await run.describe()).status for run in (dated, busy)] == [Status.CANCELLED] * 2
        assert await is_paused(waits)
        await waits.resume()
        with pytest.raises(RunCancelled, match="enough"):
            await env.result(waits)


async def test_a_cancel_that_came_before_the_end_of_the_last_step_waits_as_well(env: Environment) -> None:
    async with env:
        run = await env.start(two_paused_steps)
        await env.settle()
        await run.pause()
        await run.cancel("enough")
        await env.settle()
        gate("one").set()
        await env.settle()
        assert await is_paused(run)
        assert [event.kind for event in await env.events(run.id)] == ["RunStarted", "ActivityCompleted"]
        await run.resume()
        with pytest.raises(RunCancelled):
            await env.result(run)
        assert done == ["one"]


async def test_a_paused_run_can_be_terminated(env: Environment) -> None:
    async with env:
        held, busy = await env.start(nods_paused), await env.start(two_paused_steps)
        await env.settle()
        for run in (held, busy):
            await run.pause()
            await run.terminate("over")
            with pytest.raises(RunTerminated):
                await env.result(run)
            with pytest.raises(RunClosed):
                await run.pause()


async def test_pausing_twice_changes_the_reason(env: Environment) -> None:
    async with env:
        held, busy = await env.start(nods_paused), await env.start(two_paused_steps)
        await env.settle()
        for run in (held, busy):
            await run.pause("first")
            await run.pause("second")
        gate("one").set()
        await env.settle()
        for run in (held, busy):
            assert await is_paused(run)
            assert "second" in str((await run.describe()).held_report)
        await held.pause("third")
        assert "third" in str((await held.describe()).held_report)


async def test_activities_on_a_queue_that_have_not_begun_wait_with_it(env: Environment) -> None:
    async with env:
        run = await env.start(wraps_paused)
        await env.pass_time(20)
        await run.pause()
        await env.settle()
        assert await is_paused(run)
        async with Environment(env.path, clock=env.clock, queues=("parcels",)) as wrapper:
            await wrapper.pass_time(20)
            assert done == []
            await run.resume()
            assert await wrapper.alive(env.result(run)) == "wrapped a book"


async def test_an_activity_on_a_queue_that_has_begun_goes_on_without_its_run(env: Environment) -> None:
    """It is under way, also between two attempts, when nobody has it."""
    async with env, Environment(env.path, clock=env.clock, queues=("parcels",)) as wrapper:
        run = await env.start(wraps_late)
        await env.pass_time(20)
        await wrapper.pass_time(20)
        assert done == ["tried"]
        await run.pause()
        await env.settle()
        (task,) = await run.children()
        assert (await is_paused(run), task.held) == (True, None)
        await wrapper.pass_time(3600)
        assert done == ["tried", "tried"]
        await run.resume()
        assert await env.result(run) == "wrapped"


async def test_an_activity_that_was_paused_by_itself_is_not_freed_with_its_run(env: Environment) -> None:
    """Somebody has held what one queue is to do, say because a printer is broken; who lets runs go on knows nothing."""
    async with env:
        runs = [await env.start(wraps_paused) for _ in range(2)]
        await env.pass_time(20)
        await env.app.pause_all(
            where="workflow = 'task:paused_wrap' and parent_id = :run", params={"run": runs[0].run_id}
        )
        for run in runs:
            await run.pause()
            await env.settle()
            await run.resume()
        assert [(await run.children())[0].held for run in runs] == ["paused", None]


async def test_an_activity_on_a_queue_that_was_held_ends_with_its_run(env: Environment) -> None:
    async with env:
        run = await env.start(wraps_paused)
        await env.pass_time(20)
        await run.pause()
        await env.settle()
        await run.cancel(force=True)
        (task,) = await run.children()
        assert (task.status, task.held) == (Status.CANCELLED, None)


async def test_children_are_not_paused_and_their_results_wait(env: Environment) -> None:
    async with env:
        run = await env.start(paused_parent)
        await env.settle()
        await run.pause()
        gate("of a child").set()
        await env.settle()
        (child,) = await run.children()
        assert child.status == Status.COMPLETED
        assert await is_paused(run)
        assert len(await run.unread()) == 1
        await run.resume()
        assert await env.result(run) == "childof a child"


async def test_a_pause_that_has_not_come_about_is_taken_back(env: Environment) -> None:
    """The step was under way all the time: it is not lost, and nothing runs twice."""
    async with env:
        run = await env.start(two_paused_steps)
        await env.settle()
        await run.pause()
        await env.settle()
        await run.resume()
        gate("one").set()
        assert await env.result(run) == ["one", "two"]
        assert done == ["one", "two"]
        with pytest.raises(RunClosed):
            await run.resume()


async def test_what_came_up_before_a_pause_is_taken_back_begins_then(env: Environment) -> None:
    """A timer that came due, and a step that the code went on to, while another step was still under way."""
    async with env:
        run = await env.start(has_paused_branches)
        await env.settle()
        await run.pause()
        await env.pass_time(120)
        gate("one").set()
        await env.settle()
        assert done == ["one"]
        await run.resume()
        await env.pass_time(1)
        assert sorted(done) == ["after one", "awake", "one"]
        gate("two").set()
        assert await env.result(run) == ["after one", "awake", "two"]


async def test_a_run_that_is_not_paused_cannot_go_on(env: Environment) -> None:
    async with env:
        run = await env.start(nods_paused)
        await env.settle()
        with pytest.raises(RunNotHeld):
            await run.resume()


async def test_an_only_attempt_that_is_about_to_begin_is_not_lost(env: Environment) -> None:
    """That it begins is on disk; a run that were held between would never know what became of it."""
    async with env:
        run = await env.start(begins_once_paused)
        await run.pause()
        await env.settle()
        gate("only").set()
        await env.settle()
        await run.resume()
        assert await env.result(run) == "only"
        assert done == ["only"]


async def test_an_owner_in_another_process_holds_it(env: Environment) -> None:
    async with env:
        run = await env.start(two_paused_steps)
        await env.settle()
        async with Environment(env.path, clock=env.clock, worker=False) as client:
            there = await client.app.get(run.id)
            await there.pause("from afar")
            await env.pass_time(1)
            gate("one").set()
            await env.pass_time(1)
            assert await is_paused(there)
            assert done == ["one"]
            await there.resume()
            await env.pass_time(1)
            assert await env.result(run) == ["one", "two"]


async def test_a_pause_outlives_the_worker_that_was_to_do_it(env: Environment) -> None:
    """It waits in the inbox: whoever has the run next holds it before anything begins again."""
    async with env:
        run = await env.start(two_paused_steps)
        await env.settle()
        await run.pause()
        await env.settle()
        await env.crash()
        gate("one").set()
        await env.pass_time(60)
        again = await env.app.get(run.id)
        assert await is_paused(again)
        assert done == []
        await again.resume()
        assert await env.result(again) == ["one", "two"]


async def test_the_runs_of_a_worker_that_is_gone_are_paused_at_once(env: Environment) -> None:
    async with env:
        run = await env.start(nods_paused)
        await env.settle()
        async with Environment(env.path, clock=env.clock, worker=False) as client:
            there = await client.app.get(run.id)
            env.bury()
            await there.pause()
            assert await is_paused(there)
