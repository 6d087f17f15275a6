"""S5: signals to 500 waiting runs, from their own process and from another one.

Out:  signals per second, from the first that is sent until every run has received all of its own
      and its result is known to the sender.

A run returns what it received: every signal once, in the order it was sent in.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from bench import processes
from bench.database import Numbers, check_rows, opened, rows, within
from bench.turns import Spent, spending
from bench.workflows import receive_all, tick
from perdure import Perdure, Run

RUNS = 500


async def measure(folder: Path, size: int) -> Numbers:
    """So many signals to each run."""
    return {
        "here_per_s": await _from_here(within(folder, "here"), size),
        "there_per_s": await _from_there(within(folder, "there"), size),
    }


async def _from_here(folder: Path, size: int) -> float:
    async with opened(folder) as app:
        runs = [await app.start(receive_all, size) for _ in range(RUNS)]
        rate = await _per_second(runs, size)
    _check(folder, size)
    return rate


async def _from_there(folder: Path, size: int) -> float:
    """The runs live in another process; this one is a client only."""
    with processes.begun("bench.receiver", folder, RUNS, size) as receiver:
        assert processes.said(receiver, "waiting") == RUNS
        async with opened(folder, worker=False) as app:
            runs = [await app.get(f"receiver-{number}", workflow=receive_all) for number in range(RUNS)]
            rate = await _per_second(runs, size)
        processes.end(receiver)
    _check(folder, size)
    return rate


async def _per_second(runs: Sequence[Run[list[int]]], size: int) -> float:
    """To all runs at once, to each one signal after another."""

    async def send_and_wait(run: Run[list[int]]) -> None:
        for number in range(size):
            await run.signal(tick, number)
        assert await run.result() == list(range(size)), f"{run} has not received what was sent to it"

    began = time.perf_counter()
    await asyncio.gather(*(send_and_wait(run) for run in runs))
    return len(runs) * size / (time.perf_counter() - began)


async def signalled(app: Perdure) -> Spent:
    """One signal to each of 500 runs at once, until their results are known."""
    runs = [await app.start(receive_all, 1) for _ in range(RUNS)]
    with spending() as spent:
        await _per_second(runs, 1)
    return spent


async def signalled_in_a_row(app: Perdure, count: int) -> Spent:
    """One signal to each of so many runs, one after the other, each after the result of the run before."""
    runs = [await app.start(receive_all, 1) for _ in range(count)]
    with spending() as spent:
        for run in runs:
            await run.signal(tick, 0)
            assert await run.result() == [0]
    return spent


def _check(folder: Path, size: int) -> None:
    """Every signal became one event of its run."""
    check_rows(folder, RUNS, RUNS * size)
    taken = rows(folder, "select count(*), count(taken_by), count(distinct run_id || '/' || taken_by) from inbox")
    assert taken == [(RUNS * size,) * 3], f"{RUNS * size} signals were sent; there, taken and events: {taken}"
