"""The worker in JavaScript, in a process of its own: it works, is killed, and another one replays what it left."""

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure import Perdure, Run
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from tests.server.in_process import Caller

PROGRAM = Path(__file__).parents[2] / "examples" / "worker.mjs"
NODE = shutil.which("node")
PATIENCE = 60.0


@asynccontextmanager
async def node(url: str, key: str) -> AsyncIterator[Process]:
    """A worker that has registered."""
    assert NODE is not None
    environment = {"PERDURE_URL": url, "PERDURE_KEY": key}
    process = await asyncio.create_subprocess_exec(NODE, str(PROGRAM), stdout=PIPE, stderr=DEVNULL, env=environment)
    try:
        assert process.stdout is not None
        assert b"worker_id" in await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def waits_for(run: Run[object], name: str) -> None:
    """Until the run is parked, and waits for this."""
    async with asyncio.timeout(PATIENCE):
        while name not in [each.name for each in (await run.describe()).waiting_for]:  # noqa: ASYNC110 - as others see it
            await asyncio.sleep(0.05)


@pytest.mark.skipif(NODE is None, reason="there is no node here")
async def test_a_worker_in_javascript_is_killed_and_replayed(tmp_path: Path) -> None:
    """Activity, timer, signal and child of a run whose code is in another language, over a kill -9."""
    async with Perdure(f"sqlite:///{tmp_path / 'js.db'}", worker=False) as app:
        server, key = await begin_server(app, ServerOptions(listen="127.0.0.1:0"))
        call = Caller(app.asgi(), authorization=f"Bearer {key}")
        try:
            async with node(server.url, str(key)) as first:
                body = {"workflow": "greeting", "input": ["ann"], "id": "g", "queue": "js"}
                assert (await call.post("/v1/runs", body)).status == 201
                run = await app.get("g")
                await waits_for(run, "go")
                first.kill()
                await first.wait()
            assert (await call.post("/v1/runs/g/signals", {"name": "go", "payload": "now"})).status == 200
            async with node(server.url, str(key)) as second:
                assert await asyncio.wait_for(run.result(), PATIENCE) == "HELLO ANN, NOW"
                second.terminate()
                assert await asyncio.wait_for(second.wait(), PATIENCE) == 0
            assert f"node-{second.pid}" not in [worker.host for worker in await app.workers.list()]
        finally:
            await server.end(1)
        kinds = [event.kind async for event in run.events()]
    assert kinds == ["RunStarted", "ChildCompleted", "TimerFired", "SignalReceived", "ChildCompleted", "RunCompleted"]
