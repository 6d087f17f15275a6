"""S8: what a hundred thousand parked runs cost the process that parked them, a fresh one, and others' work.

Out:  memory beyond that of an idle process, five-step workflows per second beside them and
      without them, and the processor time of processes that only keep them.

usage: python -m bench.parked [--runs N] [--pairs N] [--timers N] [--max-live N]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from bench import processes
from bench.database import DATABASE, MAX_LIVE, within
from bench.findings import Finding, conclude
from bench.timers import fill
from bench.vitals import vitals

RUNS, PAIRS, RATED = 100_000, 7, 6000
MOST_MB, LEAST_RATIO, MOST_IDLE_PERCENT = 30, 0.9, 1.0
IDLE_SECONDS = 30.0
TIMERS = 1_000_000
# Timers that nobody sees fire here.
FAR_AWAY_SECONDS = 24 * 3600

notes = Console(stderr=True)


def measured(folder: Path, runs: int, pairs: int, timers: int, max_live: int) -> Iterator[Finding]:
    crowded, empty = within(folder, "crowded"), within(folder, "empty")
    notes.print(f"parking {runs:,} runs", style="dim")
    with keeper("park", crowded, runs, max_live) as parker, keeper("worker", empty) as lone:
        idle, alone = processes.said(parker, "idle"), processes.said(lone, "idle")
        tenth, parks, peak, parked = (processes.said(parker, word) for word in ("tenth", "rate", "peak", "parked"))
        title = f"{runs:,} parked, {max_live:,} alive at once: more than idle, where they were parked"
        yield Finding(title, parked - idle, " MB", MOST_MB)
        yield Finding("  more than when a tenth of them was parked", parked - tenth, " MB")
        with keeper("worker", crowded) as fresh, keeper("client", crowded) as client:
            opened = processes.said(fresh, "idle")
            processes.said(client, "idle")
            yield Finding("in a fresh process, more than on an empty file", opened - alone, " MB", MOST_MB)
            yield from _idle("where they were parked", parker, "a fresh worker", fresh, "a client", client)
    yield Finding("an idle worker", idle, " MB")
    yield Finding("peak while they were parked", peak, " MB")
    yield Finding("started and parked", parks, "/s")
    yield Finding("database", (crowded / DATABASE).stat().st_size / 2**20, " MB")
    if pairs:
        yield from _rates(folder, crowded, pairs)
    if timers:
        yield from _idle_beside_timers(within(folder, "timers"), timers)


def _idle(*named: "str | subprocess.Popen[str]") -> Iterator[Finding]:
    """Processor time of several processes over the same seconds, in which nobody does anything."""
    notes.print(f"looking on for {IDLE_SECONDS:.0f} s", style="dim")
    kept = [(str(named[n]), named[n + 1]) for n in range(0, len(named), 2)]
    pids = {name: process.pid for name, process in kept if isinstance(process, subprocess.Popen)}
    before = {name: vitals(pid).cpu_s for name, pid in pids.items()}
    time.sleep(IDLE_SECONDS)
    for name, pid in pids.items():
        percent = (vitals(pid).cpu_s - before[name]) / IDLE_SECONDS * 100
        yield Finding(f"idle processor time, {name}", percent, " %", MOST_IDLE_PERCENT)


def _rates(folder: Path, crowded: Path, pairs: int) -> Iterator[Finding]:
    """Beside the parked runs and without them, in turns, each in a process of its own."""
    beside: list[float] = []
    without: list[float] = []
    ratios: list[float] = []
    for number in range(pairs):
        notes.print(f"pair {number + 1} of {pairs}", style="dim")
        empty = within(folder, f"without-{number}")
        turns = [(empty, without), (crowded, beside)]
        # Who goes first has no advantage in the end.
        for there, found in turns if number % 2 else reversed(turns):
            found.append(_rate(there))
        ratios.append(beside[-1] / without[-1])
    yield Finding("five-step workflows beside them", statistics.median(beside), "/s")
    yield Finding("without them", statistics.median(without), "/s")
    yield Finding("ratio, the middle pair", statistics.median(ratios), "", LEAST_RATIO, is_minimum=True)


def _rate(folder: Path) -> float:
    with keeper("rate", folder, RATED) as worker:
        return processes.said(worker, "rate")


def _idle_beside_timers(folder: Path, timers: int) -> Iterator[Finding]:
    notes.print(f"writing {timers:,} timers", style="dim")
    fill(folder / DATABASE, timers, int((time.time() + FAR_AWAY_SECONDS) * 1000), per_second=100)
    with keeper("worker", folder) as worker:
        processes.said(worker, "idle")
        yield from _idle(f"a worker beside {timers:,} timers", worker)


@contextmanager
def keeper(role: str, folder: Path, *sizes: int) -> "Iterator[subprocess.Popen[str]]":
    """A keeper that leaves when this is left, and must have done well."""
    with processes.begun("bench.keeper", role, folder, *(sizes or (0,))) as process:
        try:
            yield process
            processes.end(process)
        finally:
            process.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.parked", description="What parked runs cost.")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--timers", type=int, default=TIMERS)
    parser.add_argument("--max-live", type=int, default=MAX_LIVE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch:
        found = list(measured(Path(scratch), options.runs, options.pairs, options.timers, options.max_live))
    command = f"python -m bench.parked --runs {options.runs} --timers {options.timers} --max-live {options.max_live}"
    return conclude("parked", command, found)


if __name__ == "__main__":
    sys.exit(main())
