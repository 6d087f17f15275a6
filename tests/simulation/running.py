"""Running many seeds, in several processes, and what is said of those that fail."""

import gc
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec

from tests.simulation.invariants import Violation
from tests.simulation.schedule import Report, Schedule
from tests.simulation.simulator import Tape

BITE = 50
# After so many there is no need to look for more.
ENOUGH_FAILURES = 20
# The garbage collector looks after so many schedules; in between it would only look at what lives anyway.
COLLECT_AFTER = 20


class Failure(msgspec.Struct, frozen=True):
    """A seed that did not end well."""

    seed: int
    invariant: str
    trouble: str

    def __str__(self) -> str:
        python = Path(sys.executable).name
        return (
            f"seed {self.seed} violates {self.invariant}: {self.trouble}\n"
            f"  repeat it with: {python} -m tests.simulation repeat {self.seed}"
        )


class Tally(msgspec.Struct):
    """What came of many seeds."""

    steps: list[int] = []
    faults: list[int] = []
    runs: int = 0
    reached: dict[str, int] = {}
    failures: list[Failure] = []

    def add(self, other: "Tally") -> None:
        self.steps += other.steps
        self.faults += other.faults
        self.runs += other.runs
        self.failures += other.failures
        self.reached = dict(Counter(self.reached) + Counter(other.reached))

    def table(self, seconds: float) -> str:
        count = len(self.steps)
        lines = [
            f"schedules   {count:,} in {seconds:,.1f} s, {60 * count / max(seconds, 0.001):,.0f} a minute",
            f"steps       {sum(self.steps):,}, median {median(self.steps or [0]):,.0f} a schedule",
            f"faults      {sum(self.faults):,}, median {median(self.faults or [0]):,.0f} a schedule",
            f"runs        {self.runs:,}",
            f"violations  {len(self.failures)}",
            "reached     " + ", ".join(f"{what} {times:,}" for what, times in sorted(self.reached.items())),
        ]
        return "\n".join(lines)


def lived(tape: Tape) -> Report | Failure:
    """What came of one schedule."""
    left: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda found: left.append(f"{found.exc_value!r} in {found.object!r}")
    try:
        report = Schedule(tape).run()
        if left:
            return Failure(tape.seed, "I44", f"code was left to the garbage collector: {left[0]}")
    except Violation as violation:
        return Failure(tape.seed, violation.invariant, violation.trouble)
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed is what matters
        return Failure(tape.seed, type(error).__name__, str(error))
    else:
        return report
    finally:
        sys.unraisablehook = before


@contextmanager
def quietly() -> Iterator[None]:
    """What engines log while everything goes wrong is of no interest."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def tally_of(seeds: Iterable[int]) -> Tally:
    """What came of these seeds."""
    with quietly():
        return _tally_of(seeds)


def _tally_of(seeds: Iterable[int]) -> Tally:
    tally = Tally([], [], 0, {}, [])
    reached: Counter[str] = Counter()
    gc.disable()
    for number, seed in enumerate(seeds, start=1):
        report = lived(Tape(seed))
        if isinstance(report, Failure):
            tally.failures.append(report)
        else:
            tally.steps.append(report.steps)
            tally.faults.append(report.faults)
            tally.runs += report.runs
            reached.update(report.reached)
        if number % COLLECT_AFTER == 0:
            gc.collect()
    gc.enable()
    tally.reached = dict(reached)
    return tally


def run(seeds: Sequence[int], jobs: int) -> Iterator[Tally]:
    """What came of the seeds, a bite at a time, as they are done."""
    bites = [seeds[first : first + BITE] for first in range(0, len(seeds), BITE)]
    if jobs == 1:
        yield from map(tally_of, bites)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(tally_of, bites)


def run_all(seeds: Sequence[int], jobs: int, *, shows: bool) -> tuple[Tally, float]:
    """Everything that came of the seeds, and how long it took; a line a minute tells how far it is."""
    total, began = Tally([], [], 0, {}, []), time.perf_counter()
    told = began
    for tally in run(seeds, jobs):
        total.add(tally)
        for failure in tally.failures:
            print(failure, flush=True)
        if len(total.failures) >= ENOUGH_FAILURES:
            break
        if shows and time.perf_counter() - told > 60:
            told = time.perf_counter()
            print(f"{len(total.steps):,} of {len(seeds):,}, {len(total.failures)} violations", flush=True)
    return total, time.perf_counter() - began
