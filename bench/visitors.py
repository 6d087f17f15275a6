"""The mixed load of the soak: every kind of workflow, and a visitor for each who checks how it ends.

A visitor starts one run, does with it what people do, and waits for its end; a wrong end is an AssertionError.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

from perdure import (
    Perdure,
    Retry,
    Run,
    RunCancelled,
    RunFailed,
    Signal,
    Workflow,
    activity,
    continue_as_new,
    sleep,
    workflow,
)
from perdure import attempt as this_attempt

SOON = Retry(max_attempts=3, initial_interval=0.05)
PATIENCE_SECONDS = 120.0

say_more = Signal("say_more", str)


@activity
async def add_quickly(number: int) -> int:
    return number + 1


@activity
def add_in_a_thread(number: int) -> int:
    return number + 1


@activity
async def add_slowly(number: int) -> int:
    await asyncio.sleep(0.02)
    return number + 1


@activity(retry=SOON)
async def add_at_the_second_try(number: int) -> int:
    if this_attempt().number == 1:
        raise ConnectionError("the first try never works")
    return number + 1


@activity(retry=SOON)
async def never_add(number: int) -> int:
    raise ConnectionError(f"no try works for {number}")


@workflow
async def takes_steps(number: int) -> int:
    for step in (add_quickly, add_slowly, add_in_a_thread, add_at_the_second_try, add_quickly):
        number = await step(number)
    return number


@workflow
async def takes_a_nap(seconds: float) -> int:
    await sleep(seconds)
    return await add_quickly(0)


@workflow
async def visitor_listens(count: int) -> list[str]:
    return [await say_more.receive() for _ in range(count)]


@workflow
async def brings_up_children(count: int) -> int:
    return sum(await asyncio.gather(*(takes_a_nap(0.01 * number) for number in range(count))))


@workflow
async def goes_round(rounds: int) -> int:
    await add_quickly(rounds)
    return rounds if rounds == 0 else continue_as_new(rounds - 1)


@workflow
async def fails_in_the_end(number: int) -> int:
    return await never_add(number)


@workflow
async def is_called_off(number: int) -> int:
    try:
        await sleep(3600)
    finally:
        await add_quickly(number)
    return number


class Visitor:
    """Visits one engine; remembers how long starts took since it was last asked."""

    def __init__(self, app: Perdure, seed: int) -> None:
        self._app = app
        self._chance = random.Random(seed)
        self.start_ms: list[float] = []
        self.visits = 0

    async def visit(self) -> None:
        """One visit of a random kind, to its end."""
        await self._chance.choice(KINDS)(self)
        self.visits += 1

    async def _start(self, kind: Workflow[[Any], Any], argument: object) -> Run[Any]:
        began = time.perf_counter()
        run = await self._app.start(kind, argument)
        self.start_ms.append((time.perf_counter() - began) * 1e3)
        return run

    async def watch_steps(self) -> None:
        number = self._chance.randrange(1000)
        assert await (await self._start(takes_steps, number)).result(PATIENCE_SECONDS) == number + 5

    async def let_nap(self) -> None:
        # Some are short, some so long that the run is parked meanwhile.
        seconds = self._chance.choice((0.1, 0.5, 1.0, 6.0))
        assert await (await self._start(takes_a_nap, seconds)).result(PATIENCE_SECONDS) == 1

    async def talk(self) -> None:
        run = await self._start(visitor_listens, 3)
        words = ["one", "two", "three"]
        for word in words:
            await run.signal(say_more, word)
            await asyncio.sleep(self._chance.choice((0.0, 0.05, 5.0)))
        assert await run.result(PATIENCE_SECONDS) == words

    async def meet_a_family(self) -> None:
        assert await (await self._start(brings_up_children, 4)).result(PATIENCE_SECONDS) == 4

    async def follow(self) -> None:
        assert await (await self._start(goes_round, 3)).result(PATIENCE_SECONDS) == 0

    async def see_it_fail(self) -> None:
        await _ends_with(RunFailed, await self._start(fails_in_the_end, 1))

    async def call_off(self) -> None:
        run = await self._start(is_called_off, 1)
        await asyncio.sleep(self._chance.choice((0.0, 0.1, 4.0)))
        await run.cancel("the visit is over")
        await _ends_with(RunCancelled, run)


async def _ends_with(kind: type[Exception], run: Run[Any]) -> None:
    try:
        await run.result(PATIENCE_SECONDS)
    except kind:
        return
    raise AssertionError(f"{run} has ended otherwise")


KINDS: tuple[Callable[[Visitor], Coroutine[Any, Any, None]], ...] = (
    Visitor.watch_steps,
    Visitor.watch_steps,
    Visitor.watch_steps,
    Visitor.let_nap,
    Visitor.talk,
    Visitor.meet_a_family,
    Visitor.follow,
    Visitor.see_it_fail,
    Visitor.call_off,
)
