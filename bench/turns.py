"""Sides of a comparison in turns: what one takes beside another, in one process and on one database.

In:   sides, each of which answers what one round of it took.
Out:  the middle of all rounds, and of the ratios of rounds that followed each other.

What else the machine does falls on all sides alike; who goes first changes with every round. A first round, which
makes whatever is made once, is not counted.
"""

import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias


class Spent:
    """What one round took: by the clock on the wall, and of this process's processor time."""

    seconds = 0.0
    cpu_s = 0.0


Side: TypeAlias = Callable[[], Awaitable[Spent]]


@contextmanager
def spending() -> Iterator[Spent]:
    """What is done inside, with all threads of this process; known when it is over."""
    spent, began, cpu = Spent(), time.perf_counter(), time.process_time()
    yield spent
    spent.seconds, spent.cpu_s = time.perf_counter() - began, time.process_time() - cpu


class Turns:
    """What all rounds took, by side."""

    def __init__(self, sides: dict[str, list[Spent]]) -> None:
        self._sides = sides

    def seconds(self, side: str) -> float:
        """The middle of a side's rounds."""
        return statistics.median(spent.seconds for spent in self._sides[side])

    def cpu_ms(self, side: str) -> float:
        """The middle of a side's rounds, in processor time."""
        return statistics.median(spent.cpu_s for spent in self._sides[side]) * 1e3

    def times(self, side: str, than: str) -> float:
        """How many times as long one side took as another."""
        return statistics.median(one.seconds / other.seconds for one, other in self._rounds(side, than))

    def cpu_times(self, side: str, than: str) -> float:
        """How many times as much processor time one side took as another."""
        return statistics.median(one.cpu_s / other.cpu_s for one, other in self._rounds(side, than))

    def _rounds(self, side: str, than: str) -> Iterator[tuple[Spent, Spent]]:
        return zip(self._sides[side], self._sides[than], strict=True)


async def in_turns(rounds: int, **sides: Side) -> Turns:
    """So many rounds of each side, after one that is not counted."""
    found: dict[str, list[Spent]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            spent = await sides[name]()
            if number:
                found[name].append(spent)
    return Turns(found)
