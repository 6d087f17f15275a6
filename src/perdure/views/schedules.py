"""Schedules and duties, as people and programs outside see them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from perdure import codec
from perdure.engine.ports import Engine
from perdure.errors import BadId
from perdure.ids import checked_id
from perdure.kernel.schedules import LONGEST_NAME, Schedule, as_moment, left_to_fill
from perdure.kernel.timetables import Timetable
from perdure.stores.records import DecisionRow, DutyRow
from perdure.views.run import View

# So many times that lie ahead are shown.
TIMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Decision(View):
    """What became of a nominal time; of `count` times in a row, the last of which is `time`.

    `kind` is started, caught_up, queued, skipped_overlap, skipped_missed, skipped_paused, backfilled or triggered.
    """

    time: datetime
    kind: str
    count: int
    run_id: str | None


@dataclass(frozen=True, slots=True)
class ScheduleInfo(View):
    """A schedule as it stands; `source` is `code` or `api`, `waiting` how many times wait for the end of runs.

    Those of a backfill that is not through are among them.

    The newest 100 decisions are told by `get`, the newest first; lists leave them out.
    """

    name: str
    workflow: str
    arguments: object
    queue: str
    created_at: datetime
    when: Timetable
    paused: bool
    reason: str | None
    next_times: tuple[datetime, ...]
    last_time: datetime | None
    last_run_id: str | None
    waiting: int
    decisions: tuple[Decision, ...]
    source: str


@dataclass(frozen=True, slots=True)
class DutyInfo(View):
    """Something that one worker of a namespace does for all; `holder` is that worker, None when it is gone."""

    name: str
    holder: str | None
    since: datetime
    last_ok_at: datetime
    last_error: str | None


def schedule_view(schedule: Schedule, decisions: list[DecisionRow], now: int) -> ScheduleInfo:
    """A schedule, with its decisions and the next times after now."""
    return ScheduleInfo(
        name=schedule.name,
        workflow=schedule.call.workflow,
        arguments=codec.load(schedule.call.input.encode()),
        queue=schedule.call.queue,
        created_at=as_moment(schedule.created_at),
        when=schedule.when,
        paused=schedule.paused,
        reason=schedule.reason,
        next_times=tuple(schedule.when.times(as_moment(max(now, schedule.mark)), TIMES_SHOWN)),
        last_time=None if schedule.last_time is None else as_moment(schedule.last_time),
        last_run_id=schedule.last_run_id,
        waiting=len(schedule.waiting) + left_to_fill(schedule),
        decisions=tuple(Decision(as_moment(row.time), row.kind, row.times, row.run_id) for row in decisions),
        source=schedule.source,
    )


def checked_schedule_name(name: object) -> str:
    """The name of a schedule, which the ids of its runs begin with; BadId."""
    checked = checked_id("schedule name", name)
    if len(checked) > LONGEST_NAME:
        raise BadId("schedule name", name, f"has {len(checked)} characters, the most is {LONGEST_NAME}")
    return checked


class ScheduleViews(Protocol):
    """Schedules as a server shows them."""

    async def one(self, namespace: str, name: str) -> ScheduleInfo: ...

    async def every(self, namespace: str) -> list[ScheduleInfo]: ...


@runtime_checkable
class HasScheduleViews(Protocol):
    """An engine over a server."""

    @property
    def schedule_views(self) -> ScheduleViews: ...


async def schedule_of(engine: Engine, namespace: str, name: str) -> ScheduleInfo:
    """One of them, with its newest decisions; ScheduleNotFound."""
    if isinstance(engine, HasScheduleViews):
        return await engine.schedule_views.one(namespace, name)
    schedule, decisions = await engine.schedules.get(namespace, name)
    return schedule_view(schedule, decisions, engine.clock.now())


async def schedules_of(engine: Engine, namespace: str) -> list[ScheduleInfo]:
    """All of them, by name, without their decisions."""
    if isinstance(engine, HasScheduleViews):
        return await engine.schedule_views.every(namespace)
    found = await engine.schedules.all(namespace)
    return [schedule_view(schedule, [], engine.clock.now()) for schedule in found]


def duty_view(row: DutyRow) -> DutyInfo:
    return DutyInfo(
        row.name,
        row.holder if row.is_held else None,
        as_moment(row.since),
        as_moment(row.last_ok_at),
        row.last_error,
    )


async def duty_views(engine: Engine, namespace: str) -> list[DutyInfo]:
    """The duties that somebody has or had, by name."""
    return [duty_view(row) for row in await engine.duties.all(namespace)]
