"""Streams: how many values an activity publishes per second beside steps, and how late other processes see them.

Out:  values per second until all of them are on disk, and steps of workflows per second, in turns; milliseconds from
      the call that publishes to a reader in another process, and from the end of a step to one who follows events.

usage: python -m bench.streams FOLDER WHAT      the reader: of `values` or of `events`; says how late the middle one was
"""

import asyncio
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from bench import processes
from bench.database import Numbers, opened, rows, within
from bench.steps import run_many
from bench.turns import Spent, in_turns, spending
from perdure import Perdure, Stream, activity, workflow

ROUNDS = 2
WORKFLOWS, STEPS = 1000, 5
TOLD = 60
PAUSE_SECONDS = 0.1

numbers = Stream("numbers", int)
moments = Stream("moments", float)


@activity
def publish_all(count: int) -> int:
    for number in range(count):
        numbers.publish(number)
    return count


@workflow
async def publishes(count: int) -> int:
    return await publish_all(count)


@activity
async def tell_the_time(pause: float) -> float:
    await asyncio.sleep(pause)
    moments.publish(time.time())
    return time.time()


@workflow
async def tells_the_time(pauses: list[float]) -> int:
    for pause in pauses:
        await tell_the_time(pause)
    return len(pauses)


async def measure(folder: Path, size: int) -> Numbers:
    """So many values in each round."""
    return await _rates(within(folder, "rates"), size) | await _lateness(within(folder, "lateness"), min(size, TOLD))


async def _rates(folder: Path, size: int) -> Numbers:
    async with opened(folder) as app:
        turns = await in_turns(ROUNDS, values=partial(_published, app, size), steps=partial(run_many, app, WORKFLOWS))
    found = rows(folder, "select count(*), count(distinct run_id), max(n) from streams")
    assert found == [((ROUNDS + 1) * size, ROUNDS + 1, size)], (
        f"{size} values a round were published, there are {found}"
    )
    return {
        "values_per_s": size / turns.seconds("values"),
        "steps_per_s": WORKFLOWS * STEPS / turns.seconds("steps"),
        "times": turns.times("steps", "values") * size / (WORKFLOWS * STEPS),
    }


async def _published(app: Perdure, size: int) -> Spent:
    with spending() as spent:
        assert await app.run(publishes, size) == size
    return spent


# How late they are seen


async def _lateness(folder: Path, count: int) -> Numbers:
    chance = random.Random(count)
    pauses = [chance.uniform(0, PAUSE_SECONDS) for _ in range(count)]
    async with opened(folder) as app:
        # While they begin, nothing is told.
        run = await app.start(tells_the_time.options(id="clock", delay=2.0), pauses)
        with (
            processes.begun("bench.streams", folder, "values") as values,
            processes.begun("bench.streams", folder, "events") as events,
        ):
            assert await run.result() == count
            late = [await asyncio.to_thread(processes.said, reader, "late") for reader in (values, events)]
            for reader in (values, events):
                processes.end(reader)
    return {"values_late_ms": late[0], "events_late_ms": late[1]}


async def read(folder: Path, what: str) -> None:
    began = time.time()
    async with opened(folder, worker=False) as app:
        told = _values(app) if what == "values" else _results(app)
        seen = [(moment, time.time()) async for moment in told]
    # What was told before is late through no fault of anybody's.
    late = [at - moment for moment, at in seen if moment > began]
    print(f"late {statistics.median(late) * 1e3}", flush=True)
    sys.stdin.read()


async def _values(app: Perdure) -> AsyncIterator[float]:
    async for item in (await app.get("clock")).stream(moments):
        yield item.value


async def _results(app: Perdure) -> AsyncIterator[float]:
    async for event in (await app.get("clock")).events(follow=True):
        if isinstance(result := event.body.get("result"), float) and event.kind == "ActivityCompleted":
            yield result


if __name__ == "__main__":
    asyncio.run(read(Path(sys.argv[1]), sys.argv[2]))
