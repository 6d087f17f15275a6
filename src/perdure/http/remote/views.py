"""Run views over a server: each a route, its answer as the view that it was made from."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from perdure.codec import ValueType
from perdure.http.remote.connection import Connection, run_path
from perdure.stores.records import RunFilter
from perdure.views.outputs import Snapshot, StreamItem
from perdure.views.run import DeferredInfo, FailedAttempt, Page, RunEvent, RunInfo, UnreadMessage
from perdure.views.timeline import WantedEvents

T = TypeVar("T")

# In the place of an id, since the run_id says which run is meant.
ANY_ID = "-"
EVENTS_PAGE = 500


class RemotePage(msgspec.Struct, frozen=True):
    """A page of runs, as the server tells it."""

    items: list[RunInfo]
    cursor: str | None


class RemoteEvents(msgspec.Struct, frozen=True):
    """A page of a history, as the server tells it."""

    items: list[RunEvent]
    cursor: str | None


class RemoteMessages(msgspec.Struct, frozen=True):
    """The inbox of a run, as the server tells it."""

    items: list[UnreadMessage]
    set_aside: list[UnreadMessage]


class RemoteCounted(msgspec.Struct, frozen=True):
    """How many runs have a value, as the server tells it."""

    value: str | int | None
    count: int


class RemoteCount(msgspec.Struct, frozen=True):
    """How many runs match, as the server tells it."""

    count: int
    by: list[RemoteCounted] | None = None


class RemoteViews:
    """Looks at runs through a server; the RunViews of a remote engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _read(self, kind: type[T], namespace: str, run_id: str, *rest: str) -> T:
        data = await self._connection.get(run_path(ANY_ID, *rest), namespace=namespace, run_id=run_id)
        return msgspec.json.decode(data, type=kind)

    async def _items(self, kind: Any, namespace: str, run_id: str, what: str) -> Any:
        data = await self._connection.get(run_path(ANY_ID, what), namespace=namespace, run_id=run_id)
        return msgspec.json.decode(msgspec.json.decode(data, type=dict[str, msgspec.Raw])["items"], type=list[kind])

    async def describe(self, namespace: str, run_id: str) -> RunInfo:
        return await self._read(RunInfo, namespace, run_id)

    async def newest(self, namespace: str, id: str) -> RunInfo:
        return msgspec.json.decode(await self._connection.get(run_path(id), namespace=namespace), type=RunInfo)

    async def exact(self, namespace: str, run_id: str) -> RunInfo:
        return await self.describe(namespace, run_id)

    async def page(self, wanted: RunFilter, where: str | None, params: Mapping[str, object] | None) -> Page:
        query = {
            "namespace": wanted.namespace,
            "status": [*wanted.status, *wanted.held],
            "workflow": wanted.workflow,
            "id": wanted.workflow_id,
            "entity_id": wanted.entity_id,
            "correlation_id": wanted.correlation_id,
            "parent_id": wanted.parent_id,
            "schedule": wanted.schedule,
            "where": where,
            "params": params_text(params),
            "limit": wanted.limit,
            "after": wanted.before,
        }
        found = msgspec.json.decode(await self._connection.get("/v1/runs", **query), type=RemotePage)
        return Page(found.items, found.cursor)

    async def count(
        self, namespace: str, where: str, params: Mapping[str, object] | None, by: str | None
    ) -> dict[object, int]:
        data = await self._connection.get(
            "/v1/runs/count", namespace=namespace, where=where, params=params_text(params), by=by
        )
        found = msgspec.json.decode(data, type=RemoteCount)
        return {None: found.count} if found.by is None else {each.value: each.count for each in found.by}

    async def events(self, namespace: str, run_id: str, wanted: WantedEvents) -> AsyncGenerator[RunEvent, None]:
        path, at = run_path(ANY_ID, "events"), {"namespace": namespace, "run_id": run_id}
        if wanted.follow:
            frames = self._connection.frames(path, after=wanted.after, **at)
            async with aclosing(frames):  # type: ignore[type-var]  # it is a generator
                async for frame in frames:
                    yield msgspec.json.decode(frame.data, type=RunEvent)
            return
        order = "newest" if wanted.newest_first else "oldest"
        after, before, left = wanted.after, wanted.before, wanted.limit
        while left is None or left > 0:
            limit = EVENTS_PAGE if left is None else min(left, EVENTS_PAGE)
            data = await self._connection.get(path, after=after, before=before, order=order, limit=limit, **at)
            page = msgspec.json.decode(data, type=RemoteEvents)
            for event in page.items:
                yield event
            if page.cursor is None:
                return
            left = None if left is None else left - len(page.items)
            after, before = (after, int(page.cursor)) if wanted.newest_first else (int(page.cursor), before)

    async def attempts(self, namespace: str, run_id: str) -> list[FailedAttempt]:
        found: list[FailedAttempt] = await self._items(FailedAttempt, namespace, run_id, "attempts")
        return found

    async def unread(self, namespace: str, run_id: str) -> list[UnreadMessage]:
        return (await self._read(RemoteMessages, namespace, run_id, "messages")).items

    async def set_aside(self, namespace: str, run_id: str) -> list[UnreadMessage]:
        return (await self._read(RemoteMessages, namespace, run_id, "messages")).set_aside

    async def deferreds(self, namespace: str, run_id: str) -> list[DeferredInfo]:
        found: list[DeferredInfo] = await self._items(DeferredInfo, namespace, run_id, "deferreds")
        return found

    async def snapshot(self, namespace: str, run_id: str) -> Snapshot:
        return await self._read(Snapshot, namespace, run_id, "queries")

    async def stream(
        self, namespace: str, run_id: str, name: str, kind: ValueType, after: int
    ) -> AsyncGenerator[StreamItem[object], None]:
        at = {"namespace": namespace, "run_id": run_id}
        frames = self._connection.frames(run_path(ANY_ID, "streams", name), after=after, **at)
        async with aclosing(frames):  # type: ignore[type-var]  # it is a generator
            async for frame in frames:
                item = msgspec.json.decode(frame.data, type=RemoteItem)
                value = kind.restore(item.value, f"a value of the stream {name!r}")
                yield StreamItem(item.n, value, item.attempt, item.at)


class RemoteItem(msgspec.Struct, frozen=True):
    """A value of a stream as the server tells it, not restored yet."""

    n: int
    value: msgspec.Raw
    attempt: int
    at: datetime


def params_text(given: Mapping[str, object] | None) -> str | None:
    """The values in a filter, as a query has them."""
    return None if given is None else msgspec.json.encode(given).decode()
