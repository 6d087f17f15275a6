"""The workflows that are measured: steps that do nothing, so that only the engine is left."""

import asyncio

from perdure import Signal, activity, sleep, workflow


@activity
async def add_one(number: int) -> int:
    return number + 1


@workflow
async def no_step(number: int) -> int:
    return number


@workflow
async def one_step(number: int) -> int:
    return await add_one(number)


@workflow
async def five_steps(number: int) -> int:
    for _ in range(5):
        number = await add_one(number)
    return number


@workflow
async def many_steps(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one(number)
    return number


@workflow
async def fifty_steps(number: int) -> int:
    for _ in range(50):
        number = await add_one(number)
    return number


@workflow
async def one_sleep(seconds: float) -> float:
    await sleep(seconds)
    return seconds


tick = Signal("tick", int)


@workflow
async def receive_all(count: int) -> list[int]:
    return [await tick.receive() for _ in range(count)]


@workflow
async def fan_out(children: int) -> int:
    return sum(await asyncio.gather(*(one_step(number) for number in range(children))))
