"""Streams over HTTP: how late a frame is, and what is left of readers who have gone.

    python -m bench.http_frames [--store postgres] [--streams 100000]

The run is worked by one process, served by another and followed by this one: by frames, and by `events(follow=True)`
beside the database.
"""

import argparse
import asyncio
import statistics
import sys
import time
from typing import Any

from bench import processes
from bench.findings import Finding, conclude
from bench.remote_worker import Served, served
from bench.schedules import database
from bench.vitals import vitals
from perdure import Perdure, Run, Signal, workflow

FOLLOWED, AT_ONCE, EARLY_SHARE = 60, 50, 10

go = Signal("bench-go", int)


@workflow
async def bench_frames_run(number: int) -> int:
    return number + await go.receive()


async def work(url: str) -> None:
    """A worker in a process of its own."""
    async with Perdure(url, workflows=[bench_frames_run]):
        print("up 1", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def lateness(url: str, server: Served) -> Finding:
    """How late the end of a run is told by a frame, of by events beside the database."""
    worker = processes.begun("bench.http_frames", "--work", url)
    processes.said(worker, "up")
    late: dict[str, list[float]] = {"events": [], "frames": []}
    async with Perdure(url, worker=False) as beside, Perdure(server.url, worker=False) as over:
        for number in range(FOLLOWED):
            run = await beside.start(bench_frames_run.options(id=f"followed-{number}"), number)
            there: dict[str, Run[Any]] = {"events": run, "frames": await over.get(run.id)}
            told = [asyncio.create_task(_told(each)) for each in there.values()]
            # Both wait for what comes.
            await asyncio.sleep(0.2)
            await run.signal(go, 1)
            for name, seconds in zip(there, await asyncio.gather(*told), strict=True):
                late[name].append(seconds)
    await asyncio.to_thread(processes.end, worker)
    ratio = statistics.median(late["frames"]) / statistics.median(late["events"])
    return Finding("a frame, times as late as by events(follow=True)", ratio, "", 2)


async def _told(run: Run[int]) -> float:
    async for event in run.events(follow=True):
        if event.kind == "RunCompleted":
            return time.time() - event.at.timestamp()
    raise AssertionError("the stream ended before the run")


async def memory(url: str, server: Served, streams: int) -> Finding:
    """What the server grows by while so many streams come and go, after the first tenth of them."""
    async with Perdure(url, worker=False) as app:
        run = await app.start(bench_frames_run.options(queue="nobody works this"), 1)
        await _come_and_go(server.port, run.id, streams // EARLY_SHARE)
        before = vitals(server.pid).rss_mb
        await _come_and_go(server.port, run.id, streams - streams // EARLY_SHARE)
        grown = vitals(server.pid).rss_mb - before
        return Finding(f"memory of a server after {streams:,} streams, grown by", grown, " MB", 10)


async def _come_and_go(port: int, id: str, count: int) -> None:
    async def some() -> None:
        for _ in range(count // AT_ONCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"GET /v1/runs/{id}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
            writer.write(head.encode())
            await reader.readuntil(b"RunStarted")
            writer.close()
            await writer.wait_closed()

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def measured(store: str, streams: int) -> list[Finding]:
    with database(store) as url, served(url) as server:
        return [await lateness(url, server), await memory(url, server, streams)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgres"])
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--work", metavar="URL")
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(given.work))
    else:
        command = f"python -m bench.http_frames --store {given.store} --streams {given.streams}"
        sys.exit(conclude(f"http-frames-{given.store}", command, asyncio.run(measured(given.store, given.streams))))
