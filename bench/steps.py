"""S1, S2 and S3: workflows of steps that do nothing; many at once, one at a time, and one that is long."""

import asyncio
import statistics
import time
from pathlib import Path

from bench.database import Numbers, check_rows, opened
from bench.turns import Spent, spending
from bench.workflows import five_steps, many_steps, one_step
from perdure import Perdure

IN_FLIGHT = 500
WARM_UP = 50
TIMES_LONGER = 10


async def throughput(folder: Path, size: int) -> Numbers:
    """S1: five-step workflows, 500 in flight."""
    async with opened(folder) as app:
        spent = await run_many(app, size)
    check_rows(folder, size, size * 5)
    return {"workflows_per_s": size / spent.seconds}


async def run_many(app: Perdure, size: int) -> Spent:
    """So many five-step workflows, 500 in flight."""
    numbers = iter(range(size))

    async def one_after_another() -> None:
        for number in numbers:
            assert await app.run(five_steps, number) == number + 5

    with spending() as spent:
        await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    return spent


async def latency(folder: Path, size: int) -> Numbers:
    """S2: one one-step workflow at a time."""
    taken = []
    async with opened(folder) as app:
        for number in range(size):
            began = time.perf_counter()
            assert await app.run(one_step, number) == number + 1
            taken.append((time.perf_counter() - began) * 1e3)
    check_rows(folder, size, size)
    taken = sorted(taken[WARM_UP:])
    return {"p50_ms": statistics.median(taken), "p99_ms": taken[int(len(taken) * 0.99)]}


async def long_run(folder: Path, size: int) -> Numbers:
    """S3: one run of so many steps, then one ten times as long; a third one before them warms up."""
    async with opened(folder) as app:
        await ms_per_step(app, size)
        short = await ms_per_step(app, size)
        long = await ms_per_step(app, size * TIMES_LONGER)
    check_rows(folder, 3, size * (2 + TIMES_LONGER))
    return {"step_ms": short, "long_step_ms": long, "times": long / short}


async def ms_per_step(app: Perdure, steps: int) -> float:
    began = time.perf_counter()
    assert await app.run(many_steps, steps) == steps
    return (time.perf_counter() - began) / steps * 1e3
