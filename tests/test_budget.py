"""Our own Python has a budget: how many calls of our own a run and a step take, with a store that costs nothing.

How long they take is another thing on every machine and in every moment; `make bench` tells.
"""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import perdure
from bench.null_store import NullStore
from bench.workflows import fifty_steps, no_step
from perdure import Perdure, Workflow
from perdure.testing import VirtualClock

OURS = f"{Path(perdure.__file__).parent}/"
RUNS, STEPS = 200, 50


class Count:
    """Calls of our own functions; a coroutine that goes on counts as called again."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            self.calls += 1


@contextmanager
def counted() -> Iterator[Count]:
    count = Count()
    sys.setprofile(count)
    try:
        yield count
    finally:
        sys.setprofile(None)


async def calls_per_run(workflow: Workflow[[int], int], in_flight: int) -> float:
    """How many calls a run takes, when all that is made once is there; so many runs go on beside each other."""
    app = Perdure("sqlite://")
    app._store = store = NullStore()
    # A clock that stands still: what is done every so often would be done more often on a slow machine.
    app._clock = VirtualClock()

    async def run_all(runs: int) -> None:
        numbers = iter(range(runs))

        async def one_after_another() -> None:
            for number in numbers:
                await app.run(workflow, number)

        await asyncio.gather(*(one_after_another() for _ in range(in_flight)))

    async with app:
        store.stop_writing()
        await run_all(in_flight)
        with counted() as count:
            await run_all(RUNS)
    return count.calls / RUNS


# Today's numbers on every Python from 3.11.2 to 3.13, and a fiftieth: whoever needs more says here what it is worth.
@pytest.mark.parametrize(("in_flight", "a_run", "a_step"), [(1, 99.0, 44.8), (200, 69.2, 35.2)])
async def test_a_run_and_a_step_do_not_grow_dearer(in_flight: int, a_run: float, a_step: float) -> None:
    """Where the disk is quick, this is what a user waits for; it grows unseen if nobody looks."""
    run = await calls_per_run(no_step, in_flight)
    step = (await calls_per_run(fifty_steps, in_flight) - run) / STEPS

    print(f"{run:.2f} calls a run, {step:.2f} a step")
    assert run <= a_run * 1.02
    assert step <= a_step * 1.02
