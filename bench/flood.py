"""S10: a hundred thousand messages for one run cost each what a thousand cost, and keep nobody else waiting.

Out:  what a message costs, among many and among few: signals that a run receives in a loop after nobody worked its
      queue, or while it is parked, or after its worker was killed half-way; signals it does not ask for; ends of
      children that came while nobody worked its queue. Beside the first of these, how long one-step runs of the
      same process take, with it and without; and the longest that anything held the loop of a worker.

A watchdog times every callback of the loop, by the processor time of its thread and without garbage collections: what
the machine does for others, and Python with as many tasks as a workflow has, is not held against us. The longest
collection, and what callbacks took by the clock on the wall, are shown beside it.

usage: python -m bench.flood [--store STORE] [--signals N] [--children N]
       python -m bench.flood work FOLDER QUEUE RUN BESIDE PARK_AFTER      a worker process; BESIDE is the seconds of
                                        one-step runs without the flood, 0 for as long as it takes, -1 for none
"""

import argparse
import asyncio
import gc
import logging
import signal
import statistics
import sys
import tempfile
import time
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import processes
from bench.database import forget, looking, rows, settle, url_of, within
from bench.findings import Finding, conclude
from bench.server import serving
from bench.workflows import add_one, one_step, tick
from perdure import Perdure, Signal, sleep, workflow

SIGNALS, CHILDREN, FEW = 100_000, 10_000, 1000
MOST_TIMES_FEW, MOST_TIMES_ALONE, MOST_HELD_MS = 1.5, 3.0, 20.0
RUN = "flooded"
# A client has so many signals on their way at once.
AT_ONCE = 500
# A parent calls so many children at a time.
BITE = 100
BESIDE_SECONDS, EVERY_SECONDS, WARM_UP = 10.0, 0.01, 50
PARK_SECONDS = 1.0
PATIENCE_SECONDS = 600.0
LOOK_SECONDS = 0.02
# Of so many callbacks of the loop, all but one take no longer.
RARE = 0.999
CHILDREN_QUEUE = "children"

notes = Console(stderr=True)
go = Signal("go", int)


@workflow
async def ignore_all() -> int:
    """Ticks come, and nobody asks for them."""
    return await go.receive()


@workflow
async def child_of_many(number: int) -> int:
    return await add_one(number)


@workflow
async def receive_many(count: int) -> int:
    total = 0
    for _ in range(count):
        total += await tick.receive()
    return total


@workflow
async def parent_of_many(children: int) -> int:
    """Some at a time: what workflow code does between two waits of its own nobody can divide."""
    child = child_of_many.options(queue=CHILDREN_QUEUE)
    called: list[asyncio.Task[int]] = []
    for first in range(0, children, BITE):
        called += [asyncio.create_task(child(number)) for number in range(first, min(first + BITE, children))]
        await sleep(0.001)
    return sum(await asyncio.gather(*called))


class Watchdog:
    """Times every callback of the loop."""

    def __init__(self) -> None:
        self.wall_ms: list[float] = []
        self.longest_ms = self.collected_ms = 0.0
        self.longest = ""
        self._collecting_since = self._collected = 0.0

    def _collects(self, phase: str, _: object) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collecting_since = now
        else:
            self._collected += now - self._collecting_since
            self.collected_ms = max(self.collected_ms, (now - self._collecting_since) * 1000)

    @contextmanager
    def watching(self) -> Iterator[None]:
        run = Handle._run

        def timed(handle: Any) -> None:
            wall, cpu, collected = time.perf_counter(), time.thread_time(), self._collected
            run(handle)
            held = (time.thread_time() - cpu - (self._collected - collected)) * 1000
            self.wall_ms.append((time.perf_counter() - wall) * 1000)
            if held > self.longest_ms:
                self.longest_ms, self.longest = held, repr(handle)

        gc.callbacks.append(self._collects)
        Handle._run = timed  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            Handle._run = run  # type: ignore[method-assign]
            gc.callbacks.remove(self._collects)


def say(word: str, number: float) -> None:
    print(f"{word} {number:.6f}", flush=True)


async def work(folder: Path, queue: str, run_id: str, beside: float, park_after: float) -> None:
    """Work until the run has ended, or one-step runs for so long."""
    logging.getLogger("perdure").setLevel(logging.ERROR)
    watchdog = Watchdog()
    latencies: list[float] = []
    with watchdog.watching():
        async with Perdure(url_of(folder), queues=(queue, "default"), park_after=park_after) as app:
            say("opened", time.time())
            one_steps = asyncio.create_task(_one_steps(app, latencies)) if beside >= 0 else None
            if beside > 0:
                await asyncio.sleep(beside)
            elif run_id == "-":
                await asyncio.to_thread(sys.stdin.readline)
            else:
                await (await app.get(run_id)).result()
            if one_steps is not None:
                one_steps.cancel()
    say("p99", _quantile(latencies[WARM_UP:], 0.99) if latencies[WARM_UP:] else 0)
    say("held", watchdog.longest_ms)
    say("rare", _quantile(watchdog.wall_ms, RARE))
    say("collected", watchdog.collected_ms)
    notes.print(f"  {watchdog.longest_ms:.1f} ms: {watchdog.longest}", style="dim", markup=False, highlight=False)


async def _one_steps(app: Perdure, latencies: list[float]) -> None:
    """One after the other, with a moment between."""
    while True:
        began = time.perf_counter()
        await app.run(one_step, 1)
        latencies.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(EVERY_SECONDS)


def _quantile(found: list[float], part: float) -> float:
    return sorted(found)[min(len(found) - 1, int(len(found) * part))]


# What is there before a worker comes


async def send(folder: Path, signals: int, last: Signal[int] = tick) -> None:
    """So many signals to the run, the last of them this one; nobody works here."""
    async with Perdure(url_of(folder), worker=False) as app:
        run = await app.get(RUN)
        numbers = iter(range(signals - 1))

        async def sender() -> None:
            for number in numbers:
                await run.signal(tick, number)

        await asyncio.gather(*(sender() for _ in range(AT_ONCE)))
        await run.signal(last, signals - 1)


async def start(folder: Path, flooded: Any, *arguments: Any, queue: str = "default") -> None:
    async with Perdure(url_of(folder), worker=False) as app:
        await app.start(flooded.options(id=RUN, queue=queue), *arguments)


def until(folder: Path, query: str, wanted: int) -> None:
    """Until a query counts so many."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with looking(folder) as look:
        while look(query)[0][0] < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{query} did not come to {wanted} in {PATIENCE_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)


# Scenarios: each answers with what a message cost, in microseconds, and what the worker's watchdog saw


class Seen:
    """What worker processes have seen, all of them together."""

    def __init__(self) -> None:
        self.held_ms: dict[str, float] = {}
        self.rare_ms = self.collected_ms = 0.0
        self.p99_ms = 0.0

    def listen(self, name: str, worker: Any) -> None:
        self.p99_ms = processes.said(worker, "p99")
        self.held_ms[name] = max(self.held_ms.get(name, 0), processes.said(worker, "held"))
        self.rare_ms = max(self.rare_ms, processes.said(worker, "rare"))
        self.collected_ms = max(self.collected_ms, processes.said(worker, "collected"))
        processes.end(worker)


def worker(folder: Path, queue: str = "default", run_id: str = RUN, beside: float = -1, park: float = 10.0) -> Any:
    return processes.begun("bench.flood", "work", folder, queue, run_id, beside, park)


def received(folder: Path, count: int, seen: Seen, beside: float = -1) -> float:
    """A run that receives them in a loop; they came while nobody worked its queue."""
    asyncio.run(start(folder, receive_many, count))
    asyncio.run(send(folder, count))
    with worker(folder, beside=beside) as process:
        began = processes.said(process, "opened")
        until(folder, f"select count(*) from runs where workflow_id = '{RUN}' and closed_at is not null", 1)
        seconds = time.time() - began
        seen.listen("received in a loop", process)
    _check(folder, count)
    return seconds / count * 1e6


def parked(folder: Path, count: int, seen: Seen) -> float:
    """The same, but they come while a worker is there and the run is parked; sending them is part of it."""
    with worker(folder, park=PARK_SECONDS) as process:
        asyncio.run(start(folder, receive_many, count))
        until(folder, "select count(*) from runs where status = 'SUSPENDED'", 1)
        began = time.time()
        asyncio.run(send(folder, count))
        until(folder, "select count(*) from runs where closed_at is not null", 1)
        seconds = time.time() - began
        seen.listen("sent to a parked run", process)
    _check(folder, count)
    return seconds / count * 1e6


def taken_over(folder: Path, count: int, seen: Seen) -> float:
    """Its worker is killed half-way; another one replays the first half and receives the second."""
    asyncio.run(start(folder, receive_many, count))
    asyncio.run(send(folder, count // 2))
    with worker(folder, run_id="-") as victim:
        until(folder, "select count(*) from events", count // 2)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    asyncio.run(send(folder, count - count // 2))
    with worker(folder) as process:
        began = processes.said(process, "opened")
        until(folder, "select count(*) from runs where closed_at is not null", 1)
        seconds = time.time() - began
        seen.listen("taken over", process)
    _check(folder, count)
    return seconds / count * 1e6


def unread(folder: Path, count: int, seen: Seen) -> float:
    """A run that asks for none of them but the last."""
    asyncio.run(start(folder, ignore_all))
    asyncio.run(send(folder, count, last=go))
    with worker(folder) as process:
        began = processes.said(process, "opened")
        until(folder, "select count(*) from runs where closed_at is not null", 1)
        seconds = time.time() - began
        seen.listen("not asked for", process)
    assert rows(folder, "select count(*) from inbox where taken_by is null") == [(count - 1,)]
    return seconds / count * 1e6


def of_children(folder: Path, count: int, seen: Seen) -> float:
    """A parent whose children have ended while nobody worked its queue."""
    asyncio.run(start(folder, parent_of_many, count, queue="parents"))
    with worker(folder, "parents", "-") as parents:
        until(folder, "select count(*) from runs", count + 1)
        _let_end(parents)
    with worker(folder, CHILDREN_QUEUE, "-") as children:
        until(folder, "select count(*) from inbox", count)
        _let_end(children)
    with worker(folder, "parents") as process:
        began = processes.said(process, "opened")
        until(folder, f"select count(*) from runs where workflow_id = '{RUN}' and closed_at is not null", 1)
        seconds = time.time() - began
        seen.listen("ends of children", process)
    return seconds / count * 1e6


def _let_end(process: Any) -> None:
    process.stdin.write("\n")
    process.stdin.flush()
    processes.end(process)


def _check(folder: Path, count: int) -> None:
    """Every signal became one event, and nothing else did."""
    query = f"select count(*) from events where run_id = (select run_id from runs where workflow_id = '{RUN}')"
    assert rows(folder, query) == [(count,)]
    assert rows(folder, "select count(*), count(taken_by) from inbox") == [(count, count)]


def measured(folder: Path, signals: int, children: int) -> Iterator[Finding]:
    seen = Seen()
    for name, scenario, many in (
        ("signals received in a loop", received, signals),
        ("signals sent to a parked run", parked, signals),
        ("signals of a run that is taken over half-way", taken_over, signals),
        ("signals nobody asks for", unread, signals),
        ("ends of children", of_children, children),
    ):
        costs = []
        # A few take so little time that the middle of several is taken.
        for turn, count in enumerate((FEW, FEW, FEW, many)):
            notes.print(f"{count:,} {name}", style="dim")
            costs.append(scenario(within(folder, f"{scenario.__name__}-{turn}"), count, seen))
        few = statistics.median(costs[:-1])
        yield Finding(f"{many:,} {name}: each", costs[-1], " µs")
        yield Finding(f"  in times of one among {FEW:,}", costs[-1] / few, "", MOST_TIMES_FEW)
    yield from _beside(folder, signals)
    for name, held in seen.held_ms.items():
        yield Finding(f"longest callback, {name}", held, " ms", MOST_HELD_MS)
    yield Finding("longest garbage collection", seen.collected_ms, " ms")
    yield Finding("999 of 1,000 callbacks by the wall clock", seen.rare_ms, " ms")


def _beside(folder: Path, signals: int) -> Iterator[Finding]:
    """One-step runs in the process that is flooded, and in one that is not."""
    notes.print("one-step runs beside them", style="dim")
    alone, flooded = Seen(), Seen()
    with worker(within(folder, "alone"), run_id="-", beside=BESIDE_SECONDS) as process:
        alone.listen("", process)
    received(within(folder, "beside"), signals, flooded, beside=0)
    yield Finding("one-step runs alone, p99", alone.p99_ms, " ms")
    yield Finding("one-step runs beside a flood, p99", flooded.p99_ms, " ms")
    yield Finding("  in times of alone", flooded.p99_ms / alone.p99_ms, "", MOST_TIMES_ALONE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.flood", description="Many messages for one run.")
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres or the address of a server")
    parser.add_argument("--signals", type=int, default=SIGNALS)
    parser.add_argument("--children", type=int, default=CHILDREN)
    options = parser.parse_args()
    command = f"python -m bench.flood --store {options.store} --signals {options.signals} --children {options.children}"
    with (
        serving(options.store) as (server, _),
        tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as scratch,
    ):
        settle(Path(scratch), server)
        try:
            found = list(measured(Path(scratch), options.signals, options.children))
        finally:
            forget(Path(scratch))
        name = "flood" if server is None else "flood_postgres"
        return conclude(name, command, found, server=server)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        folder, queue, run_id, beside, park_after = sys.argv[2:]
        asyncio.run(work(Path(folder), queue, run_id, float(beside), float(park_after)))
    else:
        sys.exit(main())
