"""Ten undos beside ten activities: two workflows that fail, of which one undoes ten things before.

Out:  processor time of the runs of each, and how many times as much undoing takes.
"""

import asyncio
from functools import partial
from pathlib import Path

from bench.database import Numbers, check_rows, opened
from bench.turns import Spent, in_turns, spending
from bench.workflows import add_one
from perdure import Perdure, RunFailed, Workflow, undo, workflow

TEN = 10
RUNS = 100


@workflow
async def ten_undos(number: int) -> None:
    for each in range(TEN):
        undo(add_one, number + each)
    raise ValueError(number)


@workflow
async def ten_activities(number: int) -> None:
    for each in range(TEN):
        await add_one(number + each)
    raise ValueError(number)


async def measure(folder: Path, size: int) -> Numbers:
    """So many rounds of a hundred runs at once."""
    async with opened(folder) as app:
        turns = await in_turns(
            size, undos=partial(_failing, app, ten_undos), activities=partial(_failing, app, ten_activities)
        )
    check_rows(folder, 2 * RUNS * (size + 1), 2 * RUNS * (size + 1) * TEN, "FAILED")
    return {
        "undos_ms": turns.cpu_ms("undos"),
        "activities_ms": turns.cpu_ms("activities"),
        "times": turns.cpu_times("undos", "activities"),
    }


async def _failing(app: Perdure, failing: Workflow[[int], None]) -> Spent:
    with spending() as spent:
        ends = await asyncio.gather(*(app.run(failing, number) for number in range(RUNS)), return_exceptions=True)
    assert all(isinstance(end, RunFailed) for end in ends)
    return spent
