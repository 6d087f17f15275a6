"""Stuck: runs that should move and never will unless somebody acts; and none of those that merely wait."""

import asyncio
from datetime import timedelta

import pytest

from perdure import BadOption, Signal, activity, sleep, workflow
from perdure.testing import Environment

go = Signal("go", int)


@workflow
async def stuck_until_go() -> int:
    return await go.receive(timeout=timedelta(days=3 * 365))


@workflow
async def stuck_sleeps() -> None:
    await sleep(timedelta(days=365))


@workflow
async def ends() -> int:
    return 1


@activity
async def runs_on() -> None:
    await asyncio.Event().wait()


@workflow
async def calls_runs_on() -> None:
    await runs_on()


@activity(queue="nobodys queue")
async def queued() -> int:
    return 1


@workflow
async def calls_queued() -> int:
    return await queued()


async def stuck(env: Environment, after: float = 60) -> list[str]:
    return [info.id for info in await env.app.stuck(after)]


async def test_what_waits_or_works_is_not_stuck_however_long_it_does(env: Environment) -> None:
    """An alarm that goes off for a run that waits for its customer is turned off, and then nobody hears the others."""
    async with env:
        for code in (stuck_until_go, stuck_sleeps, calls_runs_on, ends):
            await env.start(code.options(id=code.name))
        await env.start(ends.options(id="delayed", delay=timedelta(days=1)))
        await env.pass_time(timedelta(hours=3))
        assert await stuck(env) == []


async def test_a_run_that_nobody_has_code_for_is_stuck_after_a_minute(env: Environment) -> None:
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        env.workflows = [stuck_until_go]
        async with env:
            await client.start(ends.options(id="no code"))
            await client.start(ends.options(id="no worker", queue="far", delay=30))
            await client.start(stuck_until_go.options(id="has code"))
            await env.pass_time(59)
            env.engine.lease.renew()
            assert await stuck(client) == []
            await env.pass_time(2)
            env.engine.lease.renew()
            assert await stuck(client) == ["no code"]
            await env.pass_time(30)
            env.engine.lease.renew()
            assert sorted(await stuck(client)) == ["no code", "no worker"]
            (found,) = [info for info in await client.app.stuck() if info.id == "no code"]
            assert found.waiting_for[0].kind == "worker"


async def test_an_activity_that_no_worker_takes_is_stuck_and_not_the_run_that_waits_for_it(env: Environment) -> None:
    async with env:
        await env.start(calls_queued.options(id="a"))
        await env.pass_time(70)
        assert [info.workflow for info in await env.app.stuck()] == ["task:queued"]


async def test_runs_of_an_owner_that_is_gone_are_stuck_until_somebody_takes_them_over(env: Environment) -> None:
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        await env.open()
        await env.start(calls_runs_on.options(id="a"))
        await env.settle()
        env.bury()
        assert await stuck(client) == []
        env.clock.advance(61_000)
        assert await stuck(client) == ["a"]
        async with env:
            await env.settle()
            assert await stuck(client) == []


async def test_a_message_for_a_run_without_code_begins_the_minute_anew(env: Environment) -> None:
    """Before it came the run had no reason to move."""
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        async with env:
            run = await env.start(stuck_until_go.options(id="a"))
            await env.pass_time(600)
        assert await stuck(client) == []
        await (await client.app.get(run.id)).signal(go, 1)
        assert await stuck(client) == []
        env.clock.advance(61_000)
        assert await stuck(client) == ["a"]


async def test_many_are_told_page_by_page_and_other_namespaces_not_at_all(env: Environment) -> None:
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        await client.app.namespaces.create("other")
        async with Environment(env.path, clock=env.clock, worker=False, namespace="other") as other:
            await other.start(ends.options(id="not ours"))
        for n in range(5):
            await client.start(ends.options(id=f"s-{n}"))
            env.clock.advance(1)
        env.clock.advance(61_000)
        page = await client.app.stuck(limit=2)
        seen = [info.id for info in page]
        while page.cursor is not None:
            page = await client.app.stuck(limit=2, cursor=page.cursor)
            seen += [info.id for info in page]
        assert seen == ["s-4", "s-3", "s-2", "s-1", "s-0"]


@pytest.mark.parametrize("bad", [{"after": -1}, {"limit": 0}, {"limit": 1001}])
async def test_what_makes_no_sense_is_refused(env: Environment, bad: dict[str, int]) -> None:
    async with env:
        with pytest.raises(BadOption):
            await env.app.stuck(**bad)  # type: ignore[arg-type]  # any of them
