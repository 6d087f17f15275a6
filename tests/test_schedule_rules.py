"""What becomes of each nominal time: tables of the rules, and random lives beside a model that knows no bites."""

import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.kernel.schedules import (
    MOST_TIMES,
    MOST_WAITING,
    Backfill,
    Decided,
    DecisionEntry,
    Schedule,
    ScheduledCall,
    WaitingTime,
    as_moment,
    as_ms,
    changed,
    decide,
    left_to_fill,
    next_at,
    run_id_at,
)
from perdure.kernel.timetables import At, CatchUp, Cron, Every, Overlap, Timetable

START = as_ms(datetime(2026, 11, 18, tzinfo=UTC))
MINUTE = 60_000


def schedule(when: Timetable, **fields: object) -> Schedule:
    made = Schedule("s", ScheduledCall("report", "[]"), when, "api", START, START)
    return msgspec.structs.replace(made, **fields)


def kinds(decided: Decided | None) -> list[tuple[int, str, int]]:
    """The entries, with the minute they are of."""
    assert decided is not None
    return [((entry.time - START) // MINUTE, entry.kind, entry.count) for entry in decided.entries]


def minutes(decided: Decided | None) -> list[int]:
    assert decided is not None
    return [(start.time - START) // MINUTE for start in decided.starts]


# Overlap


@pytest.mark.parametrize(
    ("overlap", "kind", "starts", "waits", "stop"),
    [
        ("skip", "skipped_overlap", 0, 0, None),
        ("queue_one", "queued", 0, 1, None),
        ("queue_all", "queued", 0, 1, None),
        ("cancel_old", "queued", 0, 1, "cancel_old"),
        ("terminate_old", "queued", 0, 1, "terminate_old"),
        ("allow_all", "started", 1, 0, None),
    ],
)
def test_a_time_that_finds_a_run_open(overlap: Overlap, kind: str, starts: int, waits: int, stop: str | None) -> None:
    decided = decide(schedule(Every(60, overlap=overlap)), START + MINUTE, open_runs=1)
    assert decided is not None
    assert kinds(decided) == [(1, kind, 1)]
    assert (len(decided.starts), len(decided.schedule.waiting), decided.stop) == (starts, waits, stop)


@pytest.mark.parametrize("overlap", get_args(Overlap))
def test_a_time_that_finds_no_run_open_starts(overlap: Overlap) -> None:
    decided = decide(schedule(Every(60, overlap=overlap)), START + MINUTE, open_runs=0)
    assert kinds(decided) == [(1, "started", 1)]
    assert minutes(decided) == [1]


def second(overlap: Overlap) -> Decided:
    """One waits, and another time comes."""
    first = decide(schedule(Every(60, overlap=overlap)), START + MINUTE, open_runs=1)
    assert first is not None
    then = decide(first.schedule, START + 2 * MINUTE, open_runs=1)
    assert then is not None
    return then


def test_queue_one_lets_one_wait() -> None:
    then = second("queue_one")
    assert kinds(then) == [(2, "skipped_overlap", 1)]
    assert len(then.schedule.waiting) == 1


def test_queue_all_lets_all_wait_up_to_a_thousand() -> None:
    assert len(second("queue_all").schedule.waiting) == 2
    full = schedule(Every(60, overlap="queue_all", catch_up="all"))
    decided = decide(full, START + (MOST_WAITING + 5) * MINUTE, open_runs=1)
    assert decided is not None
    assert len(decided.schedule.waiting) == MOST_WAITING
    assert [entry.kind for entry in decided.entries[-5:]] == ["skipped_overlap"] * 5


@pytest.mark.parametrize("overlap", ["cancel_old", "terminate_old"])
def test_only_the_newest_waits_for_what_is_to_end(overlap: Overlap) -> None:
    """The one before it is told of as skipped, in its own entry."""
    then = second(overlap)
    assert sorted(kinds(then)) == [(1, "skipped_overlap", 1), (2, "queued", 1)]
    assert [waiting.time for waiting in then.schedule.waiting] == [START + 2 * MINUTE]


def test_what_waits_starts_when_nothing_is_open_one_after_the_other() -> None:
    waits = second("queue_all").schedule
    assert decide(waits, START + 2 * MINUTE + 1, open_runs=1) is None
    then = decide(waits, START + 2 * MINUTE + 1, open_runs=0)
    assert minutes(then) == [1]
    assert then is not None
    # The same entry as before; whoever writes it says which run it is now.
    assert kinds(then) == [(1, "queued", 1)]
    assert then.schedule.last_time == START + MINUTE
    assert decide(then.schedule, START + 2 * MINUTE + 2, open_runs=1) is None


def test_what_waits_goes_before_a_time_that_is_due() -> None:
    waits = second("queue_one").schedule
    then = decide(waits, START + 3 * MINUTE, open_runs=0)
    assert minutes(then) == [1]
    assert kinds(then) == [(1, "queued", 1), (3, "queued", 1)]


# Catching up


@pytest.mark.parametrize(
    ("catch_up", "overlap", "expected"),
    [
        ("latest", "skip", [(2, "skipped_missed", 2), (3, "caught_up", 1)]),
        ("none", "skip", [(3, "skipped_missed", 3)]),
        ("all", "allow_all", [(1, "caught_up", 1), (2, "caught_up", 1), (3, "caught_up", 1)]),
        ("all", "queue_all", [(1, "caught_up", 1), (2, "queued", 1), (3, "queued", 1)]),
        ("all", "skip", [(1, "caught_up", 1), (2, "skipped_overlap", 1), (3, "skipped_overlap", 1)]),
    ],
)
def test_times_that_were_missed(catch_up: CatchUp, overlap: Overlap, expected: list[tuple[int, str, int]]) -> None:
    when = Every(60, catch_up=catch_up, overlap=overlap)
    assert kinds(decide(schedule(when), START + 3 * MINUTE + 30_000, open_runs=0)) == expected


def test_a_time_that_is_on_time_takes_the_place_of_those_that_were_missed() -> None:
    """Who comes back at the very time of the next start wants one run, not two."""
    decided = decide(schedule(Every(60)), START + 3 * MINUTE + 500, open_runs=0)
    assert kinds(decided) == [(2, "skipped_missed", 2), (3, "started", 1)]


def test_several_times_of_the_last_seconds_are_all_on_time() -> None:
    """A worker that takes the duty over from one that died finds a few of a schedule of every second."""
    decided = decide(schedule(Every(1, overlap="allow_all")), START + 3500, open_runs=0)
    assert decided is not None
    assert [entry.kind for entry in decided.entries] == ["started"] * 3


def test_within_bounds_how_old_a_missed_time_may_be() -> None:
    when = Every(60, catch_up="all", overlap="allow_all", within=timedelta(seconds=100))
    expected = [(1, "skipped_missed", 1), (2, "caught_up", 1), (3, "caught_up", 1)]
    assert kinds(decide(schedule(when), START + 3 * MINUTE + 30_000, open_runs=0)) == expected
    late = Every(60, within=20)
    assert kinds(decide(schedule(late), START + 3 * MINUTE + 30_000, open_runs=0)) == [(3, "skipped_missed", 3)]


def test_an_at_that_was_missed_still_starts() -> None:
    when = At(datetime(2026, 11, 18, 1, tzinfo=UTC))
    decided = decide(schedule(when), START + 3 * 86_400_000, open_runs=0)
    assert kinds(decided) == [(60, "caught_up", 1)]
    assert decided is not None
    assert decided.next_at is None


def test_a_long_outage_is_one_entry_over_several_decisions() -> None:
    """Ten thousand times are gone through at once, so that nothing else has to wait long."""
    made, now = schedule(Cron("* * * * * *")), START + (2 * MOST_TIMES + 500) * 1000 + 30_000
    entries: dict[int, DecisionEntry] = {}
    rounds = 0
    while (decided := decide(made, now, open_runs=0)) is not None and not decided.starts:
        made, rounds = decided.schedule, rounds + 1
        assert decided.next_at == now
        entries |= {entry.number: entry for entry in decided.entries}
    assert decided is not None
    entries |= {entry.number: entry for entry in decided.entries}
    assert rounds == 2
    # Those of the last ten seconds are on time: the first starts, and the others find it open.
    assert [entry.kind for entry in entries.values()][:2] == ["skipped_missed", "started"]
    assert sum(entry.count for entry in entries.values()) == 2 * MOST_TIMES + 530


MONTH_S = 30 * 86_400
# With half a second of jitter the time of 30 s and more ago is missed for certain, and that of 10 s ago may be.
OUTAGES = [
    ({"catch_up": "latest"}, {}),
    ({"catch_up": "none"}, {}),
    ({"catch_up": "all", "within": 20.0}, {}),
    ({"catch_up": "latest", "within": 5.0}, {}),
    ({"jitter": 0.5}, {}),
    ({"starts_at": datetime(2026, 11, 18, 0, 1, tzinfo=UTC)}, {}),
    ({"ends_at": datetime(2026, 11, 18, 0, 5, tzinfo=UTC)}, {}),
    ({}, {"paused": True}),
]


@pytest.mark.parametrize(("policy", "fields"), OUTAGES)
def test_times_that_nobody_goes_through_are_decided_as_if_somebody_did(
    policy: dict[str, Any], fields: dict[str, Any]
) -> None:
    """What surely was missed of an interval is counted; times of cron are gone through one by one."""
    for now in range(START + 1, START + 900_000, 29_950):
        counted, walked = (decide(schedule(when, **fields), now, 0) for when in _same_times(**policy))
        if counted is None or walked is None:
            assert counted is walked
            continue
        fields_of = ("starts", "entries", "next_at", "stop")
        assert [getattr(counted, each) for each in fields_of] == [getattr(walked, each) for each in fields_of]
        assert counted.schedule == msgspec.structs.replace(walked.schedule, when=counted.schedule.when)


def _same_times(**policy: Any) -> tuple[Timetable, Timetable]:
    return Every(1, **policy), Cron("* * * * * *", **policy)


@pytest.mark.parametrize(("policy", "fields"), OUTAGES[:4])
def test_a_month_without_workers_is_one_decision(policy: dict[str, Any], fields: dict[str, Any]) -> None:
    """Times of an interval are counted, not gone through: a schedule of each second would take a worker for long."""
    now = START + MONTH_S * 1000 + 30_500
    decided = decide(schedule(Every(1, **policy), **fields), now, open_runs=1)
    assert decided is not None
    assert decided.schedule.mark == now - 500
    assert decided.next_at == now + 500
    assert decided.entries[0].kind == "skipped_missed"
    assert sum(entry.count for entry in decided.entries) == MONTH_S + 30


def test_a_month_is_left_at_once_when_the_timetable_changes() -> None:
    now = START + MONTH_S * 1000 + 500
    then, entries = changed(schedule(Every(1)), Every(7), now)
    assert [(entry.kind, entry.count, entry.time) for entry in entries] == [("skipped_missed", MONTH_S, now - 500)]
    assert then.mark == now


# Pausing


def test_a_paused_schedule_skips_and_keeps_what_waits() -> None:
    waits = msgspec.structs.replace(second("queue_all").schedule, paused=True)
    decided = decide(waits, START + 5 * MINUTE + 30_000, open_runs=0)
    assert kinds(decided) == [(5, "skipped_paused", 3)]
    assert decided is not None
    assert len(decided.schedule.waiting) == 2
    assert decided.next_at is None
    assert not decided.schedule.waits


# Backfills


def backfilled(overlap: Overlap, open_runs: int, taken: dict[int, str] | None = None) -> Decided:
    asked = (Backfill(START - 10 * MINUTE - 1, START - MINUTE, overlap),)
    decided = decide(schedule(Every(60), backfills=asked), START + 1, open_runs, taken)
    assert decided is not None
    return decided


def test_a_backfill_starts_what_has_no_run() -> None:
    decided = backfilled("allow_all", 1, {START - 5 * MINUTE: "x", START - MINUTE: "y"})
    assert minutes(decided) == [-10, -9, -8, -7, -6, -4, -3, -2]
    assert {entry.kind for entry in decided.entries} == {"backfilled"}
    assert decided.schedule.backfills == ()
    assert decided.schedule.mark == START


def test_a_backfill_that_queues_goes_on_when_nothing_is_open() -> None:
    decided = backfilled("queue_all", 0)
    assert minutes(decided) == [-10]
    assert left_to_fill(decided.schedule) == 9
    assert decide(decided.schedule, START + 1, open_runs=1) is None
    assert decided.schedule.waits
    assert minutes(decide(decided.schedule, START + 2, open_runs=0)) == [-9]


def test_a_backfill_goes_on_with_the_times_it_was_asked_for() -> None:
    """Not with those of another timetable: hours of a year would become minutes of a year."""
    left = backfilled("queue_all", 0).schedule
    then, _ = changed(left, Every(1), START + 2)
    again, _ = changed(then, Every(7), START + 3)
    assert [left_to_fill(each) for each in (left, then, again)] == [9, 9, 9]
    kept = msgspec.json.decode(msgspec.json.encode(again), type=Schedule)
    assert minutes(decide(kept, START + 4, open_runs=0)) == [-9]
    assert left_to_fill(changed(left, Every(60, overlap="allow_all"), START + 2)[0]) == 9


def test_a_backfill_does_not_wait_for_what_a_pause_keeps() -> None:
    """Nothing starts that waits while a schedule is paused: a backfill behind it would hang until somebody resumes."""
    asked = (Backfill(START - 2 * MINUTE - 1, START - MINUTE, "queue_all"),)
    waiting = (WaitingTime(START, 1),)
    paused = schedule(Every(60), backfills=asked, waiting=waiting, entries=1, paused=True)
    decided = decide(paused, START + 1, open_runs=0)
    assert minutes(decided) == [-2]
    assert decided is not None
    assert decided.schedule.waiting == waiting
    assert decide(decided.schedule, START + 1, open_runs=1) is None
    resumed = msgspec.structs.replace(decided.schedule, paused=False)
    assert minutes(decide(resumed, START + 1, open_runs=0)) == [0]


# Ids and jitter


def test_the_id_of_a_run_names_its_time() -> None:
    assert run_id_at("nightly", START) == "nightly@2026-11-18T00:00:00Z"
    assert run_id_at("nightly", START + 1500) == "nightly@2026-11-18T00:00:01.500Z"


def test_jitter_moves_the_start_and_not_the_time() -> None:
    made = schedule(Every(60, jitter=30))
    due = next_at(made)
    assert due is not None
    assert START + MINUTE < due < START + MINUTE + 30_000
    assert decide(made, due - 1, open_runs=0) is None
    assert minutes(decide(made, due, open_runs=0)) == [1]


@pytest.mark.parametrize("when", [Every(60, jitter=3600), Cron("*/1 9-10 * * *", jitter=3600)])
def test_jitter_never_moves_a_start_past_the_next_time(when: Timetable) -> None:
    """Times are decided in their order, and as many a minute as without."""
    times = when.times(as_moment(START), 51)
    delays = [when.delay("report", each, following) for each, following in pairwise(times)]
    assert all(each + delay < following for (each, following), delay in zip(pairwise(times), delays, strict=True))
    # Always as long for the same time, and not for all times.
    assert delays == [when.delay("report", each, following) for each, following in pairwise(times)]
    assert len(set(delays)) > 25


# The model: lives of a schedule with an end of time, looked at now and then


class Model:
    """Each time by itself, in order; nothing is bounded but what may wait."""

    def __init__(self, overlap: Overlap, catch_up: CatchUp, within: int | None) -> None:
        self.overlap, self.catch_up, self.within = overlap, catch_up, within
        self.mark = START
        self.kinds: dict[int, str] = {}
        self.open: set[int] = set()
        self.waiting: list[int] = []
        self.paused = False

    def look(self, now: int) -> None:
        if not self.paused and self.waiting:
            if self.overlap == "allow_all":
                self.open |= set(self.waiting)
                self.waiting = []
            elif not self.open:
                self.open.add(self.waiting.pop(0))
        due = list(range(self.mark + 1000, now + 1, 1000))
        late = [time for time in due if now - time > 10_000]
        for time in due:
            self.mark = time
            self.kinds[time] = self.one(time, now, time in late, time == due[-1])
        assert self.overlap == "queue_all" or len(self.waiting) <= 1

    def one(self, time: int, now: int, is_late: bool, is_last: bool) -> str:
        if self.paused:
            return "skipped_paused"
        if is_late:
            too_old = self.within is not None and now - time > self.within * 1000
            if too_old or self.catch_up == "none" or (self.catch_up == "latest" and not is_last):
                return "skipped_missed"
        if self.overlap == "allow_all" or (not self.open and not self.waiting):
            self.open.add(time)
            return "caught_up" if is_late else "started"
        match self.overlap:
            case "queue_one" if not self.waiting:
                self.waiting.append(time)
            case "queue_all" if len(self.waiting) < MOST_WAITING:
                self.waiting.append(time)
            case "cancel_old" | "terminate_old":
                for dropped in self.waiting:
                    self.kinds[dropped] = "skipped_overlap"
                self.waiting = [time]
            case _:
                return "skipped_overlap"
        return "queued"


MOVES = st.one_of(
    st.tuples(st.just("pass"), st.integers(0, 60_000)),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("pause"), st.booleans()),
)


class Life:
    """The same by the rules, a decision after the other, as often as one asks for the next."""

    def __init__(self, when: Every) -> None:
        self.schedule = schedule(when)
        self.open: set[int] = set()
        self.kinds: dict[int, str] = {}

    def look(self, now: int) -> None:
        while (decided := decide(self.schedule, now, len(self.open))) is not None:
            assert decided.schedule.mark >= self.schedule.mark
            self.note(decided)
            if decided.next_at is None or decided.next_at > now:
                return

    def note(self, decided: Decided) -> None:
        self.schedule = decided.schedule
        for start in decided.starts:
            assert start.time not in self.open
            self.open.add(start.time)
        for entry in decided.entries:
            # Those in a row that were merged are a second apart.
            for back in range(entry.count):
                self.kinds[entry.time - back * 1000] = entry.kind


# How many random lives are compared; `make schedule-traces` compares 10,000.
TRACES = int(os.environ.get("SCHEDULE_TRACES", "1000"))


@settings(max_examples=TRACES, deadline=None)
@given(
    st.sampled_from(get_args(Overlap)),
    st.sampled_from(get_args(CatchUp)),
    st.sampled_from([None, 5, 20, 100]),
    st.lists(MOVES, max_size=25),
)
def test_random_lives_are_as_the_model_has_them(
    overlap: Overlap, catch_up: CatchUp, within: int | None, moves: list[tuple[str, int]]
) -> None:
    """One decision per nominal time, the one that the policies say, whatever happens in between."""
    life = Life(Every(1, overlap=overlap, catch_up=catch_up, within=within))
    model, now = Model(overlap, catch_up, within), START
    for kind, number in moves:
        if kind == "pass":
            now += number
        elif kind == "end" and model.open:
            ended = sorted(model.open)[number % len(model.open)]
            model.open.discard(ended)
            life.open.discard(ended)
        elif kind == "pause":
            # Whoever pauses or resumes has all times decided first.
            life.schedule = msgspec.structs.replace(life.schedule, paused=bool(number))
            model.paused = bool(number)
        model.look(now)
        life.look(now)
        assert life.kinds == model.kinds
        assert life.open == model.open
        assert [waiting.time for waiting in life.schedule.waiting] == model.waiting
    assert sorted(life.kinds) == list(range(START + 1000, life.schedule.mark + 1, 1000))


def test_another_policy_leaves_a_time_that_waits_for_its_jitter_where_it_is() -> None:
    made = schedule(Every(60, jitter=30))
    due = next_at(made)
    assert due is not None
    then, entries = changed(made, Every(60, jitter=30, overlap="allow_all"), due - 1)
    assert (then.mark, entries) == (START, ())


def test_other_times_begin_now_and_what_was_left_is_told() -> None:
    then, entries = changed(schedule(Every(60, jitter=30)), Every(45), START + MINUTE + 1)
    assert [(entry.kind, entry.time) for entry in entries] == [("skipped_missed", START + MINUTE)]
    assert then.mark == START + MINUTE + 1
    paused, entries = changed(schedule(Every(60), paused=True), Every(45), START + 3 * MINUTE)
    assert [(entry.kind, entry.count) for entry in entries] == [("skipped_paused", 3)]
    assert paused.paused
