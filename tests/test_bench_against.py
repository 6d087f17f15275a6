"""Two revisions measured in turns: which of them is called the quicker one."""

from io import StringIO

from rich.console import Console

from bench import rules
from bench.against import Turn, ratio, report

RATE = next(rule for rule in rules.SQLITE if rule.number == "workflows_per_s")
TIME = next(rule for rule in rules.SQLITE if rule.number == "p50_ms")


def test_twice_the_rate_and_half_the_time_are_both_twice_as_quick() -> None:
    assert ratio(RATE, [Turn({"workflows_per_s": 100}, {"workflows_per_s": 200})]) == (2, 2, 2)
    assert ratio(TIME, [Turn({"p50_ms": 4}, {"p50_ms": 2})]) == (2, 2, 2)


def test_the_middle_turn_counts() -> None:
    """One turn beside somebody else's work says nothing."""
    turns = [Turn({"p50_ms": 1}, {"p50_ms": ms}) for ms in (1.0, 10.0, 1.25)]
    assert ratio(TIME, turns) == (0.8, 0.1, 1)


def test_a_number_below_the_least_ratio_is_told() -> None:
    console = Console(file=StringIO(), width=160)
    slower = {"S2": [Turn({"p50_ms": 1, "p99_ms": 2}, {"p50_ms": 1.25, "p99_ms": 2})]}
    assert not report(slower, "sqlite", "HEAD", 0.95, console)
    assert report(slower, "sqlite", "HEAD", 0.7, console)
