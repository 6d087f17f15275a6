"""The process that is killed, and the one that goes on after it (S7).

It says when its imports are over, starts as many runs as it is told to, says when all of
them are on disk, and works until its standard input ends. Every activity appends one line
to the effects file before it does anything else: the time, the run, the step.

usage: python -m bench.victim FOLDER RUNS
"""

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

# What works runs is loaded by the first Perdure that does; here it belongs to the imports, which are not measured.
import perdure.worker.worker  # noqa: F401 - as said
from bench.database import opened
from perdure import activity, workflow

SLOW_SECONDS = 2.0
EFFECTS = "effects.log"


class Log:
    """The effects file; lines are appended whole, and survive the process."""

    def __init__(self) -> None:
        self._file = -1

    def open(self, folder: Path) -> None:
        self._file = os.open(folder / EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def add(self, number: int, step: str) -> None:
        os.write(self._file, f"{time.time():.6f} {number} {step}\n".encode())


effects = Log()


@activity
async def reserve_parcel(number: int) -> int:
    effects.add(number, "reserve")
    return number + 1


@activity
async def pay(number: int) -> int:
    effects.add(number, "pay")
    return number + 1


@activity
async def pack_parcel(number: int) -> int:
    effects.add(number, "pack")
    await asyncio.sleep(SLOW_SECONDS)
    return number + 1


@activity
async def send(number: int) -> int:
    effects.add(number, "send")
    return number + 1


@workflow
async def order(number: int) -> list[int]:
    return [await step(number) for step in (reserve_parcel, pay, pack_parcel, send)]


async def main(folder: Path, runs: int) -> None:
    # That it takes over from a dead worker is what it is here for.
    logging.getLogger("perdure").setLevel(logging.ERROR)
    print(f"imported {time.time():.6f}", flush=True)
    effects.open(folder)
    async with opened(folder) as app:
        await asyncio.gather(*(app.start(order.options(id=f"order-{n}"), n) for n in range(runs)))
        print(f"started {runs}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
