"""How streams end: with the server, however many there are, and with readers that leave."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from perdure import Perdure, activity, workflow
from perdure.app.internals import engine_of
from perdure.app.network.server import begin_server, end_server
from perdure.app.network.serving import ServerOptions
from perdure.http.access import anybody
from perdure.http.mounting.connections import JoinedAnswers
from perdure.http.server_stop import ServerStop
from perdure.http.streaming import sse
from perdure.http.streaming.sse import Frame, ReaderGone
from tests.server.in_process import Caller

STREAMS, PATIENCE = 50, 60.0
SSE = {"accept": "text/event-stream"}
begun = asyncio.Event()


@activity
async def ends_never() -> None:
    begun.set()
    await asyncio.Event().wait()


@workflow
async def ends_flow() -> None:
    await ends_never()


async def test_a_server_with_open_streams_ends_when_it_is_asked_to(tmp_path: Path) -> None:
    """Left to itself, a server would wait for its streams until somebody kills it."""
    words = ("serve", "--url", f"sqlite:///{tmp_path}/s.db", "--listen", "127.0.0.1:0", "--no-auth")
    server = await asyncio.create_subprocess_exec(sys.executable, "-m", "perdure", *words, stdout=PIPE, stderr=DEVNULL)
    try:
        assert server.stdout is not None
        url = msgspec.json.decode(await asyncio.wait_for(server.stdout.readline(), PATIENCE))["url"]
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as http, asyncio.timeout(PATIENCE):
            asked = (http.get(f"{url}/v1/subscribe", headers=SSE) for _ in range(STREAMS))
            streams = await asyncio.gather(*asked)
            server.terminate()
            ends = await asyncio.gather(*(stream.content.read() for stream in streams))
            assert all(b"event: stop" in end for end in ends)
            assert await server.wait() == 0
    finally:
        if server.returncode is None:
            server.kill()
        await server.wait()


async def test_readers_that_leave_without_a_word_leave_nothing_behind(tmp_path: Path) -> None:
    async with Perdure(f"sqlite:///{tmp_path / 's.db'}", worker=False) as app:
        server, _ = await begin_server(app, ServerOptions(listen="127.0.0.1:0", no_auth=True))
        engine: Any = engine_of(app)
        try:
            before = len(asyncio.all_tasks())
            async with aiohttp.ClientSession() as http:
                streams = [await http.get(f"{server.url}/v1/subscribe", headers=SSE) for _ in range(5)]
                assert len(engine.subscriptions._subscribers) == len(streams)
                for stream in streams:
                    stream.close()
                async with asyncio.timeout(PATIENCE):
                    while engine.subscriptions._subscribers or len(asyncio.all_tasks()) > before:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
        finally:
            await server.end(1)


async def test_a_reader_that_takes_nothing_does_not_keep_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for as long as it is only slow; a server that ends has no time for that."""
    monkeypatch.setattr(sse, "LAST_SECONDS", 0.01)
    stop, taking = ServerStop(), asyncio.Event()

    class Stuck:
        async def begin(self, status: int, headers: object) -> None: ...

        async def part(self, data: bytes, *, more: bool = True) -> None:
            taking.set()
            await asyncio.Event().wait()

    async def frames() -> Any:
        yield Frame("1", {})

    streaming = asyncio.ensure_future(sse.stream(frames(), "", stop, asyncio.Event(), asyncio.Event().wait, Stuck()))
    await taking.wait()
    stop.stop()
    with pytest.raises(ReaderGone):
        await asyncio.wait_for(streaming, PATIENCE)


@pytest.mark.parametrize(("sizes", "is_cut"), [([500, 500], True), ([500, 499, 0], False), ([0], False)])
def test_who_takes_nothing_of_an_answer_is_cut_and_who_is_slow_is_not(sizes: list[int], is_cut: bool) -> None:
    """What is left of an answer is kept for as long as its connection."""
    said = list[str]()
    later = list[Any]()

    class Transport:
        def get_write_buffer_size(self) -> int:
            return sizes.pop(0) if len(sizes) > 1 else sizes[0]

        def __getattr__(self, name: str) -> Any:
            return lambda: said.append(name)

    class Loop:
        def call_later(self, _: float, call: Any, *given: Any) -> None:
            later.append((call, given))

    loop: Any = Loop()
    transport: Any = Transport()
    sizes.insert(0, sizes[0])
    JoinedAnswers(transport, loop).close()
    while later:
        call, given = later.pop()
        call(*given)
    assert said == (["close", "abort"] if is_cut else ["close"])


async def test_who_has_not_finished_when_the_time_of_a_server_is_over_is_told(quick_path: Path) -> None:
    """It asks again elsewhere; there is nothing wrong that a traceback would tell of."""
    async with Perdure(f"sqlite:///{quick_path / 's.db'}", worker=False) as app:
        api: Any = app.asgi(authenticate=anybody)
        said = list[Any]()

        async def send(message: Any) -> None:
            said.append(message)

        scope = Caller(api).scope("POST", "/v1/runs", {"content-type": "application/json"})
        asking = asyncio.ensure_future(api(scope, asyncio.Event().wait, send))
        await asyncio.sleep(0)
        api.stop()
        asking.cancel()
        await asking
        assert said[0]["status"] == 503


async def test_a_server_and_its_activities_have_one_time_to_end_in(quick_path: Path) -> None:
    """Two of them, one after the other, are longer than who asked for one will wait."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        async with Perdure(f"sqlite:///{quick_path / 's.db'}", grace=3600) as app:
            server, _ = await begin_server(app, ServerOptions(listen="127.0.0.1:0", no_auth=True))
            await app.start(ends_flow)
            await begun.wait()
            port = int(server.url.rpartition(":")[2])
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n")
            while not server_tasks(server):  # noqa: ASYNC110 - as others see it
                await asyncio.sleep(0.01)
            await end_server(app, server, 1)
            writer.close()
            ended_at = loop.time()
    assert loop.time() - ended_at < PATIENCE


def server_tasks(server: Any) -> int:
    """How many requests are under way."""
    return len(server._uvicorn.server_state.tasks)
