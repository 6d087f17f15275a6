"""The budget: microseconds of our own Python per run and per step, with a store that costs nothing.

Out:  the best of several rounds, calibrated to a machine whose spin takes 7 ms.

Noise only adds time, so the best round is the truest; each round is divided by the
quicker of the spins right before and right after it. What others do meanwhile is not counted.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from bench.null_store import NullStore
from bench.workflows import fifty_steps, no_step
from perdure import Perdure, Workflow

REFERENCE_SPIN_MS = 7.0
SPINS = 4
# A spin slower than the quickest one by more than this share was disturbed.
LARGEST_SPREAD = 0.05
IN_FLIGHT = 200
STEPS = 50


class Budget(msgspec.Struct, frozen=True):
    """Calibrated microseconds per run without steps and per step, and the spin of the best rounds."""

    us_per_run: float
    us_per_step: float
    spin_ms: float


def spin_ms() -> float:
    """How long this machine takes for a fixed piece of Python: its speed at this moment."""
    return min(_spin() for _ in range(SPINS))


def _spin() -> float:
    began = time.process_time()
    total = 0
    for i in range(100_000):
        total += i * i
    return (time.process_time() - began) * 1e3


class Round(msgspec.Struct, frozen=True):
    """What a run took in one round, and the spin beside it."""

    us_per_run: float
    spin_ms: float

    @property
    def calibrated(self) -> float:
        return self.us_per_run * REFERENCE_SPIN_MS / self.spin_ms


def measure(rounds: int = 16) -> Budget:
    """The best of so many rounds; a step is what a run of fifty costs more than a run of none."""
    short, long = [], []
    for _ in range(rounds):
        short.append(_round(no_step, 1000))
        long.append(_round(fifty_steps, IN_FLIGHT))
    quickest = min(each.spin_ms for each in short + long)
    run, run_of_fifty = _best(short, quickest), _best(long, quickest)
    return Budget(run, (run_of_fifty - run) / STEPS, quickest)


def _round(workflow: Workflow[[int], int], count: int) -> Round:
    before = spin_ms()
    us = asyncio.run(_us_per_run(workflow, count))
    return Round(us, min(before, spin_ms()))


def _best(rounds: list[Round], quickest: float) -> float:
    """The best of the rounds beside which the machine was not disturbed; a slow spin would flatter its round."""
    calm = [each for each in rounds if each.spin_ms <= quickest * (1 + LARGEST_SPREAD)]
    return min(each.calibrated for each in calm or rounds)


async def _us_per_run(workflow: Workflow[[int], int], count: int) -> float:
    app = Perdure("sqlite://")
    app._store = store = NullStore()
    async with app:
        store.stop_writing()
        await _run_all(app, workflow, iter(range(IN_FLIGHT)))
        gc.collect()
        began = time.process_time()
        await _run_all(app, workflow, iter(range(count)))
        return (time.process_time() - began) / count * 1e6


async def _run_all(app: Perdure, workflow: Workflow[[int], int], numbers: Iterator[int]) -> None:
    more = STEPS if workflow is fifty_steps else 0

    async def one_after_another() -> None:
        for number in numbers:
            assert await app.run(workflow, number) == number + more

    await asyncio.gather(*(one_after_another() for _ in range(IN_FLIGHT)))


def as_fields(budget: Budget) -> dict[str, Any]:
    """The budget as it is written to the results."""
    return dict(msgspec.to_builtins(budget))
