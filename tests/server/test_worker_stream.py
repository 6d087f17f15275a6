"""The stream of a worker: it is told what it may want to know, and missed when the stream breaks."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure, Signal
from perdure.app.network.mounted import MountedApplication
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from perdure.engine.remote import sessions, workers
from perdure.http.access import anybody
from perdure.stores.operations import RenewWorker
from perdure.testing import Environment
from tests.server.in_process import Caller
from tests.server.keyed import caller_with, key_for
from tests.server.remote_worker import RemoteTestWorker, a_worker, admin_of, claimed, started

wake = Signal("ws_wake", str)


class Reading:
    """A stream that is read in the background."""

    def __init__(self, worker: RemoteTestWorker) -> None:
        self.found: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._worker = worker
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        url = f"/v1/workers/{self._worker.worker_id}/stream?epoch={self._worker.epoch}"
        async with aclosing(self._worker.call.frames(url)) as frames:  # type: ignore[type-var]  # a generator
            async for frame in frames:
                self.found.put_nowait(frame)

    async def next(self, *kinds: str) -> dict[str, Any]:
        """The next frame of one of these kinds."""
        while True:
            frame = await asyncio.wait_for(self.found.get(), 30)
            if frame["event"] in kinds:
                return frame

    async def ended(self) -> None:
        await asyncio.wait_for(self._task, 30)

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def reading(env: Environment, worker: RemoteTestWorker) -> AsyncIterator[Reading]:
    found = Reading(worker)
    await env.settle()
    try:
        yield found
    finally:
        await found.leave()


async def owner_of(env: Environment, id: str = "g-1") -> str | None:
    row = await env.store.reads.run("main", (await env.app.get(id)).run_id)
    assert row is not None
    return row.owner


async def test_a_worker_is_told_of_work_messages_and_cancels_at_once(env: Environment) -> None:
    """The clock stands still: nothing here is found by looking now and then."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        async with reading(env, worker) as stream:
            await started(call)
            assert (await stream.next("work", "message", "cancel"))["event"] == "work"
            (run,) = await claimed(worker)

            handle = await env.app.get("g-1")
            await handle.signal(wake, "now")
            told = await stream.next("message", "cancel")
            assert (told["event"], told["data"]) == ("message", {"run_id": run["run_id"]})
            cancelling = asyncio.ensure_future(handle.cancel("enough"))
            told = await stream.next("message", "cancel")
            assert (told["event"], told["data"]) == ("cancel", {"run_id": run["run_id"]})
            cancelling.cancel()

        # What was told before is not told again after its id.
        again = call.frames(f"/v1/workers/{worker.worker_id}/stream?epoch=1", last_event_id=told["id"])
        async with aclosing(again) as frames:  # type: ignore[type-var]  # a generator
            await handle.signal(wake, "again")
            assert (await anext(frames))["event"] == "message"


async def test_streams_of_workers_end_with_drain_and_stop_when_the_server_ends(env: Environment) -> None:
    async with env:
        application = env.app.asgi(authenticate=anybody)
        assert isinstance(application, MountedApplication)
        worker = await a_worker(Caller(application))
        async with reading(env, worker) as stream:
            application.stop()
            assert [(await stream.next("drain", "stop"))["event"] for _ in range(2)] == ["drain", "stop"]
            await stream.ended()
        # It was sent away: nobody takes it for dead.
        await env.pass_time(4)
        assert (await worker.post("renew")).json["drain"] is True


async def test_a_worker_whose_stream_breaks_is_taken_over_after_two_silent_seconds(env: Environment) -> None:
    async with env:
        call = await admin_of(env)
        first, second = await a_worker(call), await a_worker(call)
        await started(call)
        async with reading(env, first):
            await claimed(first)
        await env.pass_time(1.5)
        assert await owner_of(env) == first.worker_id

        await env.pass_time(1)
        assert await owner_of(env) is None
        assert [run["id"] for run in await claimed(second)] == ["g-1"]
        assert (await first.post("renew")).json["error"] == "LeaseLost"


async def test_a_worker_that_shows_life_after_its_stream_broke_keeps_its_work(env: Environment) -> None:
    """At this server or another one, by a call, or by a claim that waits, or by a new stream."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        async with reading(env, worker):
            await claimed(worker)
        await env.pass_time(1)
        await worker.post("advance", runs=[])
        await env.pass_time(3)
        assert await owner_of(env) == worker.worker_id

        async with reading(env, worker):
            pass
        await env.pass_time(1)
        now = env.clock.now()
        await env.elsewhere([RenewWorker(worker.worker_id, 1, now + 10_000)])
        await env.pass_time(3)
        assert await owner_of(env) == worker.worker_id

        waiting = asyncio.ensure_future(claimed(worker, wait=20))
        async with reading(env, worker):
            pass
        await env.pass_time(4)
        assert await owner_of(env) == worker.worker_id
        await started(call, "g-2")
        assert [run["id"] for run in await waiting] == ["g-2"]

        async with reading(env, worker), reading(env, worker) as older:
            await older.leave()
            await env.pass_time(4)
            assert await owner_of(env) == worker.worker_id


async def test_an_open_stream_of_a_silent_worker_prolongs_nothing(env: Environment) -> None:
    """In a partition the stream seems open for long; the lease decides, and the stream says that it is lost."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        await started(call)
        async with reading(env, worker) as stream:
            await claimed(worker)
            await env.pass_time(8)
            assert await owner_of(env) == worker.worker_id
            await env.pass_time(5)
            assert await owner_of(env) is None
            await stream.next("lost")
            await stream.ended()


async def test_a_stream_is_for_the_worker_alone(env: Environment) -> None:
    """Nobody listens to the worker of another namespace or epoch, or breaks its stream for it."""
    async with env:
        call = await admin_of(env)
        worker = await a_worker(call)
        gpu = caller_with(env, await key_for(env, role="worker", queues=("gpu",)))
        reader = caller_with(env, await key_for(env, role="reader"))
        path = f"/v1/workers/{worker.worker_id}/stream"
        sse = {"accept": "text/event-stream"}
        answers = [
            await call.get(f"{path}?epoch=2", **sse),
            await gpu.get(f"{path}?epoch=1", **sse),
            await reader.get(f"{path}?epoch=1", **sse),
            await call.get(f"{path}?epoch=1"),
            await call.get(f"{path}?epoch=1", last_event_id="x", **sse),
        ]
        assert [(each.status, each.json["error"]) for each in answers] == [
            (409, "LeaseLost"),
            (403, "NotAllowed"),
            (403, "NotAllowed"),
            (422, "BadOption"),
            (422, "BadField"),
        ]
        await env.pass_time(3)
        assert (await worker.post("renew")).status == 200


LISTENER = """
import sys, urllib.request
headers = {"accept": "text/event-stream", "authorization": "Bearer " + sys.argv[2]}
answer = urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers))
print(answer.status, flush=True)
answer.read()
"""


async def test_a_killed_process_is_noticed_by_its_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease would last for ten minutes here, so that only the broken stream can have told."""
    monkeypatch.setattr(sessions, "LEASE_MS", 600_000)
    monkeypatch.setattr(workers, "LEASE_MS", 600_000)
    async with Perdure(f"sqlite:///{tmp_path / 'kill.db'}", worker=False) as app:
        server, key = await begin_server(app, ServerOptions(listen="127.0.0.1:0"))
        try:
            worker = await a_worker(Caller(app.asgi(), authorization=f"Bearer {key}"))
            url = f"{server.url}/v1/workers/{worker.worker_id}/stream?epoch=1"
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", LISTENER, url, str(key), stdout=PIPE)
            assert process.stdout is not None
            assert await asyncio.wait_for(process.stdout.readline(), 60) == b"200\n"
            process.kill()
            await process.wait()
            async with asyncio.timeout(60):
                while await app.workers.list():  # noqa: ASYNC110 - as others see it
                    await asyncio.sleep(0.05)
        finally:
            await server.end(1)
