"""What a worker over HTTP is held to, and what is done for it, in cases that come seldom."""

from typing import Any

from perdure import Retry, activity, workflow
from perdure.testing import Environment
from tests.server.keyed import caller_with, key_for
from tests.server.remote_worker import RemoteTestWorker, a_worker, admin_of, advance, claimed, started

TASK = {"kind": "StartTask", "place": "t", "activity": "wr_pack", "queue": "parcels"}
INPUT = {"arguments": {}, "timeout": 5, "max_attempts": 3, "initial_interval": 0, "backoff": 1, "max_interval": 1}
LATE = {**INPUT, "begin_by": 1, "queue_timeout": 2}
EVENTS_PAGE = 500


@activity(queue="parcels", timeout=10, heartbeat=5, retry=Retry(max_attempts=1))
async def wr_slow() -> str:
    raise AssertionError("it has no code here")


@workflow
async def wr_slowly() -> str:
    return await wr_slow()


async def a_packer(env: Environment) -> RemoteTestWorker:
    given = {"name": "packer", "queues": ["parcels"], "activities": ["wr_pack", "wr_slow"]}
    call = await admin_of(env)
    return RemoteTestWorker(call, (await call.post("/v1/workers", given)).json)


def as_child(given: dict[str, Any]) -> dict[str, Any]:
    """An activity on a queue with an input that no command of its own makes."""
    return {"kind": "StartChild", "place": "t", "workflow": "task:wr_pack", "queue": "parcels", "input": given}


async def the_failure(env: Environment, worker: RemoteTestWorker, run: dict[str, Any]) -> dict[str, Any]:
    """Why what the run has called has failed, as its worker is told."""
    await env.pass_time(1)
    own = f"/v1/workers/{worker.worker_id}/runs/{run['run_id']}"
    (message,) = (await worker.call.get(f"{own}?epoch=1")).json["messages"]
    return message["failure"]  # type: ignore[no-any-return]  # JSON


async def test_nobody_speaks_for_a_worker_of_another_namespace(env: Environment) -> None:
    """Its id alone is no right to what it has."""
    async with env:
        admin = await admin_of(env)
        assert (await admin.post("/v1/namespaces", {"name": "blue"})).status == 201
        worker = await a_worker(admin)
        await started(admin)
        (run,) = await claimed(worker)
        blue = caller_with(env, await key_for(env, role="worker", namespaces=("blue",)))
        stranger = RemoteTestWorker(blue, {"worker_id": worker.worker_id, "epoch": 1})

        keep = {"run_id": run["run_id"], "after_seq": 1}
        asked = [
            await stranger.post("renew"),
            await stranger.post("claim-runs", holding=[]),
            await stranger.post("claim-tasks"),
            await stranger.post("listen", after=0),
            await stranger.post("announce", names=[]),
            await stranger.post("advance", runs=[keep]),
            await blue.get(f"/v1/workers/{worker.worker_id}/runs/{run['run_id']}?epoch=1"),
            await blue("DELETE", f"/v1/workers/{worker.worker_id}?epoch=1"),
        ]
        assert [(each.status, each.json["error"]) for each in asked] == [(409, "LeaseLost")] * 8


async def test_an_activity_is_not_begun_after_the_time_it_was_to_wait_for_a_worker(env: Environment) -> None:
    """Its caller may be away, or would have ended it."""
    async with env:
        worker, packer = await a_worker(await admin_of(env)), await a_packer(env)
        await started(worker.call)
        (run,) = await claimed(worker)
        await advance(worker, run, as_child(LATE))
        assert await packer.tasks() == []
        failure = await the_failure(env, worker, run)
        assert failure["type"] == "builtins.TimeoutError"
        assert "queue_timeout of 2 s" in failure["message"]


async def test_an_activity_that_wants_a_transaction_is_not_handed_to_who_has_none(env: Environment) -> None:
    async with env:
        worker, packer = await a_worker(await admin_of(env)), await a_packer(env)
        await started(worker.call)
        (run,) = await claimed(worker)
        await advance(worker, run, as_child({**INPUT, "transaction": True}))
        assert await packer.tasks() == []
        assert "wants a transaction" in (await the_failure(env, worker, run))["message"]


async def test_an_activity_that_is_made_once_is_not_tried_again_when_it_fails(env: Environment) -> None:
    async with env:
        worker, packer = await a_worker(await admin_of(env)), await a_packer(env)
        await started(worker.call)
        (run,) = await claimed(worker)
        await advance(worker, run, {**TASK, "at_most_once": True, "retry": {"max_attempts": 3}})
        (task,) = await packer.tasks()
        assert (await packer.say(task, "fail", error={"type": "E"})).status == 200
        assert (await the_failure(env, worker, run))["type"] == "E"


async def test_an_attempt_that_shows_life_ends_with_its_timeout_all_the_same(env: Environment) -> None:
    async with env:
        packer = await a_packer(env)
        await env.app.start(wr_slowly)
        await env.pass_time(1)
        (task,) = await packer.tasks()
        said = []
        for _ in range(5):
            await env.pass_time(3)
            said.append((await packer.say(task, "heartbeat")).status)
        assert said == [200, 200, 200, 409, 409]


async def test_a_worker_that_wants_no_suspects_gets_none(env: Environment) -> None:
    """It watches another one, which it may die of."""
    async with env:
        worker = await a_worker(await admin_of(env))
        await started(worker.call)
        (run,) = await claimed(worker)
        lost = {"kind": "NoteLosses", "losses": 3, "outlived": 0}
        await advance(worker, run, lost, then="hand_back")
        assert await claimed(worker, suspects=0) == []
        assert [each["id"] for each in await claimed(worker, suspects=1)] == ["g-1"]


async def test_a_long_history_comes_in_pages(env: Environment) -> None:
    async with env:
        worker = await a_worker(await admin_of(env))
        await started(worker.call)
        (run,) = await claimed(worker)
        value = {"kind": "ValueRecorded", "value": 7}
        commands = [{"kind": "RecordOutcome", "place": f"v{number}", "outcome": value} for number in range(600)]
        await advance(worker, run, *commands, then="hand_back")

        (again,) = await claimed(worker)
        assert (len(again["events"]), again["more"], again["seq"]) == (EVENTS_PAGE, True, 601)
        after = again["events"][-1]["seq"]
        own = f"/v1/workers/{worker.worker_id}/runs/{run['run_id']}"
        rest = (await worker.call.get(f"{own}?epoch=1&after={after}")).json
        assert ([each["seq"] for each in rest["events"]], rest["more"]) == ([*range(after + 1, 602)], False)


async def test_a_signal_with_a_delay_is_not_received_before_its_time(env: Environment) -> None:
    async with env:
        worker = await a_worker(await admin_of(env))
        await started(worker.call)
        (run,) = await claimed(worker)
        sent = {"name": "go", "payload": "now", "delay": 3}
        assert (await worker.call.post("/v1/runs/g-1/signals", sent)).status == 200
        own = f"/v1/workers/{worker.worker_id}/runs/{run['run_id']}"
        (message,) = (await worker.call.get(f"{own}?epoch=1")).json["messages"]
        receive = {"kind": "ReceiveMessage", "place": "go", "number": message["number"]}
        assert (await advance(worker, run, receive))["problem"]["error"] == "BadField"
        await env.pass_time(3)
        assert (await advance(worker, run, receive))["seq"] == 2


async def test_an_answer_that_is_given_again_changes_nothing(env: Environment) -> None:
    """The answer to the first call was lost; the rest of the second one counts."""
    async with env:
        worker = await a_worker(await admin_of(env))
        await started(worker.call)
        (run,) = await claimed(worker)
        own = f"/v1/workers/{worker.worker_id}/runs/{run['run_id']}"
        await worker.call.post("/v1/runs/g-1/requests", {"name": "ask", "value": 1, "id": "q", "timeout": 0.01})
        (message,) = (await worker.call.get(f"{own}?epoch=1")).json["messages"]
        answer = {"kind": "AnswerRequest", "id": message["id"], "answer": 5, "number": message["number"]}
        note = {"kind": "TakeNote", "note": {"kind": "Patched", "change_id": "c"}}
        assert (await advance(worker, run, answer))["messages"] == []
        assert (await advance(worker, run, {**answer, "answer": 6}, note))["seq"] == 2
