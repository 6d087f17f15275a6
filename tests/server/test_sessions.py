"""Sessions of browsers, and what one caller may take of a server: streams, headers, wrong keys, the access log."""

import asyncio
import logging
from typing import Any

import pytest

from perdure import sleep, workflow
from perdure.app.internals import engine_of
from perdure.http.routes import ROUTES
from perdure.http.server_stop import ServerStop
from perdure.http.streaming import sse, streams
from perdure.http.streaming.sse import Frame
from perdure.http.table import Scope
from perdure.testing import Environment
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for


@workflow
async def session_sleeping() -> None:
    await sleep(3600)


async def signed_in(env: Environment, **rights: Any) -> tuple[str, str]:
    """The cookie and the token of a new session."""
    begun = await Caller(env.app.asgi()).post("/v1/session", {"key": await key_for(env, **rights)})
    assert begun.status == 200
    return begun.headers["set-cookie"], begun.json["csrf"]


async def test_a_session_stands_for_a_key_at_every_process(env: Environment) -> None:
    """Nothing of it is kept in memory: another application on the same database knows it, also after a restart."""
    async with env:
        cookie, csrf = await signed_in(env, role="operator")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        other = Caller(env.app.asgi(), cookie=f"theme=dark; {cookie.partition(';')[0]}")

        assert (await other.get("/v1/runs")).status == 200
        bare = await other.post("/v1/runs", {"workflow": "session_sleeping"})
        wrong = await other.post("/v1/runs", {"workflow": "session_sleeping"}, perdure_csrf="0" * 64)
        started = await other.post("/v1/runs", {"workflow": "session_sleeping"}, perdure_csrf=csrf)
        admins = await other.post("/v1/keys", {"label": "x", "role": "admin"}, perdure_csrf=csrf)
        ended = await other("DELETE", "/v1/session")

        assert [answer.status for answer in (bare, wrong, started, admins)] == [403, 403, 201, 403]
        assert "Perdure-CSRF" in bare.json["detail"]
        assert "Max-Age=0" in ended.headers["set-cookie"]


async def test_no_change_is_made_by_a_cookie_alone(env: Environment) -> None:
    """Whatever its method: a page of another site has the cookie sent, and does not know the token."""
    async with env:
        cookie, _ = await signed_in(env, role="admin")
        call = Caller(env.app.asgi(), cookie=cookie.partition(";")[0])
        for route in ROUTES:
            if route.method != "GET" and route.scope is not Scope.OPEN:
                url = route.path.replace("{", "").replace("}", "")
                refused = await call(route.method, url, {} if route.body is not None else None)
                assert (refused.status, "Perdure-CSRF" in refused.json["detail"]) == (403, True), (
                    f"{route.method} {url}"
                )


async def test_a_session_ends_with_its_time_and_with_its_key(env: Environment) -> None:
    async with env:
        admin = caller_with(env, await key_for(env))
        cookie, _ = await signed_in(env, role="reader")
        token = cookie.partition(";")[0]
        call = Caller(env.app.asgi(), cookie=token)
        assert (await call.get("/v1/runs")).status == 200
        for spoilt in (
            token[:-1] + ("0" if token[-1] != "0" else "1"),
            token.replace(".", ".9", 1),
            "perdure_session=x",
        ):
            assert (await Caller(env.app.asgi(), cookie=spoilt).get("/v1/runs")).status == 401
        (key_id,) = [key["key_id"] for key in (await admin.get("/v1/keys")).json["items"] if key["scopes"] == ["read"]]
        await admin("DELETE", f"/v1/keys/{key_id}")
        await env.pass_time(1.1)
        assert (await call.get("/v1/runs")).status == 401

        cookie, _ = await signed_in(env, role="reader")
        await env.pass_time(12 * 3600 + 1)
        assert (await Caller(env.app.asgi(), cookie=cookie.partition(";")[0]).get("/v1/runs")).status == 401


async def test_a_session_opens_a_websocket(env: Environment) -> None:
    """A page cannot send a key with one: its cookie is all that a browser sends, and there is no method."""
    async with env:
        cookie, _ = await signed_in(env, role="reader")
        api: Any = env.app.asgi()
        for given, first in ((cookie.partition(";")[0], "websocket.accept"), ("perdure_session=x", "websocket.close")):
            scope = Caller(api).scope("GET", "/v1/subscribe", {"cookie": given}) | {"type": "websocket"}
            del scope["method"]
            heard = [{"type": "websocket.disconnect"}, {"type": "websocket.connect"}]
            sent: list[str] = []

            async def receive(heard: list[Any] = heard) -> Any:
                return heard.pop() if heard else await asyncio.Event().wait()

            async def send(message: Any, sent: list[str] = sent) -> None:
                sent.append(message["type"])

            await api(scope, receive, send)
            assert sent[0] == first


async def test_wrong_keys_for_sessions_are_counted_and_told(quick_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A right key is never locked out; the log names the source once."""
    async with Environment(str(quick_path / "test.db")) as env:
        key = await key_for(env)
        call = Caller(env.app.asgi())
        statuses = [(await call.post("/v1/session", {"key": "pdk_wrong"})).status for _ in range(14)]

        assert (statuses[0], statuses[9], statuses[-1]) == (401, 401, 429)
        assert (await call.post("/v1/session", {"key": key})).status == 200
    told = [record for record in caplog.records if getattr(record, "event", "") == "wrong_keys"]
    assert len(told) == 1
    assert "pdk_wrong" not in caplog.text


async def test_the_access_log_has_routes_and_no_values(quick_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        key = await key_for(env)
        call = caller_with(env, key)
        caplog.set_level(logging.INFO, "perdure.access")
        answer = await call.get("/v1/runs/my-secret-id?namespace=main")
        (line,) = [record for record in caplog.records if record.name == "perdure.access"]

    found: Any = line
    assert (found.route, found.status, found.namespace) == ("GET /v1/runs/{id}", 404, "main")
    assert found.key_id in key
    assert found.request_id == answer.json["request_id"]
    assert "my-secret-id" not in line.getMessage()
    assert key not in line.getMessage()


async def test_a_revoked_key_ends_its_streams(env: Environment) -> None:
    """Within a second, whatever the stream waits for."""
    async with env:
        admin = caller_with(env, await key_for(env))
        made = (await admin.post("/v1/keys", {"label": "ci", "role": "reader"})).json
        await admin.post("/v1/runs", {"workflow": "session_sleeping", "id": "s"})
        reader = Caller(env.app.asgi(), authorization=f"Bearer {made['key']}")

        async def read() -> list[str]:
            return [frame["event"] async for frame in reader.frames("/v1/runs/s/events")]

        reading = asyncio.ensure_future(read())
        await env.settle()
        await admin("DELETE", f"/v1/keys/{made['key_id']}")
        await env.pass_time(2)
        assert (await reading)[-1] == "stop"


async def test_a_key_has_so_many_streams_and_no_more(quick_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another key has its own; a stream that ends makes room."""
    monkeypatch.setattr(streams, "MOST_STREAMS", 1)
    async with Environment(str(quick_path / "test.db")) as env:
        first, second = await key_for(env), await key_for(env)
        application = env.app.asgi()
        mine, other = (Caller(application, authorization=f"Bearer {key}") for key in (first, second))
        await mine.post("/v1/runs", {"workflow": "session_sleeping", "id": "s"})
        open_one = mine.frames("/v1/runs/s/events")
        await anext(open_one)
        refused = await mine.get("/v1/runs/s/events", accept="text/event-stream")
        others = other.frames("/v1/runs/s/events")
        assert (await anext(others))["event"] == "event"
        await others.aclose()  # type: ignore[attr-defined]  # it is a generator
        await open_one.aclose()  # type: ignore[attr-defined]  # as above
        again = mine.frames("/v1/runs/s/events")

        assert (refused.status, refused.json["error"]) == (429, "TooManyRequests")
        assert (await anext(again))["event"] == "event"
        await again.aclose()  # type: ignore[attr-defined]  # as above
        engine = engine_of(env.app)
        assert engine is not None


async def test_headers_above_the_limit_are_refused(quick_path: Any) -> None:
    async with Environment(str(quick_path / "test.db")) as env:
        answer = await Caller(env.app.asgi()).get("/health", x_filler="x" * 33_000)
        assert (answer.status, answer.json["error"]) == (431, "HeadersTooLarge")


async def test_a_reader_too_slow_is_told_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is closed then, so that it holds nothing; the rest is read after the cursor."""
    monkeypatch.setattr(sse, "SLOW_SECONDS", -1.0)
    sent: list[bytes] = []

    class Slow:
        async def begin(self, status: int, headers: object) -> None: ...

        async def part(self, data: bytes, *, more: bool = True) -> None:
            sent.append(data)

    async def frames() -> Any:
        for number in range(5):
            yield Frame(str(number), number)

    async def receive() -> Any:
        await asyncio.Event().wait()

    await sse.stream(frames(), "", ServerStop(), asyncio.Event(), receive, Slow())

    assert [part.split(b"\n")[:2] for part in sent[:2]] == [[b"id: 0", b"event: message"], [b"id: 0", b"event: gap"]]
    assert sent[2:] == [b""]
