"""Streams over a WebSocket: the same frames, the same checks, and nothing left of who has gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from perdure import Perdure, workflow
from perdure.app.internals import engine_of
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from perdure.engine.subscriptions.subscriptions import StoreSubscriptions
from perdure.http.access import anybody
from perdure.http.server import Server
from tests.server.in_process import Caller


@workflow
async def ws_flow(n: int) -> int:
    return n


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[tuple[Perdure, Server, str]]:
    async with Perdure(f"sqlite:///{path / 'ws.db'}", worker=False) as app:
        server, key = await begin_server(app, ServerOptions(listen="127.0.0.1:0"))
        try:
            yield app, server, str(key)
        finally:
            await server.end(5)


def subscribers(app: Perdure) -> int:
    engine: Any = engine_of(app)
    assert isinstance(engine.subscriptions, StoreSubscriptions)
    return len(engine.subscriptions._subscribers)


async def frame(socket: aiohttp.ClientWebSocketResponse) -> Any:
    while True:
        found = msgspec.json.decode(await socket.receive_str(timeout=30))
        if found["event"] != "alive":
            return found


async def test_changes_come_over_a_websocket_as_they_do_over_a_stream(tmp_path: Path) -> None:
    """And go on after the id of a frame, of either kind; who leaves frees everything; a server that ends says so."""
    async with serving(tmp_path) as (app, server, key), aiohttp.ClientSession() as http:
        url, headers = f"{server.url}/v1/subscribe", {"authorization": f"Bearer {key}"}
        await app.start(ws_flow.options(id="a"), 1)
        async with http.ws_connect(url, headers=headers) as socket:
            first = await frame(socket)
            streamed = Caller(app.asgi(), **headers).frames("/v1/subscribe")
            same = await anext(streamed)
            assert (first["event"], first["data"]["run"]["workflow_id"]) == ("change", "a")
            assert (same["event"], same["data"]["run"]) == ("change", first["data"]["run"])
            await streamed.aclose()  # type: ignore[attr-defined]  # a generator
            await socket.send_str("anything")
            await app.start(ws_flow.options(id="b"), 2)
            second = await frame(socket)
            assert second["data"]["run"]["workflow_id"] == "b"
        async with asyncio.timeout(30):
            while subscribers(app):  # noqa: ASYNC110 - as the engine has it
                await asyncio.sleep(0.01)

        async with http.ws_connect(url, params={"after": first["id"]}, headers=headers) as socket:
            assert (await frame(socket))["data"]["run"]["workflow_id"] == "b"
            ending = asyncio.ensure_future(server.end(5))
            assert (await frame(socket))["event"] == "stop"
            assert (await socket.receive(timeout=30)).type is aiohttp.WSMsgType.CLOSE
            await ending
        assert subscribers(app) == 0


async def test_a_websocket_is_refused_as_any_request_is(tmp_path: Path) -> None:
    """Every page may open one in a browser, so its origin is looked at although there are keys."""
    async with serving(tmp_path) as (_, server, key), aiohttp.ClientSession() as http:
        good = {"authorization": f"Bearer {key}"}
        asked: list[tuple[str, dict[str, str], int]] = [
            ("/v1/subscribe", {}, 401),
            ("/v1/subscribe", good | {"origin": "https://evil.example"}, 403),
            ("/v1/subscribe", good | {"host": "evil.example"}, 403),
            ("/v1/subscribe?namespace=nobody", good, 404),
            ("/v1/subscribe?where=nonsense(", good, 422),
            ("/v1/runs", good, 422),
            ("/v1/nowhere", good, 404),
        ]
        for path, headers, status in asked:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(f"{server.url}{path}", headers=headers)
            assert refused.value.status == status, path
        own = good | {"origin": server.url}
        async with http.ws_connect(f"{server.url}/v1/subscribe", headers=own) as socket:
            assert not socket.closed


async def test_a_server_that_cannot_answer_an_attempt_closes_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (app, _, _key):
        sent: list[Any] = []
        scope = Caller(app.asgi()).scope("GET", "/v1/subscribe", {}) | {"type": "websocket"}

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await app.asgi()(scope, receive, send)
        assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("leaves_at", ["websocket.accept", "websocket.send", "websocket.close"])
async def test_a_reader_that_leaves_in_the_middle_is_no_trouble_of_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leaves_at: str
) -> None:
    """Servers raise what could not be sent, with all that is in it; none of that may come into the log."""
    async with serving(tmp_path) as (app, _, _key):
        await app.start(ws_flow.options(id="secret-of-a-tenant"), 1)
        api: Any = app.asgi(authenticate=anybody)
        sent: list[str] = []
        heard = [{"type": "websocket.connect"}]

        async def receive() -> Any:
            return heard.pop() if heard else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message["type"])
            if message["type"] == leaves_at:
                raise OSError from ValueError(f"{message} cannot be sent in state CLOSED")
            if message["type"] == "websocket.send":
                api.stop()

        scope = Caller(api).scope("GET", "/v1/subscribe", {}) | {"type": "websocket"}
        async with asyncio.timeout(30):
            await api(scope, receive, send)
        assert sent[-1] == leaves_at
        assert subscribers(app) == 0
    assert [each for each in caplog.records if each.levelname in {"WARNING", "ERROR"}] == []
    assert "secret-of-a-tenant" not in caplog.text
