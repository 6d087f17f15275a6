"""The checkout everybody writes first, as it stands in the README's spirit: steps, approval, children, three days."""

import asyncio
from datetime import timedelta

import pytest

from perdure import Retry, RunFailed, Signal, activity, sleep, workflow
from perdure.testing import Environment

approved = Signal("approved", bool)
charges: list[tuple[str, int]] = []


@activity
async def reserve(order: str) -> str:
    return f"hold-{order}"


@activity(retry=Retry(max_attempts=5))
def charge(order: str, cents: int) -> str:
    charges.append((order, cents))
    return f"receipt for {order}"


@workflow
async def pick(order: str, shelf: int) -> int:
    return shelf * 10


@workflow
async def checkout(order: str, cents: int) -> str:
    await reserve(order)
    if not await approved.receive(timeout=timedelta(days=1)):
        raise ValueError("rejected")
    await asyncio.gather(*(pick(order, s) for s in range(10)))
    receipt = await charge(order, cents)
    await sleep(timedelta(days=3))
    return receipt


async def test_an_order_is_approved_picked_and_charged(env: Environment) -> None:
    charges.clear()
    async with env:
        run = await env.app.start(checkout.options(id="o-17"), "o-17", 4200)
        await run.signal(approved, True)
        assert await env.result(run) == "receipt for o-17"
        assert charges == [("o-17", 4200)]
        assert len(await run.children()) == 10


async def test_an_order_is_rejected_or_forgotten(env: Environment) -> None:
    async with env:
        rejected = await env.app.start(checkout, "o-18", 1)
        forgotten = await env.app.start(checkout, "o-19", 1)
        await rejected.signal(approved, False)
        with pytest.raises(RunFailed, match="ValueError: rejected"):
            await env.result(rejected)
        await env.pass_time(timedelta(days=2))
        with pytest.raises(RunFailed, match="TimeoutError: no signal 'approved' came within 1 day"):
            await env.result(forgotten)
