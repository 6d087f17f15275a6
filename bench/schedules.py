"""How fast schedules are decided, beside starts of the same runs; and what a look costs among many.

    python -m bench.schedules [--store postgres]

The runs go to a queue that nobody works: what is measured is how they come to be on disk.
"""

import argparse
import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from perdure import At, Every, Perdure, workflow
from perdure.app.internals import engine_of
from perdure.kernel.schedules import as_moment
from tools import servers

DUE = 10_000
FEW, MANY = 100, 100_000
ROUNDS, LOOKS = 3, 200
ELSEWHERE = "nobody works this"


@workflow
async def bench_report(number: int) -> int:
    return number


@contextmanager
def database(store: str, *, in_memory: bool = False) -> Any:
    folder = servers.folder(in_memory=in_memory)
    server = None if store == "sqlite" else servers.Server(folder).make().start()
    try:
        yield f"sqlite:///{folder}/bench.db" if server is None else server.url
    finally:
        if server is not None:
            server.end()
        shutil.rmtree(folder, ignore_errors=True)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def in_bites(work: list[Callable[[], Awaitable[object]]], bite: int = 1000) -> None:
    for first in range(0, len(work), bite):
        await asyncio.gather(*(each() for each in work[first : first + bite]))


async def due_at_once(app: Perdure, number: int) -> tuple[float, float]:
    """Seconds to decide so many schedules that are due, and to start as many runs."""
    engine: Any = engine_of(app)
    engine.duties.cancel()
    call = bench_report.options(queue=ELSEWHERE)
    moment = as_moment(engine.clock.now() + 600_000)

    def made(name: str) -> Callable[[], Awaitable[object]]:
        return lambda: engine.schedules.create("main", name, app.schedules._call(call.call(1)), At(moment))

    await in_bites([made(f"{number}-{each}") for each in range(DUE)])
    duty = engine.duties.loops["schedules"]._duty
    at = engine.clock.now() + 600_001
    decided = await timed(lambda: duty.tick("main", at, is_first=False))
    started = await timed(lambda: app.start_many(*(call.call(each) for each in range(DUE))))
    return decided, started


async def look_among(app: Perdure, count: int, made: int) -> float:
    """Milliseconds of a look when nothing is due, among so many."""
    engine: Any = engine_of(app)
    call = app.schedules._call(bench_report.options(queue=ELSEWHERE).call(1))

    def create(name: str) -> Callable[[], Awaitable[object]]:
        return lambda: engine.schedules.create("main", name, call, Every(timedelta(days=30)))

    await in_bites([create(f"look-{each}") for each in range(made, count)])
    duty = engine.duties.loops["schedules"]._duty
    took = []
    for _ in range(LOOKS):
        took.append(await timed(lambda: duty.due_at("main", engine.clock.now())))
        took[-1] += await timed(lambda: duty.tick("main", engine.clock.now(), is_first=False))
    return sorted(took)[LOOKS // 2] * 1000


async def main(store: str) -> None:
    with database(store) as url:
        async with Perdure(url, workflows=[bench_report]) as app:
            pairs = [await due_at_once(app, number) for number in range(ROUNDS)]
        for decided, started in pairs:
            print(f"{DUE:,} due: {decided:.2f} s, start_many: {started:.2f} s, {decided / started:.2f} times (bar 2.5)")
    with database(store) as url:
        async with Perdure(url, workflows=[bench_report]) as app:
            engine: Any = engine_of(app)
            engine.duties.cancel()
            few = await look_among(app, FEW, 0)
            many = await look_among(app, MANY, FEW)
        print(f"a look among {FEW}: {few:.3f} ms, among {MANY:,}: {many:.3f} ms, {many / few:.2f} times (bar 1.5)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgres"])
    asyncio.run(main(parser.parse_args().store))
