"""Events out, the rules alone: what patterns mean, when an event is tried again, and when a sink is down."""

import pytest

from perdure.errors import BadSink
from perdure.kernel.outbox import BITS, DOWN_AFTER, STEPS, TYPES, UP, SinkHealth, event_id, retry_at, types_of

SECOND = 1000
DAY = 24 * 3600 * SECOND


@pytest.mark.parametrize(
    ("events", "left_out"),
    [
        (("run.*",), {"run.suspended", "schedule.skipped", *STEPS.values()}),
        (("run.*", "run.suspended"), {"schedule.skipped", *STEPS.values()}),
        (("step.*",), {*TYPES} - {*STEPS.values()}),
        (("schedule.*", "schedule.skipped"), {*TYPES} - {"schedule.skipped"}),
        (TYPES, set()),
        ((), {*TYPES}),
    ],
)
def test_patterns_mean_types(events: tuple[str, ...], left_out: set[str]) -> None:
    """Runs are suspended too often, and have too many steps, for anybody to get these by chance."""
    assert types_of(events) == sum(BITS[type] for type in {*TYPES} - left_out)


@pytest.mark.parametrize("event", ["", "*", "run", "run.begun", "RUN.STARTED", "outbox.gap", "outbox.test"])
def test_what_is_no_event_is_refused_with_those_there_are(event: str) -> None:
    with pytest.raises(BadSink, match=r"run\.\*, .*schedule\.skipped"):
        types_of(("run.started", event))


def test_types_keep_their_bits() -> None:
    """They stand in the rows of sinks: what is new comes at the end."""
    assert {type: bit.bit_length() for type, bit in BITS.items()} == {
        "run.started": 1,
        "run.suspended": 2,
        "run.held": 3,
        "run.completed": 4,
        "run.failed": 5,
        "run.cancelled": 6,
        "run.terminated": 7,
        "run.timed_out": 8,
        "run.continued": 9,
        "step.completed": 10,
        "step.failed": 11,
        "schedule.skipped": 12,
    }


@pytest.mark.parametrize(
    ("run_id", "type", "expected"),
    [
        ("r", "run.started", "r:7"),
        ("r", "step.failed", "r:7"),
        ("r", "run.completed", "r:7"),
        ("r", "run.suspended", "r:7:suspended:99"),
        ("r", "run.held", "r:7:held:99"),
        ("s", "schedule.skipped", "s:7:skipped:99"),
        ("", "outbox.gap", "sink:7:gap:99"),
    ],
)
def test_an_id_follows_from_a_history_or_has_a_time(run_id: str, type: str, expected: str) -> None:
    """What is in a history has the same id when it is made anew; a run is held again without a new number.

    Times that a schedule skips in a row are one entry, which is told again whenever it grows.
    """
    assert event_id(run_id, type, 7, 99) == expected


@pytest.mark.parametrize(
    ("attempts", "most", "asked", "pause"),
    [
        (1, 10, 0, SECOND),
        (2, 10, 0, 4 * SECOND),
        (3, 10, 0, 16 * SECOND),
        (9, 10, 0, 4**8 * SECOND),
        (10, 10, 0, None),
        (11, 10, 0, None),
        (1, 1, 0, None),
        (1, 1, 60 * SECOND, None),
        (1, 10, 60 * SECOND, 60 * SECOND),
        (5, 10, 60 * SECOND, 256 * SECOND),
        (1, 10, 9 * DAY, DAY),
        (10, 1000, 0, DAY),
        (999, 1000, 0, DAY),
    ],
)
def test_an_event_is_tried_again_four_times_as_late_each_time(
    attempts: int, most: int, asked: int, pause: int | None
) -> None:
    """A receiver may ask for more time, never for less, nor for more than a day."""
    assert retry_at(attempts, most, 5, asked) == (None if pause is None else 5 + pause)


def test_ten_attempts_take_about_a_day() -> None:
    pauses = [retry_at(attempts, 10, 0) for attempts in range(1, 10)]
    assert DAY <= sum(pause or 0 for pause in pauses) <= 1.1 * DAY


# What happens to a sink, each at its own second: the number of an event that fails, or "ok".
@pytest.mark.parametrize(
    ("happens", "down_at", "probes"),
    [
        ((), None, 0),
        ((1, 2, 3, 4), None, 0),
        ((1, 1, 1, 1, 1, 1, 1), None, 0),
        ((1, 2, 3, 4, 5), 4, 0),
        ((1, 1, 2, 3, 3, 4, 5), 6, 0),
        ((1, 2, 3, 4, "ok", 5, 6, 7, 8), None, 0),
        ((1, 2, 3, 4, 5, 6), 4, 1),
        ((1, 2, 3, 4, 5, 1, 2, 3), 4, 3),
        ((1, 2, 3, 4, 5, 6, "ok"), None, 0),
        ((1, 2, 3, 4, 5, "ok", 1, 2, 3, 4, 5), 10, 0),
    ],
)
def test_a_sink_is_down_when_five_different_events_failed_in_a_row(
    happens: tuple[int | str, ...], down_at: int | None, probes: int
) -> None:
    """One event that fails again and again is to blame itself; one that is taken shows that the sink is there."""
    health = UP
    for now, each in enumerate(happens):
        health = health.failed_with(each, now) if isinstance(each, int) else health.succeeded()
    assert (health.down_at, health.probes) == (down_at, probes)


@pytest.mark.parametrize(("probes", "pause"), [(0, 1), (1, 4), (2, 16), (3, 60), (50, 60)])
def test_a_sink_that_is_down_is_tried_every_minute_at_last(probes: int, pause: int) -> None:
    health = SinkHealth(frozenset(range(DOWN_AFTER)), down_at=0, probes=probes)
    assert health.probe_at(7) == 7 + pause * SECOND
