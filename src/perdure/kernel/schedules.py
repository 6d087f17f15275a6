"""Schedules: what becomes of each nominal time of a schedule.

In:   a schedule as its row has it, the time, how many of its runs are open.
Out:  the schedule as it is then, the runs to start and the decisions to note; None when there is nothing to do.

Every nominal time gets one decision, in order, and the mark moves over it. A time is on time when it is decided at
most ten seconds after it was due; a later one was missed, and is the business of `catch_up`. What is to start then is
the business of `overlap`. Times are milliseconds.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from perdure.kernel.timetables import EPOCH, MILLISECOND, Overlap, Timetable, seconds
from perdure.kernel.traits import PLAIN, Traits

Kind: TypeAlias = Literal[
    "started",
    "caught_up",
    "queued",
    "skipped_overlap",
    "skipped_missed",
    "skipped_paused",
    "backfilled",
    "triggered",
]
Source: TypeAlias = Literal["code", "api"]

LONGEST_NAME = 150
# A time that is decided no later than this was not missed.
ON_TIME_MS = 10_000
# So many may wait for the end of others.
MOST_WAITING = 1000
# So many times are gone through, and so many runs started, in one decision; the rest comes with the next.
MOST_TIMES = 10_000
MOST_STARTS = 100
# So many decisions are kept.
KEPT_DECISIONS = 100
# Of these many in a row are one entry.
_MERGED = ("skipped_missed", "skipped_paused")


class ScheduledCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is started: a workflow, its arguments as JSON, and how."""

    workflow: str
    input: str
    queue: str = "default"
    priority: int = 0
    delay_ms: int = 0
    traits: Traits = PLAIN


class DecisionEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision as it is noted: of how many times in a row, the last of which is `time`."""

    number: int
    time: int
    kind: Kind
    count: int = 1
    run_id: str | None = None


class WaitingTime(msgspec.Struct, frozen=True):
    """A time whose run starts when others have ended, and the number of its entry."""

    time: int
    number: int


class Backfill(msgspec.Struct, frozen=True):
    """The times after one and up to another, of the past, that somebody asked for.

    They are those of the timetable that the schedule had then; it stands here once the schedule has another one.
    """

    after: int
    until: int
    overlap: Overlap
    when: Timetable | None = None


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule: what it starts and when, up to where its times are decided, and what waits."""

    name: str
    call: ScheduledCall
    when: Timetable
    source: Source
    created_at: int
    mark: int
    paused: bool = False
    reason: str | None = None
    waiting: tuple[WaitingTime, ...] = ()
    backfills: tuple[Backfill, ...] = ()
    last_time: int | None = None
    last_run_id: str | None = None
    # How many entries there have been, and the newest.
    entries: int = 0
    newest: DecisionEntry | None = None

    @property
    def waits(self) -> bool:
        """Whether something starts when no run is open."""
        return bool(self.backfills) or (bool(self.waiting) and not self.paused)


class NominalStart(msgspec.Struct, frozen=True):
    """A run to start, for a nominal time; its entry is the one of this number."""

    time: int
    number: int


class Decided(msgspec.Struct, frozen=True):
    """What is written together: the schedule, its runs, its entries; then, which open runs are to stop."""

    schedule: Schedule
    starts: tuple[NominalStart, ...]
    entries: tuple[DecisionEntry, ...]
    # When to look at it again by the clock; None when only a change can bring that about.
    next_at: int | None
    stop: Literal["cancel_old", "terminate_old"] | None = None


def run_id_at(name: str, time: int) -> str:
    """The id of the run that a schedule starts for a nominal time."""
    text = as_moment(time).isoformat(timespec="milliseconds" if time % 1000 else "seconds")
    return f"{name}@{text.removesuffix('+00:00')}Z"


def as_moment(ms: int) -> datetime:
    return EPOCH + MILLISECOND * ms


def as_ms(moment: datetime) -> int:
    return (moment - EPOCH) // MILLISECOND


def next_at(schedule: Schedule, after: int | None = None) -> int | None:
    """When the next time of a schedule is due, its jitter included."""
    if schedule.paused:
        return None
    return next((due for _, due in _times(schedule, schedule.mark if after is None else after)), None)


def _times(schedule: Schedule, after: int) -> Iterator[tuple[int, int]]:
    """The nominal times after one, each with the moment at which its run is to start."""
    times = schedule.when.times_after(as_moment(after))
    nominal = next(times, None)
    while nominal is not None:
        following = next(times, None) if schedule.when.jitter else None
        time = as_ms(nominal)
        yield time, time + schedule.when.delay(schedule.name, nominal, following) // MILLISECOND
        nominal = following if schedule.when.jitter else next(times, None)


def backfill_times(schedule: Schedule) -> list[int]:
    """The times that the next decision goes through of the first backfill; it must know which of them have runs."""
    if not schedule.backfills:
        return []
    asked = schedule.backfills[0]
    times = map(as_ms, (asked.when or schedule.when).times_after(as_moment(asked.after)))
    return [time for time in islice(times, MOST_STARTS) if time <= asked.until]


def left_to_fill(schedule: Schedule) -> int:
    """How many times of backfills are not decided yet."""
    count = 0
    for asked in schedule.backfills:
        until = as_moment(asked.until)
        for time in (asked.when or schedule.when).times_after(as_moment(asked.after)):
            if time > until:
                break
            count += 1
    return count


def changed(schedule: Schedule, when: Timetable, now: int) -> tuple[Schedule, tuple[DecisionEntry, ...]]:
    """The schedule with another timetable. Other times begin now; what was left of the old ones is skipped."""
    policies = {name: getattr(when, name) for name in ("overlap", "catch_up", "within", "jitter")}
    if when == msgspec.structs.replace(schedule.when, **policies):
        return msgspec.structs.replace(schedule, when=when), ()
    decision = _Decision(schedule, now, 0, {})
    kind: Kind = "skipped_paused" if schedule.paused else "skipped_missed"
    for time, _ in _times(schedule, decision.skip_until(now, kind)):
        if time > now:
            break
        decision.note(time, kind)
    decided = decision.decided()
    left, entries = (schedule, ()) if decided is None else (decided.schedule, decided.entries)
    asked = tuple(msgspec.structs.replace(each, when=each.when or schedule.when) for each in left.backfills)
    return msgspec.structs.replace(left, when=when, mark=max(now, left.mark), backfills=asked), entries


def decide(schedule: Schedule, now: int, open_runs: int, taken: Mapping[int, str] | None = None) -> Decided | None:
    """What becomes of the times that are due, and of what waits; `taken` are times that have runs already."""
    decision = _Decision(schedule, now, open_runs, taken or {})
    decision.start_waiting()
    decision.decide_due()
    decision.fill_back()
    return decision.decided()


class _Decision:
    """A decision in the making."""

    def __init__(self, schedule: Schedule, now: int, open_runs: int, taken: Mapping[int, str]) -> None:
        self._schedule = schedule
        self._now = now
        self._open = open_runs
        self._was_open = open_runs
        self._taken = taken
        self._mark = schedule.mark
        self._waiting = list(schedule.waiting)
        self._backfills = schedule.backfills
        self._starts: list[NominalStart] = []
        self._entries: dict[int, DecisionEntry] = {}
        self._newest = schedule.newest
        self._numbered = schedule.entries
        self._has_more = False
        self._last_time = schedule.last_time

    def start_waiting(self) -> None:
        """Start what waits, if nothing is open any more."""
        schedule = self._schedule
        if schedule.paused:
            return
        all_at_once = schedule.when.overlap == "allow_all"
        while self._waiting and (all_at_once or not self._open) and len(self._starts) < MOST_STARTS:
            first = self._waiting.pop(0)
            self._entries[first.number] = DecisionEntry(
                first.number, first.time, "queued", run_id=self._taken.get(first.time)
            )
            if first.time not in self._taken:
                self._start(first.time, first.number)
        self._has_more |= all_at_once and bool(self._waiting)

    def decide_due(self) -> None:
        """Decide the times that are due, in their order."""
        self._skip_missed()
        due, is_cut = self._due()
        self._has_more |= is_cut
        missed = [time for time, at in due if self._now - at > ON_TIME_MS]
        late = len(missed)
        newest = missed[-1] if missed and late == len(due) and not is_cut else None
        for index, (time, _) in enumerate(due):
            if len(self._starts) >= MOST_STARTS:
                self._has_more = True
                return
            self._mark = time
            if self._schedule.paused:
                self.note(time, "skipped_paused")
            elif index >= late:
                self._overlap(time, "started", self._schedule.when.overlap)
            elif self._is_caught_up(time, newest):
                self._overlap(time, "caught_up", self._schedule.when.overlap)
            else:
                self.note(time, "skipped_missed")

    def _skip_missed(self) -> None:
        """Count the times that are skipped for certain, where they need not be walked: an outage may be long."""
        schedule, when = self._schedule, self._schedule.when
        until = self._now - math.ceil(seconds("jitter", when.jitter) * 1000)
        if schedule.paused:
            self._mark = self.skip_until(until, "skipped_paused")
            return
        until -= ON_TIME_MS + 1
        if when.catch_up == "all":
            until = min(until, self._now - math.ceil(when.within * 1000) - 1) if isinstance(when.within, float) else 0
        elif when.catch_up == "latest" and (found := when.counted(as_moment(self._mark), as_moment(until))) is not None:
            # The last of them may be the one that is caught up.
            until = as_ms(found[1]) - 1
        self._mark = self.skip_until(until, "skipped_missed")

    def skip_until(self, until: int, kind: Kind) -> int:
        """Skip the times up to a moment if they can be counted; answers up to where times are decided then."""
        found = self._schedule.when.counted(as_moment(self._mark), as_moment(until))
        if found is None or not found[0]:
            return self._mark
        self.note(as_ms(found[1]), kind, times=found[0])
        return as_ms(found[1])

    def _due(self) -> tuple[list[tuple[int, int]], bool]:
        """The times that are due, and whether there are more than one decision goes through."""
        due: list[tuple[int, int]] = []
        for time, at in _times(self._schedule, self._mark):
            if at > self._now:
                break
            if len(due) == MOST_TIMES:
                return due, True
            due.append((time, at))
        return due, False

    def _is_caught_up(self, time: int, newest: int | None) -> bool:
        """Whether a missed time still starts."""
        when = self._schedule.when
        if isinstance(when.within, float) and self._now - time > when.within * 1000:
            return False
        return when.catch_up == "all" or (when.catch_up == "latest" and time == newest)

    def _overlap(self, time: int, kind: Kind, overlap: Overlap) -> None:
        """Start a run, let it wait, or skip it, by what is open and what waits."""
        if time in self._taken:
            self.note(time, kind, self._taken[time])
        elif overlap == "allow_all" or not self._is_busy:
            self._start(time, self.note(time, kind))
        elif overlap == "skip" or (overlap == "queue_one" and self._waiting) or len(self._waiting) >= MOST_WAITING:
            self.note(time, "skipped_overlap")
        else:
            if overlap in ("cancel_old", "terminate_old"):
                # Only the newest waits.
                for dropped in self._waiting:
                    self._entries[dropped.number] = DecisionEntry(dropped.number, dropped.time, "skipped_overlap")
                self._waiting.clear()
            self._waiting.append(WaitingTime(time, self.note(time, "queued")))

    @property
    def _is_busy(self) -> bool:
        """Whether another run comes first; what waits while the schedule is paused does not."""
        return self._open > 0 or (bool(self._waiting) and not self._schedule.paused)

    def fill_back(self) -> None:
        """Go on with the first backfill; with `queue_all` it is itself what waits."""
        if not self._backfills:
            return
        asked, times = self._backfills[0], backfill_times(self._schedule)
        done = asked.after
        for time in times:
            must_wait = asked.overlap == "queue_all" and self._is_busy
            if time not in self._taken and (must_wait or len(self._starts) >= MOST_STARTS):
                break
            done = time
            if time not in self._taken:
                self._overlap(time, "backfilled", asked.overlap)
        is_done = len(times) < MOST_STARTS and (not times or done == times[-1])
        first = () if is_done else (msgspec.structs.replace(asked, after=done),)
        self._backfills = (*first, *self._backfills[1:])
        self._has_more |= done > asked.after and bool(self._backfills)

    def note(self, time: int, kind: Kind, run_id: str | None = None, times: int = 1) -> int:
        """Note a decision of a time, or of so many up to one; answers the number of its entry."""
        last, count = self._newest, times
        if last is not None and kind in _MERGED and last.kind == kind:
            count = last.count + times
        else:
            self._numbered += 1
        self._newest = self._entries[self._numbered] = DecisionEntry(self._numbered, time, kind, count, run_id)
        return self._numbered

    def _start(self, time: int, number: int) -> None:
        self._last_time = time
        self._open += 1
        self._starts.append(NominalStart(time, number))

    def decided(self) -> Decided | None:
        """All of it; None when nothing was to be done."""
        schedule, overlap = self._schedule, self._schedule.when.overlap
        then = msgspec.structs.replace(
            schedule,
            mark=self._mark,
            waiting=tuple(self._waiting),
            backfills=self._backfills,
            last_time=self._last_time,
            entries=self._numbered,
            newest=self._newest,
        )
        is_held_up = bool(self._waiting) and self._was_open > 0 and not schedule.paused
        must_end = overlap if overlap in ("cancel_old", "terminate_old") and is_held_up else None
        if then == schedule and must_end is None:
            return None
        look = self._now if self._has_more else next_at(then)
        return Decided(then, tuple(self._starts), tuple(self._entries.values()), look, must_end)
