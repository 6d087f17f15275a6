"""Schedules and duties, as people and programs outside see them."""

from dataclasses import dataclass
from datetime import datetime

from perdure import codec
from perdure.engine.ports import Engine
from perdure.kernel.schedules import Schedule, as_moment
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
        waiting=len(schedule.waiting),
        decisions=tuple(Decision(as_moment(row.time), row.kind, row.times, row.run_id) for row in decisions),
        source=schedule.source,
    )


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
