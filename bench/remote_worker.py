"""What a worker over a server does, beside one that opens the database itself.

    python -m bench.remote_worker [--store postgres] [--runs 3000]

Runs of five steps are there before; a worker in a process of its own does them, five hundred at once. The server is a
process too: on few processors it and its worker share what the worker beside the database has for itself.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench import processes
from bench.findings import Finding, conclude
from bench.schedules import database
from bench.turns import Spent, in_turns
from perdure import Perdure, activity, workflow
from perdure.app.internals import engine_of
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from perdure.cli.commands.serve import GC_THRESHOLDS

IN_FLIGHT, STEPS, ROUNDS, BITE = 500, 5, 3, 2000
QUEUE = "bench-remote"


@activity
async def bench_remote_step(number: int) -> int:
    return number


@workflow
async def bench_remote_run(number: int) -> int:
    for each in range(STEPS):
        await bench_remote_step(each)
    return number


async def work(url: str, runs: int) -> None:
    """A worker in a process of its own, until it has ended so many runs."""
    async with Perdure(url, queues=(QUEUE,), workflows=[bench_remote_run], max_live=IN_FLIGHT) as app:
        counted = Requests(app) if url.startswith("http") else None
        began = time.perf_counter()
        while app.worker_stats().closed < runs:  # noqa: ASYNC110 - its figures wake nobody
            await asyncio.sleep(0.01)
        took = time.perf_counter() - began
        print(f"requests {0 if counted is None else counted.count}", flush=True)
        print(f"seconds {took}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


class Requests:
    """Counts what a worker asks its server."""

    def __init__(self, app: Perdure) -> None:
        engine: Any = engine_of(app)
        transport = engine._connection._transport
        self._ask = transport.request
        self.count = 0
        transport.request = self._counted

    async def _counted(self, *asked: Any) -> Any:
        self.count += 1
        return await self._ask(*asked)


async def serve(url: str) -> None:
    """A server in a process of its own, as `perdure serve` starts it."""
    import gc  # noqa: PLC0415 - of this process alone

    gc.set_threshold(*GC_THRESHOLDS)
    async with Perdure(url, worker=False) as app:
        server, _ = await begin_server(app, ServerOptions(listen="127.0.0.1:0", no_auth=True))
        print(f"port {server.url.rpartition(':')[2]}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await server.end(1)


class Served(NamedTuple):
    """A server in a process of its own."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def served(url: str) -> Iterator[Served]:
    """A server over this database."""
    process = processes.begun("bench.remote_worker", "--serve", url)
    try:
        yield Served(int(processes.said(process, "port")), process.pid)
    finally:
        processes.end(process)


async def measured(store: str, runs: int) -> list[Finding]:
    requests: list[float] = []
    with database(store) as url, served(url) as server:
        async with Perdure(url, worker=False) as client:

            async def done_by(where: str) -> Spent:
                call = bench_remote_run.options(queue=QUEUE)
                for first in range(0, runs, BITE):
                    await client.start_many(*(call.call(each) for each in range(first, min(first + BITE, runs))))
                worker = processes.begun("bench.remote_worker", "--work", where, "--runs", runs)
                asked = await asyncio.to_thread(processes.said, worker, "requests")
                spent = Spent()
                spent.seconds = await asyncio.to_thread(processes.said, worker, "seconds")
                await asyncio.to_thread(processes.end, worker)
                if where != url:
                    requests.append(asked)
                return spent

            turns = await in_turns(ROUNDS, embedded=lambda: done_by(url), remote=lambda: done_by(server.url))
    own, over = (runs / turns.seconds(side) for side in ("embedded", "remote"))
    steps = runs * STEPS
    return [
        Finding("runs of five steps beside the database", own, "/s"),
        Finding("runs of five steps over a server", over, "/s"),
        Finding("over a server, of beside the database", 1 / turns.times("remote", "embedded"), "", 0.3, True),
        Finding("steps for each request", steps / max(requests), "", 20, True),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgres"])
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--serve", metavar="URL")
    parser.add_argument("--work", metavar="URL")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.serve))
    elif given.work:
        asyncio.run(work(given.work, given.runs))
    else:
        command = f"python -m bench.remote_worker --store {given.store} --runs {given.runs}"
        sys.exit(conclude(f"remote-worker-{given.store}", command, asyncio.run(measured(given.store, given.runs))))
