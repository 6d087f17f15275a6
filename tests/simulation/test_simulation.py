"""The simulator itself: that no seed finds anything, that it would, and that it does the same twice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import reach, shrinking
from tests.simulation.hunting import caught, over_http
from tests.simulation.known import known, known_seeds
from tests.simulation.mutants import MENDED, MUTANTS, switched_on
from tests.simulation.running import Failure, lived, run_all, tally_of
from tests.simulation.simulator import Tape

# Each has four times the steps it had when they were a thousand; `make simulate` runs as many as it is told.
SEEDS = 400
# As many as are needed are tried; which ones find a bug changes with every question more that a process asks.
SEEDS_TO_FIND = 1000
# Each takes four times as long as one without servers. Of those after these about one in thirty still finds something.
SEEDS_OVER_HTTP = range(36)
# Planted bugs that need a rare moment; `make mutants` looks for all of them.
RARE = {
    "Rescue that ignores what it read",
    "> for >= in timers",
    "Decision without its condition",
    "Retry twice",
    "Lease renewed by a stalled loop",
    "Undo repeated",
    "Undo skipped",
    "Unknown commit of an activity's rows taken for a failed one",
    "Value published again by a replay",
    "Frame lost between stored and live where a stream goes on",
    "Event sent past one of its run that is tried again",
    "Values of a lost attempt taken for those of the next",
    "Results delivered two per drain",
}


@pytest.mark.timeout(1800)
def test_nothing_that_must_never_happen_happens_in_hundreds_of_schedules() -> None:
    """And everything that the schedules are there for does happen: every fault, every answer, every way out."""
    total, seconds = run_all([*known_seeds(), *range(SEEDS)], 2, shows=False)
    print(total.table(seconds))
    assert [str(failure) for failure in total.failures] == []
    assert reach.missed(total.reached) == []
    assert sorted(total.steps)[SEEDS // 2] >= 300
    assert sorted(total.faults)[SEEDS // 2] >= 3


def test_nothing_that_must_never_happen_happens_where_workers_speak_to_servers() -> None:
    """Requests and answers are lost, late and repeated, servers and workers die; and that does happen."""
    with over_http(always=True):
        total = tally_of(SEEDS_OVER_HTTP)
    assert [str(failure) for failure in total.failures] == []
    assert [what for what in reach.WANTED_OVER_HTTP if not total.reached.get(what)] == []


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - RARE))
def test_a_planted_bug_is_found(name: str) -> None:
    """A simulator that finds nothing proves something only if it finds what is there."""
    _, catch = caught(name, SEEDS_TO_FIND, 1)
    assert catch.is_caught


def test_every_seed_that_failed_says_as_what_its_bug_is_planted_again() -> None:
    """A number that draws another schedule by now would keep nothing of what it found."""
    assert {each.planted for each in known()} == MENDED.keys()


def test_the_same_seed_is_the_same_schedule_whatever_the_hashes() -> None:
    """A failure that cannot be repeated cannot be mended."""
    command = [sys.executable, "-m", "tests.simulation", "digests", "--seeds", "12"]
    found = {
        subprocess.run(
            command,
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(found) == 1


@pytest.mark.parametrize("words", [("repeat", "4"), ("--help",)])
def test_what_is_told_of_a_schedule_is_the_same_in_every_process(words: tuple[str, ...]) -> None:
    """Whoever compares two of them looks for what differs, and must not find ids of processes or addresses."""
    command = [sys.executable, "-m", "tests.simulation", *words]
    found = [
        subprocess.run(
            command,
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert found[0] == found[1]
    if words == ("--help",):
        assert "\npython -m tests.simulation shrink SEED " in found[0]


def test_a_failing_schedule_shrinks_to_a_shorter_one_that_fails_alike() -> None:
    """Two thousand choices tell nobody anything. Not every schedule can be cut in so few tries; of six one can."""
    shares: list[float] = []
    with switched_on("Park without the counter"):
        for seed in range(12, 300):
            tape = Tape(seed)
            found = lived(tape)
            # Long ones take long.
            if not isinstance(found, Failure) or len(tape.choices) > 1000:
                continue

            short = shrinking.shrink(seed, tape.choices, found.invariant, tries=30)

            again = lived(Tape(seed, shrinking.read(shrinking.written(short))))
            assert isinstance(again, Failure)
            assert again.invariant == found.invariant
            shares.append(len(short) / len(tape.choices))
            if shares[-1] < 0.75 or len(shares) == 6:
                break
    assert min(shares) < 0.75
