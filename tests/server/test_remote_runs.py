"""Runs of workflows over HTTP: taken with their past, moved by commands that the server decides on."""

import asyncio
from typing import Any

from perdure import Run, Signal, activity, workflow
from perdure.stores.operations import Batch, Fence, PostMessage
from perdure.testing import Environment
from tests.server.remote_worker import a_worker, admin_of, advance, claimed, started

go = Signal("rw_go", str)


@activity(queue="default")
async def rw_double(number: int) -> int:
    return 2 * number


@workflow
async def rw_child(name: str) -> str:
    return f"child of {name}"


VALUE = {"kind": "RecordOutcome", "place": "rate", "outcome": {"kind": "ValueRecorded", "value": 7}}
END = {"kind": "CloseRun", "end": {"kind": "RunCompleted", "result": 8}}


async def the_run(env: Environment, id: str = "g-1") -> Run[Any]:
    return await env.app.get(id)


async def test_a_run_is_taken_moved_and_ended_over_http(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        assert (run["id"], run["workflow"], run["input"], run["seq"]) == ("g-1", "js_greeting", {"name": "ann"}, 1)
        assert (run["events"], run["messages"], run["children"], run["more"]) == ([], [], {}, False)

        assert (await advance(worker, run, VALUE))["seq"] == 2
        assert await advance(worker, run, END) == {"seq": 3, "kept": False}

        ended = await the_run(env)
        assert await ended.result() == 8
        assert [event.kind async for event in ended.events()] == ["RunStarted", "ValueRecorded", "RunCompleted"]


async def test_commands_of_a_run_are_all_done_or_none(env: Environment) -> None:
    """What is refused: another last event, a timer before its time, an event after the end, a run of nobody's."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        soon = {"kind": "FireTimer", "place": "sleep", "fire_at": run["created_at"] + 60_000}
        refused = [
            await advance(worker, run, VALUE, seq=4),
            await advance(worker, run, VALUE, soon),
            await advance(worker, run, END, VALUE),
            await advance(worker, run, {"kind": "ReceiveMessage", "place": "x", "number": 99}),
            await advance(worker, {"run_id": "nobody", "seq": 1}, VALUE),
        ]
        errors = ["OutOfStep", "BadField", "BadField", "BadField", "RunNotOwned"]
        assert [each["problem"]["error"] for each in refused] == errors
        assert not [each for each in refused if "/docs" in each["problem"]["detail"]]
        assert (await worker.post("advance", runs=[{"run_id": "x", "after_seq": 1, "commands": [{}]}])).status == 422

        found = (await call.get(f"/v1/workers/{worker.worker_id}/runs/{run['run_id']}?epoch=1")).json
        assert (found["seq"], found["events"]) == (1, [])
        await env.pass_time(61)
        stale = await worker.post("advance", runs=[])
        assert (stale.status, stale.json) == (200, {"answers": []})


async def test_a_parked_run_comes_back_with_its_past_when_a_message_came(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        waiting = [{"kind": "signal", "place": "go", "name": "rw_go"}]
        park = {"park": {"had": run["had"], "waiting": waiting}}
        assert await advance(worker, run, VALUE, then=park) == {"seq": 2, "kept": False}
        assert await claimed(worker) == []
        parked = await (await the_run(env)).describe()
        assert (parked.status, [each.place for each in parked.waiting_for]) == ("SUSPENDED", ["go"])

        await (await the_run(env)).signal(go, "now")
        (again,) = await claimed(worker)
        assert (again["seq"], again["had"]) == (2, 1)
        (event,), (message,) = again["events"], again["messages"]
        assert (event["kind"], event["place"], event["value"], event["seq"]) == ("ValueRecorded", "rate", 7, 2)
        assert (message["kind"], message["name"], message["payload"]) == ("SignalSent", "rw_go", "now")

        taken = await advance(worker, again, {"kind": "ReceiveMessage", "place": "go", "number": message["number"]})
        assert (taken["kept"], taken["messages"]) == (True, [])
        assert (await advance(worker, again, END))["seq"] == 4


async def test_parking_loses_no_message(env: Environment) -> None:
    """A signal that comes between the last look and the park keeps the run with its worker, and is told."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        await (await the_run(env)).signal(go, "now")
        kept = await advance(worker, run, then={"park": {"had": run["had"]}})
        assert (kept["kept"], kept["had"], [each["payload"] for each in kept["messages"]]) == (True, 1, ["now"])


async def test_children_and_activities_are_started_and_their_ends_come_back(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        child = {"kind": "StartChild", "place": "kid", "workflow": "rw_child", "queue": "default"}
        task = {"kind": "StartTask", "place": "twice", "activity": "rw_double", "queue": "default"}
        given = ({**child, "input": {"name": "ann"}}, {**task, "arguments": {"number": 21}})
        assert (await advance(worker, run, *given))["seq"] == 1
        found: dict[str, Any] = {}
        for _ in range(50):
            await env.pass_time(0.2)
            read = await call.get(f"/v1/workers/{worker.worker_id}/runs/{run['run_id']}?epoch=1")
            found = {each["place"]: each for each in read.json["messages"]}
            if len(found) == 2:
                break
        assert (found["kid"]["result"], found["twice"]["result"]) == ("child of ann", 42)
        assert {*read.json["children"]} == {"kid", "twice"}
        takes = [
            {"kind": "ReceiveMessage", "place": each["place"], "number": each["number"]} for each in found.values()
        ]
        assert (await advance(worker, run, *takes, END))["seq"] == 4


async def test_what_a_run_shows_answers_and_publishes_is_seen(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        said = [
            {"kind": "Annotate", "step": "packing", "attributes": {"tenant": "acme"}},
            {"kind": "Publish", "stream": "log", "values": [1, "two"]},
            {"kind": "Expose", "values": {"cart": [1, 2]}},
            {"kind": "TakeNote", "note": {"kind": "Patched", "change_id": "c-1"}},
        ]
        assert (await advance(worker, run, *said))["seq"] == 2
        shown = (await call.get("/v1/runs/g-1")).json
        assert (shown["step"], shown["attributes"]) == ("packing", {"tenant": "acme"})
        values = (await call.get("/v1/runs/g-1/streams/log")).json["items"]
        assert [each["value"] for each in values] == [1, "two"]
        assert (await call.get("/v1/runs/g-1/queries/cart")).json == [1, 2]


async def test_a_run_continues_as_a_new_one_and_is_handed_back(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        first, second = await a_worker(call), await a_worker(call)
        await started(call)
        (run,) = await claimed(first)
        assert await advance(first, run, VALUE, then="hand_back") == {"seq": 2, "kept": False}
        (again,) = await claimed(second)
        assert (await advance(first, run, VALUE, seq=2))["problem"]["error"] == "RunNotOwned"
        ended = await advance(second, again, {"kind": "ContinueRun", "input": {"name": "bob"}})
        assert (ended["seq"], ended["kept"]) == (3, False)
        (successor,) = await claimed(second)
        assert (successor["id"], successor["input"], successor["seq"]) == ("g-1", {"name": "bob"}, 1)
        held = await advance(second, successor, then={"hold": {"reason": "mismatch", "report": '{"trouble":"x"}'}})
        assert held["kept"] is False
        assert (await (await the_run(env)).describe()).held == "mismatch"


async def test_what_a_worker_has_and_does_not_hold_comes_again(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        await advance(worker, run, VALUE)
        assert await claimed(worker, holding=[run["run_id"]]) == []
        (again,) = await claimed(worker, holding=[])
        assert (again["run_id"], again["seq"]) == (run["run_id"], 2)


async def test_a_run_that_a_worker_holds_is_terminated_and_times_out(env: Environment) -> None:
    """Its worker may hang or not heed it: the server ends the run in its name."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        body = {"workflow": "js_greeting", "input": ["ann"], "queue": "js"}
        await call.post("/v1/runs", {**body, "id": "g-1"})
        await call.post("/v1/runs", {**body, "id": "g-2", "timeout": 5})
        runs = await claimed(worker)
        ending = asyncio.ensure_future((await the_run(env, "g-1")).terminate("enough"))
        for _ in range(4):
            await env.pass_time(2)
            await worker.post("renew")

        await ending
        found = [(await (await the_run(env, id)).describe()).status for id in ("g-1", "g-2")]
        assert found == ["TERMINATED", "TIMED_OUT"]
        assert [(await advance(worker, run, VALUE))["problem"]["error"] for run in runs] == ["RunNotOwned"] * 2


async def test_all_runs_of_a_call_are_written_in_one_transaction_and_none_harms_another(env: Environment) -> None:
    """A request per run, or a commit per run, would make a worker over HTTP as slow as the disk."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        for number in range(9):
            await started(call, f"g-{number}")
        runs = {run["id"]: run for run in await claimed(worker)}
        await (await the_run(env, "g-4")).signal(go, "now")
        kid = {"kind": "StartChild", "place": "kid", "workflow": "rw_child", "queue": "nobody"}
        asked = [
            {"run_id": runs["g-0"]["run_id"], "after_seq": 1, "commands": [VALUE]},
            {"run_id": runs["g-1"]["run_id"], "after_seq": 5, "commands": [VALUE]},
            {"run_id": runs["g-2"]["run_id"], "after_seq": 1, "commands": [VALUE, END]},
            {"run_id": runs["g-3"]["run_id"], "after_seq": 1, "commands": [VALUE], "then": {"park": {"had": 0}}},
            {"run_id": runs["g-4"]["run_id"], "after_seq": 1, "commands": [VALUE], "then": {"park": {"had": 0}}},
            {"run_id": runs["g-5"]["run_id"], "after_seq": 1, "commands": [VALUE, {**kid, "id": "g-6"}]},
            {"run_id": runs["g-6"]["run_id"], "after_seq": 1, "commands": [VALUE], "then": "hand_back"},
            {"run_id": runs["g-0"]["run_id"], "after_seq": 1, "commands": [VALUE]},
            {"run_id": "nobody", "after_seq": 1, "commands": [VALUE]},
            {"run_id": runs["g-7"]["run_id"], "after_seq": 1},
            {"run_id": runs["g-8"]["run_id"], "after_seq": 1, "then": {"park": {"had": 0}, "hold": None}},
        ]
        batches: list[int] = []

        def note(batch: Batch) -> None:
            fenced = [group for group in batch.groups if isinstance(group[0], Fence)]
            batches.extend([len(fenced)] if fenced else [])

        env.store.before_commit = note
        answer = await worker.post("advance", runs=asked)
        # One for all of them; in the second what could not be parked, for a message had come.
        assert batches == [7, 1]

        found = [each.get("seq") or each["problem"]["error"] for each in answer.json["answers"]]
        assert found == [2, "OutOfStep", 3, 2, 2, "IdConflict", 2, "OutOfStep", "RunNotOwned", 1, 1]
        kept = [each["run_id"] for each, said in zip(asked, answer.json["answers"], strict=True) if said.get("kept")]
        assert kept == [runs[id]["run_id"] for id in ("g-0", "g-4", "g-7")]
        assert [each["payload"] for each in answer.json["answers"][4]["messages"]] == ["now"]
        lengths = {id: len([event async for event in (await the_run(env, id)).events()]) for id in runs}
        assert lengths == dict(zip(sorted(runs), [2, 1, 3, 2, 2, 1, 2, 1, 1], strict=True))


async def test_a_message_that_comes_while_a_run_is_parked_is_not_lost(env: Environment) -> None:
    """It comes after the worker was told of all messages, and before the park is on disk."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        signalled = await the_run(env)

        async def signal_first(_: object) -> None:
            env.store.before_commit = lambda _: None
            operation = PostMessage(signalled.run_id, "m-1", "SignalSent", '{"name":"rw_go","payload":"now"}', 5, None)
            await env.elsewhere([operation])

        env.store.before_commit = signal_first
        kept = await advance(worker, run, VALUE, then={"park": {"had": 0}})
        assert (kept["seq"], kept["kept"], [each["payload"] for each in kept["messages"]]) == (2, True, ["now"])


async def test_a_claim_is_woken_by_what_is_written_and_not_by_a_clock(env: Environment) -> None:
    """The clock stands still here: who would look now and then would look never."""
    async with env:
        call = await admin_of(env)
        workers = [await a_worker(call), await a_worker(call)]
        waiting = [asyncio.ensure_future(claimed(worker, wait=20)) for worker in workers]
        await env.settle()
        await started(call, "g-1")
        done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [[run["id"] for run in each.result()] for each in done] == [["g-1"]]

        # The other one goes on waiting for what comes next.
        await started(call, "g-2")
        assert [[run["id"] for run in await each] for each in left] == [["g-2"]]


async def test_of_two_calls_at_once_one_is_told_that_it_comes_too_late(env: Environment) -> None:
    """As when an answer was lost and the same is asked again; the server must not try the child for ever."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        value = {"kind": "RecordOutcome", "place": "v", "outcome": {"kind": "ValueRecorded", "value": 7}}
        child = {
            "kind": "StartChild",
            "place": "c",
            "workflow": "rw_child",
            "input": {"name": "ann"},
            "queue": "nobody",
        }
        asked = {"run_id": run["run_id"], "after_seq": run["seq"], "commands": [value, child]}

        answers = await asyncio.gather(*(worker.post("advance", runs=[asked]) for _ in range(3)))
        found = [answer.json["answers"][0] for answer in answers]
        told = sorted("seq" if "seq" in each else each["problem"]["error"] for each in found)
        assert told == ["OutOfStep", "OutOfStep", "seq"]
        gone = {**child, "place": "d", "supersedes": "nobody"}
        problem = (await advance(worker, {**run, "seq": run["seq"] + 1}, gone))["problem"]
        assert (problem["status"], problem["error"]) == (409, "OutOfStep")
