"""Borders of what workers and readers are given: another attempt, another key, the last frame that was seen."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from perdure import Retry, Stream, activity, workflow
from perdure.engine.remote import workers
from perdure.http.streaming import sse
from perdure.testing import Environment
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for
from tests.server.remote_worker import RemoteTestWorker, a_worker, admin_of, advance, claimed, started

border_values = Stream("s", int)


@activity(queue="js", retry=Retry(max_attempts=3, initial_interval=1))
async def border_try(name: str) -> str:
    raise AssertionError("it has no code here")


@activity(queue="js", timeout=30, heartbeat=5, retry=Retry(max_attempts=2, initial_interval=1))
async def border_slow(name: str) -> str:
    raise AssertionError("it has no code here")


@workflow
async def border_trying(name: str) -> str:
    return await border_try(name)


@workflow
async def border_slowly(name: str) -> str:
    return await border_slow(name)


@workflow
async def border_publishing() -> None:
    for n in range(3):
        border_values.publish(n)


async def registered(call: Caller, *queues: str) -> RemoteTestWorker:
    body = {"name": "node", "queues": queues or ["js"], "activities": ["border_try", "border_slow"]}
    answer = await call.post("/v1/workers", body)
    assert answer.status == 201, answer.json
    return RemoteTestWorker(call, answer.json)


async def test_an_end_is_said_again_for_the_attempt_that_ended_it_alone(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        run = await env.app.start(border_trying, "ann")
        await env.pass_time(1)
        (task,) = await worker.tasks()
        assert (await worker.say(task, "complete", result="hi")).status == 200
        other = await worker.say({**task, "attempt": 2}, "complete", result="hi")
        assert (other.status, other.json["error"]) == (409, "RunNotOwned")
        assert await run.result() == "hi"


async def test_each_attempt_may_fail_by_the_same_error(env: Environment) -> None:
    """The failure of the second is not taken for that of the first, said again: a third follows."""
    async with env:
        worker = await registered(await admin_of(env))
        await env.app.start(border_trying, "ann")
        await env.pass_time(1)
        for attempt in (1, 2, 3):
            (task,) = await worker.tasks()
            assert task["attempt"] == attempt
            assert (await worker.say(task, "fail", error={"type": "E", "message": "no"})).status == 200
            await env.pass_time(2.5)


async def test_an_attempt_that_shows_life_takes_no_longer_than_its_timeout(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        await env.app.start(border_slowly, "ann")
        await env.pass_time(1)
        (task,) = await worker.tasks()
        statuses = []
        for _ in range(9):
            await env.pass_time(4)
            statuses.append((await worker.say(task, "heartbeat")).status)
        assert (statuses[0], statuses[-1]) == (200, 409)
        (again,) = await worker.tasks()
        assert again["attempt"] == 2


async def test_an_attempt_that_is_ended_in_a_silent_workers_name_prolongs_nothing(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        await env.app.start(border_slowly, "ann")
        await env.pass_time(1)
        assert len(await worker.tasks()) == 1
        for _ in range(12):
            await env.pass_time(1)
        assert (await worker.post("renew")).json.get("error") == "LeaseLost"


async def test_a_claim_that_waits_prolongs_the_lease(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        waiting = asyncio.ensure_future(worker.tasks(wait=60))
        for _ in range(15):
            await env.pass_time(1)
        await env.app.start(border_trying, "ann")
        await env.pass_time(1)
        assert [task["attempt"] for task in await waiting] == [1]


async def test_a_key_of_one_queue_is_not_good_for_a_worker_of_two(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env), "js", "gpu")
        js = caller_with(env, await key_for(env, role="worker", queues=("js",)))
        stolen = RemoteTestWorker(js, {"worker_id": worker.worker_id, "epoch": 1})
        assert (await stolen.post("claim-tasks")).status == 403


async def test_what_a_lost_answer_gave_comes_within_the_limit(env: Environment) -> None:
    async with env:
        worker = await registered(await admin_of(env))
        for name in ("ann", "bob", "cid"):
            await env.app.start(border_trying, name)
        await env.pass_time(1)
        assert len(await worker.tasks()) == 3
        assert len(await worker.tasks(limit=2, holding=[])) == 2


async def test_a_worker_that_leaves_hands_back_more_than_one_bite(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "BITE", 1)
    async with env:
        call = await admin_of(env)
        first, second = await registered(call), await registered(call)
        for name in ("ann", "bob", "cid"):
            await env.app.start(border_trying, name)
        await env.pass_time(1)
        assert len(await first.tasks()) == 3
        assert (await call("DELETE", f"/v1/workers/{first.worker_id}?epoch=1")).status == 200
        assert len(await second.tasks()) == 3


async def test_a_child_has_what_its_parent_has(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        body = {"workflow": "js_greeting", "input": ["ann"], "id": "p", "queue": "js"}
        await call.post("/v1/runs", body | {"priority": 7, "correlation_id": "order-1"})
        (run,) = await claimed(worker)
        child = {"kind": "StartChild", "place": "kid", "workflow": "js_greeting", "input": {"name": "bob"}}
        assert "problem" not in await advance(worker, run, child)
        (found,) = (await call.get("/v1/runs/p/children")).json["items"]
        assert (found["priority"], found["correlation_id"], found["queue"]) == (7, "order-1", "js")


async def test_values_that_were_published_before_are_not_published_again(env: Environment) -> None:
    """The answer was lost; `after` says how many there were when the worker published these."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        for values in (["a", "b"], ["a", "b", "c"]):
            await advance(worker, run, {"kind": "Publish", "stream": "log", "values": values, "after": 0})
        await advance(worker, run, {"kind": "Publish", "stream": "log", "values": ["d"], "after": 3})
        items = (await call.get("/v1/runs/g-1/streams/log")).json["items"]
        assert [each["value"] for each in items] == ["a", "b", "c", "d"]


async def test_a_message_is_taken_once_in_a_request(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        await call.post("/v1/runs/g-1/signals", {"name": "go", "payload": 1})
        takes = [{"kind": "ReceiveMessage", "place": place, "number": 1} for place in ("one", "two")]
        refused = await advance(worker, run, *takes)
        assert refused["problem"]["error"] == "BadField"
        assert (await advance(worker, run, takes[0]))["seq"] == 2


async def test_a_signal_is_not_received_before_it_is_due(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        (run,) = await claimed(worker)
        await call.post("/v1/runs/g-1/signals", {"name": "go", "payload": 1, "delay": 5})
        take = {"kind": "ReceiveMessage", "place": "go", "number": 1}
        assert (await advance(worker, run, take))["problem"]["error"] == "BadField"
        await env.pass_time(5)
        assert (await advance(worker, run, take))["seq"] == 2


async def test_answers_come_in_the_order_of_what_was_asked(env: Environment) -> None:
    """A run whose commands make no sense stands before one whose commands do."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        for id in ("one", "two"):
            await started(call, id)
        runs = await claimed(worker)
        wrong: dict[str, Any] = {"run_id": runs[0]["run_id"], "after_seq": 1, "then": {}}
        right: dict[str, Any] = {"run_id": runs[1]["run_id"], "after_seq": 1}
        answers = (await worker.post("advance", runs=[wrong, right])).json["answers"]
        assert ["problem" if "problem" in each else "seq" for each in answers] == ["problem", "seq"]


async def test_a_stream_goes_on_after_the_last_frame_that_was_seen(env: Environment) -> None:
    """`Last-Event-ID`, which a browser sends by itself, counts more than `after` of the address it was given."""
    async with env:
        call = await admin_of(env)
        run = await env.app.start(border_publishing.options(id="p"))
        await run.result()
        frames = [each async for each in call.frames("/v1/runs/p/streams/s", last_event_id="2")]
        assert [(each["event"], each["id"]) for each in frames] == [("value", "3"), ("end", "3")]

        await env.app.start(border_trying.options(id="a"), "ann")
        async with aclosing(call.frames("/v1/subscribe")) as changes:  # type: ignore[type-var]  # a generator
            seen = await anext(changes)
        await env.app.start(border_trying.options(id="b"), "bob")
        again = call.frames("/v1/subscribe?after=nonsense", last_event_id=seen["id"])
        async with aclosing(again) as changes:  # type: ignore[type-var]  # a generator
            assert (await anext(changes))["event"] == "change"


async def test_a_stream_that_shows_nothing_says_where_to_go_on(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "ALIVE_SECONDS", 0.01)
    async with env:
        call = await admin_of(env)
        await env.app.start(border_trying, "ann")
        async with aclosing(call.raw_frames("/v1/subscribe?where=workflow%20%3D%20'nobody'")) as frames:
            assert (await anext(frames)).startswith(b"id: ")


async def test_wrong_keys_of_one_source_are_not_held_against_another(env: Environment) -> None:
    async with env:
        api: Any = env.app.asgi()

        def at(address: str) -> Caller:
            async def from_there(scope: Any, receive: Any, send: Any) -> None:
                await api({**scope, "client": (address, 1)}, receive, send)

            return Caller(from_there, authorization="Bearer nonsense")

        statuses = [(await at("192.0.2.1").get("/v1/runs")).status for _ in range(11)]
        assert statuses == [401] * 10 + [429]
        assert (await at("192.0.2.2").get("/v1/runs")).status == 401


async def test_a_token_against_foreign_pages_is_for_one_session_and_every_change(env: Environment) -> None:
    async with env:
        api, key = env.app.asgi(), await key_for(env)
        one, other = [await Caller(api).post("/v1/session", {"key": key}) for _ in range(2)]
        call = Caller(api, cookie=one.headers["set-cookie"].partition(";")[0])
        for method, url, body in (
            ("POST", "/v1/runs", {"workflow": "border_publishing"}),
            ("PATCH", "/v1/runs/x/attributes", {"attributes": {}}),
            ("DELETE", "/v1/keys/nobody", None),
        ):
            assert (await call(method, url, body)).status == 403
            assert (await call(method, url, body, perdure_csrf=other.json["csrf"])).status == 403
            assert (await call(method, url, body, perdure_csrf=one.json["csrf"])).status in {201, 404}
