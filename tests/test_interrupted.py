"""interrupted(): a workflow that is asked to stop where it waits to be, and not by an error."""

import asyncio

import pytest

from perdure import NotInWorkflow, RunCancelled, Signal, activity, info, interrupted, select, sleep, undo, workflow
from perdure.testing import Environment

jobs = Signal("jobs", int)


@workflow(name="interrupted_works")
async def works() -> list[object]:
    found: list[object] = []
    while True:
        match await select(stop=interrupted(), job=jobs.receive()):
            case "job", int(job):
                found.append(job)
            case _, reason:
                return [*found, reason, await interrupted(), info().cancel_requested]


@workflow(name="interrupted_late")
async def late() -> list[object]:
    try:
        await sleep(10)
    except asyncio.CancelledError:
        return ["cancelled", await interrupted()]
    return []


@workflow(name="interrupted_branches")
async def branches() -> list[str | None]:
    return list(await asyncio.gather(interrupted(), interrupted()))


@workflow(name="interrupted_child")
async def child() -> int:
    return await jobs.receive()


@workflow(name="interrupted_parent")
async def parent() -> list[object]:
    under_way = asyncio.create_task(child.options(id="the-child")())
    reason = await interrupted()
    return [reason, await under_way]


taken_back: list[str] = []


@activity
async def take_back(what: str) -> None:
    taken_back.append(what)


@workflow(name="interrupted_ends_well")
async def ends_well() -> str | None:
    undo(take_back, "booking")
    return await interrupted()


@workflow(name="interrupted_stays")
async def stays() -> None:
    await interrupted()
    await sleep(3600)


@workflow(name="interrupted_no_more")
async def no_more() -> str:
    await select(stop=interrupted(), soon=sleep(1))
    await sleep(3600)
    return "slept"


async def test_a_cancel_is_told_where_the_workflow_waits_for_it(env: Environment) -> None:
    async with env:
        run = await env.app.start(works)
        await run.signal(jobs, 1)
        await env.settle()
        await run.cancel("closing time")

        assert await run.result() == [1, "closing time", "closing time", True]


async def test_a_cancel_that_nobody_waits_for_is_an_error_and_told_later(env: Environment) -> None:
    async with env:
        run = await env.app.start(late)
        await env.settle()
        await run.cancel("enough")

        assert await run.result() == ["cancelled", "enough"]


async def test_every_branch_that_waits_is_told(env: Environment) -> None:
    async with env:
        run = await env.app.start(branches)
        await env.settle()
        await run.cancel()

        assert await run.result() == [None, None]


async def test_no_child_is_cancelled(env: Environment) -> None:
    async with env:
        run = await env.app.start(parent)
        await env.settle()
        await run.cancel("slowly")
        await env.settle()
        await (await env.app.get("the-child")).signal(jobs, 7)

        assert await run.result() == ["slowly", 7]


async def test_a_run_that_ends_well_when_it_is_told_to_stop_undoes_nothing(env: Environment) -> None:
    """It ends as its code ends, and that has returned."""
    taken_back.clear()
    async with env:
        run = await env.start(ends_well)
        await env.settle()
        await run.cancel("enough")
        assert await env.result(run) == "enough"
        assert taken_back == []


async def test_the_deadline_ends_what_its_code_does_not(env: Environment) -> None:
    async with env:
        run = await env.app.start(stays)
        await env.settle()
        await run.cancel("now", deadline=60)
        await env.pass_time(61)

        with pytest.raises(RunCancelled):
            await run.result()


async def test_a_wait_that_lost_its_race_hears_nothing(env: Environment) -> None:
    async with env:
        run = await env.app.start(no_more)
        await env.pass_time(2)
        await run.cancel()

        with pytest.raises(RunCancelled):
            await run.result()


async def test_a_parked_run_is_woken_by_the_request(env: Environment) -> None:
    async with env:
        run = await env.app.start(works)
        await env.pass_time(30)
        assert {wait.kind for wait in (await run.describe()).waiting_for} == {"interrupted", "signal"}
        await run.cancel("late")

        assert await run.result() == ["late", "late", True]


async def test_only_workflow_code_can_wait_for_it() -> None:
    with pytest.raises(NotInWorkflow):
        await interrupted()
