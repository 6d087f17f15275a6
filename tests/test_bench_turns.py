"""Sides of a comparison that take turns: which rounds count, and that every bar is about something that is measured."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from bench import rules
from bench.__main__ import IN_TURNS, sizes_of
from bench.one import SCENARIOS
from bench.turns import Spent, Turns, in_turns


def spent(seconds: float) -> Spent:
    found = Spent()
    found.seconds, found.cpu_s = seconds, seconds / 10
    return found


async def test_the_first_round_does_not_count_and_who_goes_first_changes() -> None:
    """The first one compiles and opens things; and whoever always goes second finds a machine that is warm."""
    called: list[str] = []

    async def side(name: str, seconds: list[float]) -> Spent:
        called.append(name)
        return spent(seconds.pop(0))

    turns = await in_turns(2, new=partial(side, "new", [9.0, 2.0, 3.0]), old=partial(side, "old", [9.0, 1.0, 1.0]))

    assert called == ["old", "new", "new", "old", "old", "new"]
    assert turns.seconds("new") == 2.5
    assert turns.times("new", "old") == 2.5
    assert turns.times("old", "new") == pytest.approx(5 / 12)


def test_the_middle_of_the_ratios_of_rounds_that_followed_each_other_counts() -> None:
    """A round beside somebody else's work is slow on both sides; beside the other rounds it would say nothing."""
    turns = Turns({"new": [spent(2), spent(20), spent(9)], "old": [spent(1), spent(10), spent(1)]})

    assert turns.times("new", "old") == 2
    assert turns.cpu_times("new", "old") == pytest.approx(2)
    assert turns.cpu_ms("new") == pytest.approx(900)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_scenario_in_turns_has_a_bar(store: str) -> None:
    """One that is measured and never judged would only cost time."""
    known, quick = sizes_of(store, quick=False), sizes_of(store, quick=True)
    judged = {rule.scenario for rule in (rules.SQLITE if store == "sqlite" else rules.POSTGRES) if rule.limit}

    assert known.keys() == quick.keys()
    assert known.keys() <= SCENARIOS.keys()
    assert IN_TURNS & known.keys() <= judged <= known.keys()


@pytest.mark.parametrize(
    "scenarios",
    [("undos",), pytest.param(("deferreds", "requests", "exposed", "streams", "beats"), marks=pytest.mark.long)],
)
def test_the_quick_benchmark_takes_turns(tmp_path: Path, scenarios: tuple[str, ...]) -> None:
    """Nobody runs the long one every day; what it is made of must not break meanwhile."""
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "bench", "--quick", "--json", str(results), *scenarios]

    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)

    assert done.returncode == 0, done.stderr
    assert set(msgspec.json.decode(results.read_bytes())["pairs"]) == set(scenarios)
