"""The header `Idempotency-Key`: sent again, a request is done once and answered as at first."""

import asyncio
from typing import Any

import pytest

from perdure import BadOption, KeyConflict, Signal, workflow
from perdure.http.access import anybody
from perdure.testing import Environment
from tests.server.asgi_transport import AsgiTransport, over_http
from tests.server.in_process import Answer, Caller
from tests.server.keyed import caller_with, key_for

tap = Signal("tap", int)


@workflow
async def keyed_over_http(taps: int) -> list[int]:
    return [await tap.receive() for _ in range(taps)]


def start(n: int = 1, **more: Any) -> dict[str, Any]:
    return {"workflow": "keyed_over_http", "input": [n], **more}


def is_replayed(answer: Answer) -> bool:
    return answer.headers.get("idempotency-replayed") == "true"


async def test_the_first_answer_comes_again(env: Environment) -> None:
    """The very same one, whatever has become of the run since."""
    async with env:
        http = Caller(env.app.asgi(authenticate=anybody))
        first = await http.post("/v1/runs", start(id="a"), idempotency_key="k")
        tapped = [
            await http.post("/v1/runs/a/signals", {"name": "tap", "payload": 1}, idempotency_key="k") for _ in "12"
        ]
        assert tapped[0].json == tapped[1].json
        assert await env.result(await env.app.get("a")) == [1]
        again = await http.post("/v1/runs", start(id="a"), idempotency_key="k")
        assert (first.status, first.json) == (again.status, again.json)
        assert again.status == 201
        assert [is_replayed(each) for each in (first, again, *tapped)] == [False, True, False, True]
        # To a run that has ended as well, and that another one has the id of by now.
        await http.post("/v1/runs", start(id="a", on_conflict="replace"))
        last = await http.post("/v1/runs/a/signals", {"name": "tap", "payload": 1}, idempotency_key="k")
        assert last.json == tapped[0].json
        assert await env.app.count() == 2


async def test_another_request_under_a_key_is_refused(env: Environment) -> None:
    async with env:
        http = Caller(env.app.asgi(authenticate=anybody))
        await http.post("/v1/runs", start(), idempotency_key="k")
        refused = await http.post("/v1/runs", start(2), idempotency_key="k")
        assert (refused.status, refused.json["error"]) == (422, "KeyConflict")
        assert refused.json["kept"] != refused.json["given"]
        # Fields in another order are the same request; another route has keys of its own.
        same = {"input": [1], "workflow": "keyed_over_http"}
        assert is_replayed(await http.post("/v1/runs", same, idempotency_key="k"))
        batch = [await http.post("/v1/runs/batch", {"runs": [start(), start(2)]}, idempotency_key="k") for _ in "12"]
        assert batch[0].json == batch[1].json
        assert [is_replayed(each) for each in batch] == [False, True]
        assert await env.app.count() == 3
        for bad in ("", " ", "x" * 201):
            assert (await http.post("/v1/runs", start(), idempotency_key=bad)).json["error"] == "BadId"
        assert await env.app.count() == 3


async def test_a_refusal_is_not_kept(env: Environment) -> None:
    async with env:
        http = Caller(env.app.asgi(authenticate=anybody))
        missing = await http.post("/v1/runs/late/cancel", {}, idempotency_key="k")
        assert missing.status == 404
        await http.post("/v1/runs", start(id="late"))
        assert (await http.post("/v1/runs/late/cancel", {}, idempotency_key="k")).status == 200
        await env.settle()
        closed = await http.post("/v1/runs/late/cancel", {}, idempotency_key="other")
        again = await http.post("/v1/runs/late/cancel", {}, idempotency_key="k")
        assert (closed.status, again.status, is_replayed(again)) == (409, 200, True)


async def test_who_waits_waits_anew(env: Environment) -> None:
    async with env:
        http = Caller(env.app.asgi(authenticate=anybody))
        first = await env.alive(http.post("/v1/runs?wait=0", start(id="w"), idempotency_key="k"))
        assert "result" not in first.json
        await (await env.app.get("w")).signal(tap, 5)
        again = await env.alive(http.post("/v1/runs?wait=30", start(id="w"), idempotency_key="k"))
        assert (again.status, again.json["result"], is_replayed(again)) == (201, [5], True)
        assert await env.app.count() == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/bulk/cancel", {"where": "true"}),
        ("POST", "/v1/bulk/signal", {"where": "true", "name": "tap", "payload": 1}),
        ("POST", "/v1/runs/x/pause", {}),
        ("POST", "/v1/runs/x/fork", {"at": 1, "id": "forked"}),
        ("POST", "/v1/runs/x/terminate", {"reason": "enough"}),
        ("PATCH", "/v1/runs/x/attributes", {"attributes": {"tier": 1}}),
        ("POST", "/v1/namespaces", {"name": "blue"}),
        ("PUT", "/v1/schedules/s", {"call": start(), "when": {"type": "every", "interval": 3600}}),
        ("DELETE", "/v1/schedules/none", None),
    ],
)
async def test_every_route_that_changes_something_heeds_the_key(method: str, path: str, body: Any) -> None:
    async with Environment() as env:
        http = Caller(env.app.asgi(authenticate=anybody))
        await http.post("/v1/runs", start(id="x"))
        first, again = [await http(method, path, body, idempotency_key="k") for _ in "12"]
        assert first.status < 300, first.body
        assert (first.status, first.json, is_replayed(again)) == (again.status, again.json, True)
        assert (await http(method, f"{path}?namespace=main", body, idempotency_key="k")).status == 422


async def test_the_key_of_a_caller_is_not_kept(env: Environment) -> None:
    """Of a key of callers the database has its hash alone; the same request again makes no second one."""
    async with env:
        admin = caller_with(env, await key_for(env))
        made = [await admin.post("/v1/keys", {"label": "ci", "role": "reader"}, idempotency_key="k") for _ in "12"]
        assert made[0].json["key_id"] == made[1].json["key_id"]
        assert made[0].json["key"].startswith("pdk_")
        assert (made[1].status, made[1].json["error"], made[1].json["key"]) == (409, "KeyAlreadyMade", "k")
        reader = caller_with(env, made[0].json["key"])
        # What it may not do it is not told of either.
        assert (await reader.post("/v1/keys", {"label": "ci", "role": "reader"}, idempotency_key="k")).status == 403
        entities = [caller_with(env, await key_for(env, role="operator", entity_id=each)) for each in ("a", "b")]
        answers = [await each.post("/v1/runs", start(), idempotency_key="e") for each in entities]
        assert [each.status for each in answers] == [201, 422]


async def test_answers_that_are_lost_make_no_second_run_and_no_second_signal(env: Environment) -> None:
    """What was done is not done again when the client asks again, whichever request it was."""
    async with over_http(env) as (app, transport):
        run = await env.alive(_lost(transport, app.start(keyed_over_http, 2)))
        await env.alive(_lost(transport, run.signal(tap, 1)))
        await env.alive(_lost(transport, app.broadcast(tap, 2, where="true")))
        assert await env.alive(run.result()) == [1, 2]
        many = await env.alive(_lost(transport, app.start_many(*(keyed_over_http.call(1) for _ in range(3))), 3))
        assert len(many) == 3
        assert await env.app.count() == 4


async def _lost(transport: AsgiTransport, asking: Any, count: int = 1) -> Any:
    transport.lose(count)
    return await asking


async def test_keys_of_the_caller_go_to_the_server(env: Environment) -> None:
    async with over_http(env) as (app, _):
        runs = [await app.with_key("k").start(keyed_over_http, 1) for _ in "12"]
        assert runs[0] == runs[1]
        for _ in "123":
            await runs[0].with_key("s").signal(tap, 3)
        assert await env.alive(runs[0].result()) == [3]
        with pytest.raises(KeyConflict):
            await app.with_key("k").start(keyed_over_http, 2)
        many = [await app.with_key("m").start_many(*(keyed_over_http.call(n) for n in (1, 2))) for _ in "12"]
        assert many[0] == many[1]
        with pytest.raises(BadOption, match="keep"):
            app.with_key("k", keep=5)
        assert await asyncio.gather(*(app.with_key("b").cancel_all(where="true") for _ in "1")) != []
        assert await env.app.count() == 3
