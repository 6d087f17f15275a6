"""The process that keeps parked runs: it parks them, or opens a file full of them, and tells what that costs.

It says what it measures, a word and a number a line, and stays until its standard input ends.

usage: python -m bench.keeper park FOLDER RUNS LIVE starts so many runs and parks them: idle, tenth, parked (MB)
       python -m bench.keeper worker FOLDER 0       a worker that has run a few workflows: idle (MB)
       python -m bench.keeper client FOLDER 0       a client that has asked a little: idle (MB)
       python -m bench.keeper rate FOLDER RUNS      runs so many five-step workflows: rate (per second)
"""

import asyncio
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from bench.database import DATABASE, opened
from bench.vitals import vitals
from bench.workflows import five_steps
from perdure import Perdure, Signal, workflow

FAR_AWAY_SECONDS = 30 * 24 * 3600.0
# So many are started at once; nobody keeps their handles.
BITE = 1000
WARM_UP = 100
IN_FLIGHT = 500
# What is measured is what stays, not what is just being put away.
CALM_SECONDS = 5.0
PARKED = "select count(*) from runs where status = 'SUSPENDED' and owner is null and closed_at is null"

wake = Signal("wake", int)


@workflow
async def awaits_wake(number: int) -> int:
    return await wake.receive() + number


@workflow
async def awaits_wake_for_long(number: int) -> int:
    return await asyncio.wait_for(wake.receive(), FAR_AWAY_SECONDS) + number


async def park(folder: Path, runs: int, max_live: int) -> None:
    """Half of the runs wait for a signal, half for a signal or a far timer."""
    async with opened(folder, max_live=max_live) as app:
        # One bite first: code, and statements for as many rows at once, belong to a worker, not to what it parks.
        await _park(app, folder, BITE, 0)
        say("idle", await _calm_mb())
        tenth = runs // 10
        await _park(app, folder, tenth, BITE)
        say("tenth", await _calm_mb())
        began = time.perf_counter()
        await _park(app, folder, runs - tenth, BITE + tenth)
        say("rate", (runs - tenth) / (time.perf_counter() - began))
        say("peak", vitals().peak_mb)
        say("parked", await _calm_mb())
        await asyncio.to_thread(sys.stdin.read)


async def _park(app: Perdure, folder: Path, runs: int, there: int) -> None:
    """Start so many runs beside those that are there, and wait until all are parked."""
    for first in range(0, runs, BITE):
        await _start(app, min(BITE, runs - first))
    await _until_parked(folder, there + runs)


async def _start(app: Perdure, count: int) -> None:
    kinds = (awaits_wake, awaits_wake_for_long)
    await app.start_many(*(kinds[number % 2].call(number) for number in range(count)))


async def _until_parked(folder: Path, count: int) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as db:
        while db.execute(PARKED).fetchone() != (count,):  # noqa: ASYNC110 - the database tells nobody
            await asyncio.sleep(1)


async def _calm_mb() -> float:
    await asyncio.sleep(CALM_SECONDS)
    return vitals().rss_mb


async def stay(folder: Path, *, worker: bool) -> None:
    """What a process needs that has the code in memory and nothing to do."""
    async with opened(folder, worker=worker) as app:
        if worker:
            for number in range(WARM_UP):
                assert await app.run(five_steps, number) == number + 5
        else:
            await app.list(limit=WARM_UP)
        say("idle", await _calm_mb())
        await asyncio.to_thread(sys.stdin.read)


async def rate(folder: Path, runs: int) -> None:
    """Five-step workflows, 500 in flight."""
    numbers = iter(range(runs))

    async def one_after_another() -> None:
        for number in numbers:
            assert await app.run(five_steps, number) == number + 5

    async with opened(folder) as app:
        began = time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
        say("rate", runs / (time.perf_counter() - began))


def say(word: str, number: float) -> None:
    print(f"{word} {number:.3f}", flush=True)


if __name__ == "__main__":
    role, place, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    roles = {
        "park": lambda: park(place, size, int(sys.argv[4])),
        "worker": lambda: stay(place, worker=True),
        "client": lambda: stay(place, worker=False),
        "rate": lambda: rate(place, size),
    }
    asyncio.run(roles[role]())
