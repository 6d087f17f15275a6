"""What is seen of a whole namespace over a server: changes, workers, queues, duties, and what is wrong."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TypeVar

import msgspec

from perdure.diagnostics.explain import Explanation
from perdure.http.remote.connection import Connection, run_path
from perdure.http.remote.views import ANY_ID, RemotePage, params_text
from perdure.kernel.schedules import as_ms
from perdure.stores.records import DutyRow
from perdure.views.changes import Change
from perdure.views.run import Page
from perdure.views.schedules import DutyInfo
from perdure.views.workers import QueueInfo, WorkerInfo

T = TypeVar("T")


async def items_at(connection: Connection, path: str, kind: type[T], **query: object) -> list[T]:
    """What a route lists."""
    found = msgspec.json.decode(await connection.get(path, **query), type=dict[str, msgspec.Raw])
    return msgspec.json.decode(found["items"], type=list[kind])  # type: ignore[valid-type]  # it is known here alone


class RemoteChanges:
    """Runs as they change, told by a server; the ChangesByText of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def changes(
        self, namespace: str, where: str, params: Mapping[str, object] | None, after: str | None
    ) -> AsyncGenerator[Change, None]:
        query = {"namespace": namespace, "where": where, "params": params_text(params), "after": after}
        frames = self._connection.frames("/v1/subscribe", **query)
        async with aclosing(frames):  # type: ignore[type-var]  # it is a generator
            async for frame in frames:
                yield msgspec.json.decode(frame.data, type=Change)


class RemoteDiagnoses:
    """What a server finds out about runs; the Diagnoses of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def explain(self, namespace: str, run_id: str) -> Explanation:
        data = await self._connection.get(run_path(ANY_ID, "explain"), namespace=namespace, run_id=run_id)
        return msgspec.json.decode(data, type=Explanation)

    async def stuck(self, namespace: str, after_ms: int, cursor: str | None, limit: int) -> Page:
        query = {"namespace": namespace, "idle": after_ms / 1000, "after": cursor, "limit": limit}
        found = msgspec.json.decode(await self._connection.get("/v1/stuck", **query), type=RemotePage)
        return Page(found.items, found.cursor)


class RemoteWorkers:
    """Workers and queues as a server shows them; the WorkerViews of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def workers(self, namespace: str) -> list[WorkerInfo]:
        return await items_at(self._connection, "/v1/workers", WorkerInfo, namespace=namespace)

    async def queues(self, namespace: str) -> list[QueueInfo]:
        return await items_at(self._connection, "/v1/queues", QueueInfo, namespace=namespace)


class RemoteDuties:
    """Who does what for all workers; the DutyList of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self, namespace: str) -> list[DutyRow]:
        found = await items_at(self._connection, "/v1/duties", DutyInfo, namespace=namespace)
        return [
            DutyRow(
                each.name,
                each.holder,
                as_ms(each.since),
                as_ms(each.last_ok_at),
                each.last_error,
                each.holder is not None,
            )
            for each in found
        ]
