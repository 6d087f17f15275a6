"""A thousand activities that beat ten times a second, beside the same loops without the call.

Out:  processor time of each, and how many times as much beating takes.
"""

import asyncio
from functools import partial
from pathlib import Path

from bench.database import Numbers, check_rows, opened, rows
from bench.turns import Spent, in_turns, spending
from perdure import Perdure, Workflow, activity, heartbeat, workflow

ACTIVITIES = 1000
BEATS = 20
BEAT_SECONDS = 0.1


@activity
async def beats(number: int) -> int:
    for beat in range(BEATS):
        await asyncio.sleep(BEAT_SECONDS)
        heartbeat(beat)
    return number


@activity
async def does_not_beat(number: int) -> int:
    for _ in range(BEATS):
        await asyncio.sleep(BEAT_SECONDS)
    return number


@workflow
async def all_beat(count: int) -> int:
    return len(await asyncio.gather(*(beats(number) for number in range(count))))


@workflow
async def none_beats(count: int) -> int:
    return len(await asyncio.gather(*(does_not_beat(number) for number in range(count))))


async def measure(folder: Path, size: int) -> Numbers:
    """So many rounds of two seconds each."""
    async with opened(folder) as app:
        turns = await in_turns(size, beating=partial(_run, app, all_beat), silent=partial(_run, app, none_beats))
    check_rows(folder, 2 * (size + 1), 2 * (size + 1) * ACTIVITIES)
    assert rows(folder, "select count(*) from progress") == [((size + 1) * ACTIVITIES,)], "a beat was not written"
    return {
        "beating_ms": turns.cpu_ms("beating"),
        "silent_ms": turns.cpu_ms("silent"),
        "times": turns.cpu_times("beating", "silent"),
    }


async def _run(app: Perdure, looping: Workflow[[int], int]) -> Spent:
    with spending() as spent:
        assert await app.run(looping, ACTIVITIES) == ACTIVITIES
    return spent
