"""One run of one scenario in a process of its own, so that no run inherits another's memory.

In:   the scenario's name, an empty folder, a size.
Out:  its numbers as JSON on standard output, after every result and every row was checked.

usage: python -m bench.one S1|S2|S3 FOLDER SIZE
"""

import asyncio
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from bench.workflows import five_steps, many_steps, one_step
from perdure import Perdure
from perdure.stores.sqlite import SqliteStore

IN_FLIGHT = 500
WARM_UP = 50
TIMES_LONGER = 10
FULL = 2

Numbers = dict[str, float]


async def throughput(app: Perdure, size: int) -> Numbers:
    """S1: five-step workflows, 500 in flight."""
    numbers = iter(range(size))

    async def one_after_another() -> None:
        for number in numbers:
            assert await app.run(five_steps, number) == number + 5

    began = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    return {"workflows_per_s": size / (time.perf_counter() - began)}


async def latency(app: Perdure, size: int) -> Numbers:
    """S2: one one-step workflow at a time."""
    taken = []
    for number in range(size):
        began = time.perf_counter()
        assert await app.run(one_step, number) == number + 1
        taken.append((time.perf_counter() - began) * 1e3)
    taken = sorted(taken[WARM_UP:])
    return {"p50_ms": statistics.median(taken), "p99_ms": taken[int(len(taken) * 0.99)]}


async def long_run(app: Perdure, size: int) -> Numbers:
    """S3: one run of so many steps, then one ten times as long; a third one before them warms up."""
    await _ms_per_step(app, size)
    short = await _ms_per_step(app, size)
    long = await _ms_per_step(app, size * TIMES_LONGER)
    return {"step_ms": short, "long_step_ms": long, "times": long / short}


async def _ms_per_step(app: Perdure, steps: int) -> float:
    began = time.perf_counter()
    assert await app.run(many_steps, steps) == steps
    return (time.perf_counter() - began) / steps * 1e3


class Scenario(msgspec.Struct, frozen=True):
    """What is measured, and what must be in the database afterwards: runs and events, by size."""

    measure: Callable[[Perdure, int], Coroutine[Any, Any, Numbers]]
    rows: Callable[[int], tuple[int, int]]


SCENARIOS = {
    "S1": Scenario(throughput, lambda size: (size, size * 5)),
    "S2": Scenario(latency, lambda size: (size, size)),
    "S3": Scenario(long_run, lambda size: (3, size * (2 + TIMES_LONGER))),
}


async def run(scenario: Scenario, path: Path, size: int) -> Numbers:
    """Default settings, on a file, with its worker on."""
    async with Perdure(f"sqlite:///{path}") as app:
        _check_sync(app)
        numbers = await scenario.measure(app, size)
    check_rows(path, *scenario.rows(size))
    return numbers


def _check_sync(app: Perdure) -> None:
    """Nobody has turned off what makes a commit durable."""
    store = app._store
    assert isinstance(store, SqliteStore)
    assert store._db.execute("pragma synchronous").fetchone() == (FULL,)
    assert store._db.execute("pragma journal_mode").fetchone() == ("wal",)


def check_rows(path: Path, runs: int, events: int) -> None:
    """Everything is on disk: so many completed runs and no others, so many events, a sound file."""
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("select status, count(*) from runs group by status").fetchall()
        assert found == [("COMPLETED", runs)], f"{runs} completed runs expected, there are {found}"
        assert db.execute("select count(*) from events").fetchone() == (events,)
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


if __name__ == "__main__":
    name, folder, size = sys.argv[1:]
    answer = asyncio.run(run(SCENARIOS[name], Path(folder) / "bench.db", int(size)))
    print(msgspec.json.encode(answer).decode())
