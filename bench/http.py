"""What HTTP costs: starts beside starts in process, keys, followers, and a page among many runs.

    python -m bench.http [--store postgres] [--starts 2000] [--followers 1000] [--many 100000]

The server is in this process and its callers in another one: processor time is that of the server alone. All sides
take turns on one database. A bare route is an ASGI function on the same server that reads the same body and answers as
many bytes.
"""

import argparse
import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from bench.schedules import database
from bench.turns import Spent, in_turns, spending
from perdure import Perdure, activity, workflow
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from perdure.http.access import anybody
from perdure.http.server import Listening, Server
from perdure.http.server_stop import ServerStop

CONNECTIONS, ROUNDS, LOOKS = 32, 5, 50
FEW, BITE = 1000, 2000
ELSEWHERE = "nobody works this"
BODY = json.dumps({"workflow": "bench_http_run", "input": [17], "queue": ELSEWHERE}).encode()


@activity
async def bench_http_step(number: int) -> int:
    return number


@workflow
async def bench_http_run(number: int) -> int:
    for each in range(5):
        await bench_http_step(each)
    return number


class Callers:
    """A process that sends requests, a line of JSON for each round."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def do(self, **what: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def callers() -> AsyncIterator[Callers]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.http", "--calls", stdin=PIPE, stdout=PIPE
    )
    try:
        yield Callers(process)
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def serving(app: Perdure, *, no_auth: bool) -> AsyncIterator[tuple[int, str | None]]:
    server, key = await begin_server(app, ServerOptions(listen="127.0.0.1:0", no_auth=no_auth))
    try:
        yield int(server.url.rpartition(":")[2]), key
    finally:
        await server.end(1)


@asynccontextmanager
async def bare(size: int) -> AsyncIterator[int]:
    """The port of a server whose only route reads a body and answers so many bytes."""
    answer = b" " * size

    async def route(_: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        head = [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 201, "headers": head})
        await send({"type": "http.response.body", "body": answer})

    server = Server(route, Listening("127.0.0.1", 0), ServerStop())
    await server.begin()
    try:
        yield int(server.url.rpartition(":")[2])
    finally:
        await server.end(1)


async def starts(store: str, count: int) -> None:
    """Starts by HTTP beside a bare route and starts in process."""
    with database(store) as url:
        async with AsyncExitStack() as stack:
            app = await stack.enter_async_context(Perdure(url, worker=False, workflows=[bench_http_run]))
            calls = await stack.enter_async_context(callers())
            with_key, key = await stack.enter_async_context(serving(app, no_auth=False))
            without, _ = await stack.enter_async_context(serving(app, no_auth=True))
            size = await calls.do(port=with_key, key=key, count=1)
            route = await stack.enter_async_context(bare(size))

            async def by(port: int, key: str | None = None) -> Spent:
                with spending() as spent:
                    await calls.do(port=port, key=key, count=count)
                return spent

            async def in_process() -> Spent:
                wanted = bench_http_run.options(queue=ELSEWHERE)

                async def some() -> None:
                    for _ in range(count // CONNECTIONS):
                        await app.start(wanted, 17)

                with spending() as spent:
                    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))
                return spent

            turns = await in_turns(
                ROUNDS,
                bare=partial(by, route),
                in_process=in_process,
                keyless=partial(by, without),
                http=partial(by, with_key, key),
            )
    us = {side: turns.cpu_ms(side) / count * 1e3 for side in ("bare", "in_process", "keyless", "http")}
    print("processor time of a start, us: " + ", ".join(f"{side} {value:.0f}" for side, value in us.items()))
    print(f"by HTTP: {us['http'] / (us['bare'] + us['in_process']):.2f} times bare + in process (bar at most 2)")
    print(f"the key: {turns.cpu_times('http', 'keyless'):.2f} times without (bar at most 1.2)")
    rate, own = count / turns.seconds("http"), count / turns.seconds("in_process")
    print(f"{CONNECTIONS} connections: {rate:,.0f}/s, in process {own:,.0f}/s: {rate / own:.2f} (bar at least 0.3)")


async def followed(store: str, followers: int, runs: int) -> None:
    """What runs cost while many others are followed, beside nobody following."""
    with database(store) as url:
        async with AsyncExitStack() as stack:
            app = await stack.enter_async_context(Perdure(url, workflows=[bench_http_run]))
            wanted = bench_http_run.options(queue=ELSEWHERE)
            ids = [(await app.start(wanted, 1)).id for _ in range(followers)]
            calls = await stack.enter_async_context(callers())
            port, _ = await stack.enter_async_context(serving(app, no_auth=True))

            async def work() -> Spent:
                with spending() as spent:
                    await asyncio.gather(*(app.run(bench_http_run, number) for number in range(runs)))
                return spent

            async def watched() -> Spent:
                await calls.do(port=port, follow=ids)
                spent = await work()
                await calls.do(leave=True)
                return spent

            turns = await in_turns(ROUNDS, nobody=work, followers=watched)
    print(f"{followers:,} followers: {turns.cpu_times('followers', 'nobody'):.2f} times nobody (bar at most 1.1)")


async def page_among(store: str, many: int) -> None:
    """The processor time of a page of a hundred runs, among few and among many."""
    with database(store, in_memory=True) as url:
        async with Perdure(url, worker=False, workflows=[bench_http_run]) as app:
            wanted, there, took = bench_http_run.options(queue=ELSEWHERE), 0, []
            for count in (FEW, many):
                while there < count:
                    bite = min(BITE, count - there)
                    await app.start_many(*(wanted.call(1) for _ in range(bite)))
                    there += bite
                took.append(await _page_ms(app))
    print(
        f"a page among {FEW:,}: {took[0]:.2f} ms, among {many:,}: {took[1]:.2f} ms, {took[1] / took[0]:.2f} (bar 1.5)"
    )


async def _page_ms(app: Perdure) -> float:
    api = app.asgi(authenticate=anybody)
    scope = {"type": "http", "method": "GET", "path": "/v1/runs", "headers": [], "query_string": b"limit=100"}
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        said.append(message)

    with spending() as spent:
        for _ in range(LOOKS):
            await api(dict(scope), receive, send)
    assert {message["status"] for message in said[::2]} == {200}
    return spent.cpu_s / LOOKS * 1e3


# The process that calls.


async def call() -> None:
    """Do what lines on stdin say, and answer each by a line."""
    lines, following = asyncio.StreamReader(), list[asyncio.StreamWriter]()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        what = json.loads(line)
        answer: Any = None
        if "count" in what:
            many = min(CONNECTIONS, what["count"])
            each = what["count"] // many
            found = await asyncio.gather(*(_starts(what["port"], what["key"], each) for _ in range(many)))
            answer = found[0]
        elif "follow" in what:
            following += [await _follow(what["port"], id) for id in what["follow"]]
        else:
            for writer in following:
                writer.close()
            following.clear()
        print(json.dumps(answer), flush=True)


async def _starts(port: int, key: str | None, count: int) -> int:
    """So many starts on one connection; the size of the last answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    shown = "" if key is None else f"authorization: Bearer {key}\r\n"
    head = f"POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{shown}"
    request = f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY
    size = 0
    for _ in range(count):
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 201 " in answer, answer
        size = int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)
    writer.close()
    return size


async def _follow(port: int, id: str) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /v1/runs/{id}/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n".encode())
    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b"RunStarted")
    return writer


async def main(store: str, count: int, followers: int, many: int) -> None:
    await starts(store, count)
    await followed(store, followers, count // 4)
    await page_among(store, many)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="sqlite", choices=["sqlite", "postgres"])
    parser.add_argument("--starts", type=int, default=2000)
    parser.add_argument("--followers", type=int, default=1000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--calls", action="store_true")
    given = parser.parse_args()
    asyncio.run(call() if given.calls else main(given.store, given.starts, given.followers, given.many))
