"""How streams end: with the server, however many there are, and with readers that leave."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from perdure import Perdure
from perdure.app.internals import engine_of
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions

STREAMS, PATIENCE = 50, 60.0
SSE = {"accept": "text/event-stream"}


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
