"""Forks, and what is asked of many runs at once, over a server."""

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.engine.ports import BulkAction, ForkRequest, MergeInput, Steering
from perdure.http.remote.client import RemoteRun
from perdure.http.remote.connection import Connection, run_path
from perdure.views.bulk import Bulk


class RemoteForker:
    """Has a server make retries and forks; the Forker of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def retry(self, namespace: str, run_id: str, id: str, reason: str | None) -> RemoteRun:
        """Run again what failed."""
        at = {"namespace": namespace, "run_id": run_id}
        data = await self._connection.post(run_path(id, "retry"), {"reason": reason}, **at)
        return msgspec.json.decode(data, type=RemoteRun)

    async def fork(self, namespace: str, run_id: str, id: str, request: ForkRequest, merge: MergeInput) -> RemoteRun:
        """Go on from a point; the server merges the arguments, by the code that it knows."""
        body = {
            "at": request.at,
            "id": request.workflow_id,
            "input": request.input,
            "results": request.results,
            "reason": request.reason,
        }
        data = await self._connection.post(run_path(id, "fork"), body, namespace=namespace, run_id=run_id)
        return msgspec.json.decode(data, type=RemoteRun)


class RemoteBulk:
    """Has a server ask many runs; the BulkByText of an engine."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def act(
        self, namespace: str, action: BulkAction, where: str, params: Mapping[str, object] | None, *, dry_run: bool
    ) -> Bulk:
        """Ask this of all runs that match."""
        body: dict[str, Any] = {"where": where, "params": params, "dry_run": dry_run}
        if isinstance(action, Steering):
            verb = str(action.verb)
            body |= {"reason": action.reason}
        else:
            verb = "signal"
            # One that is asked for again must count once in each run.
            id = action.message_id.removeprefix("signal:")
            body |= {"name": action.sent.name, "payload": action.sent.payload, "id": id}
            body |= {"delay": action.delay_ms / 1000} if action.delay_ms else {}
        data = await self._connection.post(f"/v1/bulk/{verb}", body, namespace=namespace)
        return msgspec.json.decode(data, type=Bulk)
