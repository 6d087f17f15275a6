"""Runs as they change: a stream that is resumed after any of its frames, in any process."""

import msgspec

from perdure.engine.ports import Subscription
from perdure.errors import BadFilter, BadOption, CursorExpired
from perdure.http.calls import Call
from perdure.http.handlers.runs import params_of
from perdure.http.streaming.sse import Frame
from perdure.http.table import RouteRows, Scope
from perdure.stores.records import RunFilter
from perdure.views.changes import Change, change_view
from perdure.views.finding import meant_by

ROWS = RouteRows()


class SubscribeQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs; `after` takes the id of the last frame that was seen."""

    where: str = "true"
    params: str | None = None
    after: str | None = None


class ChangeFrames:
    """Changes as frames; `cursor` goes on after all that was sent, also where the filter let nothing through."""

    def __init__(self, call: Call[SubscribeQuery, None], following: Subscription) -> None:
        self._call = call
        self._following = following
        self._last = ""
        self._is_waiting = True

    @property
    def cursor(self) -> str:
        return self._following.cursor if self._is_waiting else self._last

    def __aiter__(self) -> "ChangeFrames":
        return self

    async def __anext__(self) -> Frame:
        while True:
            self._is_waiting = True
            found = await self._following.next()
            self._is_waiting = False
            change = await change_view(self._call.engine, found)
            if change is not None and self._call.may_see(found.row):
                self._last = change.cursor
                return Frame(change.cursor, change, "change")

    async def aclose(self) -> None:
        self._following.close()


async def change_frames(call: Call[SubscribeQuery, None]) -> ChangeFrames:
    """Every run that matches, then each one that changes, until the caller leaves."""
    query = call.query
    own = RunFilter(call.namespace, entity_id=call.caller.entity_id)
    wanted = meant_by(query.where, params_of(query.params), call.engine.clock.now(), own)
    after = call.headers.get("last-event-id") or query.after
    return ChangeFrames(call, await call.engine.subscriptions.follow(call.namespace, wanted, after))


@ROWS.add(
    "GET",
    "/v1/subscribe",
    Scope.READ,
    query=SubscribeQuery,
    answer=Change,
    errors=(BadFilter, BadOption, CursorExpired),
    frames=change_frames,
)
async def subscribe(_: Call[SubscribeQuery, None]) -> Change:
    """Runs as they change, as a stream: ask for `text/event-stream`.

    First every open run that matches, then each one that changes. 410 when what came since `after` is not
    kept any more.
    """
    raise BadOption("changes are a stream; send the header Accept: text/event-stream")
