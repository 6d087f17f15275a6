"""A worker that speaks the protocol by hand."""

from collections.abc import Sequence
from typing import Any

from perdure.testing import Environment
from tests.server.in_process import Answer, Caller
from tests.server.keyed import caller_with, key_for


class RemoteTestWorker:
    """A worker that speaks the protocol by hand."""

    def __init__(self, call: Caller, lease: dict[str, Any]) -> None:
        self.call = call
        self.worker_id, self.epoch = lease["worker_id"], lease["epoch"]

    async def post(self, verb: str, **body: object) -> Answer:
        return await self.call.post(f"/v1/workers/{self.worker_id}/{verb}", {"epoch": self.epoch, **body})

    async def tasks(self, limit: int = 10, holding: Sequence[str] | None = None, wait: float = 0) -> Any:
        return (await self.post("claim-tasks", limit=limit, holding=holding, wait=wait)).json["tasks"]

    async def say(self, task: dict[str, Any], verb: str, **body: object) -> Answer:
        return await self.post(f"tasks/{task['task_id']}/{verb}", attempt=task["attempt"], **body)


async def admin_of(env: Environment) -> Caller:
    return caller_with(env, await key_for(env))
