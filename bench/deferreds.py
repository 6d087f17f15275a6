"""Five hundred runs that wait for a deferred, resolved all at once, beside as many that wait for a signal.

Out:  how many are resolved per second until their results are known, and signalled, in turns.
"""

import asyncio
from functools import partial
from pathlib import Path

from bench.database import Numbers, check_rows, opened
from bench.signals import RUNS, signalled
from bench.turns import Spent, in_turns, spending
from perdure import Deferred, Perdure, Run, workflow

approval = Deferred("approval", int)


@workflow
async def waits_for_decision() -> int:
    return await approval.wait()


async def measure(folder: Path, size: int) -> Numbers:
    """So many rounds of 500 runs each."""
    async with opened(folder) as app:
        turns = await in_turns(size, resolved=partial(_resolved, app), signalled=partial(signalled, app))
    check_rows(folder, 2 * RUNS * (size + 1), 2 * RUNS * (size + 1))
    return {
        "resolved_per_s": RUNS / turns.seconds("resolved"),
        "signalled_per_s": RUNS / turns.seconds("signalled"),
        "times": turns.times("signalled", "resolved"),
        "cpu_times": turns.cpu_times("signalled", "resolved"),
    }


async def _resolved(app: Perdure) -> Spent:
    async def resolve_and_wait(run: Run[int], number: int) -> None:
        await run.resolve(approval, number)
        assert await run.result() == number

    runs = [await app.start(waits_for_decision) for _ in range(RUNS)]
    with spending() as spent:
        await asyncio.gather(*(resolve_and_wait(run, number) for number, run in enumerate(runs)))
    return spent
