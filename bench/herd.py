"""S8: a process that owns fifty thousand live runs is killed with -9, and a fresh one takes all of them over.

Out:  seconds from the end of the new process's imports to the first step that an old run takes, and to
      the end of the last one; how much memory that needs at most, beside what it needs most of the time.

Every run is in its second step, which takes long, when the process dies; the first one is recorded and must
not be repeated. In the new process the second step takes a second, so that many runs live at once, but for
every fiftieth run it takes no time, so that the first progress is the engine's and not the step's.

usage: python -m bench.herd [--runs N] [--max-live N]
       python -m bench.herd work FOLDER RUNS MAX_LIVE SECONDS      the process that is killed, and its heir
"""

import argparse
import asyncio
import logging
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from rich.console import Console

from bench import processes
from bench.database import DATABASE, MAX_LIVE, check_rows, rows
from bench.findings import Finding, conclude
from bench.vitals import vitals
from perdure import Perdure, activity, workflow

RUNS = 50_000
MOST_FIRST_SECONDS, MOST_TIMES_STEADY = 2.0, 1.5
LONG_SECONDS, SHORT_SECONDS, QUICK_EVERY = 3600.0, 1.0, 50
PATIENCE_SECONDS = 240.0
LOOK_SECONDS = 0.25
BITE = 1000
# The first looks of a new process say little of how it will be.
SETTLED = 0.2
RECORDED = "select count(*) from events"
CLOSED = "select count(*) from runs where closed_at is not null"


class Pace:
    """How long the second step takes here, and what was seen of the first and the third."""

    seconds = LONG_SECONDS
    first_steps = 0
    has_progressed = False


@activity
async def gather_herd(number: int) -> int:
    Pace.first_steps += 1
    return number


@activity
async def drive_herd(number: int) -> int:
    is_quick = Pace.seconds == SHORT_SECONDS and number % QUICK_EVERY == 0
    await asyncio.sleep(0 if is_quick else Pace.seconds)
    return number


@activity
async def count_herd(number: int) -> int:
    # It runs once the end of the step before it is on disk.
    if not Pace.has_progressed:
        Pace.has_progressed = True
        say("progress", time.time())
    return number + 1


@workflow
async def herd(number: int) -> int:
    return await count_herd(await drive_herd(await gather_herd(number)))


def say(word: str, number: float) -> None:
    print(f"{word} {number:.6f}", flush=True)


async def work(folder: Path, runs: int, max_live: int, seconds: float) -> None:
    # That it takes over from a dead worker is what it is here for.
    logging.getLogger("perdure").setLevel(logging.ERROR)
    Pace.seconds = seconds
    say("imported", time.time())
    async with Perdure(f"sqlite:///{folder / DATABASE}", max_live=max_live) as app:
        most_live = asyncio.create_task(_most_live(app))
        for first in range(0, runs, BITE):
            await app.start_many(*(herd.call(number) for number in range(first, min(first + BITE, runs))))
        say("started", runs)
        await asyncio.to_thread(sys.stdin.readline)
        most_live.cancel()
        say("most_live", await most_live)
        say("first_steps", Pace.first_steps)


async def _most_live(app: Perdure) -> int:
    most = 0
    try:
        while app._worker is not None:
            most = max(most, len(app._worker._live))
            await asyncio.sleep(LOOK_SECONDS)
    except asyncio.CancelledError:
        pass
    return most


def measured(folder: Path, runs: int, max_live: int, notes: Console) -> Iterator[Finding]:
    notes.print(f"{runs:,} runs come to live in one process", style="dim")
    victim_mb = _start_and_kill(folder, runs)
    notes.print("it was killed; another one takes over", style="dim")
    with processes.begun("bench.herd", "work", folder, 0, max_live, SHORT_SECONDS) as heir:
        try:
            imported_at = processes.said(heir, "imported")
            first_at = processes.said(heir, "progress")
            samples = _watch(folder, heir, runs)
            peak = vitals(heir.pid).peak_mb
            assert heir.stdin is not None
            heir.stdin.write("\n")
            heir.stdin.flush()
            most_live, repeated = processes.said(heir, "most_live"), processes.said(heir, "first_steps")
            processes.end(heir)
        finally:
            heir.kill()
    check_rows(folder, runs, runs * 3)
    steady = statistics.median(samples[int(len(samples) * SETTLED) :])
    title = f"{runs:,} open runs of a dead process: first progress"
    yield Finding(title, first_at - imported_at, " s", MOST_FIRST_SECONDS)
    yield Finding("recorded steps repeated", repeated, "", 0)
    yield Finding("peak memory, in times of the steady one", peak / steady, "", MOST_TIMES_STEADY)
    yield Finding("steady memory", steady, " MB")
    yield Finding("peak memory", peak, " MB")
    yield Finding("most runs alive at once", most_live, "", max_live)
    yield Finding("memory of the process that had all of them", victim_mb, " MB")
    ((ended_ms,),) = rows(folder, "select max(closed_at) from runs")
    yield Finding("all ended after", ended_ms / 1000 - imported_at, " s")


def _start_and_kill(folder: Path, runs: int) -> float:
    """With every run in its second step; how much memory that took."""
    with processes.begun("bench.herd", "work", folder, runs, runs + 1, LONG_SECONDS) as victim:
        try:
            assert processes.said(victim, "started") == runs
            with closing(sqlite3.connect(folder / DATABASE)) as db:
                _until(lambda: db.execute(RECORDED).fetchone() == (runs,))
            needed = vitals(victim.pid).rss_mb
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
    return needed


def _watch(folder: Path, heir: "subprocess.Popen[str]", runs: int) -> list[float]:
    """The heir's memory, every now and then until the last run has ended."""
    samples: list[float] = []
    with closing(sqlite3.connect(folder / DATABASE)) as db:

        def is_done() -> bool:
            samples.append(vitals(heir.pid).rss_mb)
            return bool(db.execute(CLOSED).fetchone() == (runs,))

        _until(is_done)
    return samples


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it in {PATIENCE_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.herd", description="Fifty thousand runs are taken over.")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--max-live", type=int, default=MAX_LIVE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch:
        found = list(measured(Path(scratch), options.runs, options.max_live, Console(stderr=True)))
    return conclude("herd", f"python -m bench.herd --runs {options.runs} --max-live {options.max_live}", found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
    else:
        sys.exit(main())
