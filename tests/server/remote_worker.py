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


async def a_worker(call: Caller) -> RemoteTestWorker:
    workflows = {"js_greeting": {"parameters": [{"name": "name", "schema": {"type": "string"}}]}}
    answer = await call.post("/v1/workers", {"name": "node", "queues": ["js"], "workflows": workflows})
    assert answer.status == 201, answer.json
    return RemoteTestWorker(call, answer.json)


async def started(call: Caller, id: str = "g-1") -> dict[str, Any]:
    body = {"workflow": "js_greeting", "input": ["ann"], "id": id, "queue": "js"}
    answer = await call.post("/v1/runs", body)
    assert answer.status == 201, answer.json
    return answer.json  # type: ignore[no-any-return]  # JSON


async def claimed(worker: RemoteTestWorker, **more: object) -> list[dict[str, Any]]:
    return (await worker.post("claim-runs", **more)).json["runs"]  # type: ignore[no-any-return]  # JSON


async def advance(
    worker: RemoteTestWorker, run: dict[str, Any], *commands: object, seq: int | None = None, then: object = "keep"
) -> dict[str, Any]:
    after = run["seq"] if seq is None else seq
    asked = {"run_id": run["run_id"], "after_seq": after, "commands": commands, "then": then}
    answer = await worker.post("advance", runs=[asked])
    assert answer.status == 200, answer.json
    (found,) = answer.json["answers"]
    if "seq" in found:
        run["seq"] = found["seq"]
    return found  # type: ignore[no-any-return]  # JSON
