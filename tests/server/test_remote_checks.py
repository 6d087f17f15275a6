"""What remote workers may not say: refused before anything is written, in the words of the command."""

from pathlib import Path
from typing import Any

import pytest

from perdure import activity, workflow
from perdure.testing import Environment
from tests.server.keyed import caller_with, key_for
from tests.server.remote_worker import RemoteTestWorker, a_worker, admin_of, advance, claimed, started

LONG = "x" * 100_000
TASK = {"kind": "StartTask", "place": "t", "activity": "checks_double", "queue": "default"}
CHILD = {"kind": "StartChild", "place": "c", "workflow": "checks_child", "queue": "nobody"}
INPUT = {"arguments": {}, "timeout": 1, "max_attempts": 1, "initial_interval": 1, "backoff": 1, "max_interval": 1}
REFUSED: list[dict[str, Any]] = [
    {**TASK, "arguments": [1]},
    {**TASK, "arguments": 7},
    {**TASK, "timeout": -1},
    {**TASK, "timeout": 1e300},
    {**TASK, "heartbeat": 0},
    {**TASK, "heartbeat": -1},
    {**CHILD, "workflow": "task:checks_double", "input": {**INPUT, "timeout": -1}},
    {**CHILD, "workflow": "task:checks_double", "input": {**INPUT, "arguments": []}},
    {**CHILD, "timeout": -1},
    {**CHILD, "delay": 1e300},
    {"kind": "Annotate", "step": LONG},
    {"kind": "Expose", "values": {"much": "x" * 256 * 1024}},
    {"kind": "Expose", "values": {}, "errors": {"why": "x" * 300 * 1024}},
    {"kind": "Expose", "values": {LONG: 1}},
    {"kind": "TakeNote", "note": {"kind": "TimeoutReached", "reason": "x"}},
    {"kind": "FireTimer", "place": "s", "fire_at": -5},
    {**CHILD, "correlation_id": LONG},
    {**CHILD, "correlation_id": "\0"},
    {**CHILD, "supersedes": "\0"},
    {**CHILD, "attributes": {"\0": 1}},
    {"kind": "Annotate", "attributes": {"much": LONG}},
    {"kind": "ContinueRun", "attributes": {LONG: 1}},
    {"kind": "AnswerRequest", "id": "\0", "answer": 1},
    {"kind": "Publish", "stream": "s", "values": [1], "source": "\0"},
    {"kind": "RecordAttempt", "place": "a", "name": "\0", "attempt": 1, "error": {"type": "E"}, "next_at": 1},
    {"kind": "NoteWaiting", "waiting": 7},
    {"kind": "NoteWaiting", "waiting": [{"kind": "signal"}]},
    {"kind": "NoteUndo", "undo": "x"},
    {"kind": "CloseRun", "end": {"kind": "RunCompleted"}, "undo": "[7]"},
]
WHY = {"BadField", "BadId", "BadOption"}
STEPS = [
    {"hold": {"reason": "zzz", "report": '{"trouble":"x"}'}},
    {"hold": {"reason": "mismatch", "report": "x"}},
    {"hold": {"reason": "quarantine", "report": "[]"}},
    {"pause": {"had": 0, "report": "x", "tasks": "{}"}},
    {"park": {"had": 0, "waiting": {"kind": "timer"}}},
    {"park": {"had": 0, "waiting": [{"kind": "timer", "place": "s", "until": "soon"}]}},
]


@activity(queue="default")
async def checks_double(number: int) -> int:
    return 2 * number


@workflow
async def checks_child() -> None:
    """Never run."""


async def test_commands_that_make_no_sense_are_refused_and_nothing_is_written(env: Environment) -> None:
    """Else they are found by whoever reads the run next: its worker, people, the audit."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        note = {"kind": "Annotate", "step": "packing"}
        for command in REFUSED:
            problem = (await advance(worker, run, note, command))["problem"]
            assert (problem["status"], problem["error"] in WHY) == (422, True), (command, problem)
        for step in STEPS:
            problem = (await advance(worker, run, note, then=step))["problem"]
            assert (problem["status"], problem["error"]) == (422, "BadField"), (step, problem)

        found = (await call.get("/v1/runs/g-1")).json
        assert (found["status"], found["step"]) == ("RUNNING", None)
        assert (await claimed(worker, holding=[]))[0]["children"] == {}


async def test_a_place_is_used_once(env: Environment) -> None:
    """Two children at one place would both answer it; the very same one again is no harm."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        value = {"kind": "RecordOutcome", "place": "v", "outcome": {"kind": "ValueRecorded", "value": 7}}
        assert (await advance(worker, run, CHILD))["seq"] == 1
        assert (await advance(worker, run, CHILD))["seq"] == 1
        assert (await advance(worker, run, {**TASK, "place": "c"}))["problem"]["error"] == "BadField"
        assert (await advance(worker, run, TASK, {**CHILD, "place": "t"}))["problem"]["error"] == "BadField"
        await env.pass_time(1)
        await advance(worker, run, value)
        for again in ({**CHILD, "id": "other"}, {**TASK, "place": "c"}):
            problem = (await advance(worker, run, again))["problem"]
            assert (problem["status"], problem["error"]) == (422, "BadField")
        assert (await advance(worker, run, {**TASK, "place": "t"}))["seq"] == 2


async def test_zero_bytes_and_endless_nesting_are_the_callers_fault(env: Environment) -> None:
    """Postgres takes no zero byte, and no parser any depth: neither is a trouble of the server's."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        own = f"/v1/workers/{worker.worker_id}"
        for path in (f"{own}/runs/%00?epoch=1", "/v1/runs/%00", "/v1/runs?id=%00", "/v1/runs?namespace=%00"):
            assert (await call.get(path)).status == 422, path
        assert (await call.post("/v1/workers/%00/renew", {"epoch": 1})).status == 422
        assert (await worker.post("tasks/%00/complete", attempt=1, result=1)).status == 422
        deep = b'{"workflow": "js_greeting", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        assert (await call("POST", "/v1/runs", raw=deep)).status == 400


async def test_a_child_takes_the_id_of_no_other_run(env: Environment) -> None:
    """A run that another one takes the place of is found by its id no more: that is for runs of that very id."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call, "other")
        (other,) = await claimed(worker)
        await advance(worker, other, {"kind": "CloseRun", "end": {"kind": "RunCompleted", "result": 8}})
        await started(call)
        (run,) = await claimed(worker)

        problem = (await advance(worker, run, {**CHILD, "supersedes": other["run_id"]}))["problem"]
        assert (problem["status"], problem["error"]) == (422, "BadField"), problem
        assert (await call.get("/v1/runs/other")).json["run_id"] == other["run_id"]

        found = await advance(worker, run, {**CHILD, "id": "other", "supersedes": other["run_id"]})
        assert found["kept"], found
        assert (await call.get("/v1/runs/other")).json["workflow"] == "checks_child"


async def test_a_timeout_is_reached_when_it_is_over(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        body = {"workflow": "js_greeting", "input": ["ann"], "id": "g-1", "queue": "js", "timeout": 2}
        await call.post("/v1/runs", body)
        (run,) = await claimed(worker)
        reached = {"kind": "TakeNote", "note": {"kind": "TimeoutReached", "reason": "late"}}
        assert (await advance(worker, run, reached))["problem"]["error"] == "BadField"
        early = {**reached, "at": run["created_at"] + 999}
        assert (await advance(worker, run, early))["problem"]["error"] == "BadField"
        await env.pass_time(2)
        assert (await advance(worker, run, reached))["seq"] == 2


async def test_a_key_that_may_not_start_runs_names_no_entity(env: Environment) -> None:
    """A key of one queue would put runs among those of anybody."""
    async with env:
        admin = await admin_of(env)
        key = await key_for(env, role="worker", queues=("js",))
        worker = await a_worker(caller_with(env, key))
        body = {"workflow": "js_greeting", "input": ["ann"], "queue": "js", "entity_id": "npc-1"}
        await admin.post("/v1/runs", {**body, "id": "g-1"})
        (run,) = await claimed(worker)
        problem = (await advance(worker, run, {**CHILD, "entity_id": "npc-2"}))["problem"]
        assert (problem["status"], problem["error"]) == (403, "NotAllowed")
        own = ({**CHILD, "entity_id": "npc-1"}, {**CHILD, "place": "d"})
        assert (await advance(worker, run, *own))["seq"] == 1

        other = await a_worker(admin)
        await worker.post("advance", runs=[{"run_id": run["run_id"], "after_seq": 1, "then": "hand_back"}])
        (run,) = await claimed(other)
        assert (await advance(other, run, {**CHILD, "place": "e", "entity_id": "npc-2"}))["seq"] == 1


async def test_an_attempt_is_not_completed_without_its_result(env: Environment) -> None:
    """It would be null for ever."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        await advance(worker, run, {**TASK, "queue": "checks", "activity": "checks_js"})
        given = {"name": "node", "queues": ["checks"], "activities": ["checks_js"]}
        other = RemoteTestWorker(call, (await call.post("/v1/workers", given)).json)
        (task,) = await other.tasks()
        assert task["arguments"] == {}
        assert (await other.say(task, "complete")).status == 422
        assert (await other.say(task, "complete", result=None)).status == 200


@pytest.mark.parametrize(
    "parameters",
    [
        [{"name": "a"}, {"name": "a"}],
        [{"name": "a", "schema": [1]}],
        [{"name": "a", "schema": 7}],
        [{"name": "a", "takes": "all"}],
    ],
)
async def test_a_workflow_is_described_so_that_it_can_be_started(quick_path: Path, parameters: object) -> None:
    env = Environment(str(quick_path / "test.db"))
    async with env:
        call = await admin_of(env)
        given = {"name": "node", "queues": ["js"], "workflows": {"checks_js": {"parameters": parameters}}}
        answer = await call.post("/v1/workers", given)
        assert (answer.status, answer.json["error"]) == (422, "BadField")


async def test_a_key_of_a_queue_declares_schedules_of_that_queue_alone(env: Environment) -> None:
    """Its worker has the same code as those of other queues, or says so: what they declared is not for it to change."""
    async with env:
        admin = await admin_of(env)
        everywhere = await a_worker(admin)
        worker = await a_worker(caller_with(env, await key_for(env, role="worker", queues=("js",))))

        def on(queue: str, seconds: int = 900, **more: object) -> dict[str, Any]:
            call = {"workflow": "js_greeting", "input": ["ann"], "queue": queue, **more}
            return {"js_greeting": {"call": call, "when": {"type": "every", "interval": seconds}}}

        async def listed() -> list[tuple[str, float]]:
            items = (await admin.get("/v1/schedules")).json["items"]
            return [(each["queue"], each["when"]["interval"]) for each in items]

        refused = await worker.post("announce", schedules=on("other"))
        assert (refused.status, refused.json["error"], await listed()) == (403, "NotAllowed", [])
        assert "starts runs on the queue 'other'" in refused.json["detail"]
        refused = await worker.post("announce", schedules=on("js", entity_id="npc-1"))
        assert (refused.status, refused.json["error"], await listed()) == (403, "NotAllowed", [])

        assert (await everywhere.post("announce", schedules=on("other"))).status == 200
        await worker.post("announce", schedules=on("js", 60))
        await worker.post("announce", schedules={}, names=["js_greeting"])
        assert await listed() == [("other", 900)]

        assert (await everywhere.post("announce", schedules=on("js"))).status == 200
        assert (await worker.post("announce", schedules=on("js", 60))).status == 200
        assert await listed() == [("js", 60)]
        assert (await worker.post("announce", schedules={}, names=["js_greeting"])).status == 200
        assert await listed() == []


async def test_a_worker_has_runs_of_its_own_queues_tried_again(env: Environment) -> None:
    """Those of others are held since the code of their workers does not fit, which is the same as before."""
    async with env:
        admin = await admin_of(env)
        worker = await a_worker(admin)
        other = await admin.post("/v1/workers", {"name": "other", "queues": ["other"], "activities": ["any"]})
        await started(admin)
        (run,) = await claimed(worker)
        await advance(worker, run, then={"hold": {"reason": "mismatch", "report": '{"trouble":"x"}'}})

        stranger = RemoteTestWorker(admin, other.json)
        assert (await stranger.post("announce", retry_mismatches=["js_greeting"])).status == 200
        assert await claimed(worker) == []
        assert (await worker.post("announce", retry_mismatches=["js_greeting"])).status == 200
        assert [each["id"] for each in await claimed(worker)] == ["g-1"]
