"""Input that no honest caller sends: it is refused as what it is, and is never an error of the server's."""

from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from perdure import Signal, workflow
from perdure.errors import BadField
from perdure.testing import Environment
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for

odd_go = Signal("odd-go", str)
DEEP = b"[" * 50_000 + b"]" * 50_000
IN_LISTS = ("workflow", "id", "entity_id", "correlation_id", "parent_id", "schedule", "after", "where", "params")


@workflow
async def odd_waiter() -> str:
    return await odd_go.receive()


@pytest.fixture(params=["file", "postgres"])
def both(request: pytest.FixtureRequest) -> Environment:
    """A closed environment on each store."""
    if request.param == "postgres":
        return Environment(request.getfixturevalue("empty_url"))
    return Environment(str(request.getfixturevalue("quick_path") / "test.db"))


async def test_a_zero_character_in_an_address_is_refused(both: Environment) -> None:
    """Postgres keeps no such text, and says so in words of its own."""
    async with both as env:
        await env.app.start(odd_waiter.options(id="w"))
        call = caller_with(env, await key_for(env))
        paths = [f"/v1/runs?{name}=a%00b" for name in IN_LISTS]
        paths += ["/v1/runs/w/streams/a%00b", "/v1/runs/w/queries/x?namespace=a%00b", "/v1/runs/count?by=a%00b"]
        answers = {path: (await call.get(path)).status for path in paths}
        assert answers == dict.fromkeys(paths, 422)


@pytest.mark.parametrize("seen", ["9" * 25, "9" * 5_000, "-1", "x"])
async def test_a_frame_that_cannot_be_is_refused_before_the_stream(both: Environment, seen: str) -> None:
    async with both as env:
        await env.app.start(odd_waiter.options(id="w"))
        call = caller_with(env, await key_for(env))
        for path in ("events", "streams/odd"):
            with pytest.raises(BadField):
                await anext(call.frames(f"/v1/runs/w/{path}", last_event_id=seen))


async def test_what_is_nested_too_deeply_is_refused(both: Environment) -> None:
    async with both as env:
        await env.app.start(odd_waiter.options(id="w"))
        call = caller_with(env, await key_for(env))
        answers = [
            await call("POST", "/v1/runs", raw=b'{"workflow":"odd_waiter","input":%s}' % DEEP),
            await call("POST", "/v1/runs", raw=b'{"workflow":"odd_waiter","attributes":{"a":%s}}' % DEEP),
            await call("POST", "/v1/runs/w/signals", raw=b'{"name":"odd-go","payload":%s}' % DEEP),
            await call("POST", "/v1/runs/w/deferreds/x", raw=b'{"value":%s}' % DEEP),
            await call.get("/v1/runs?where=true&params=" + quote(b'{"a":%s}' % DEEP)),
        ]
        assert [answer.json["error"] for answer in answers] == [*["BadJson"] * 4, "BadField"]


async def test_a_text_that_is_none_of_few_is_refused_with_those(both: Environment) -> None:
    async with both as env:
        await env.app.start(odd_waiter.options(id="w"))
        call = caller_with(env, await key_for(env))
        started = await call.post("/v1/runs", {"workflow": "odd_waiter", "on_conflict": "error"})
        assert "'return'" in started.json["detail"]
        assert "'replace'" in started.json["detail"]
        assert "'oldest', 'newest'" in (await call.get("/v1/runs/w/events?order=up")).json["detail"]


async def test_the_run_of_another_is_missing_in_the_same_words_by_its_run_id(both: Environment) -> None:
    async with both as env:
        theirs = await env.app.start(odd_waiter.options(id="theirs", entity_id="npc-1"))
        call = caller_with(env, await key_for(env, role="operator", entity_id="npc-42"))
        run_id = (await theirs.describe()).run_id
        there = (await call.get(f"/v1/runs/-?run_id={run_id}")).json
        nowhere = (await call.get("/v1/runs/-?run_id=none")).json
        told = [msgspec.json.encode(each | {"request_id": ""}).decode() for each in (there, nowhere)]
        assert told[0].replace(run_id, "none") == told[1]


async def test_a_stream_that_is_ended_before_a_frame_says_where_it_was_gone_on_from(both: Environment) -> None:
    """An empty id would make a browser forget the one that it has: it would begin anew, and miss runs that ended."""
    async with both as env:
        await env.app.start(odd_waiter.options(id="w"))
        application: Any = env.app.asgi()
        call = Caller(application, authorization=f"Bearer {await key_for(env)}")
        async with aclosing(call.frames("/v1/subscribe")) as changes:  # type: ignore[type-var]
            known = (await anext(changes))["id"]
        application.stop()
        for path, seen in (("/v1/subscribe", known), ("/v1/runs/w/events", "7"), ("/v1/runs/w/streams/odd", "3")):
            frames = [frame async for frame in call.frames(path, last_event_id=seen)]
            assert [(frame["event"], frame["id"]) for frame in frames] == [("stop", seen)], path
