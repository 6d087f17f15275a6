"""What steering costs: starts with attributes, filters among many, many at once, retry and fork, subscribers, explain.

    python -m bench.steering [--store postgres] [--runs N]

The runs wait on a queue that nobody works, so that no worker has a part in what is measured.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from bench import processes
from bench.findings import Finding, conclude
from bench.schedules import database, timed
from bench.turns import Side, Spent, in_turns, spending
from perdure import Perdure, Run, RunFailed, Signal, activity, workflow

RUNS = 1_100_000
SMALL = 1000
ONE_BY_ONE, AT_ONCE, BESIDE = 300, 20_000, 5000
EVENTS = 10_000
LOOKS, CHANGES, FOLLOWED = 40, 60, 2000
ROUNDS = 5
ALONE_SECONDS = 3
ELSEWHERE = "nobody works this"

go = Signal("bench-go", int)


@workflow
async def bench_waits(number: int) -> int:
    return number + await go.receive()


@activity
async def bench_step(number: int) -> int:
    return number


@workflow
async def bench_fails_late(steps: int) -> None:
    for number in range(steps):
        await bench_step(number)
    raise ValueError("at the end")


@workflow
async def bench_five(number: int) -> int:
    for each in range(5):
        number = await bench_step(number + each)
    return number


waiting = bench_waits.options(queue=ELSEWHERE)


# Starts


async def starts(app: Perdure) -> Finding:
    """Starts without attributes, as a share of which those with three are done."""

    def side(attributes: Callable[[int], dict[str, Any] | None]) -> Side:
        async def started() -> Spent:
            calls = [waiting.options(attributes=attributes(each)).call(each) for each in range(4000)]
            with spending() as spent:
                await app.start_many(*calls)
            return spent

        return started

    three = side(lambda each: {"tenant": f"t{each % 50}", "tier": each, "paid": True})
    turns = await in_turns(ROUNDS, plain=side(lambda _: None), three=three)
    return Finding("starts with three attributes, of those without", turns.times("plain", "three"), "", 0.6, True)


# Filters


async def filled(app: Perdure, count: int) -> float:
    """Runs on disk, ten of them found by an attribute and an entity, and when the last ten were started."""
    rare = waiting.options(entity_id="npc-42", attributes={"tenant": "rare"})
    await app.start_many(*(rare.call(each) for each in range(10)))
    for first in range(10, count - 10, 20_000):
        await app.start_many(*(waiting.call(each) for each in range(first, min(first + 20_000, count - 10))))
    # What was started in the second before is near enough to be looked at.
    await asyncio.sleep(1.5)
    since = time.time()
    await app.start_many(*(bench_five.options(queue=ELSEWHERE).call(each) for each in range(10)))
    return since


FILTERS = {
    "an attribute": "tenant = 'rare'",
    "an entity": "entity_id = 'npc-42'",
    "a status and a workflow": "status = 'pending' and workflow = 'bench_five'",
    "a time": "created_at >= :since",
    "most of them, a page": f"queue = '{ELSEWHERE}'",
}


async def looks(app: Perdure, since: float) -> dict[str, float]:
    """Milliseconds of a page, by filter."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since)) + f".{int(since * 1000) % 1000:03d}Z"
    found: dict[str, float] = {}
    for name, where in FILTERS.items():
        params = {"since": moment} if ":since" in where else {}

        async def page(where: str = where, params: dict[str, Any] = params) -> None:
            assert len(await app.list(where=where, params=params, limit=50)) in {10, 50}

        found[name] = statistics.median([await timed(page) for _ in range(LOOKS)]) * 1000
    return found


async def filters(small: Perdure, large: Perdure, runs: int) -> list[Finding]:
    few = await looks(small, await filled(small, SMALL))
    many = await looks(large, await filled(large, runs))
    return [Finding(f"by {name}: among {runs:,} of among {SMALL:,}", many[name] / few[name], "", 3) for name in FILTERS]


async def explained(small: Perdure, large: Perdure) -> Finding:
    """A run behind many on its queue is explained as quickly as one behind few."""
    ids = {"few": (small, "few"), "many": (large, "many")}
    for app, id in ids.values():
        await app.start(waiting.options(id=id), 0)

    def side(app: Perdure, id: str) -> Side:
        async def told() -> Spent:
            run = await app.get(id)
            with spending() as spent:
                await run.explain()
            return spent

        return told

    turns = await in_turns(LOOKS, few=side(*ids["few"]), many=side(*ids["many"]))
    return Finding("explain on a long queue of on a short one", turns.times("many", "few"), "", 2)


# Many at once


async def bulk(app: Perdure) -> list[Finding]:
    """How many times as quick it is to ask all that match as to ask one after the other."""
    answers = await app.start_many(*(waiting.call(each) for each in range(AT_ONCE)))
    runs = [run for run in answers if isinstance(run, Run)]
    where = f"queue = '{ELSEWHERE}' and workflow = 'bench_waits'"
    verbs: dict[str, tuple[Callable[[Run[int]], Awaitable[object]], Callable[[], Awaitable[Any]]]] = {
        "pause_all": (lambda run: run.pause("x"), lambda: app.pause_all(where=where)),
        "broadcast": (lambda run: run.signal(go, 1, id="one"), lambda: app.broadcast(go, 1, where=where, id="all")),
        "cancel_all": (lambda run: run.cancel("x"), lambda: app.cancel_all(where=where)),
    }
    found = []
    for name, (one, all_at_once) in verbs.items():
        began = time.perf_counter()
        for run in runs[:ONE_BY_ONE]:
            await one(run)
        each = (time.perf_counter() - began) / ONE_BY_ONE
        began = time.perf_counter()
        done = (await all_at_once()).done
        many = (time.perf_counter() - began) / done
        found.append(Finding(f"{name} of {done:,}, times as quick as one by one", each / many, "", 5, True))
    return found


async def beside(url: str) -> Finding:
    """How much longer the slowest runs take while another process pauses and resumes many others."""
    took: dict[str, list[float]] = {"alone": [], "beside": []}

    async def run_for_a_while(app: Perdure, kind: str, is_over: Callable[[], bool]) -> None:
        while not is_over():
            took[kind].append(await timed(lambda: app.run(bench_five, 1)))
            await asyncio.sleep(0.005)

    async with Perdure(url) as app:
        await app.start_many(*(waiting.call(each) for each in range(BESIDE)))
        for _ in range(3):
            until = time.monotonic() + ALONE_SECONDS
            await run_for_a_while(app, "alone", lambda until=until: time.monotonic() > until)  # type: ignore[misc]  # bound at once
            bulk = processes.begun("bench.steering", "--pause", url)
            await asyncio.to_thread(processes.said, bulk, "up")
            done = asyncio.create_task(asyncio.to_thread(processes.said, bulk, "done"))
            await run_for_a_while(app, "beside", done.done)
            await asyncio.to_thread(processes.end, bulk)
    p99 = {kind: statistics.quantiles(times, n=100)[98] for kind, times in took.items()}
    return Finding("p99 of other runs beside a bulk action, of alone", p99["beside"] / p99["alone"], "", 2)


async def pause_and_resume(url: str) -> None:
    """A bulk action in a process of its own."""
    async with Perdure(url, worker=False) as app:
        print("up 1", flush=True)
        await app.pause_all(where=f"queue = '{ELSEWHERE}'")
        await app.resume_all(where=f"queue = '{ELSEWHERE}'")
        print("done 1", flush=True)
        await asyncio.to_thread(sys.stdin.read)


# Retry and fork


async def copies(app: Perdure) -> list[Finding]:
    """A long history read, forked and retried."""
    run = await app.start(bench_fails_late, EVENTS)
    with suppress(RunFailed):
        await run.result()

    async def read() -> None:
        assert sum([1 async for _ in run.events()]) > EVENTS

    reading = statistics.median([await timed(read) for _ in range(3)])
    forking = await timed(lambda: run.fork(at=EVENTS - 10, id="other"))
    # The worker goes on with the fork; that is no part of what a retry costs.
    with suppress(RunFailed):
        await (await app.get("other")).result()
    retrying = await timed(run.retry)
    return [
        Finding(f"fork of {EVENTS:,} events, of reading them", forking / reading, "", 3),
        Finding(f"retry of {EVENTS:,} events, of reading them", retrying / reading, "", 3),
    ]


# Subscribers


async def follows(url: str) -> list[Finding]:
    """How late a change of another process is told, and what subscribers cost the process that makes changes."""
    by_events: list[float] = []
    by_changes: list[float] = []
    worker = processes.begun("bench.steering", "--work", url)
    processes.said(worker, "up")
    async with Perdure(url, worker=False) as app:
        for number in range(CHANGES):
            run = await app.start(bench_waits.options(id=f"followed-{number}"), number)
            ended, seen, changed = await _told(app, run)
            by_events.append(seen - ended)
            by_changes.append(changed - ended)
    await asyncio.to_thread(processes.end, worker)
    late = statistics.median(by_changes) / statistics.median(by_events)
    costs: dict[int, list[float]] = {1: [], 1000: []}
    async with Perdure(url) as app:
        for number in [1, 1000] * ROUNDS:
            crowd = processes.begun("bench.steering", "--subscribe", number, url)
            await asyncio.to_thread(processes.said, crowd, "up")
            with spending() as spent:
                for _ in range(FOLLOWED // 500):
                    await asyncio.gather(*(app.run(bench_five, each) for each in range(500)))
            costs[number].append(spent.cpu_s)
            await asyncio.to_thread(processes.end, crowd)
    cost = statistics.median(costs[1000]) / statistics.median(costs[1])
    return [
        Finding("a change by subscribe, times as late as by events(follow=True)", late, "", 2),
        Finding("processor time of the writer, 1,000 subscribers of one", cost, "", 1.1),
    ]


async def _told(app: Perdure, run: Run[int]) -> tuple[float, float, float]:
    """When a run has ended, and when a follower of its events and a subscriber knew."""
    listens = asyncio.Event()

    async def by_events() -> tuple[float, float]:
        async for event in run.events(follow=True):
            if event.kind == "RunCompleted":
                return event.at.timestamp(), time.time()
        raise AssertionError

    async def by_changes() -> float:
        async for change in app.subscribe(where="id = :id", params={"id": run.id}):
            listens.set()
            if change.left or change.run.status == "COMPLETED":
                return time.time()
        raise AssertionError

    both = asyncio.gather(by_events(), by_changes())
    await listens.wait()
    await asyncio.sleep(0.05)
    await run.signal(go, 1)
    (ended, seen), changed = await both
    return ended, seen, changed


async def work(url: str) -> None:
    """A worker in a process of its own."""
    async with Perdure(url):
        print("up 1", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def subscribe(count: int, url: str) -> None:
    """So many subscribers in a process of their own."""
    async with Perdure(url, worker=False) as app:

        async def one(number: int) -> None:
            async for _ in app.subscribe(where="entity_id = :id", params={"id": f"x-{number}"}):
                pass

        tasks = [asyncio.create_task(one(number)) for number in range(count)]
        await asyncio.sleep(3)
        print("up 1", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()


async def measured(store: str, runs: int) -> list[Finding]:
    found: list[Finding] = []
    with database(store) as url:
        async with Perdure(url) as app:
            found += [await starts(app), *await copies(app)]
        found += await follows(url)
    with database(store) as url:
        async with Perdure(url, worker=False) as app:
            found += await bulk(app)
    with database(store) as url:
        found.append(await beside(url))
    with database(store) as few, database(store) as many:
        async with Perdure(few, worker=False) as small, Perdure(many, worker=False) as large:
            found += [*await filters(small, large, runs), await explained(small, large)]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgres"])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--work", metavar="URL")
    parser.add_argument("--pause", metavar="URL")
    parser.add_argument("--subscribe", nargs=2, metavar=("COUNT", "URL"))
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.work))
    elif given.pause:
        asyncio.run(pause_and_resume(given.pause))
    elif given.subscribe:
        asyncio.run(subscribe(int(given.subscribe[0]), given.subscribe[1]))
    else:
        command = f"python -m bench.steering --store {given.store} --runs {given.runs}"
        sys.exit(conclude(f"steering-{given.store}", command, asyncio.run(measured(given.store, given.runs))))
