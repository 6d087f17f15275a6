"""A run that exposes a value changed by every step, beside one that exposes nothing.

Out:  milliseconds per step of each, and how many times as long exposing takes.
"""

from functools import partial
from pathlib import Path

from bench.database import Numbers, check_rows, opened
from bench.turns import Spent, in_turns, spending
from bench.workflows import add_one, many_steps
from perdure import Perdure, Workflow, expose, workflow

ROUNDS = 5


@workflow
async def shown_steps(steps: int) -> int:
    number = 0
    expose("progress", lambda: {"done": number, "of": steps})
    for _ in range(steps):
        number = await add_one(number)
    return number


async def measure(folder: Path, size: int) -> Numbers:
    """Runs of so many steps."""
    async with opened(folder) as app:
        turns = await in_turns(
            ROUNDS, shown=partial(_run, app, shown_steps, size), plain=partial(_run, app, many_steps, size)
        )
    check_rows(folder, 2 * (ROUNDS + 1), 2 * (ROUNDS + 1) * size)
    return {
        "shown_step_ms": turns.seconds("shown") / size * 1e3,
        "step_ms": turns.seconds("plain") / size * 1e3,
        "times": turns.cpu_times("shown", "plain"),
        "times_as_long": turns.times("shown", "plain"),
    }


async def _run(app: Perdure, stepping: Workflow[[int], int], steps: int) -> Spent:
    with spending() as spent:
        assert await app.run(stepping, steps) == steps
    return spent
