"""One durable run through the whole house."""

import asyncio
from datetime import timedelta

import pytest

from perdure import RunFailed, Signal, activity, now, rng, side_effect, sleep, uuid4, workflow
from perdure.testing import Environment

approved = Signal("approved", bool)


@activity
async def increment(number: int) -> int:
    return number + 1


@activity
def double(number: int) -> int:
    return number * 2


@activity
async def fail_always(text: str) -> str:
    raise ValueError(text)


@workflow
async def five_increments(number: int) -> int:
    for _ in range(5):
        number = await increment(number)
    return number


@workflow
async def everything(number: int) -> list[int]:
    first = await increment(number)
    second = await double(first)
    many = await asyncio.gather(*(increment(n) for n in range(3)))
    await sleep(timedelta(days=3))
    if not await approved.receive(timeout=60):
        return []
    return [first, second, *many, await side_effect(lambda: 7)]


@workflow
async def fails() -> str:
    return await fail_always("no luck")


@workflow
async def chances() -> list[str]:
    return [str(uuid4()), str(rng().random()), now().isoformat(), await asyncio.sleep(1, ""), now().isoformat()]


async def test_a_run_returns_what_its_workflow_returns(env: Environment) -> None:
    async with env:
        run = await env.start(five_increments, 1)
        assert await env.result(run) == 6


async def test_steps_threads_branches_timers_and_signals_work_together(env: Environment) -> None:
    async with env:
        run = await env.start(everything, 1)
        await env.pass_time(timedelta(days=3))
        await run.signal(approved, True)
        assert await env.result(run) == [2, 4, 1, 2, 3, 7]


async def test_a_failed_activity_fails_the_run_with_its_own_error(env: Environment) -> None:
    async with env:
        run = await env.start(fails)
        with pytest.raises(RunFailed, match="ValueError: no luck") as caught:
            await env.result(run)
        assert isinstance(caught.value.__cause__, ValueError)
        assert [attempt.attempt for attempt in await run.attempts()] == [1, 2]


async def test_time_and_chance_are_the_runs_own(env: Environment) -> None:
    async with env:
        run = await env.start(chances)
        values = await env.result(run)
        assert values[2] < values[4]
