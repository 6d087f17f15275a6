"""S8: a million pending timers, of which some hundreds become due every second and are worked by a real worker.

Out:  how long the scan for due runs and the look for the next one take while that goes on;
      how late timers fire; that none fires early and none is lost.

The runs are written as rows in the shape that parking leaves; `tests/test_scale.py` holds both against each other.

usage: python -m bench.timers [--store STORE] [--timers N] [--per-second N] [--seconds N]
       python -m bench.timers work FOLDER UNTIL_MS      the worker process
"""

import argparse
import asyncio
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import processes
from bench.database import DATABASE, connected, forget, opened, rows, schema_of, server_of, settle
from bench.findings import Finding, conclude
from bench.server import serving
from bench.vitals import vitals
from bench.workflows import one_sleep
from perdure.ids import RandomIds
from perdure.stores.operations import ClaimRuns
from perdure.stores.queries import migrations
from perdure.stores.rules import claims as claiming
from perdure.stores.rules import reads
from perdure.stores.rules.questions import Steps
from perdure.stores.rules.table import TABLE

TIMERS, PER_SECOND, SECONDS = 1_000_000, 500, 60
MOST_SCAN_MS = 5.0
# Until the first one is due all must be written and the worker be there; after the last one it has a moment left.
SECONDS_TO_WRITE_ONE, SECONDS_TO_OPEN, GRACE_SECONDS = 60e-6, 10.0, 3.0
BITE = 10_000
# It has opened the database, and looked around; then it is left alone for as long as there is time.
SECONDS_TO_SETTLE, LEAST_IDLE_SECONDS, MOST_IDLE_SECONDS = 6.0, 10.0, 60.0
MOST_IDLE_PERCENT = 1.0

PARKED_RUN = """
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, wake_at, waiting, input, seed,
                  created_at, updated_at, begun_at)
values (?, 'main', ?, ?, 'default', 'SUSPENDED', ?, ?, ?, ?, ?, ?, ?)
"""
# On Postgres, where writing one takes longer.
SECONDS_TO_WRITE_ONE_THERE = 250e-6
COLUMNS = PARKED_RUN.partition("(")[2].partition(")")[0]
COPY_PARKED_RUNS = f"copy runs ({COLUMNS}) from stdin"
# Whoever fires a timer has only the time it was set for from the history; the run's row has it from its start.
FIRED = """
select events.at, events.body, runs.created_at, runs.input
  from events
  join runs on runs.run_id = events.run_id
 where events.kind = 'TimerFired'
   and runs.status = 'COMPLETED'
"""
# What is still parked keeps its timer; what has its turn, or an owner, has only the time it was set for.
OPEN = "select created_at, input from runs where status <> 'COMPLETED' and coalesce(wake_at, 0) <= ?"


def parked_run(ids: RandomIds, created_at: int, wake_at: int) -> tuple[object, ...]:
    """The row of a run of `one_sleep` that was parked with its timer."""
    run_id = ids.run_id(created_at)
    waiting = f'[{{"kind":"timer","place":"timer()","until":{wake_at}}}]'
    input = f'{{"seconds":{(wake_at - created_at) / 1000}}}'
    return run_id, run_id, one_sleep.name, wake_at, waiting, input, ids.seed(), created_at, created_at, created_at


def fill(path: Path, timers: int, first_at: int, per_second: float) -> None:
    """Write so many parked runs, the first one due at the given millisecond, the others after it at this rate."""
    ids, chance = RandomIds(timers), random.Random(timers)
    gap_ms = 1000 / per_second
    # Who was parked first is not who wakes first.
    places = list(range(timers))
    chance.shuffle(places)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = off")
        for number, step in enumerate(migrations("sqlite"), start=1):
            db.executescript(f"begin;\n{step}\nupdate perdure_schema set version = {number};\ncommit;")
        for first in range(0, timers, BITE):
            now = time.time_ns() // 1_000_000
            db.execute("begin immediate")
            bite = places[first : first + BITE]
            db.executemany(PARKED_RUN, (parked_run(ids, now, first_at + round(place * gap_ms)) for place in bite))
            db.execute("commit")
        db.execute("pragma wal_checkpoint(truncate)")


def fill_schema(folder: Path, timers: int, first_at: int, per_second: float) -> None:
    """The same on the server of this folder."""
    server = server_of(folder)
    assert server is not None
    asyncio.run(_make_tables(folder))
    ids, places = RandomIds(timers), list(range(timers))
    random.Random(timers).shuffle(places)
    now = time.time_ns() // 1_000_000
    with connected(server, schema_of(folder)) as db:
        db.execute("set synchronous_commit = off")
        with db.cursor().copy(COPY_PARKED_RUNS.replace("\n", " ").encode()) as copy:
            for place in places:
                row = parked_run(ids, now, first_at + round(place * 1000 / per_second))
                copy.write_row((*row[:1], "main", *row[1:3], "default", "SUSPENDED", *row[3:]))
        # They would have been parked for long, and the server's own housekeeping be over.
        db.execute("vacuum (analyze) runs")
        db.execute("checkpoint")


async def _make_tables(folder: Path) -> None:
    async with opened(folder, worker=False):
        pass


def measured(folder: Path, timers: int, per_second: float, seconds: float, notes: Console) -> Iterator[Finding]:
    notes.print(f"writing {timers:,} timers", style="dim")
    has_server = server_of(folder) is not None
    each = SECONDS_TO_WRITE_ONE_THERE if has_server else SECONDS_TO_WRITE_ONE
    first_at = time.time() + timers * each + SECONDS_TO_OPEN
    if has_server:
        fill_schema(folder, timers, int(first_at * 1000), per_second)
    else:
        fill(folder / DATABASE, timers, int(first_at * 1000), per_second)
    assert time.time() < first_at, "the timers were due before they were written"
    until_ms = int((first_at + seconds) * 1000)
    notes.print(f"working for {first_at + seconds - time.time():.0f} s", style="dim")
    with processes.begun("bench.timers", "work", folder, until_ms) as worker:
        idle = _idle_percent(worker.pid, first_at)
        figures = {word: processes.said(worker, word) for word in FIGURES}
        processes.end(worker)
    late = sorted(ms for ms in (_late_ms(*row) for row in rows(folder, FIRED)) if ms is not None)
    lost = sum(_fire_at(*row) <= until_ms for row in rows(folder, OPEN.replace("?", str(until_ms))))
    ((fired, doubled),) = rows(folder, "select count(*), count(*) - count(distinct run_id) from events")
    yield Finding(f"{timers:,} timers, {per_second:g}/s due: scan for due runs, p50", figures["scan_p50"], " ms")
    yield Finding("scan for due runs, p99", figures["scan_p99"], " ms", MOST_SCAN_MS)
    yield Finding("scan, and take them, p50", figures["claim_p50"], " ms")
    yield Finding("scan, and take them, p99", figures["claim_p99"], " ms", None if has_server else MOST_SCAN_MS)
    if idle is not None:
        yield Finding("idle processor time of the worker before", idle, " %", MOST_IDLE_PERCENT)
    yield Finding("look for the next one, p99", figures["next_p99"], " ms", MOST_SCAN_MS)
    yield Finding("scans", figures["claims"])
    yield Finding("timers fired", len(late))
    yield Finding("fired early", sum(ms < 0 for ms in late), "", 0)
    yield Finding("fired for another time than it was set for", fired - len(late), "", 0)
    yield Finding("lost", lost, "", 0)
    yield Finding("fired twice", doubled, "", 0)
    yield Finding("late, p50", _share(late, 0.5), " ms")
    yield Finding("late, p99", _share(late, 0.99), " ms")
    yield Finding("late at most", late[-1], " ms")
    yield Finding("memory of the worker", figures["memory"], " MB")


def _idle_percent(pid: int, first_at: float) -> float | None:
    """How much of a processor the worker takes while nothing is due; None when there is no time to see it."""
    time.sleep(SECONDS_TO_SETTLE)
    began, before = time.monotonic(), vitals(pid).cpu_s
    idle_seconds = min(first_at - 2 - time.time(), MOST_IDLE_SECONDS)
    if idle_seconds < LEAST_IDLE_SECONDS:
        return None
    time.sleep(idle_seconds)
    return (vitals(pid).cpu_s - before) / (time.monotonic() - began) * 100


def _late_ms(at: int, body: str, created_at: int, input: str) -> int | None:
    """How late a timer fired; None when it fired for another time than the run's own."""
    fire_at = _fire_at(created_at, input)
    return at - fire_at if json.loads(body)["fire_at"] == fire_at else None


def _fire_at(created_at: int, input: str) -> int:
    return round(created_at + 1000 * float(json.loads(input)["seconds"]))


FIGURES = ("claims", "scan_p50", "scan_p99", "claim_p50", "claim_p99", "next_p99", "memory")


class Stopwatch:
    """Takes the time of steps, with all that the database does for them."""

    def __init__(self) -> None:
        self.taken_ms: list[float] = []

    def around(self, steps: Callable[..., Steps[Any]]) -> Callable[..., Steps[Any]]:
        def timed(*args: object, **options: object) -> Steps[Any]:
            began = time.perf_counter()
            answer = yield from steps(*args, **options)
            self.taken_ms.append((time.perf_counter() - began) * 1e3)
            return answer

        return timed

    def share(self, part: float) -> float:
        return _share(sorted(self.taken_ms), part)


def _share(ordered: Sequence[float], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


async def work(folder: Path, until_ms: int) -> None:
    """Work as any worker does, with a stopwatch in the hand."""
    scans, claims, looks = Stopwatch(), Stopwatch(), Stopwatch()
    claiming.look = scans.around(claiming.look)
    TABLE[ClaimRuns] = TABLE[ClaimRuns]._replace(apply=claims.around(claiming.claim_runs))
    # Of what is read, what the reading thread does for it; the way there and back waits for whatever else is read.
    reads.next_wakes = looks.around(reads.next_wakes)
    async with opened(folder):
        await asyncio.sleep(until_ms / 1000 + GRACE_SECONDS - time.time())
        print(f"claims {len(claims.taken_ms)}\nscan_p50 {scans.share(0.5)}\nscan_p99 {scans.share(0.99)}")
        print(f"claim_p50 {claims.share(0.5)}\nclaim_p99 {claims.share(0.99)}")
        print(f"next_p99 {looks.share(0.99)}\nmemory {vitals().rss_mb}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.timers", description="A million pending timers.")
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres, or the URL of a Postgres server")
    parser.add_argument("--timers", type=int, default=TIMERS)
    parser.add_argument("--per-second", type=float, default=PER_SECOND)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    sizes = (options.timers, options.per_second, options.seconds)
    with (
        serving(options.store) as (server, _),
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch,
    ):
        settle(Path(scratch), server)
        found = list(measured(Path(scratch), *sizes, Console(stderr=True)))
        forget(Path(scratch))
        kind = "sqlite" if server is None else "postgres"
        command = "python -m bench.timers --store {} --timers {} --per-second {:g} --seconds {:g}".format(kind, *sizes)
        return conclude("timers" if server is None else "timers-postgres", command, found, server=server)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        sys.exit(main())
