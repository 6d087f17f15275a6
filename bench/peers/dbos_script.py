"""DBOS at our scenarios: embedded in one process, with its async API, and with a pool large enough for it.

It runs with a Python of its own, in which DBOS is installed and Perdure is not, and says the same numbers as
`bench.one`. A file is put into WAL mode before DBOS opens it, which makes it faster than how it comes.

usage: dbos_script.py SCENARIO URL SIZE SECONDS      stops to begin new work after so many seconds
"""

import asyncio
import json
import os
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

# DBOS asks for fractions of a second, which SQLite can tell since then.
FIRST_SQLITE = (3, 42)
if sqlite3.sqlite_version_info < FIRST_SQLITE:
    import pysqlite3

    sqlite3 = sys.modules["sqlite3"] = pysqlite3
    sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2

from dbos import DBOS  # noqa: E402 - it must find the SQLite from above

IN_FLIGHT = 100
POOL = 20
WARM_UP = 30
RECEIVERS = 500
PATIENCE_SECONDS = 600
FILE = "sqlite:///"

Numbers = dict[str, float]


@DBOS.step()
async def add_one(number: int) -> int:
    return number + 1


@DBOS.workflow()
async def no_step(number: int) -> int:
    return number


@DBOS.workflow()
async def many_steps(steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await add_one(number)
    return number


@DBOS.workflow()
async def one_sleep(seconds: float) -> float:
    """How late the sleep ended, by its own clock: kinder than ours, which counts from the start."""
    began = time.time()
    await DBOS.sleep_async(seconds)
    return (time.time() - began - seconds) * 1e3


@DBOS.workflow()
async def receive_all(count: int) -> list[int]:
    return [await DBOS.recv_async("tick", timeout_seconds=PATIENCE_SECONDS) for _ in range(count)]


@DBOS.workflow()
async def fan_out(children: int) -> int:
    handles = [await DBOS.start_workflow_async(many_steps, 1) for _ in range(children)]
    return sum([await handle.get_result() for handle in handles])


async def run(workflow: Callable[..., object], *arguments: object) -> object:
    return await (await DBOS.start_workflow_async(workflow, *arguments)).get_result()


async def as_many(size: int, seconds: float, one: Callable[[int], Awaitable[object]]) -> tuple[int, float]:
    """How many of so many were done by callers who each wait for their answer, and in how many seconds."""
    numbers, done, began = iter(range(size)), 0, time.perf_counter()

    async def one_after_another() -> None:
        nonlocal done
        for number in numbers:
            await one(number)
            done += 1
            if time.perf_counter() - began > seconds:
                return

    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))
    return done, time.perf_counter() - began


async def throughput(size: int, seconds: float) -> Numbers:
    done, taken = await as_many(size, seconds, lambda _: run(many_steps, 5))
    return {"workflows_per_s": done / taken}


async def latency(size: int, seconds: float) -> Numbers:
    taken: list[float] = []
    ends_at = time.perf_counter() + seconds
    while len(taken) < size and time.perf_counter() < ends_at:
        began = time.perf_counter()
        assert await run(many_steps, 1) == 1
        taken.append((time.perf_counter() - began) * 1e3)
    taken.sort()
    return {"p50_ms": statistics.median(taken), "p99_ms": taken[int(len(taken) * 0.99)]}


async def long_run(size: int, _seconds: float) -> Numbers:
    began = time.perf_counter()
    assert await run(many_steps, size) == size
    return {"step_ms": (time.perf_counter() - began) / size * 1e3}


async def sleeps(size: int, seconds: float) -> Numbers:
    handles = []

    async def one(number: int) -> None:
        handles.append(await DBOS.start_workflow_async(one_sleep, 1 + number / size))

    started, _ = await as_many(size, seconds, one)
    assert started == size, f"only {started} of {size} sleeps were started in {seconds:g} s"
    late = sorted([await handle.get_result() for handle in handles])
    return {"late_p50_ms": statistics.median(late), "late_p99_ms": late[int(size * 0.99)]}


async def signals(size: int, seconds: float) -> Numbers:
    handles = [await DBOS.start_workflow_async(receive_all, size) for _ in range(RECEIVERS)]
    ids = [handle.get_workflow_id() for handle in handles]
    began = time.perf_counter()

    async def one(number: int) -> None:
        for count in range(size):
            await DBOS.send_async(ids[number], count, topic="tick")

    sent, _ = await as_many(RECEIVERS, seconds, one)
    assert sent == RECEIVERS, f"only {sent} of {RECEIVERS} runs were sent their signals in {seconds:g} s"
    for handle in handles:
        assert await handle.get_result() == list(range(size))
    return {"here_per_s": RECEIVERS * size / (time.perf_counter() - began)}


async def children(size: int, _seconds: float) -> Numbers:
    began = time.perf_counter()
    assert await run(fan_out, size) == size
    return {"seconds": time.perf_counter() - began}


async def starts(size: int, seconds: float) -> Numbers:
    """Started, not ended: each answer means that the run is on disk."""
    done, taken = await as_many(size, seconds, lambda number: DBOS.start_workflow_async(no_step, number))
    return {"starts_per_s": done / taken}


SCENARIOS = {
    "S1": throughput,
    "S2": latency,
    "S3": long_run,
    "S4": sleeps,
    "S5": signals,
    "S6": children,
    "S9": starts,
}


async def main(scenario: str, size: int, seconds: float) -> None:
    for _ in range(WARM_UP):
        await run(many_steps, 5)
    print(json.dumps(await SCENARIOS[scenario](size, seconds)), flush=True)


if __name__ == "__main__":
    name, url, size, seconds = sys.argv[1:]
    if url.startswith(FILE):
        with sqlite3.connect(url.removeprefix(FILE)) as db:
            db.execute("pragma journal_mode = wal")
    settings = {"log_level": "ERROR", "application_version": "1", "executor_id": "local", "sys_db_pool_size": POOL}
    DBOS(config={"name": "bench", "system_database_url": url, **settings})
    DBOS.launch()
    asyncio.run(main(name, int(size), float(seconds)))
    # Whatever it still has under way is of no interest.
    os._exit(0)
