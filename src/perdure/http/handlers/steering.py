"""How runs are stopped, and let go on, from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from perdure.authoring.activity import check_result
from perdure.authoring.options import AttributesPatch, checked_reason, milliseconds
from perdure.engine.ports import ForkRequest
from perdure.errors import (
    BadArguments,
    BadField,
    BadForkPoint,
    IdConflict,
    RunClosed,
    RunNotFound,
    RunNotHeld,
    RunOpen,
)
from perdure.http.calls import Call
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.http.values import checked_value, run_json
from perdure.ids import checked_id
from perdure.views.run import RunInfo, run_view

ROWS = RouteRows()


class CancelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and by when at the latest, in seconds from now; `force` is at once."""

    reason: str | None = None
    deadline: float | None = None
    force: bool = False


class ReasonBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why."""

    reason: str | None = None


@ROWS.add("POST", "/v1/runs/{id}/cancel", Scope.STEER, body=CancelBody, answer=RunInfo, errors=(RunNotFound, RunClosed))
async def cancel(call: Call[NoQuery, CancelBody]) -> msgspec.Raw:
    """Ask a run to stop; its code may clean up first."""
    row, body = await call.run(), call.body
    deadline_ms = None if body.deadline is None else milliseconds(body.deadline, "deadline")
    reason = checked_reason(body.reason)
    at = (call.namespace, row.run_id, row.workflow_id)
    await call.engine.client.cancel(*at, reason, 0 if body.force else deadline_ms)
    return await _as_it_stands(call, row.run_id)


@ROWS.add(
    "POST", "/v1/runs/{id}/terminate", Scope.STEER, body=ReasonBody, answer=RunInfo, errors=(RunNotFound, RunClosed)
)
async def terminate(call: Call[NoQuery, ReasonBody]) -> msgspec.Raw:
    """End a run at once, without clean-up."""
    row = await call.run()
    reason = checked_reason(call.body.reason)
    await call.engine.client.terminate(call.namespace, row.run_id, row.workflow_id, reason)
    return await _as_it_stands(call, row.run_id)


class AttributesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attributes to be set by name; null takes one away."""

    attributes: dict[str, Any]


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing has to be said."""


@ROWS.add(
    "POST",
    "/v1/runs/{id}/resume",
    Scope.STEER,
    body=NoBody,
    answer=RunInfo,
    errors=(RunNotFound, RunClosed, RunNotHeld),
)
async def resume(call: Call[NoQuery, NoBody]) -> msgspec.Raw:
    """Let a held run go on."""
    row = await call.run()
    await call.engine.client.resume(call.namespace, row.run_id, row.workflow_id)
    return await _as_it_stands(call, row.run_id)


@ROWS.add("POST", "/v1/runs/{id}/pause", Scope.STEER, body=ReasonBody, answer=RunInfo, errors=(RunNotFound, RunClosed))
async def pause(call: Call[NoQuery, ReasonBody]) -> msgspec.Raw:
    """Have a run begin nothing more; what is under way ends and is recorded."""
    row = await call.run()
    reason = checked_reason(call.body.reason)
    await call.engine.client.pause(call.namespace, row.run_id, row.workflow_id, reason)
    return await _as_it_stands(call, row.run_id)


@ROWS.add(
    "POST",
    "/v1/runs/{id}/retry",
    Scope.STEER,
    body=ReasonBody,
    answer=RunInfo,
    errors=(RunNotFound, RunOpen, RunClosed, IdConflict),
)
async def retry(call: Call[NoQuery, ReasonBody]) -> msgspec.Raw:
    """Run again what failed: another run under the same id, which is the answer. Recorded results stay."""
    row = await call.run()
    with _without_others(call):
        at = (call.namespace, row.run_id, row.workflow_id)
        made = await call.engine.forker.retry(*at, checked_reason(call.body.reason))
    return await _as_it_stands(call, made.run_id)


class ForkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From where to go on: the last event that is kept, or the place whose first event is not.

    `id` is that of the new run; `input` replaces arguments by name, `results` those of calls by place.
    """

    at: int | str
    id: str | None = None
    input: dict[str, msgspec.Raw] = {}
    results: dict[str, msgspec.Raw] = {}
    reason: str | None = None


@ROWS.add(
    "POST",
    "/v1/runs/{id}/fork",
    Scope.STEER,
    body=ForkBody,
    answer=RunInfo,
    status=201,
    errors=(RunNotFound, RunOpen, RunClosed, IdConflict, BadForkPoint, BadArguments),
)
async def fork(call: Call[NoQuery, ForkBody]) -> msgspec.Raw:
    """Go on from a point of a run, in another run, which is the answer."""
    row, body = await call.run(), call.body
    if body.at == "":
        raise BadField("the body", "at is empty; give the number of an event, or a place")
    request = ForkRequest(
        body.at,
        None if body.id is None else checked_id("workflow id", body.id),
        {name: checked_value(value, f"the argument {name!r}") for name, value in body.input.items()},
        {place: checked_value(value, f"the result of {place!r}") for place, value in body.results.items()},
        checked_reason(body.reason),
    )
    for place, value in request.results.items():
        check_result(place, value)
    with _without_others(call):
        at = (call.namespace, row.run_id, row.workflow_id)
        made = await call.engine.forker.fork(*at, request, call.service.catalog.merged)
    return await _as_it_stands(call, made.run_id)


@contextmanager
def _without_others(call: Call[Any, Any]) -> Iterator[None]:
    """A key of an entity is told that an id is taken, and not by what: that may be a run of another."""
    try:
        yield
    except IdConflict as error:
        if call.caller.entity_id is None:
            raise
        raise IdConflict(error.id, "another run", error.wanted, "the id is taken") from None


@ROWS.add("PATCH", "/v1/runs/{id}/attributes", Scope.STEER, body=AttributesBody, answer=RunInfo, errors=(RunNotFound,))
async def set_attributes(call: Call[NoQuery, AttributesBody]) -> msgspec.Raw:
    """Merge into a run's attributes, open or closed; null takes one away."""
    row = await call.run()
    change = AttributesPatch(call.body.attributes)
    await call.engine.client.set_attributes(call.namespace, row.run_id, change)
    return await _as_it_stands(call, row.run_id)


async def _as_it_stands(call: Call[Any, Any], run_id: str) -> msgspec.Raw:
    return run_json(await run_view(call.engine, await call.engine.reader.read(call.namespace, run_id)))
