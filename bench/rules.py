"""The rules: for each scenario the numbers that count and how good they must be, on a file and on Postgres.

Knows nothing of how they are judged.
"""

from collections.abc import Callable

from bench.bars import Pair, Rule


def _rate(pair: Pair) -> float:
    return pair.floor.workflows_per_s


def _commit(pair: Pair) -> float:
    return pair.floor.commit_ms


def _always(limit: float) -> Callable[[Pair], float]:
    """A limit that is the same beside every floor."""
    return lambda _: limit


# What is held against another side of itself, in times of that one.
IN_TURNS = (
    Rule("deferreds", "500 runs resolved, per signal", "times", "", "≥ 0.8", _always(0.8), is_minimum=True),
    Rule("deferreds", "resolved, with their results", "resolved_per_s", "/s", "", None),
    Rule("requests", "500 runs asked, per signal", "times", "", "≥ 0.4", _always(0.4), is_minimum=True),
    Rule("requests", "asked one after the other, per signal", "times_as_long", "", "≤ 2.5", _always(2.5)),
    Rule("requests", "one question and its answer", "ask_ms", " ms", "", None, _commit, " ms"),
    Rule("undos", "ten undos, processor time per ten activities", "times", "", "≤ 1.2", _always(1.2)),
    Rule("exposed", "{size:,} steps that show a value, per without", "times", "", "≤ 1.15", _always(1.15)),
    Rule("streams", "{size:,} values of an activity, per step", "times", "", "≥ 5", _always(5), is_minimum=True),
    Rule("streams", "published", "values_per_s", "/s", "", None),
    Rule(
        "streams",
        "seen late in another process, p50",
        "values_late_ms",
        " ms",
        "≤ 2 of events",
        lambda pair: 2 * pair.ours["events_late_ms"],
        lambda pair: pair.ours["events_late_ms"],
        " ms",
    ),
    Rule("beats", "1,000 activities beat, processor time per silent", "times", "", "≤ 1.3", _always(1.3)),
)
TRANSACTIONS = Rule("transactions", "a step beside a transaction of 2 s, p99", "times", "", "≤ 1.5", _always(1.5))

ANYWHERE = (
    Rule("S4", "{size:,} sleeps of 1 to 2 s: late, p99", "late_p99_ms", " ms", "≤ 100 ms", _always(100)),
    Rule("S4", "woken early", "early", "", "none", _always(0)),
    Rule(
        "S5",
        "{size} signals to each of 500 runs",
        "here_per_s",
        "/s",
        "≥ 2,000/s",
        _always(2000),
        is_minimum=True,
    ),
    Rule("S5", "from another process", "there_per_s", "/s", "≥ 1,000/s", _always(1000), is_minimum=True),
    Rule("S6", "{size:,} children in one gather", "seconds", " s", "≤ 0.7 s", _always(0.7)),
    Rule("S7", "kill -9, {size:,} in flight: first progress", "first_progress_s", " s", "≤ 1 s", _always(1)),
    Rule("S7", "lost runs", "lost", "", "none", _always(0)),
    Rule("S7", "recorded steps repeated", "recorded_steps_repeated", "", "none", _always(0)),
    Rule("S9", "start_many of {size:,}", "many_per_s", "/s", "≥ 8,000/s", _always(8000), is_minimum=True),
    Rule(
        "S9",
        "start_many, with no worker",
        "many_without_worker_per_s",
        "/s",
        "≥ 8,000/s",
        _always(8000),
        is_minimum=True,
    ),
    Rule("S9", "starts, 200 in flight", "starts_per_s", "/s", "≥ 2,000/s", _always(2000), is_minimum=True),
    *IN_TURNS,
)

SQLITE = (
    Rule(
        "S1",
        "5 steps, 500 in flight",
        "workflows_per_s",
        "/s",
        "≥ 0.2 floors",
        lambda pair: 0.2 * pair.floor.workflows_per_s,
        _rate,
        "/s",
        is_minimum=True,
    ),
    Rule(
        "S2",
        "1 step, one at a time, p50",
        "p50_ms",
        " ms",
        "≤ 3 commits + 0.6 ms",
        lambda pair: 3 * pair.floor.commit_ms + 0.6,
        _commit,
        " ms",
    ),
    Rule(
        "S3",
        "a run of {size:,} steps, per step",
        "step_ms",
        " ms",
        "≤ 2.5 commits + 0.15 ms",
        lambda pair: 2.5 * pair.floor.commit_ms + 0.15,
        _commit,
        " ms",
    ),
    Rule(
        "S3",
        "of {tenfold:,} steps, per step",
        "long_step_ms",
        " ms",
        "≤ 1.2 of the shorter",
        lambda pair: 1.2 * pair.ours["step_ms"],
        _commit,
        " ms",
    ),
    *ANYWHERE,
    Rule(
        "memory",
        "{size:,} children in one gather, peak",
        "peak_mb",
        " MB",
        "",
        None,
        lambda pair: pair.ours["plain_mb"],
        " MB of tasks",
    ),
)

POSTGRES = (
    Rule(
        "S1",
        "5 steps, 500 in flight",
        "workflows_per_s",
        "/s",
        "≥ 0.2 floors",
        lambda pair: 0.2 * pair.floor.workflows_per_s,
        _rate,
        "/s",
        is_minimum=True,
    ),
    Rule(
        "S2",
        "1 step, one at a time, p50",
        "p50_ms",
        " ms",
        "≤ 4 commits + 0.8 ms",
        lambda pair: 4 * pair.floor.commit_ms + 0.8,
        _commit,
        " ms",
    ),
    Rule(
        "S3",
        "a run of {size:,} steps, per step",
        "step_ms",
        " ms",
        "≤ 2.5 commits + 0.2 ms",
        lambda pair: 2.5 * pair.floor.commit_ms + 0.2,
        _commit,
        " ms",
    ),
    Rule(
        "S3",
        "of {tenfold:,} steps, per step",
        "long_step_ms",
        " ms",
        "≤ 1.2 of the shorter",
        lambda pair: 1.2 * pair.ours["step_ms"],
        _commit,
        " ms",
    ),
    Rule(
        "crowd",
        "S3 in tables with {size:,} runs, per step",
        "step_ms",
        " ms",
        "≤ 2.5 commits + 0.2 ms",
        lambda pair: 2.5 * pair.floor.commit_ms + 0.2,
        _commit,
        " ms",
    ),
    Rule(
        "crew",
        "S1 in two processes, in times of one",
        "times",
        "",
        "≥ 0.9",
        _always(0.9),
        is_minimum=True,
    ),
    Rule("crew", "both together", "two_per_s", "/s", "", None),
    Rule(
        "crew",
        "a backlog of {size:,} runs in two, in times of one",
        "times_drained",
        "",
        "≥ 0.9",
        _always(0.9),
        is_minimum=True,
    ),
    Rule("crew", "both together", "two_drained_per_s", "/s", "", None),
    Rule("crew", "longest wait for a lock", "longest_lock_wait_ms", " ms", "≤ 5 ms", _always(5)),
    # Two commits lie on its way.
    Rule("knocks", "signal to another's run, p50", "told_p50_ms", " ms", "≤ 10 ms", _always(10), _commit, " ms"),
    Rule("knocks", "with notify=off, p50", "untold_p50_ms", " ms", "≤ 200 ms", _always(200), _commit, " ms"),
    TRANSACTIONS,
    *ANYWHERE,
)
