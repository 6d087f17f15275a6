"""Plain steps beside an activity that holds its transaction open for two seconds (Postgres).

Out:  milliseconds from one step of a run to the next, p99, beside the transaction and without it, in turns.
"""

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import asyncpg

from bench.database import Numbers, opened
from perdure import Perdure, activity, resource, workflow

HELD_SECONDS = 2.0

held = asyncio.Event()


@activity(transaction=True)
async def hold(seconds: float) -> float:
    # It has a number of its own from here on, and locks.
    await resource(asyncpg.Connection).execute("create table if not exists held (number int)")
    await resource(asyncpg.Connection).execute("insert into held values (1)")
    held.set()
    await asyncio.sleep(seconds)
    return seconds


@workflow
async def holds(seconds: float) -> float:
    return await hold(seconds)


@activity
async def look_at_the_clock() -> float:
    return time.perf_counter()


@workflow
async def steps_until(end: float) -> list[float]:
    """When each step began."""
    times = [await look_at_the_clock()]
    while times[-1] < end:
        times.append(await look_at_the_clock())
    return times


async def measure(folder: Path, size: int) -> Numbers:
    """So many rounds; a first one, which is not counted, makes what is made once."""
    alone, beside = [], []
    async with opened(folder) as app:
        for number in range(size + 1):
            without, with_it = await _p99_ms(app), await _p99_beside(app)
            if number:
                alone.append(without)
                beside.append(with_it)
    times = median(one / other for one, other in zip(beside, alone, strict=True))
    return {"alone_p99_ms": median(alone), "beside_p99_ms": median(beside), "times": times}


async def _p99_beside(app: Perdure) -> float:
    held.clear()
    run = await app.start(holds, HELD_SECONDS)
    await held.wait()
    found = await _p99_ms(app)
    assert (await run.describe()).status == "RUNNING", "the transaction was over too early"
    assert await run.result() == HELD_SECONDS
    return found


async def _p99_ms(app: Perdure) -> float:
    """Of steps for most of the time that a transaction is held."""
    times = await app.run(steps_until, time.perf_counter() + HELD_SECONDS * 0.8)
    steps = sorted(after - before for before, after in pairwise(times))
    return steps[int(len(steps) * 0.99)] * 1e3
