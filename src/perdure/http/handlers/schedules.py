"""Schedules: made, changed, paused, triggered, filled back and deleted.

A schedule belongs to the entity of the runs that it starts: a key of an entity makes such ones, and sees no others.
"""

from datetime import datetime
from typing import Any

import msgspec

from perdure.authoring.options import checked_priority, checked_reason, milliseconds, recorded_attributes
from perdure.engine.ports import Backfilled
from perdure.errors import (
    BadArguments,
    BadField,
    BadSchedule,
    NotAllowed,
    ScheduleExists,
    ScheduleNotFound,
    UnknownWorkflow,
)
from perdure.http.access import check_scope
from perdure.http.calls import Call
from perdure.http.handlers.steering import NoBody, ReasonBody
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.http.values import absent, run_json
from perdure.ids import checked_id
from perdure.kernel.schedules import Schedule, ScheduledCall
from perdure.kernel.timetables import Overlap, Timetable
from perdure.kernel.traits import PLAIN, Traits
from perdure.views.run import RunInfo, run_view
from perdure.views.schedules import ScheduleInfo, checked_schedule_name, schedule_of, schedule_view

ROWS = RouteRows()
CREATED = 201
ERRORS = (ScheduleNotFound,)
MAKING = (UnknownWorkflow, BadArguments, BadSchedule)


class ScheduledBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a schedule starts, as a start says it; durations are seconds."""

    workflow: str
    input: msgspec.Raw = absent()
    queue: str | None = None
    priority: int | None = None
    timeout: float | None = None
    delay: float | None = None
    entity_id: str | None = None
    correlation_id: str | None = None
    attributes: dict[str, Any] | None = None


class ScheduleBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule: what it starts, and when.

    `when` is `{"type": "cron", "expression": "0 3 * * *", "zone": "Europe/Berlin"}`,
    `{"type": "every", "interval": 900}` or `{"type": "at", "moment": "2027-01-01T00:00:00Z"}`, with `overlap`,
    `catch_up`, `jitter` and so on beside.
    """

    call: ScheduledBody
    when: msgspec.Raw


class NewScheduleBody(ScheduleBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same, and its name."""

    name: str


class ScheduleChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to change: fields of its timetable, or what it starts."""

    when: dict[str, Any] = {}
    call: ScheduledBody | None = None


class BackfillBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range of the past, and what becomes of times that overlap."""

    start: datetime
    end: datetime
    overlap: Overlap = "queue_all"


class SchedulePage(msgspec.Struct, frozen=True):
    items: list[ScheduleInfo]


@ROWS.add("GET", "/v1/schedules", Scope.READ, answer=SchedulePage)
async def list_schedules(call: Call[NoQuery, None]) -> SchedulePage:
    """All schedules, by name, without their decisions."""
    found, now = await call.engine.schedules.all(call.namespace), call.engine.clock.now()
    return SchedulePage([schedule_view(schedule, [], now) for schedule in found if _is_own(call, schedule)])


@ROWS.add(
    "POST",
    "/v1/schedules",
    Scope.STEER,
    body=NewScheduleBody,
    answer=ScheduleInfo,
    status=CREATED,
    errors=(ScheduleExists, *MAKING),
)
async def create_schedule(call: Call[NoQuery, NewScheduleBody]) -> ScheduleInfo:
    """Make a schedule."""
    name, when = checked_schedule_name(call.body.name), timetable_in(call.body.when)
    await call.engine.schedules.create(call.namespace, name, await _scheduled(call, call.body.call), when)
    return await schedule_of(call.engine, call.namespace, name)


@ROWS.add("GET", "/v1/schedules/{name}", Scope.READ, answer=ScheduleInfo, errors=ERRORS)
async def get_schedule(call: Call[NoQuery, None]) -> ScheduleInfo:
    """A schedule, with its newest decisions."""
    return await schedule_of(call.engine, call.namespace, await _own(call))


@ROWS.add(
    "PUT", "/v1/schedules/{name}", Scope.STEER, body=ScheduleBody, answer=ScheduleInfo, errors=(ScheduleExists, *MAKING)
)
async def put_schedule(call: Call[NoQuery, ScheduleBody]) -> ScheduleInfo:
    """Make a schedule, or put it in the place of the one there is, whose pause and decisions stay."""
    name, when = checked_schedule_name(call.path["name"]), timetable_in(call.body.when)
    scheduled = await _scheduled(call, call.body.call)
    if call.caller.entity_id is None:
        await call.engine.schedules.put(call.namespace, name, scheduled, when)
    else:
        await _put_own(call, name, scheduled, when)
    return await schedule_of(call.engine, call.namespace, name)


@ROWS.add(
    "PATCH",
    "/v1/schedules/{name}",
    Scope.STEER,
    body=ScheduleChange,
    answer=ScheduleInfo,
    errors=(*ERRORS, *MAKING),
)
async def update_schedule(call: Call[NoQuery, ScheduleChange]) -> ScheduleInfo:
    """Change fields of a timetable, or what is started from now on; decided times stay decided."""
    name, body = await _own(call), call.body
    if not body.when and body.call is None:
        raise BadField("the body", "nothing is to be changed; give call, or fields of the timetable in when")
    wanted = None if body.call is None else await _scheduled(call, body.call)
    await call.engine.schedules.update(call.namespace, name, _changes(body.when), wanted)
    return await schedule_of(call.engine, call.namespace, name)


@ROWS.add("DELETE", "/v1/schedules/{name}", Scope.STEER, answer=msgspec.Struct)
async def delete_schedule(call: Call[NoQuery, None]) -> dict[str, bool]:
    """Delete a schedule, and say whether there was one; its runs go on."""
    try:
        name = await _own(call)
    except ScheduleNotFound:
        return {"deleted": False}
    return {"deleted": await call.engine.schedules.delete(call.namespace, name)}


@ROWS.add("POST", "/v1/schedules/{name}/pause", Scope.STEER, body=ReasonBody, answer=ScheduleInfo, errors=ERRORS)
async def pause_schedule(call: Call[NoQuery, ReasonBody]) -> ScheduleInfo:
    """Let a schedule start nothing until it is resumed; what waits is kept."""
    name = await _own(call)
    await call.engine.schedules.pause(call.namespace, name, checked_reason(call.body.reason))
    return await schedule_of(call.engine, call.namespace, name)


@ROWS.add("POST", "/v1/schedules/{name}/resume", Scope.STEER, body=NoBody, answer=ScheduleInfo, errors=ERRORS)
async def resume_schedule(call: Call[NoQuery, NoBody]) -> ScheduleInfo:
    """Let a schedule go on with the next time; those that passed meanwhile are skipped."""
    name = await _own(call)
    await call.engine.schedules.resume(call.namespace, name)
    return await schedule_of(call.engine, call.namespace, name)


@ROWS.add(
    "POST", "/v1/schedules/{name}/trigger", Scope.STEER, body=NoBody, answer=RunInfo, status=CREATED, errors=ERRORS
)
async def trigger_schedule(call: Call[NoQuery, NoBody]) -> msgspec.Raw:
    """Start a run of a schedule now, whatever overlap says, paused or not."""
    check_scope(call.caller, Scope.START)
    run = await call.engine.schedules.trigger(call.namespace, await _own(call))
    return run_json(await run_view(call.engine, await call.engine.reader.read(call.namespace, run.run_id)))


@ROWS.add(
    "POST",
    "/v1/schedules/{name}/backfill",
    Scope.STEER,
    body=BackfillBody,
    answer=Backfilled,
    errors=(*ERRORS, BadSchedule),
)
async def backfill_schedule(call: Call[NoQuery, BackfillBody]) -> Backfilled:
    """Start runs for times of the past that have none; they are noted when this answers."""
    check_scope(call.caller, Scope.START)
    name, body = await _own(call), call.body
    return await call.engine.schedules.backfill(call.namespace, name, body.start, body.end, body.overlap)


def _is_own(call: Call[Any, Any], schedule: Schedule) -> bool:
    return call.caller.entity_id in {None, schedule.call.traits.entity_id}


async def _own(call: Call[Any, Any]) -> str:
    """The name in the path; ScheduleNotFound as well when the caller may not see that schedule."""
    name = checked_schedule_name(call.path["name"])
    if call.caller.entity_id is not None:
        schedule, _ = await call.engine.schedules.get(call.namespace, name)
        if not _is_own(call, schedule):
            raise ScheduleNotFound(name, call.namespace)
    return name


async def _put_own(call: Call[Any, Any], name: str, scheduled: ScheduledCall, when: Timetable) -> None:
    """Make one, or change one of the caller's entity; the one of another is not overwritten."""
    try:
        await call.engine.schedules.create(call.namespace, name, scheduled, when)
    except ScheduleExists:
        schedule, _ = await call.engine.schedules.get(call.namespace, name)
        if not _is_own(call, schedule):
            raise
        await call.engine.schedules.put(call.namespace, name, scheduled, when)


async def _scheduled(call: Call[Any, Any], start: ScheduledBody) -> ScheduledCall:
    """What is to be started, checked as a start is; it needs the right to start."""
    check_scope(call.caller, Scope.START)
    return await scheduled_call(call, start)


async def scheduled_call(call: Call[Any, Any], start: ScheduledBody) -> ScheduledCall:
    """What is to be started, checked as a start is."""
    arguments = await call.service.catalog.arguments(call.namespace, start.workflow, start.input)
    entity_id = start.entity_id if call.caller.entity_id is None else call.caller.entity_id
    if start.entity_id not in {None, entity_id}:
        raise NotAllowed(f"the key {call.caller.label!r} starts runs of its own entity alone", "leave entity_id away")
    traits = Traits(
        entity_id=None if entity_id is None else checked_id("entity id", entity_id),
        correlation_id=None if start.correlation_id is None else checked_id("correlation id", start.correlation_id),
        attributes=None if start.attributes is None else recorded_attributes(start.attributes),
        timeout_ms=None if start.timeout is None else milliseconds(start.timeout, "timeout", least=1),
    )
    return ScheduledCall(
        start.workflow,
        arguments.input,
        "default" if start.queue is None else checked_id("queue", start.queue),
        0 if start.priority is None else checked_priority(start.priority),
        0 if start.delay is None else milliseconds(start.delay, "delay"),
        PLAIN if traits == PLAIN else traits,
    )


def timetable_in(given: msgspec.Raw) -> Timetable:
    """When a schedule starts runs; BadSchedule."""
    try:
        return msgspec.json.decode(given, type=Timetable)  # type: ignore[no-any-return]  # a union
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, BadSchedule):
            raise error.__cause__ from None
        raise BadField("the body", f"when is no timetable: {error}") from None


MOMENTS = ("moment", "starts_at", "ends_at")


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    """Fields of a timetable, moments as such."""
    try:
        return {
            name: msgspec.convert(value, datetime | None) if name in MOMENTS else value for name, value in given.items()
        }
    except msgspec.ValidationError as error:
        raise BadField("the body", f"when is not right: {error}") from None
