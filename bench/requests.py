"""Requests beside signals: asked one after the other, and five hundred runs at once.

Out:  milliseconds from the question to its answer, beside those from a signal to the result of the run that received
      it: both are two commits; and how many runs are asked per second, beside how many are signalled.
"""

import asyncio
from functools import partial
from pathlib import Path

from bench.database import Numbers, check_rows, opened
from bench.signals import RUNS, signalled, signalled_in_a_row
from bench.turns import Spent, in_turns, spending
from perdure import Perdure, Request, Run, workflow

IN_A_ROW = 100

double = Request("double", int, int)


@workflow
async def answers(count: int) -> int:
    for _ in range(count):
        asked = await double.receive()
        asked.answer(2 * asked.value)
    return count


async def measure(folder: Path, size: int) -> Numbers:
    """So many rounds of all."""
    async with opened(folder) as app:
        turns = await in_turns(
            size,
            asked=partial(_asked, app),
            signalled=partial(signalled, app),
            asked_in_a_row=partial(_asked_in_a_row, app),
            signalled_in_a_row=partial(signalled_in_a_row, app, IN_A_ROW),
        )
    runs, events = 2 * RUNS + IN_A_ROW + 1, 2 * RUNS + 2 * IN_A_ROW
    check_rows(folder, runs * (size + 1), events * (size + 1))
    return {
        "asked_per_s": RUNS / turns.seconds("asked"),
        "signalled_per_s": RUNS / turns.seconds("signalled"),
        "times": turns.times("signalled", "asked"),
        "ask_ms": turns.seconds("asked_in_a_row") / IN_A_ROW * 1e3,
        "signal_ms": turns.seconds("signalled_in_a_row") / IN_A_ROW * 1e3,
        "times_as_long": turns.times("asked_in_a_row", "signalled_in_a_row"),
    }


async def _asked(app: Perdure) -> Spent:
    async def ask(run: Run[int], number: int) -> None:
        assert await run.ask(double, number) == 2 * number

    runs = [await app.start(answers, 1) for _ in range(RUNS)]
    with spending() as spent:
        await asyncio.gather(*(ask(run, number) for number, run in enumerate(runs)))
    for run in runs:
        assert await run.result() == 1
    return spent


async def _asked_in_a_row(app: Perdure) -> Spent:
    run = await app.start(answers, IN_A_ROW)
    with spending() as spent:
        for number in range(IN_A_ROW):
            assert await run.ask(double, number) == 2 * number
    assert await run.result() == IN_A_ROW
    return spent
