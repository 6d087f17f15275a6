"""Schedules over a server."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import msgspec

from perdure.engine.ports import Backfilled, Declared
from perdure.http.remote.client import RemoteRun
from perdure.http.remote.connection import Connection
from perdure.http.remote.overview import items_at
from perdure.kernel.schedules import ScheduledCall
from perdure.kernel.timetables import Overlap, Timetable
from perdure.views.schedules import ScheduleInfo

ROOT = "/v1/schedules"


class RemoteSchedules:
    """Asks a server for schedules; the ScheduleKeeper and the ScheduleViews of an engine."""

    def __init__(self, connection: Connection, declare: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self._connection = connection
        self._declare = declare

    async def reconcile(
        self, namespace: str, declared: Mapping[str, Declared], workflows: Sequence[str], queues: Sequence[str] = ()
    ) -> None:
        """Have the server make, change and remove schedules as the code of this worker says."""
        said = {name: {"call": call_body(each.call), "when": each.when} for name, each in declared.items()}
        await self._declare(said)

    async def create(self, namespace: str, name: str, call: ScheduledCall, when: Timetable) -> None:
        """A new one; ScheduleExists."""
        body = {"name": name, "call": call_body(call), "when": when}
        await self._connection.post(ROOT, body, namespace=namespace)

    async def put(self, namespace: str, name: str, call: ScheduledCall, when: Timetable) -> None:
        """A new one, or another one in the place of the one there is."""
        await self._change("PUT", namespace, name, {"call": call_body(call), "when": when})

    async def update(
        self, namespace: str, name: str, changes: Mapping[str, object], call: ScheduledCall | None
    ) -> None:
        """Change fields of its timetable, and what it starts from now on."""
        plain = {name: each.total_seconds() if isinstance(each, timedelta) else each for name, each in changes.items()}
        body: dict[str, Any] = {"when": plain} | ({} if call is None else {"call": call_body(call)})
        await self._change("PATCH", namespace, name, body)

    async def _change(self, method: str, namespace: str, name: str, body: object) -> None:
        await self._connection.ask(method, _path(name), {"namespace": namespace}, msgspec.json.encode(body))

    async def pause(self, namespace: str, name: str, reason: str | None) -> None:
        """Let it start nothing."""
        await self._connection.post(_path(name, "pause"), {"reason": reason}, namespace=namespace)

    async def resume(self, namespace: str, name: str) -> None:
        """Let it go on with the next time."""
        await self._connection.post(_path(name, "resume"), {}, namespace=namespace)

    async def trigger(self, namespace: str, name: str) -> RemoteRun:
        """Start a run of it now."""
        data = await self._connection.post(_path(name, "trigger"), {}, namespace=namespace)
        return msgspec.json.decode(data, type=RemoteRun)

    async def backfill(self, namespace: str, name: str, start: datetime, end: datetime, overlap: Overlap) -> Backfilled:
        """Start runs for times of the past that have none."""
        body = {"start": start, "end": end, "overlap": overlap}
        data = await self._connection.post(_path(name, "backfill"), body, namespace=namespace)
        return msgspec.json.decode(data, type=Backfilled)

    async def delete(self, namespace: str, name: str) -> bool:
        """Forget it, if there is one."""
        answer = await self._connection.ask("DELETE", _path(name), {"namespace": namespace})
        return bool(msgspec.json.decode(answer.body)["deleted"])

    async def one(self, namespace: str, name: str) -> ScheduleInfo:
        """One of them, with its newest decisions."""
        return msgspec.json.decode(await self._connection.get(_path(name), namespace=namespace), type=ScheduleInfo)

    async def every(self, namespace: str) -> list[ScheduleInfo]:
        """All of them, by name."""
        return await items_at(self._connection, ROOT, ScheduleInfo, namespace=namespace)


def _path(name: str, *rest: str) -> str:
    return "/".join([ROOT, *(quote(part, safe="") for part in (name, *rest))])


def call_body(call: ScheduledCall) -> dict[str, Any]:
    """What a schedule starts, as the server is told it."""
    traits = call.traits
    return {
        "workflow": call.workflow,
        "input": msgspec.Raw(call.input.encode()),
        "queue": call.queue,
        "priority": call.priority,
        "timeout": None if traits.timeout_ms is None else traits.timeout_ms / 1000,
        "delay": call.delay_ms / 1000 or None,
        "entity_id": traits.entity_id,
        "correlation_id": traits.correlation_id,
        "attributes": None if traits.attributes is None else msgspec.Raw(traits.attributes.encode()),
    }
