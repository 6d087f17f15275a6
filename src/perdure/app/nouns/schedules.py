"""The schedules of a namespace: what `app.schedules` offers; and those that come with code.

In:   names, calls of workflows, timetables.
Out:  schedules as people see them, and handles of the runs they start.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from perdure.app.open_apps import Home
from perdure.app.run import Run, handle_of
from perdure.app.start_requests import bound
from perdure.authoring.options import WorkflowOptions, checked_reason
from perdure.authoring.workflow import BoundCall, Workflow
from perdure.codec import ValueType
from perdure.engine.ports import Backfilled, Declared, Engine
from perdure.errors import BadOption, BadSchedule, PerdureError
from perdure.kernel.conflict import OnConflict
from perdure.kernel.schedules import ScheduledCall
from perdure.kernel.timetables import CatchUp, Overlap, Timetable, Timing
from perdure.views.schedules import ScheduleInfo, checked_schedule_name, schedule_of, schedules_of

log = logging.getLogger("perdure.engine")


class TimetableChanges(TypedDict, total=False):
    """What `update` can change of a timetable: the keywords of Cron, Every and At."""

    expression: str
    zone: str
    interval: timedelta | float
    offset: timedelta | float
    moment: datetime
    overlap: Overlap
    catch_up: CatchUp
    within: timedelta | float | None
    jitter: timedelta | float
    starts_at: datetime | None
    ends_at: datetime | None


class Schedules:
    """The schedules of a namespace: rows that start runs at times, on any number of workers each time once."""

    def __init__(self, home: Home, checked: Callable[[object], Workflow[..., object]]) -> None:
        self._home = home
        self._checked = checked

    async def create(self, name: str, call: BoundCall[object], when: Timetable) -> ScheduleInfo:
        """Make a schedule: `create("eu-report", report.call("eu"), Every(timedelta(minutes=15)))`; ScheduleExists."""
        wanted = (checked_schedule_name(name), self._call(call), checked_timetable(when))
        await self._home.engine.schedules.create(self._home.namespace, *wanted)
        return await self.get(name)

    async def put(self, name: str, call: BoundCall[object], when: Timetable) -> ScheduleInfo:
        """Make a schedule, or put it in the place of the one there is, whose pause and decisions stay."""
        wanted = (checked_schedule_name(name), self._call(call), checked_timetable(when))
        await self._home.engine.schedules.put(self._home.namespace, *wanted)
        return await self.get(name)

    async def update(
        self, name: str, *, call: BoundCall[object] | None = None, **changes: Unpack[TimetableChanges]
    ) -> ScheduleInfo:
        """Change what is given: keywords of its timetable, or the call of the runs to come; ScheduleNotFound.

        The next time is computed at once; decided times stay decided.
        """
        if call is None and not changes:
            raise BadSchedule(
                "update() changes what is given, and nothing is; give call= or a keyword of the timetable"
            )
        wanted = None if call is None else self._call(call)
        await self._home.engine.schedules.update(self._home.namespace, checked_schedule_name(name), changes, wanted)
        return await self.get(name)

    async def pause(self, name: str, reason: str | None = None) -> None:
        """Let it start nothing until it is resumed; what waits is kept."""
        engine, namespace = self._home.engine, self._home.namespace
        await engine.schedules.pause(namespace, checked_schedule_name(name), checked_reason(reason))

    async def resume(self, name: str) -> None:
        """Let it go on with the next time; those that passed meanwhile are skipped."""
        await self._home.engine.schedules.resume(self._home.namespace, checked_schedule_name(name))

    async def trigger(self, name: str) -> Run[object]:
        """Start a run of it now, whatever overlap says, paused or not."""
        run = await self._home.engine.schedules.trigger(self._home.namespace, checked_schedule_name(name))
        return handle_of(self._home.plain, run, ValueType(Any))

    async def backfill(self, name: str, start: datetime, end: datetime, overlap: Overlap = "queue_all") -> Backfilled:
        """Start runs for its times from start to end, both in the past, that have no run yet.

        They are noted when this returns, and start as `overlap` says, also when this process ends.
        """
        named = (self._home.namespace, checked_schedule_name(name))
        return await self._home.engine.schedules.backfill(*named, start, end, overlap)

    async def delete(self, name: str) -> bool:
        """Delete a schedule; answers whether there was one. Its runs go on."""
        return await self._home.engine.schedules.delete(self._home.namespace, checked_schedule_name(name))

    async def get(self, name: str) -> ScheduleInfo:
        """One of them, with its newest decisions; ScheduleNotFound."""
        return await schedule_of(self._home.engine, self._home.namespace, checked_schedule_name(name))

    async def list(self) -> "list[ScheduleInfo]":
        """All of them, by name, without their decisions."""
        return await schedules_of(self._home.engine, self._home.namespace)

    def _call(self, call: BoundCall[object]) -> ScheduledCall:
        return scheduled(bound(call, "a schedule starts"), self._checked)


def checked_timetable(when: object) -> Any:
    """A timetable; BadSchedule for anything else."""
    if not isinstance(when, Timing):
        raise BadSchedule(f"{when!r} is no timetable; give a Cron(...), an Every(...) or an At(...)")
    return when


def scheduled(call: BoundCall[object], checked: Callable[[object], Workflow[..., object]]) -> ScheduledCall:
    """A call as a schedule keeps it; BadOption for options that only one run can have."""
    settings: WorkflowOptions = checked(call.workflow).settings
    if settings.id is not None or settings.on_conflict is not OnConflict.RETURN:
        raise BadOption("the runs of a schedule have ids with their times; leave id and on_conflict away")
    input = call.arguments[0].decode()
    queue, priority = settings.queue or "default", settings.priority or 0
    return ScheduledCall(call.workflow.name, input, queue, priority, settings.delay_ms, settings.traits)


async def reconcile(engine: Engine, namespace: str, known: Iterable[Workflow[..., Any]]) -> None:
    """Make the schedules of these workflows as their code says; what is in the way is told, and harms nobody else."""
    workflows = {workflow.name: workflow for workflow in known}
    declared = {
        name: Declared(scheduled(workflow.call(), lambda given: given), workflow.schedule)  # type: ignore[arg-type, return-value]  # a workflow
        for name, workflow in sorted(workflows.items())
        if workflow.schedule is not None
    }
    try:
        await engine.schedules.reconcile(namespace, declared, tuple(workflows))
    except PerdureError as error:
        text = "the schedules that come with the code could not be written, the next start tries again: %s"
        log.warning(text, error, extra={"event": "reconcile_failed"})
