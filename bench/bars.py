"""The bars: what each scenario must reach, from the floor measured right before it.

In:   the numbers of one pair, ours and the floor's.
Out:  for each line of the table our value, what it is held against, and whether it passes.
Knows nothing of processes or tables.
"""

import statistics
from collections.abc import Callable, Sequence

import msgspec

from bench.budget import Budget
from bench.floor import Floor

US_PER_RUN, US_PER_STEP = 20.0, 15.0


class Pair(msgspec.Struct, frozen=True):
    """The floor, and one of our own runs right after it."""

    floor: Floor
    ours: dict[str, float]


class Rule(msgspec.Struct, frozen=True):
    """One bar: which of our numbers, and the limit it has beside this floor; no limit for what is only shown."""

    scenario: str
    title: str
    number: str
    unit: str
    bar: str
    limit: Callable[[Pair], float] | None
    beside: Callable[[Pair], float] | None = None
    beside_unit: str = ""
    is_minimum: bool = False


class Line(msgspec.Struct, frozen=True):
    """One bar and how we stand: medians over all pairs, and the spread of our own number."""

    scenario: str
    title: str
    unit: str
    ours: float
    lowest: float
    highest: float
    beside: float | None
    beside_unit: str
    ratio: float | None
    bar: str
    limit: float | None
    passes: bool


def judge(rule: Rule, pairs: Sequence[Pair], size: int) -> Line:
    """How we stand against one bar; each pair is held against its own floor, the middle one counts."""
    ours = [pair.ours[rule.number] for pair in pairs]
    limits = [] if rule.limit is None else [rule.limit(pair) for pair in pairs]
    # What must never happen must not happen once.
    middle = max(ours) if limits and limits[0] == 0 else statistics.median(ours)
    beside = [] if rule.beside is None else [rule.beside(pair) for pair in pairs]
    return Line(
        rule.scenario,
        rule.title.format(size=size, tenfold=size * 10),
        rule.unit,
        middle,
        min(ours),
        max(ours),
        statistics.median(beside) if beside else None,
        rule.beside_unit,
        statistics.median(our / other for our, other in zip(ours, beside, strict=True)) if beside else None,
        rule.bar,
        statistics.median(limits) if limits else None,
        not limits or _passes(rule, ours, limits, middle),
    )


def _passes(rule: Rule, ours: Sequence[float], limits: Sequence[float], middle: float) -> bool:
    room = statistics.median(limit - our for our, limit in zip(ours, limits, strict=True))
    if rule.is_minimum:
        return room <= 0
    return room >= 0 and (middle == 0 or limits[0] > 0)


def judge_budget(budget: Budget) -> list[Line]:
    """Our own Python, with a store that costs nothing."""
    return [
        _budget_line("our Python per run", budget.us_per_run, US_PER_RUN),
        _budget_line("our Python per step", budget.us_per_step, US_PER_STEP),
    ]


def _budget_line(title: str, us: float, limit: float) -> Line:
    return Line("budget", title, " µs", us, us, us, None, "", None, f"≤ {limit:g} µs", limit, us <= limit)
