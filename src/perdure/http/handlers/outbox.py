"""Sinks over HTTP: made, changed, paused, tried and forgotten; what they did not take, and what is sent anew.

A sink is told of all runs of its namespace, so a key of an entity has nothing to do with it. Where events go is said by
admins alone. Secrets are never shown.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from perdure.authoring.options import checked_reason
from perdure.engine.outbox.rows import checked_sink
from perdure.engine.outbox.sinks import Count, Log, Sink, Target, Webhook
from perdure.errors import BadField, BadSink, SinkExists, SinkFailed, SinkNotFound, SinkNotReady
from perdure.http.calls import Call
from perdure.http.handlers.steering import NoBody, ReasonBody
from perdure.http.handlers.workers import refuse_entities
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.ids import checked_id
from perdure.views.outbox import DeadLetter, SinkInfo, letters_of, sinks_of

ROWS = RouteRows()
CREATED = 201
ERRORS = (SinkNotFound,)
MOST_LETTERS = 1000


class SinkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A sink: where events go, and which.

    `target` is `{"type": "webhook", "url": "https://…", "secret": "env:NAME"}`, two secrets while they are rotated, or
    `{"type": "log"}`.
    """

    name: str
    target: msgspec.Raw
    events: tuple[str, ...]
    workflows: tuple[str, ...] | None = None
    include_values: bool = False
    max_attempts: Count = 10
    concurrency: Count = 8
    max_backlog: Count = 100_000


class SinkChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to change of a sink."""

    target: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    events: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    workflows: tuple[str, ...] | msgspec.UnsetType | None = msgspec.UNSET
    include_values: bool | msgspec.UnsetType = msgspec.UNSET
    max_attempts: Count | msgspec.UnsetType = msgspec.UNSET
    concurrency: Count | msgspec.UnsetType = msgspec.UNSET
    max_backlog: Count | msgspec.UnsetType = msgspec.UNSET


class LettersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many at most."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LETTERS)] = 100


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ids of events, or all."""

    ids: tuple[str, ...] | None = None


class ResendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time, up to now if it is not said."""

    since: datetime
    until: datetime | None = None


class SinkPage(msgspec.Struct, frozen=True):
    items: list[SinkInfo]


class LetterPage(msgspec.Struct, frozen=True):
    items: list[DeadLetter]


class SentAgain(msgspec.Struct, frozen=True):
    """How many events are sent once more."""

    count: int


class SinkRemoved(msgspec.Struct, frozen=True):
    removed: bool


class SinkTested(msgspec.Struct, frozen=True):
    delivered: bool


@ROWS.add("GET", "/v1/outbox", Scope.READ, answer=SinkPage)
async def list_sinks(call: Call[NoQuery, None]) -> SinkPage:
    """All sinks, by name: how they do, and how much waits for them."""
    refuse_entities(call)
    return SinkPage(await sinks_of(call.engine, call.namespace))


@ROWS.add(
    "POST",
    "/v1/outbox",
    Scope.ADMIN,
    body=SinkBody,
    answer=SinkInfo,
    status=CREATED,
    errors=(BadSink, SinkExists, SinkNotReady),
)
async def add_sink(call: Call[NoQuery, SinkBody]) -> SinkInfo:
    """Make a sink: from then on it is told of everything it wants."""
    refuse_entities(call)
    body, name = call.body, checked_id("sink name", call.body.name)
    limits = (body.include_values, body.max_attempts, body.concurrency, body.max_backlog)
    sink = checked_sink(Sink(_target(body.target), body.events, body.workflows, *limits))
    await call.engine.outbox.add(call.namespace, name, sink)
    return await _sink(call, name)


@ROWS.add("GET", "/v1/outbox/{name}", Scope.READ, answer=SinkInfo, errors=ERRORS)
async def get_sink(call: Call[NoQuery, None]) -> SinkInfo:
    """A sink."""
    return await _sink(call, _name(call))


@ROWS.add("PATCH", "/v1/outbox/{name}", Scope.ADMIN, body=SinkChange, answer=SinkInfo, errors=(*ERRORS, BadSink))
async def update_sink(call: Call[NoQuery, SinkChange]) -> SinkInfo:
    """Change what is given; what waits already is sent there, too."""
    name = _name(call)
    given = {field: getattr(call.body, field) for field in SinkChange.__struct_fields__}
    changes = {field: value for field, value in given.items() if value is not msgspec.UNSET}
    if not changes:
        raise BadField("the body", f"nothing is to be changed; give one of {', '.join(given)}")
    if "target" in changes:
        changes["target"] = _target(changes["target"])
    await call.engine.outbox.update(call.namespace, name, changes)
    return await _sink(call, name)


@ROWS.add("DELETE", "/v1/outbox/{name}", Scope.ADMIN, answer=SinkRemoved)
async def remove_sink(call: Call[NoQuery, None]) -> SinkRemoved:
    """Forget a sink and all that waits for it, and say whether there was one."""
    return SinkRemoved(await call.engine.outbox.remove(call.namespace, _name(call)))


@ROWS.add("POST", "/v1/outbox/{name}/pause", Scope.STEER, body=ReasonBody, answer=SinkInfo, errors=ERRORS)
async def pause_sink(call: Call[NoQuery, ReasonBody]) -> SinkInfo:
    """Send it nothing until it is resumed; what it is to be told is kept."""
    name, changes = _name(call), {"paused": True, "reason": checked_reason(call.body.reason)}
    await call.engine.outbox.update(call.namespace, name, changes)
    return await _sink(call, name)


@ROWS.add("POST", "/v1/outbox/{name}/resume", Scope.STEER, body=NoBody, answer=SinkInfo, errors=ERRORS)
async def resume_sink(call: Call[NoQuery, NoBody]) -> SinkInfo:
    """Send it what waits."""
    name = _name(call)
    await call.engine.outbox.update(call.namespace, name, {"paused": False, "reason": None})
    return await _sink(call, name)


@ROWS.add("POST", "/v1/outbox/{name}/test", Scope.STEER, body=NoBody, answer=SinkTested, errors=(*ERRORS, SinkFailed))
async def test_sink(call: Call[NoQuery, NoBody]) -> SinkTested:
    """Send it an event of the type outbox.test from this server, now."""
    await call.engine.outbox.test(call.namespace, _name(call))
    return SinkTested(delivered=True)


@ROWS.add("GET", "/v1/outbox/{name}/dead-letters", Scope.READ, query=LettersQuery, answer=LetterPage, errors=ERRORS)
async def dead_letters(call: Call[LettersQuery, None]) -> LetterPage:
    """The events that it did not take, the oldest first."""
    return LetterPage(await letters_of(call.engine, call.namespace, _name(call), call.query.limit))


@ROWS.add("POST", "/v1/outbox/{name}/replay", Scope.STEER, body=ReplayBody, answer=SentAgain, errors=ERRORS)
async def replay_letters(call: Call[NoQuery, ReplayBody]) -> SentAgain:
    """Deliver its dead letters after all, all or those of these ids."""
    return SentAgain(await call.engine.outbox.replay(call.namespace, _name(call), call.body.ids))


@ROWS.add("POST", "/v1/outbox/{name}/resend", Scope.STEER, body=ResendBody, answer=SentAgain, errors=ERRORS)
async def resend(call: Call[NoQuery, ResendBody]) -> SentAgain:
    """Send it the events of a time once more, made from histories, with the ids they had."""
    since, until = _ms("since", call.body.since), call.body.until
    last = call.engine.clock.now() if until is None else _ms("until", until)
    return SentAgain(await call.engine.outbox.resend(call.namespace, _name(call), since, last))


def _name(call: Call[Any, Any]) -> str:
    refuse_entities(call)
    return checked_id("sink name", call.path["name"])


async def _sink(call: Call[Any, Any], name: str) -> SinkInfo:
    for found in await sinks_of(call.engine, call.namespace):
        if found.name == name:
            return found
    raise SinkNotFound(name, call.namespace)


def _target(given: msgspec.Raw) -> Target:
    try:
        return msgspec.json.decode(given, type=Webhook | Log)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, BadSink):
            raise error.__cause__ from None
        raise BadField("target", f"it is no webhook and no log: {error}") from None


def _ms(what: str, given: datetime) -> int:
    if given.utcoffset() is None:
        raise BadField(what, "give it with a time zone, such as 2027-01-01T00:00:00Z")
    return round(given.timestamp() * 1000)
