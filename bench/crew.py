"""Two worker processes beside one on the same database: how fast a backlog is worked off, and S1 in both at once.

Out:  five-step workflows per second of one and of two processes, and how many times as fast two are.

usage: python -m bench.crew drain FOLDER 0      works what is there until its standard input ends
       python -m bench.crew rate FOLDER RUNS    runs so many workflows of its own, some hundreds in flight
"""

import asyncio
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bench import processes
from bench.database import Numbers, check_rows, looking, opened, rows, within
from bench.workflows import five_steps

IN_FLIGHT = 500
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 180.0
CLOSED = "select count(*) from runs where closed_at is not null"
BITE = 1000


async def measure(folder: Path, size: int) -> Numbers:
    """Each on a database of its own, one process and two in turns."""
    found: Numbers = {}
    for workers, name in ((1, "one"), (2, "two")):
        found[f"{name}_drained_per_s"] = await _drained(within(folder, f"drained-{name}"), size, workers)
        found[f"{name}_per_s"] = await _rate(within(folder, f"rate-{name}"), size, workers)
    return found | {
        "times_drained": found["two_drained_per_s"] / found["one_drained_per_s"],
        "times": found["two_per_s"] / found["one_per_s"],
    }


async def _drained(folder: Path, size: int, workers: int) -> float:
    """A backlog that is there before the first worker comes."""
    async with opened(folder, worker=False) as app:
        for first in range(0, size, BITE):
            await app.start_many(*(five_steps.call(number) for number in range(first, min(first + BITE, size))))
    with ExitStack() as stack, looking(folder) as look:
        crew = _begun(stack, "drain", folder, [0] * workers)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while look(CLOSED) != [(size,)]:
            assert time.monotonic() < deadline, f"{look(CLOSED)} of {size} runs have ended in {PATIENCE_SECONDS:g} s"
            time.sleep(LOOK_SECONDS)  # noqa: ASYNC251 - nothing else is on this loop
        for process in crew:
            processes.end(process)
    check_rows(folder, size, size * 5)
    return _per_second(folder, size)


async def _rate(folder: Path, size: int, workers: int) -> float:
    """S1, its workflows and those in flight divided among the workers."""
    # Tables are made once in the life of a database, and whoever opens it meanwhile waits for them.
    async with opened(folder, worker=False):
        pass
    with ExitStack() as stack:
        for process in _begun(stack, "rate", folder, [size // workers] * workers, IN_FLIGHT // workers):
            processes.said(process, "done")
            processes.end(process)
    check_rows(folder, size // workers * workers, size // workers * workers * 5)
    return _per_second(folder, size)


def _begun(
    stack: ExitStack, role: str, folder: Path, sizes: list[int], in_flight: int = 0
) -> "list[subprocess.Popen[str]]":
    """Processes that are ready, and told to begin at the same time."""
    crew = []
    for size in sizes:
        process = processes.begun("bench.crew", role, folder, size, in_flight)
        stack.enter_context(process)
        stack.callback(process.kill)
        crew.append(process)
    for process in crew:
        processes.said(process, "ready")
    for process in crew:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return crew


def _per_second(folder: Path, size: int) -> float:
    """From the moment the first run was begun until the last one had ended, by the times on disk."""
    ((began, ended),) = rows(folder, "select min(begun_at), max(closed_at) from runs")
    return float(size / (ended - began) * 1000)


async def drain(folder: Path) -> None:
    print("ready 1", flush=True)
    sys.stdin.readline()
    async with opened(folder):
        await asyncio.to_thread(sys.stdin.read)


async def rate(folder: Path, size: int, in_flight: int) -> None:
    numbers = iter(range(size))

    async def one_after_another() -> None:
        for number in numbers:
            assert await app.run(five_steps, number) == number + 5

    async with opened(folder) as app:
        print("ready 1", flush=True)
        sys.stdin.readline()
        await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
        print("done 1", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    role, place = sys.argv[1], Path(sys.argv[2])
    asyncio.run(drain(place) if role == "drain" else rate(place, int(sys.argv[3]), int(sys.argv[4])))
