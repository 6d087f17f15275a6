"""What is sent to runs: signals, requests, values of deferreds."""

from uuid import uuid4

import msgspec

from perdure.authoring.durations import seconds
from perdure.authoring.options import checked_text, milliseconds
from perdure.errors import (
    AlreadyResolved,
    BadField,
    BadToken,
    BadValue,
    IdConflict,
    InboxFull,
    NotAnswered,
    RequestRefused,
    RunClosed,
    RunNotFound,
)
from perdure.http.calls import Call
from perdure.http.handlers.runs import LONGEST_WAIT
from perdure.http.idempotency import HEADER
from perdure.http.table import NoQuery, Reply, RouteRows, Scope
from perdure.http.values import absent, checked_value
from perdure.ids import checked_id
from perdure.kernel.messages import DeferredFailure, DeferredResult, RequestSent, SignalSent
from perdure.kernel.requests import Answered, Refused
from perdure.stores.records import RunRow
from perdure.views.run import DeferredInfo, deferred_views, run_view, signal_misfit

ROWS = RouteRows()
ACCEPTED = 202


class SignalBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signal; sent twice under one `id` it counts once. With a `delay` in seconds it is received that much later.

    A payload that is not what the run waits for is refused, unless `force` is true: its code would set it aside.
    """

    name: str
    payload: msgspec.Raw = absent()
    id: str | None = None
    delay: float | None = None
    force: bool = False


class RequestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request; under the same `id` the same answer. `timeout` in seconds ends the waiting alone."""

    name: str
    value: msgspec.Raw = absent()
    id: str | None = None
    timeout: float | None = None


class ResolveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value, or an error in its place."""

    value: msgspec.Raw = absent()
    error: str | None = None


class Sent(msgspec.Struct, frozen=True):
    """The run that will get it."""

    id: str
    run_id: str


class RequestResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer; without one the request still waits, and the same `id` asks for it again."""

    id: str
    answer: msgspec.Raw = absent()


@ROWS.add(
    "POST",
    "/v1/runs/{id}/signals",
    Scope.STEER,
    body=SignalBody,
    answer=Sent,
    errors=(RunNotFound, RunClosed, InboxFull, BadValue),
)
async def send_signal(call: Call[NoQuery, SignalBody]) -> Sent:
    """Send a signal; it is on disk when this answers."""
    row, body = await call.run(), call.body
    name = checked_id("signal name", body.name)
    message_id = None if body.id is None else f"signal:{checked_id('signal id', body.id)}"
    sent = SignalSent(name, checked_value(body.payload, f"the signal {name!r}"))
    delay_ms = 0 if body.delay is None else milliseconds(body.delay, "delay")
    if not body.force:
        await _check_payload(call, row, name, msgspec.json.decode(sent.payload))
    await call.engine.client.post(call.namespace, row.run_id, row.workflow_id, sent, message_id, delay_ms=delay_ms)
    return Sent(row.workflow_id, row.run_id)


async def _check_payload(call: Call[NoQuery, SignalBody], row: RunRow, name: str, payload: object) -> None:
    """BadValue for what the run waits for otherwise, or what its code was announced not to take."""
    if row.waiting is not None:
        waits = (await run_view(call.engine, row)).waiting_for
        if (trouble := signal_misfit(name, payload, waits)) is not None:
            raise BadValue(f"the signal {name!r}", f"the run waits for another payload: {trouble}; nothing was sent")
    trouble = await call.service.catalog.signal_misfit(call.namespace, row.workflow, name, payload)
    if trouble is not None:
        raise BadValue(f"the signal {name!r}", f"{row.workflow!r} takes another payload: {trouble}; nothing was sent")


@ROWS.add(
    "POST",
    "/v1/runs/{id}/requests",
    Scope.STEER,
    body=RequestBody,
    answer=RequestResult,
    also=((ACCEPTED, "there is no answer yet"),),
    errors=(RunNotFound, RunClosed, InboxFull, RequestRefused, NotAnswered, IdConflict),
)
async def ask(call: Call[NoQuery, RequestBody]) -> Reply:
    """Ask a running workflow, and wait for its answer."""
    row, body = await call.run(), call.body
    name = checked_id("request name", body.name)
    limit = LONGEST_WAIT if body.timeout is None else min(seconds(body.timeout, "timeout"), LONGEST_WAIT)
    # The same request, asked again under the same key.
    unnamed = call.headers.get(HEADER) or uuid4().hex
    id = checked_id("request id", unnamed if body.id is None else body.id)
    sent = RequestSent(name, checked_value(body.value, f"the request {name!r}"))
    asking = call.engine.client.ask(call.namespace, row.run_id, row.workflow_id, sent, f"request:{id}")
    answer = await call.service.stopping.within(asking, limit)
    await call.check_key()
    if answer is None:
        return Reply({"id": id}, ACCEPTED)
    if isinstance(answer, Refused):
        raise RequestRefused(answer.reason, name)
    if not isinstance(answer, Answered):
        raise NotAnswered(row.workflow_id, name)
    return Reply({"id": id, "answer": msgspec.Raw(bytes(answer.value))})


@ROWS.add(
    "POST",
    "/v1/runs/{id}/deferreds/{name}",
    Scope.STEER,
    body=ResolveBody,
    answer=Sent,
    errors=(RunNotFound, RunClosed, AlreadyResolved),
)
async def resolve(call: Call[NoQuery, ResolveBody]) -> Sent:
    """Give a deferred its value, or an error; the same again changes nothing."""
    row, name = await call.run(), checked_id("deferred name", call.path["name"])
    sent = _resolution(name, call.body)
    await call.engine.client.post(call.namespace, row.run_id, row.workflow_id, sent, f"deferred:{name}")
    return Sent(row.workflow_id, row.run_id)


@ROWS.add(
    "POST",
    "/v1/deferreds/{token}",
    Scope.OPEN,
    body=ResolveBody,
    answer=msgspec.Struct,
    errors=(BadToken, RunClosed, AlreadyResolved),
)
async def resolve_by_token(call: Call[NoQuery, ResolveBody]) -> dict[str, bool]:
    """Give the deferred that a token is for its value; the token is the authority."""
    body = call.body
    token = call.path["token"]
    await call.engine.client.resolve_token(call.namespace, token, lambda name: _resolution(name, body), None)
    return {"resolved": True}


@ROWS.add("GET", "/v1/deferreds/{token}", Scope.OPEN, answer=DeferredInfo, errors=(BadToken,))
async def look_at_token(call: Call[NoQuery, None]) -> DeferredInfo:
    """What a token is for; a look never changes it, since mail programs follow links."""
    run_id, name = await call.engine.client.read_token(call.namespace, call.path["token"])
    try:
        row = await call.engine.reader.read(call.namespace, run_id)
    except RunNotFound:
        raise BadToken from None
    waits = (await run_view(call.engine, row)).waiting_for
    found = deferred_views(waits, await call.engine.reader.deferreds(run_id))
    return next((each for each in found if each.name == name), DeferredInfo(name, is_resolved=False))


def _resolution(name: str, body: ResolveBody) -> DeferredResult | DeferredFailure:
    has_value = bool(bytes(body.value))
    if has_value == (body.error is not None):
        raise BadField("the body", "give a value or an error, one of them")
    if body.error is not None:
        if not body.error.strip():
            raise BadField("the body", "the error says what is wrong, in a text that is not empty")
        return DeferredFailure(name, checked_text("error", body.error))
    return DeferredResult(name, checked_value(body.value, f"the deferred {name!r}"))
