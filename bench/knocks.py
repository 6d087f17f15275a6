"""A signal from one process to a run that another one owns: how long until that run's code has it.

Out:  milliseconds from the call that sends a signal to the first effect of the step that follows it, when
      processes tell each other of work, and when each has to look for itself.

usage: python -m bench.knocks FOLDER NOTIFY      the process that owns the run
"""

import asyncio
import random
import statistics
import sys
import time
from pathlib import Path

from bench import processes
from bench.database import Numbers, opened, within
from perdure import Signal, activity, workflow

# Of those who look for themselves, the moment between two looks must not always be the same.
PAUSE_SECONDS = 0.05
WARM_UP = 5
SELDOM = 4

knock = Signal("knock", int)


@activity
async def answer_the_door(number: int) -> int:
    print(f"heard {time.time():.6f}", flush=True)
    return number


@workflow
async def stays_at_home(knocks: int) -> int:
    for _ in range(knocks):
        await answer_the_door(await knock.receive())
    return knocks


async def measure(folder: Path, size: int) -> Numbers:
    """One signal after another, each after the one before was heard."""
    told = await _heard_ms(within(folder, "told"), size, notify=True)
    untold = await _heard_ms(within(folder, "untold"), max(size // SELDOM, 1), notify=False)
    return {
        "told_p50_ms": statistics.median(told),
        "told_p99_ms": told[int(len(told) * 0.99)],
        "untold_p50_ms": statistics.median(untold),
        "untold_p99_ms": untold[int(len(untold) * 0.99)],
    }


async def _heard_ms(folder: Path, size: int, *, notify: bool) -> list[float]:
    chance, taken = random.Random(size), []
    with processes.begun("bench.knocks", folder, size + WARM_UP, int(notify)) as owner:
        processes.said(owner, "home")
        async with opened(folder, worker=False, notify=notify) as app:
            run = await app.get("home", workflow=stays_at_home)
            for number in range(size + WARM_UP):
                await asyncio.sleep(chance.uniform(0, PAUSE_SECONDS))
                began = time.time()
                await run.signal(knock, number)
                heard = await asyncio.to_thread(processes.said, owner, "heard")
                taken.append((heard - began) * 1e3)
            assert await run.result(30) == size + WARM_UP
        processes.end(owner)
    return sorted(taken[WARM_UP:])


async def stay(folder: Path, knocks: int, *, notify: bool) -> None:
    async with opened(folder, notify=notify) as app:
        await app.start(stays_at_home.options(id="home"), knocks)
        print("home 1", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(stay(Path(sys.argv[1]), int(sys.argv[2]), notify=sys.argv[3] == "1"))
