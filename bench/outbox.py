"""What a log sink costs runs of five steps; and what a delivery costs among many events that wait.

python -m bench.outbox [--store postgres] [--runs 3000] [--many 1000000]
"""

import argparse
import asyncio
import time
from typing import Any

from bench.schedules import database, timed
from perdure import Log, Perdure, activity, workflow
from perdure.app.internals import engine_of

FEW, ROUNDS, IN_FLIGHT, DELIVERIES = 1000, 3, 500, 200
BITE = 2000


@activity
async def bench_step(number: int) -> int:
    return number


@workflow
async def bench_five_steps(number: int) -> int:
    for each in range(5):
        await bench_step(each)
    return number


async def runs_per_second(url: str, runs: int, *, has_sink: bool) -> tuple[float, int]:
    """How many runs end in a second, and how many events wait at the end."""
    async with Perdure(url, workflows=[bench_five_steps]) as app:
        if has_sink:
            await app.outbox.add("log", Log(), events=("run.*",))
        places = asyncio.Semaphore(IN_FLIGHT)

        async def one(number: int) -> None:
            async with places:
                await app.run(bench_five_steps, number)

        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(runs)))
        took = time.perf_counter() - began
        return runs / took, (await app.outbox.get("log")).backlog if has_sink else 0


async def delivery_among(app: Perdure, count: int, made: int) -> float:
    """Milliseconds to deliver the events of one run, one after the other, while so many wait behind."""
    engine: Any = engine_of(app)
    for first in range(made, count, BITE):
        await app.start_many(
            *(bench_five_steps.options(queue="nobody").call(1) for _ in range(min(BITE, count - first)))
        )
    row = (await engine._store.reads.outbox.sinks("main"))[0]
    duty = engine._sinks._sinks["log"][1]
    reads = engine._store.reads.outbox

    async def deliver() -> None:
        (event, *_) = await reads.due(row.sink_id, engine.clock.now(), 1)
        await duty._send_chain(duty._senders("log", Log()), [event])
        await duty._note(engine.clock.now())

    took = [await timed(deliver) for _ in range(DELIVERIES)]
    return sorted(took)[DELIVERIES // 2] * 1000


async def main(store: str, runs: int, many: int) -> None:
    for _ in range(ROUNDS):
        with database(store) as url:
            without, _ = await runs_per_second(url, runs, has_sink=False)
        with database(store) as url:
            with_sink, backlog = await runs_per_second(url, runs, has_sink=True)
        ratio = with_sink / without
        print(f"S1: {without:,.0f}/s, with a log sink {with_sink:,.0f}/s: {ratio:.2f} (bar 0.65), {backlog:,} wait")
    # What a disk takes to sync is another thing at every moment, and the same for few and many.
    with database(store, in_memory=True) as url:
        async with Perdure(url, workflows=[bench_five_steps]) as app:
            await app.outbox.add("log", Log(), events=("run.started",), max_backlog=10 * many)
            engine: Any = engine_of(app)
            await app.start(bench_five_steps, 1)
            await asyncio.sleep(2)
            engine._sinks.cancel()
            engine.duties.cancel()
            few = await delivery_among(app, FEW, 0)
            found = await delivery_among(app, many, FEW)
        print(f"a delivery among {FEW:,}: {few:.2f} ms, among {many:,}: {found:.2f} ms, {found / few:.2f} (bar 1.5)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgres"])
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--many", type=int, default=1_000_000)
    given = parser.parse_args()
    asyncio.run(main(given.store, given.runs, given.many))
