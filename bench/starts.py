"""S9: ten thousand starts of a workflow that does nothing, in one call and in as many as there are runs.

Out:  starts per second until all are answered: each answer means that the run is on disk.
"""

import asyncio
import time
from pathlib import Path

from bench.database import Numbers, check_rows, opened, within
from bench.workflows import no_step
from perdure import Run

IN_FLIGHT = 200


async def measure(folder: Path, size: int) -> Numbers:
    """Each on a database of its own."""
    return {
        "many_per_s": await _many(within(folder, "many"), size, worker=True),
        "many_without_worker_per_s": await _many(within(folder, "many-without-worker"), size, worker=False),
        "starts_per_s": await _one_by_one(within(folder, "one-by-one"), size),
    }


async def _many(folder: Path, size: int, *, worker: bool) -> float:
    """One start_many; with a worker the runs begin meanwhile."""
    async with opened(folder, worker=worker) as app:
        began = time.perf_counter()
        runs = await app.start_many(*(no_step.call(number) for number in range(size)))
        taken = time.perf_counter() - began
        if worker:
            for number, run in enumerate(runs):
                assert isinstance(run, Run)
                assert await run.result() == number
    check_rows(folder, size, 0, "COMPLETED" if worker else "PENDING")
    return size / taken


async def _one_by_one(folder: Path, size: int) -> float:
    """200 callers, each of which waits for its answer before it starts another run; a worker runs them meanwhile."""
    numbers, runs = iter(range(size)), {}
    async with opened(folder) as app:

        async def one_after_another() -> None:
            for number in numbers:
                runs[number] = await app.start(no_step, number)

        began = time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
        taken = time.perf_counter() - began
        for number, run in runs.items():
            assert await run.result() == number
    check_rows(folder, size, 0)
    return size / taken
