"""Workers over HTTP that lie, hang or are not answered: they harm only what they own, and nothing of it is lost."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from perdure import Retry, activity, workflow
from perdure.stores.operations import (
    Batch,
    ClaimRuns,
    Fence,
    NoteDeadline,
    Operation,
    PostMessage,
    PublishValues,
    RecordAttempt,
    RegisterWorker,
)
from perdure.testing import Environment, Fault
from tests.server.in_process import Caller
from tests.server.remote_worker import RemoteTestWorker, a_worker, admin_of, advance, claimed, started

DATABASE_AWAY = 503


@activity(queue="js")
async def dw_greet(name: str) -> str:
    raise AssertionError("it has no code here")


@activity(queue="js", timeout=30, heartbeat=5, retry=Retry(max_attempts=2, initial_interval=1))
async def dw_slow(name: str) -> str:
    raise AssertionError("it has no code here")


@workflow
async def dw_greeting(name: str) -> str:
    return await dw_greet(name)


@workflow
async def dw_slowly(name: str) -> str:
    return await dw_slow(name)


async def registered(call: Caller, **more: object) -> RemoteTestWorker:
    body = {"name": "node", "queues": ["js"], "activities": ["dw_greet", "dw_slow"], **more}
    return RemoteTestWorker(call, (await call.post("/v1/workers", body)).json)


async def one_task(worker: RemoteTestWorker) -> dict[str, Any]:
    (task,) = await worker.tasks()
    return task  # type: ignore[no-any-return]  # JSON


def lose_answer_to(env: Environment, kind: type[Operation]) -> None:
    """Nobody knows what became of the next commit with one of these, which is on disk."""

    def look(batch: Batch) -> None:
        # Not the claims of the worker beside the database.
        remote = [group for group in batch.groups if isinstance(group[0], Fence | RegisterWorker)]
        if any(isinstance(each, kind) for group in remote for each in group):
            env.store.before_commit = lambda _: None
            env.store.fail_at(1, Fault.LOST_ANSWER)

    env.store.before_commit = look


def spoil(env: Environment, run_id: str) -> None:
    """Its row holds something that is no input of any activity."""
    with closing(sqlite3.connect(str(env.path))) as db, db:
        db.execute("update runs set input = 7 where run_id = ?", (run_id,))


async def lived_on(env: Environment, worker: RemoteTestWorker, seconds: int) -> None:
    """Time passes while the worker shows that it lives."""
    for _ in range(seconds):
        await env.pass_time(1)
        assert (await worker.post("renew")).status == 200


async def test_a_task_that_nobody_can_read_is_held_and_harms_no_other(env: Environment) -> None:
    """Whoever claims would be told of none of its tasks, again and again."""
    async with env:
        call = await admin_of(env)
        sound = {
            "arguments": {},
            "timeout": 5,
            "max_attempts": 1,
            "initial_interval": 1,
            "backoff": 1,
            "max_interval": 1,
        }
        takes = [{"name": name, "default": None} for name in ("name", *sound)]
        worker = await registered(call, workflows={"task:dw_greet": {"parameters": takes}})
        for number, given in enumerate(({"name": "ann"}, {**sound, "timeout": 1e300}, {**sound, "backoff": 0})):
            body = {"workflow": "task:dw_greet", "queue": "js", "id": f"bad {number}", "input": given}
            assert (await call.post("/v1/runs", body)).status == 201
        run = await env.app.start(dw_greeting, "ann")
        await env.pass_time(1)

        await worker.say(await one_task(worker), "complete", result="hello")
        assert await run.result() == "hello"
        held = [(await call.get(f"/v1/runs/bad%20{number}")).json["held"] for number in range(3)]
        assert held == ["quarantine"] * 3


async def test_details_that_are_no_json_are_refused(env: Environment) -> None:
    """They stand in answers to others: to who looks at the run, to who makes the next attempt."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        waits = {"kind": "NoteWaiting", "waiting": [{"kind": "activity", "place": "a", "name": "a"}]}
        for details in ("x", "", "\0"):
            beats = {"kind": "RecordBeats", "beats": [{"place": "a", "details": details, "beat_at": 5}]}
            problem = (await advance(worker, run, waits, beats))["problem"]
            assert (problem["status"], problem["error"]) == (422, "BadField")
        assert (await call.get("/v1/runs/g-1")).status == 200


async def test_a_lost_task_comes_again_to_a_worker_that_has_many_runs(env: Environment) -> None:
    """Its runs are no concern of who claims tasks, however many come before them."""
    async with env:
        call = await admin_of(env)
        worker = await registered(call, workflows={"js_greeting": {"parameters": [{"name": "name"}]}})
        for number in range(3):
            await started(call, f"g-{number}")
        runs = [each["run_id"] for each in await claimed(worker)]
        for name in ("ann", "bob", "eve"):
            await env.app.start(dw_greeting, name)
        await env.pass_time(1)
        tasks = {each["task_id"] for each in await worker.tasks()}

        again = [each["task_id"] for _ in tasks for each in await worker.tasks(limit=1, holding=[])]
        assert again == [min(tasks)] * 3
        found = await worker.post("claim-runs", limit=1, holding=[*runs[1:]])
        assert [each["run_id"] for each in found.json["runs"]] == runs[:1]


async def test_a_renewal_tells_what_a_worker_has_and_does_not_hold(env: Environment) -> None:
    """One that waits for nothing learns so that the answer to a claim was lost."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call, "g-1")
        await started(call, "g-2")
        first, second = sorted(each["run_id"] for each in await claimed(worker))

        assert (await worker.post("renew")).json["unheld"] == []
        assert (await worker.post("renew", holding=[first])).json["unheld"] == [second]
        assert (await worker.post("renew", holding=[first, second, "other"])).json["unheld"] == []


async def test_every_call_prolongs_the_lease(env: Environment) -> None:
    """Also one that writes nothing, and one that is refused: a worker that speaks is not silent."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        own = f"/v1/workers/{worker.worker_id}/runs/{run['run_id']}"
        keep = {"run_id": run["run_id"], "after_seq": 1}

        async def read() -> Any:
            return await call.get(f"{own}?epoch=1")

        async def read_inbox() -> Any:
            return await call.get(f"{own}/messages?epoch=1")

        async def keep_it() -> Any:
            return await worker.post("advance", runs=[keep])

        async def be_refused() -> Any:
            return await worker.post("advance", runs=[{**keep, "after_seq": 7}])

        async def claim_nothing() -> Any:
            return await worker.post("claim-tasks")

        for ask in (read, read_inbox, keep_it, be_refused, claim_nothing):
            for _ in range(4):
                await env.pass_time(4)
                assert (await ask()).status == 200, ask


async def test_who_listens_for_less_than_no_time_is_told_of_its_lease_all_the_same(env: Environment) -> None:
    async with env:
        worker = await a_worker(await admin_of(env))
        assert (await worker.post("listen", after=0, wait=-1)).status == 200
        worker.epoch = 7
        assert (await worker.post("listen", after=0, wait=-1)).json["error"] == "LeaseLost"


async def test_a_run_that_was_to_be_terminated_before_it_was_taken_is_ended_for_its_worker(env: Environment) -> None:
    """Whoever had it then has died; its next worker does not heed that, or hangs."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        run_id = (await started(call))["run_id"]
        await env.elsewhere([PostMessage(run_id, "stop", "TerminateRequest", '{"reason":"enough"}', 5, None)])
        await lived_on(env, worker, 3)

        assert [each["id"] for each in await claimed(worker)] == ["g-1"]
        await lived_on(env, worker, 3)
        assert (await call.get("/v1/runs/g-1")).json["status"] == "TERMINATED"


async def test_a_claim_whose_commit_was_not_answered_strands_nothing(env: Environment) -> None:
    """Written again, it would take others, and of the first nobody would know."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        for number in range(2):
            await started(call, f"g-{number}")
        lose_answer_to(env, ClaimRuns)
        lost = await worker.post("claim-runs", limit=1)
        await env.settle()

        assert (lost.status, lost.json["error"]) == (DATABASE_AWAY, "StoreUnavailable")
        found = await claimed(worker, limit=1, holding=[]) + await claimed(worker, limit=1)
        assert sorted(each["id"] for each in found) == ["g-0", "g-1"]


async def test_what_was_published_and_not_answered_is_not_there_twice(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        publish = {"kind": "Publish", "stream": "log", "values": ["one"], "after": 0}
        lose_answer_to(env, PublishValues)
        assert (await advance(worker, run, publish))["problem"]["status"] == DATABASE_AWAY
        await env.settle()
        assert (await advance(worker, run, publish))["kept"]
        values = (await call.get("/v1/runs/g-1/streams/log")).json["items"]
        assert [each["value"] for each in values] == ["one"]


async def test_a_registration_that_was_not_answered_is_to_be_asked_again(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        lose_answer_to(env, RegisterWorker)
        answer = await call.post("/v1/workers", {"name": "node", "queues": ["js"]})
        assert (answer.status, answer.json["error"]) == (DATABASE_AWAY, "StoreUnavailable")


async def test_an_attempt_that_shows_life_in_the_last_moment_is_not_ended(env: Environment) -> None:
    """The look has found it silent; its heartbeat is on disk before the look writes."""
    async with env:
        worker = await registered(await admin_of(env))
        await env.app.start(dw_slowly, "ann")
        await env.pass_time(1)
        task = await one_task(worker)
        beats: list[str] = []

        async def beat_first(batch: Batch) -> None:
            if any(isinstance(each, RecordAttempt) for group in batch.groups for each in group) and not beats:
                now = env.clock.now()
                beats.append("beat")
                note = (task["task_id"], "main", worker.worker_id, 1, now, now + 30_000, 5000, now + 5000)
                await env.elsewhere([NoteDeadline(*note)])

        env.store.before_commit = beat_first
        await lived_on(env, worker, 7)
        assert beats
        assert (await worker.say(task, "complete", result="done")).status == 200


async def test_an_attempt_that_nobody_can_read_keeps_no_other_from_being_ended(quick_path: Path) -> None:
    """Its time is over first, so that every look meets it before all others."""
    env = Environment(str(quick_path / "test.db"))
    async with env:
        worker = await registered(await admin_of(env))
        runs = []
        for name in ("ann", "bob"):
            runs.append(await env.app.start(dw_slowly, name))
            await env.pass_time(1)
        tasks = {each["arguments"]["name"]: each for each in await worker.tasks()}
        await env.pass_time(1)
        await worker.say(tasks["bob"], "heartbeat")
        spoil(env, tasks["ann"]["task_id"])

        await lived_on(env, worker, 8)
        assert (await worker.say(tasks["bob"], "complete", result="late")).json["error"] == "RunNotOwned"
