"""What a run has done, shown and published: events, attempts, messages, children, queries, streams, deferreds."""

from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from perdure.codec import ValueType
from perdure.diagnostics.explain import Explanation, explain
from perdure.errors import BadField, QueryNotFound, RunNotFound, RunUnreadable
from perdure.http.calls import Call, frame_number
from perdure.http.handlers.runs import RunPage
from perdure.http.streaming.sse import Frame
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.http.values import run_json
from perdure.ids import checked_id
from perdure.stores.records import RunFilter
from perdure.views.finding import page_of
from perdure.views.outputs import Snapshot, StreamItem, snapshot_of, stream_of, value_in
from perdure.views.run import (
    DeferredInfo,
    FailedAttempt,
    RunEvent,
    UnreadMessage,
    attempt_view,
    deferred_views,
    message_view,
    moment,
    run_view,
)
from perdure.views.timeline import WantedEvents, history_of, wanted_events

ROWS = RouteRows()
LARGEST_PAGE = 1000
ANY = ValueType(Any)


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Events after a number and before another, the oldest or the newest first."""

    after: int = 0
    before: int | None = None
    order: Literal["oldest", "newest"] = "oldest"
    limit: int = 100


class ValuesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values after a number, in order."""

    after: int = 0
    limit: int = 100


class Events(msgspec.Struct, frozen=True):
    """A page of a run's history; `cursor` is the `after` of the next page, or its `before` with the newest first."""

    items: list[RunEvent]
    cursor: str | None


@ROWS.add(
    "GET",
    "/v1/runs/{id}/events",
    Scope.READ,
    query=EventsQuery,
    answer=Events,
    errors=(RunNotFound, RunUnreadable),
    frames=lambda call: event_frames(call),
)
async def get_events(call: Call[EventsQuery, None]) -> Events:
    """What a run has done so far, event by event; as a stream it goes on until the run has ended."""
    row, query = await call.run(), call.query
    limit, is_newest = checked_limit(query.limit), query.order == "newest"
    wanted = WantedEvents(query.after, query.before, limit + 1, is_newest, follow=False)
    found = [event async for event in wanted_events(call.engine, call.namespace, row.run_id, wanted)]
    return Events(found[:limit], str(found[limit - 1].seq) if len(found) > limit else None)


async def event_frames(call: Call[EventsQuery, None]) -> AsyncIterator[Frame]:
    """The events of a run as frames, those to come as well; `end` when it has ended."""
    row = await call.run()
    after = resumed_after(call, call.query.after)
    return _event_frames(call, row.run_id, after)


async def _event_frames(call: Call[EventsQuery, None], run_id: str, after: int) -> AsyncIterator[Frame]:
    last = after
    async for event in history_of(call.engine, call.namespace, run_id, after, follow=True):
        last = event.seq
        yield Frame(str(event.seq), event, "event")
    yield Frame(str(last), {}, "end")


def resumed_after(call: Call[Any, Any], given: int) -> int:
    """Where a stream goes on: after the last frame that its caller has seen, if it says so."""
    seen = call.headers.get("last-event-id")
    return given if seen is None or seen == "" else frame_number(seen)


def checked_limit(given: int) -> int:
    """How many on a page; BadField."""
    if not 1 <= given <= LARGEST_PAGE:
        raise BadField("the query", f"limit is {given}; a page has 1 to {LARGEST_PAGE}")
    return given


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A page; `after` takes the cursor of the one before."""

    limit: int = 100
    after: str | None = None


@ROWS.add("GET", "/v1/runs/{id}/children", Scope.READ, query=PageQuery, answer=RunPage, errors=(RunNotFound,))
async def get_children(call: Call[PageQuery, None]) -> dict[str, Any]:
    """The runs that this run has started, newest first."""
    row = await call.run()
    wanted = RunFilter(
        call.namespace,
        parent_id=row.run_id,
        entity_id=call.caller.entity_id,
        before=call.query.after,
        limit=call.query.limit,
    )
    page = await page_of(call.engine, wanted)
    return {"items": [run_json(info) for info in page], "cursor": page.cursor}


class Attempts(msgspec.Struct, frozen=True):
    items: list[FailedAttempt]


class Messages(msgspec.Struct, frozen=True):
    items: list[UnreadMessage]
    set_aside: list[UnreadMessage]


class Deferreds(msgspec.Struct, frozen=True):
    items: list[DeferredInfo]


class StreamPage(msgspec.Struct, frozen=True):
    """Values of a stream; `cursor` is the number to go on after."""

    items: list[StreamItem[Any]]
    cursor: str | None


@ROWS.add("GET", "/v1/runs/{id}/attempts", Scope.READ, answer=Attempts, errors=(RunNotFound,))
async def get_attempts(call: Call[NoQuery, None]) -> Attempts:
    """The failed attempts of a run's activities that were, or will be, followed by another."""
    row = await call.run()
    return Attempts([attempt_view(found) for found in await call.engine.reader.attempts(row.run_id)])


@ROWS.add("GET", "/v1/runs/{id}/messages", Scope.READ, answer=Messages, errors=(RunNotFound,))
async def get_messages(call: Call[NoQuery, None]) -> Messages:
    """What is in a run's inbox and was not taken yet, oldest first, and what its code could not take."""
    row = await call.run()
    unread = (await call.engine.reader.unread_page(row.run_id, 0, LARGEST_PAGE)).messages
    misfits = await call.engine.reader.misfits(row.run_id)
    return Messages(list(map(message_view, unread)), list(map(message_view, misfits)))


@ROWS.add("GET", "/v1/runs/{id}/deferreds", Scope.READ, answer=Deferreds, errors=(RunNotFound,))
async def get_deferreds(call: Call[NoQuery, None]) -> Deferreds:
    """The deferreds that a run waits for, and those that were resolved."""
    row = await call.run()
    waits = (await run_view(call.engine, row)).waiting_for
    return Deferreds(deferred_views(waits, await call.engine.reader.deferreds(row.run_id)))


@ROWS.add("GET", "/v1/runs/{id}/queries", Scope.READ, answer=Snapshot, errors=(RunNotFound,))
async def get_queries(call: Call[NoQuery, None]) -> Snapshot:
    """All that a run exposes, and which event that is of."""
    return await snapshot_of(call.engine, call.namespace, (await call.run()).run_id)


@ROWS.add("GET", "/v1/runs/{id}/queries/{name}", Scope.READ, answer=Any, errors=(RunNotFound, QueryNotFound))
async def get_query(call: Call[NoQuery, None]) -> object:
    """What a run exposes under a name."""
    row = await call.run()
    return value_in(await snapshot_of(call.engine, call.namespace, row.run_id), row.workflow_id, call.path["name"])


@ROWS.add(
    "GET",
    "/v1/runs/{id}/streams/{name}",
    Scope.READ,
    query=ValuesQuery,
    answer=StreamPage,
    errors=(RunNotFound,),
    frames=lambda call: stream_frames(call),
)
async def get_stream(call: Call[ValuesQuery, None]) -> StreamPage:
    """The values of a stream after a number; as a stream it goes on until the run has ended."""
    row = await call.run()
    name, after, limit = stream_name(call), call.query.after, checked_limit(call.query.limit)
    holder = await call.engine.outputs.holder(call.namespace, row.run_id, name, after)
    found = await call.engine.outputs.stream_page(holder.run_id, name, after, limit)
    items = [StreamItem(each.n, ANY.restore(each.body.encode(), name), each.attempt, moment(each.at)) for each in found]
    return StreamPage(items, str(found[-1].n) if found else None)


async def stream_frames(call: Call[ValuesQuery, None]) -> AsyncIterator[Frame]:
    """The values of a stream as frames; `end` when the run has ended."""
    row = await call.run()
    return _stream_frames(call, row.run_id, stream_name(call), resumed_after(call, call.query.after))


def stream_name(call: Call[Any, Any]) -> str:
    """The stream that the path names; BadId."""
    return checked_id("stream name", call.path["name"])


async def _stream_frames(call: Call[ValuesQuery, None], run_id: str, name: str, after: int) -> AsyncIterator[Frame]:
    last = after
    async for item in stream_of(call.engine, call.namespace, run_id, name, ANY, after):
        last = item.n
        yield Frame(str(item.n), item, "value")
    yield Frame(str(last), {}, "end")


@ROWS.add("GET", "/v1/runs/{id}/explain", Scope.READ, answer=Explanation, errors=(RunNotFound, RunUnreadable))
async def get_explanation(call: Call[NoQuery, None]) -> Explanation:
    """Why a run does not move: the cause, one sentence, since when, the evidence, and advice."""
    return await explain(call.engine, call.namespace, (await call.run()).run_id)
