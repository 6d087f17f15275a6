"""Schedules of users in a simulation: who makes them, and what must hold of their times after every write.

In:   a tape; batches that were written.
Out:  requests that make schedules; Violation when a time has no decision or two, or a duty was taken from the living.
"""

from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from perdure.app import Perdure
from perdure.kernel.schedules import KEPT_DECISIONS, Schedule, as_moment, as_ms
from perdure.kernel.timetables import Every, Overlap
from perdure.stores.answers import Applied, Committed
from perdure.stores.operations import Batch, DeleteWorker, InsertSchedule, MoveSchedule, NoteDecision, TakeDuty
from tests.simulation.clients import Request
from tests.simulation.invariants import Violation
from tests.simulation.programs import Part, sim_run
from tests.simulation.sight import Seen
from tests.simulation.simulator import Database, MemoryDatabase, SqliteDatabase, Tape

OF_SCHEDULES = (InsertSchedule, MoveSchedule, NoteDecision, TakeDuty, DeleteWorker)
# Of these no run is started while another one is open, unless somebody triggers it.
ONE_AT_A_TIME = {"skip", "queue_one", "queue_all", "cancel_old", "terminate_old"}
TIMES = 5
# What is decided beside the times that come one after the other.
BESIDE = {"triggered", "backfilled"}


class MakeSchedule(Request):
    """Make a schedule of a few times; asked again it is the same one."""

    def __init__(self, key: str, after_step: int, seconds: int, overlap: Overlap, program: list[Part]) -> None:
        super().__init__(key, after_step)
        self._seconds = seconds
        self._overlap: Overlap = overlap
        self._program = program
        self._ends_at: datetime | None = None

    async def ask(self, app: Perdure) -> None:
        if self._ends_at is None:
            self._ends_at = as_moment(app._clock.now() + TIMES * self._seconds * 1000)
        when = Every(self._seconds, overlap=self._overlap, catch_up="all", ends_at=self._ends_at)
        await app.schedules.put(self.key, sim_run.call(self._program, []), when)


class ChangeSchedule(Request):
    """Change how old a missed time may be: whatever is decided meanwhile stays so."""

    async def ask(self, app: Perdure) -> None:
        await app.schedules.update(self.key, within=3600 + self.after_step)


class PauseSchedule(Request):
    """Let it start nothing."""

    async def ask(self, app: Perdure) -> None:
        await app.schedules.pause(self.key, "a while")


class ResumeSchedule(Request):
    """Let it go on."""

    async def ask(self, app: Perdure) -> None:
        await app.schedules.resume(self.key)


class TriggerSchedule(Request):
    """Start a run of it now; whoever got no answer starts another one."""

    async def ask(self, app: Perdure) -> str:
        return (await app.schedules.trigger(self.key)).run_id


class BackfillSchedule(Request):
    """Start what was not started up to now, and for some times before it was made."""

    async def ask(self, app: Perdure) -> None:
        info = await app.schedules.get(self.key)
        # A clock that was set forward by an hour is not to start a run for each of its seconds.
        end = min(as_moment(app._clock.now()), info.created_at + timedelta(seconds=10))
        await app.schedules.backfill(self.key, info.created_at - timedelta(seconds=4), end)


def drawn_schedule(tape: Tape) -> list[Request]:
    """A schedule, whose runs end at once or take longer than it is to the next; and what people do with it."""
    overlap: Overlap = tape.one_of("skip", "queue_one", "queue_all", "allow_all", "cancel_old", "terminate_old")
    program: list[Part] = tape.one_of([], [["sleep", 3000]])
    made = MakeSchedule("scheduled", tape.choose(150), tape.one_of(1, 2), overlap, program)
    kinds = (ChangeSchedule, TriggerSchedule, PauseSchedule, ResumeSchedule, BackfillSchedule)
    further = [tape.one_of(*kinds)("scheduled", made.after_step + tape.choose(250)) for _ in range(tape.choose(6))]
    return [made, *further]


class SeenDecision(NamedTuple):
    number: int
    time: int
    kind: str
    times: int
    run_id: str | None


class SeenSchedules(NamedTuple):
    """Rows of schedules by id, their decisions by id, and the holders of duties with when each last did well."""

    rows: dict[str, Any]
    decisions: dict[str, list[SeenDecision]]
    duties: dict[str, tuple[str | None, int]]


def look_at_schedules(database: Database) -> SeenSchedules:
    """All that is on disk of schedules."""
    decisions: dict[str, list[SeenDecision]] = {}
    if isinstance(database, MemoryDatabase):
        tables = database.tables
        rows = {id: (row.next_at, row.waits, row.body) for id, row in tables.schedules.rows.items()}
        for (id, _), row in sorted(tables.decisions.rows.items()):
            decisions.setdefault(id, []).append(SeenDecision(row.number, row.time, row.kind, row.times, row.starts))
        duties = {name: (duty.holder, duty.last_ok_at) for (_, name), duty in tables.duties.rows.items()}
        return SeenSchedules(rows, decisions, duties)
    assert isinstance(database, SqliteDatabase)
    ask = database.db.execute
    rows = {id: tuple(row) for id, *row in ask("select schedule_id, next_at, waits, body from schedules")}
    for id, *row in ask("select schedule_id, number, time, kind, times, run_id from schedule_decisions order by 1, 2"):
        decisions.setdefault(id, []).append(SeenDecision(*row))
    duties = {name: (holder, ok_at) for name, holder, ok_at in ask("select name, holder, last_ok_at from duties")}
    return SeenSchedules(rows, decisions, duties)


class ScheduleWitness:
    """Sees every write that is about schedules or duties."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen = SeenSchedules({}, {}, {})
        self._known: dict[str, Schedule] = {}
        self._began: dict[str, int] = {}
        self.reached: set[str] = set()
        self._told: set[str] = set()
        self._started: set[str] = set()

    def wrote(self, batch: Batch, outcome: object, seen: Seen) -> None:
        """A batch was written: whatever is on disk now must follow from what was there."""
        operations = [(index, op) for index, group in enumerate(batch.groups) for op in group]
        if not isinstance(outcome, Committed) or not any(isinstance(op, OF_SCHEDULES) for _, op in operations):
            return
        before, now = self._seen, look_at_schedules(self._database)
        self._seen = now
        for index, op in operations:
            if isinstance(op, TakeDuty) and isinstance(outcome.answers.get(index, Applied()), Applied):
                self._check_duty(op, before, seen)
        for id, (_, _, body) in now.rows.items():
            schedule = msgspec.json.decode(body, type=Schedule)
            self._check_mark(id, schedule)
            self._check_times(id, schedule, now.decisions.get(id, []))
            if schedule.entries <= KEPT_DECISIONS:
                self._check_runs(schedule, now.decisions.get(id, []), seen)

    def _check_duty(self, op: TakeDuty, before: SeenSchedules, seen: Seen) -> None:
        holder, ok_at = before.duties.get(op.name, (None, 0))
        self.reached.add("a duty was taken" if holder is None else "a duty was taken over")
        is_stale = op.stale_before is not None and ok_at <= op.stale_before
        if holder is not None and holder != op.worker_id and holder in seen.workers and not is_stale:
            raise Violation("I57", f"worker {op.worker_id} took a duty from {holder}, which lives and does well")

    def _check_mark(self, id: str, schedule: Schedule) -> None:
        known = self._known.get(id)
        if known is not None and schedule.mark < known.mark:
            raise Violation("I30", f"the mark of {schedule.name} went back from {known.mark} to {schedule.mark}")
        self._known[id] = schedule
        self._began.setdefault(id, schedule.created_at)

    def _check_times(self, id: str, schedule: Schedule, decisions: list[SeenDecision]) -> None:
        """Every time up to the mark has one decision, and no later one has."""
        assert isinstance(schedule.when, Every)
        step = round(float(schedule.when.interval) * 1000)  # type: ignore[arg-type]  # seconds
        in_turn = [each for each in decisions if each.kind not in BESIDE]
        decided = sorted(each.time - back * step for each in in_turn for back in range(each.times))
        times = map(as_ms, schedule.when.times_after(as_moment(self._began[id])))
        expected = list(takewhile(lambda time: time <= schedule.mark, times))
        if schedule.entries > KEPT_DECISIONS:
            # A clock that was far ahead said when it ends: only the newest are kept.
            expected = expected[-len(decided) :]
        if decided != expected:
            raise Violation("I30", f"the times of {schedule.name} up to its mark are {expected}, decided are {decided}")

    def _check_runs(self, schedule: Schedule, decisions: list[SeenDecision], seen: Seen) -> None:
        """A run for each time that was started, one at most; and no two at once where that must not be."""
        runs = [run for run in seen.runs.values() if run.schedule == schedule.name and run.forked_from is None]
        started = {run.run_id: run.scheduled_for for run in runs if run.continued_from is None}
        told = {each.run_id: each.time for each in decisions if each.run_id is not None}
        if started != told:
            raise Violation("I31", f"{schedule.name} has runs for {started}, and decisions that tell of {told}")
        triggered = {each.run_id for each in decisions if each.kind == "triggered"}
        times = [time for run_id, time in started.items() if run_id not in triggered]
        if len(times) != len(set(times)):
            raise Violation("I31", f"{schedule.name} has two runs for one time: {started}")
        is_open = [run.run_id for run in runs if run.closed_at is None]
        new = started.keys() - self._started - triggered
        self._started |= started.keys()
        if new and schedule.when.overlap in ONE_AT_A_TIME and len(is_open) > 1:
            raise Violation("I32", f"{schedule.name} started {new}, open are {is_open}: {schedule.when.overlap}")
        self.reached |= {f"a time was {each.kind}" for each in decisions}

    def news(self) -> set[str]:
        """What was come by for the first time since it was asked last."""
        news, self._told = self.reached - self._told, set(self.reached)
        return news

    @staticmethod
    def answered(request: TriggerSchedule, seen: Seen) -> None:
        """A run that somebody has triggered is there."""
        if request.answer not in seen.runs:
            raise Violation("I01", f"{request.key} was said to be triggered, but {request.answer} is not on disk")

    @property
    def is_over(self) -> bool:
        """Whether no time lies ahead, and nothing waits."""
        return all(next_at is None and not waits for next_at, waits, _ in self._seen.rows.values())
