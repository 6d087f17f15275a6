"""Sinks over a server."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from perdure.engine.outbox.sinks import Sink
from perdure.http.remote.connection import Connection
from perdure.http.remote.overview import items_at
from perdure.kernel.schedules import as_moment
from perdure.views.outbox import DeadLetter, SinkInfo

ROOT = "/v1/outbox"
OF_PEOPLE = ("target", "events", "workflows", "include_values", "max_attempts", "concurrency", "max_backlog")


class RemoteOutbox:
    """Asks a server for sinks; the OutboxKeeper and the SinkViews of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def add(self, namespace: str, name: str, sink: Sink) -> None:
        """A new one; SinkExists, SinkNotReady."""
        body = {"name": name} | {field: getattr(sink, field) for field in OF_PEOPLE}
        await self._connection.post(ROOT, body, namespace=namespace)

    async def update(self, namespace: str, name: str, changes: Mapping[str, object]) -> None:
        """Change what is given, or pause or resume it."""
        if "paused" not in changes:
            body = msgspec.json.encode(dict(changes))
            await self._connection.ask("PATCH", _path(name), {"namespace": namespace}, body)
        elif changes["paused"]:
            await self._post(namespace, name, "pause", {"reason": changes["reason"]})
        else:
            await self._post(namespace, name, "resume", {})

    async def remove(self, namespace: str, name: str) -> bool:
        """Forget it and all that waits for it, if there is one."""
        answer = await self._connection.ask("DELETE", _path(name), {"namespace": namespace})
        return bool(msgspec.json.decode(answer.body)["removed"])

    async def test(self, namespace: str, name: str) -> None:
        """Send an event from the server, now; SinkFailed."""
        await self._post(namespace, name, "test", {})

    async def replay(self, namespace: str, name: str, ids: Sequence[str] | None) -> int:
        """Deliver dead letters after all; how many."""
        return int((await self._post(namespace, name, "replay", {"ids": ids}))["count"])

    async def resend(self, namespace: str, name: str, since: int, until: int) -> int:
        """Make the events of a time anew from histories; how many."""
        body = {"since": as_moment(since), "until": as_moment(until)}
        return int((await self._post(namespace, name, "resend", body))["count"])

    async def every(self, namespace: str) -> list[SinkInfo]:
        """All of them, by name."""
        return await items_at(self._connection, ROOT, SinkInfo, namespace=namespace)

    async def letters(self, namespace: str, name: str, limit: int) -> list[DeadLetter]:
        """What one did not take, the oldest first."""
        return await items_at(
            self._connection, _path(name, "dead-letters"), DeadLetter, namespace=namespace, limit=limit
        )

    async def _post(self, namespace: str, name: str, verb: str, body: object) -> dict[str, Any]:
        data = await self._connection.post(_path(name, verb), body, namespace=namespace)
        return msgspec.json.decode(data, type=dict[str, Any])


def _path(name: str, *rest: str) -> str:
    return "/".join([ROOT, *(quote(part, safe="") for part in (name, *rest))])
