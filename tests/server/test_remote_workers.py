"""Workers over HTTP: registered, leased and fenced like any other; their tasks are tried by the caller's rules."""

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure import Retry, Run, activity, workflow
from perdure.errors import PerdureError
from perdure.testing import Environment
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for
from tests.server.remote_worker import RemoteTestWorker, admin_of


@activity(queue="js", retry=Retry(max_attempts=3, initial_interval=2, non_retryable=("BadName",)))
async def rw_greet(name: str) -> str:
    raise AssertionError("it has no code here")


@activity(queue="js", timeout=30, heartbeat=5, retry=Retry(max_attempts=2, initial_interval=1))
async def rw_slow(name: str) -> str:
    raise AssertionError("it has no code here")


@activity(queue="js", at_most_once=True)
async def rw_once(name: str) -> str:
    raise AssertionError("it has no code here")


@workflow
async def rw_greeting(name: str) -> str:
    return await rw_greet(name)


@workflow
async def rw_slowly(name: str) -> str:
    return await rw_slow(name)


@workflow
async def rw_only_once(name: str) -> str:
    return await rw_once(name)


async def registered(call: Caller, queues: Sequence[str] = ("js",), **more: object) -> RemoteTestWorker:
    activities = ["rw_greet", "rw_slow", "rw_once"]
    body = {"name": "node", "queues": queues, "activities": activities, **more}
    answer = await call.post("/v1/workers", body)
    assert answer.status == 201, answer.json
    return RemoteTestWorker(call, answer.json)


async def one_task(worker: RemoteTestWorker) -> dict[str, Any]:
    (task,) = await worker.tasks()
    return task  # type: ignore[no-any-return]  # JSON


async def test_a_task_is_taken_and_completed_over_http(env: Environment) -> None:
    """What comes back reaches the workflow as if a worker beside it had run the activity."""
    async with env:
        worker = await registered(await admin_of(env))
        run = await env.app.start(rw_greeting, "ann")
        await env.pass_time(1)
        task = await one_task(worker)
        completed = await worker.say(task, "complete", result="hello ann")

        assert (task["activity"], task["arguments"], task["attempt"]) == ("rw_greet", {"name": "ann"}, 1)
        assert (task["max_attempts"], task["timeout"], task["details"]) == (3, 300, None)
        assert (task["run"], task["idempotency_key"]) == (run.run_id, f"{task['task_id']}/rw_greet")
        assert (completed.status, completed.json) == (200, {"recorded": True})
        assert await run.result() == "hello ann"


async def test_what_is_said_twice_counts_once_and_what_is_not_ones_own_is_refused(env: Environment) -> None:
    """An answer may be lost, so the same again is fine; anything else would change what is on disk."""
    async with env:
        call = await admin_of(env)
        worker, other = await registered(call), await registered(call)
        run = await env.app.start(rw_greeting, "ann")
        await env.pass_time(1)
        task = await one_task(worker)

        foreign = await other.say(task, "complete", result="stolen")
        wrong = await worker.say({**task, "attempt": 2}, "complete", result="early")
        assert [(each.status, each.json["error"]) for each in (foreign, wrong)] == [(409, "RunNotOwned")] * 2
        assert (await worker.post("tasks/nobody/complete", attempt=1, result=None)).status == 404

        assert [(await worker.say(task, "complete", result="hi")).status for _ in range(2)] == [200, 200]
        late = await worker.say(task, "complete", result="other")
        failed = await worker.say(task, "fail", error={"type": "ValueError"})
        assert (late.status, failed.status) == (409, 409)
        assert await run.result() == "hi"


async def test_what_is_said_several_times_at_once_counts_once(env: Environment) -> None:
    """As when a caller lost its connection and asks again, while the first request is still under way."""
    async with env:
        call = await admin_of(env)
        worker = await registered(call)
        run = await env.app.start(rw_greeting, "ann")
        await env.pass_time(1)
        task = await one_task(worker)
        said = await asyncio.gather(*(worker.say(task, "complete", result="hello") for _ in range(4)))
        assert [answer.status for answer in said] == [200] * 4, [answer.json for answer in said]
        assert await run.result() == "hello"


async def test_a_failed_attempt_is_tried_again_as_its_caller_said(env: Environment) -> None:
    """Retry, back-off and the errors that end it are the kernel's, behind the route."""
    async with env:
        worker = await registered(await admin_of(env))
        run = await env.app.start(rw_greeting, "ann")
        await env.pass_time(1)
        task = await one_task(worker)
        error = {"type": "TypeError", "message": "no"}
        assert [(await worker.say(task, "fail", error=error)).status for _ in range(2)] == [200, 200]
        assert (await worker.say(task, "complete", result="late")).status == 409
        assert await worker.tasks() == []

        await env.pass_time(2.1)
        again = await one_task(worker)
        assert (again["task_id"], again["attempt"]) == (task["task_id"], 2)
        assert (await worker.say(again, "fail", error={"type": "BadName", "message": "never"})).status == 200
        assert "never" in await _failure_of(run)


async def _failure_of(run: Run[Any]) -> str:
    try:
        await run.result()
    except PerdureError as error:
        return str(error)
    return ""


async def test_the_last_failure_ends_the_activity(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        run = await env.app.start(rw_greeting, "ann")
        await env.pass_time(1)
        assert (await worker.say(await one_task(worker), "fail", error={"type": "E"}, retry=False)).status == 200
        assert "E" in await _failure_of(run)


async def test_details_of_heartbeats_reach_the_next_attempt_and_silence_ends_one(env: Environment) -> None:
    """A hung attempt of a living worker is ended by the look for what is overdue, and tried again."""
    async with env:
        worker = await registered(await admin_of(env))
        run = await env.app.start(rw_slowly, "ann")
        await env.pass_time(1)
        task = await one_task(worker)
        for beat in range(3):
            await env.pass_time(4)
            answer = await worker.say(task, "heartbeat", details={"at": beat}, publish=[{"stream": "s", "value": beat}])
            assert (answer.status, answer.json) == (200, {"cancelled": False})
        for _ in range(4):
            await env.pass_time(2)
            await worker.post("renew")

        assert (await worker.say(task, "complete", result="late")).json["error"] == "RunNotOwned"
        again = await one_task(worker)
        assert (again["attempt"], again["details"]) == (2, {"at": 2})
        await worker.say(again, "complete", result="done")
        assert await run.result() == "done"


async def test_a_cancelled_run_is_told_to_the_worker_of_its_activity(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        run = await env.app.start(rw_slowly, "ann")
        await env.pass_time(1)
        task = await one_task(worker)
        await run.cancel("not wanted")
        await env.pass_time(1)

        assert (await worker.say(task, "heartbeat")).json == {"cancelled": True}
        assert (await worker.post("renew")).json["cancelled"] == [task["task_id"]]
        assert (await worker.say(task, "fail", error={"type": "Cancelled"})).status == 200
        await env.pass_time(1)
        assert (await run.describe()).status == "CANCELLED"


async def test_a_silent_worker_is_taken_over_and_fenced_out(env: Environment) -> None:
    """Its lease is all it has: once that is over, another worker makes the attempt, and the first writes nothing."""
    async with env:
        call = await admin_of(env)
        first, second = await registered(call), await registered(call)
        run = await env.app.start(rw_greeting, "ann")
        await env.pass_time(1)
        task = await one_task(first)
        for _ in range(6):
            await env.pass_time(3)
            await second.post("renew")

        again = await one_task(second)
        assert (again["task_id"], again["attempt"]) == (task["task_id"], 1)
        for answer in (await first.say(task, "complete", result="stale"), await first.post("renew")):
            assert (answer.status, answer.json["error"]) == (409, "LeaseLost")
        await second.say(again, "complete", result="fresh")
        assert await run.result() == "fresh"


async def test_a_worker_that_leaves_hands_everything_back(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        first, second = await registered(call), await registered(call)
        await env.app.start(rw_greeting, "ann")
        await env.pass_time(1)
        task = await one_task(first)

        left = await call("DELETE", f"/v1/workers/{first.worker_id}?epoch=1")
        again = await one_task(second)

        assert (left.status, left.json) == (200, {"left": True})
        assert (again["task_id"], again["attempt"]) == (task["task_id"], 1)
        assert (await first.post("renew")).json["error"] == "LeaseLost"


async def test_what_a_lost_answer_gave_comes_again(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        for name in ("ann", "bob"):
            await env.app.start(rw_greeting, name)
        await env.pass_time(1)
        both = await worker.tasks()
        held = both[0]["task_id"]

        assert await worker.tasks() == []
        assert [each["task_id"] for each in await worker.tasks(holding=[held])] == [both[1]["task_id"]]


async def test_an_attempt_that_may_be_made_once_is_not_made_again(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        first, second = await registered(call), await registered(call)
        run = await env.app.start(rw_only_once, "ann")
        await env.pass_time(1)
        await one_task(first)
        assert (await call("DELETE", f"/v1/workers/{first.worker_id}?epoch=1")).status == 200

        assert await second.tasks() == []
        assert "at_most_once" in await _failure_of(run)


async def test_a_claim_waits_for_the_first_task(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        waiting = asyncio.ensure_future(worker.tasks(wait=20))
        await asyncio.sleep(0)
        await env.app.start(rw_greeting, "ann")
        await env.pass_time(2)
        assert [task["activity"] for task in await waiting] == ["rw_greet"]


async def test_a_claim_that_waits_ends_with_its_key(env: Environment) -> None:
    """Else who was shut out is handed work, and its input, for as long as a claim may wait."""
    async with env:
        admin = await admin_of(env)
        made = (await admin.post("/v1/keys", {"label": "js", "role": "worker"})).json
        worker = await registered(Caller(env.app.asgi(), authorization=f"Bearer {made['key']}"))
        waiting = asyncio.ensure_future(worker.post("claim-tasks", wait=20))
        await env.settle()
        await admin("DELETE", f"/v1/keys/{made['key_id']}")
        await env.pass_time(2)
        await env.app.start(rw_greeting, "ann")
        await env.pass_time(2)
        assert (await waiting).status == 401


async def test_a_claim_of_a_worker_that_has_gone_takes_nothing(env: Environment) -> None:
    """It was killed while it waited: what came then would be nobody's until its lease is over."""
    async with env:
        call = await admin_of(env)
        first, second = await registered(call), await registered(await admin_of(env))
        waiting = asyncio.ensure_future(first.post("claim-tasks", wait=20))
        await env.pass_time(0.5)
        call.gone.set()
        await waiting
        await env.app.start(rw_greeting, "ann")
        await env.pass_time(1)
        assert [task["attempt"] for task in await second.tasks()] == [1]


async def test_a_key_of_a_queue_is_good_for_workers_of_that_queue_alone(env: Environment) -> None:
    """Else a worker's key would be worth every activity of its namespace."""
    async with env:
        js = caller_with(env, await key_for(env, role="worker", queues=("js",)))
        gpu = caller_with(env, await key_for(env, role="worker", queues=("gpu",)))
        entity = caller_with(env, await key_for(env, role="worker", entity_id="npc-42"))
        worker = await registered(js)

        for caller, queues in ((js, ["gpu"]), (js, ["js", "gpu"]), (gpu, ["js"]), (entity, ["js"])):
            refused = await caller.post("/v1/workers", {"name": "n", "queues": queues})
            assert (refused.status, refused.json["error"]) == (403, "NotAllowed")
        stolen = RemoteTestWorker(gpu, {"worker_id": worker.worker_id, "epoch": 1})
        assert (await stolen.post("claim-tasks")).status == 403
        assert (await worker.post("claim-tasks")).status == 200


async def test_remote_workers_are_listed_and_served_queues_known(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        listed = {each.worker_id: each for each in await env.app.workers.list()}
        assert (listed[worker.worker_id].liveness, listed[worker.worker_id].host) == ("alive", "node")
        assert listed[worker.worker_id].queues == ("js",)


async def test_defaults_of_parameters_are_announced_and_used(env: Environment) -> None:
    """Any value is a default, null among them; a parameter without one has to be given."""
    async with env:
        call = await admin_of(env)
        parameters = [{"name": "a"}, {"name": "b", "default": 7}, {"name": "c", "default": None}]
        await registered(call, workflows={"rw_defaults": {"parameters": parameters}})
        body = {"workflow": "rw_defaults", "queue": "js"}
        assert (await call.post("/v1/runs", body | {"input": {"a": 1}})).status == 201
        missing = await call.post("/v1/runs", body | {"input": {"b": 1}})
        assert (missing.status, missing.json["error"]) == (422, "BadArguments")
