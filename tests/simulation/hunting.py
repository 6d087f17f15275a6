"""Hunting mutants: how many seeds it takes to find each planted bug."""

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import msgspec

from tests.simulation import mended, schedule  # noqa: F401 - the first plants some more
from tests.simulation.mutants import switched_on
from tests.simulation.remote_mutants import REMOTE
from tests.simulation.running import Failure, lived, quietly
from tests.simulation.simulator import Tape

# Each round begins with other seeds.
FAR = 1_000_000


class Catch(msgspec.Struct, frozen=True):
    """How many seeds it took each time, None when they were not enough; and what was violated first."""

    seeds: list[int | None]
    violated: str

    @property
    def is_caught(self) -> bool:
        return None not in self.seeds

    def __str__(self) -> str:
        found = [count for count in self.seeds if count is not None]
        middle, most = (f"{median(found):,.0f}", f"{max(found):,}") if found else ("-", "-")
        return f"{'yes' if self.is_caught else 'NO':>7} {middle:>13} {most:>6}  {self.violated}"


def caught(name: str, seeds: int, rounds: int) -> tuple[str, Catch]:
    """Look for one planted bug, several times with other seeds."""
    counts: list[int | None] = []
    violated = ""
    for number in range(rounds):
        with quietly(), over_http(always=name in REMOTE):
            count, failure = _one_round(name, seeds, number * FAR)
        counts.append(count)
        violated = violated or ("" if failure is None else f"{failure.invariant}: {failure.trouble[:80]}")
    return name, Catch(counts, violated)


@contextmanager
def over_http(*, always: bool) -> Iterator[None]:
    """Have servers in every schedule, if what is looked for is in these."""
    before = schedule.OVER_HTTP_PER_MILLE
    schedule.OVER_HTTP_PER_MILLE = 1000 if always else before
    try:
        yield
    finally:
        schedule.OVER_HTTP_PER_MILLE = before


def _one_round(name: str, seeds: int, first: int) -> tuple[int | None, Failure | None]:
    for seed in range(first, first + seeds):
        with switched_on(name):
            found = lived(Tape(seed))
        # What fails without the bug as well does not count.
        if isinstance(found, Failure) and not isinstance(lived(Tape(seed)), Failure):
            return seed - first + 1, found
    return None, None


def hunt(names: Sequence[str], seeds: int, rounds: int, jobs: int) -> Iterator[tuple[str, Catch]]:
    """What came of each hunt, in the order in which the bugs stand."""
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        hunts = [pool.apply_async(caught, (name, seeds, rounds)) for name in names]
        for found in hunts:
            yield found.get()
