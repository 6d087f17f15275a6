"""The connection of a client: what it asks again, how long, and what it does not take for an answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from perdure import Perdure, Signal, workflow
from perdure.app.network.server import begin_server
from perdure.app.network.serving import ServerOptions
from perdure.errors import KeyInProgress, RunNotFound, StoreUnavailable
from perdure.http.problems import problem_of
from perdure.http.remote import aiohttp_transport
from perdure.http.remote.aiohttp_transport import AiohttpTransport
from perdure.http.remote.connection import PATIENCE_MS, Connection
from perdure.http.remote.transport import HttpAnswer
from perdure.testing import VirtualClock

T = TypeVar("T")

PATIENCE = 60.0
connection_go = Signal("connection-go", int)


@workflow
async def connection_flow() -> int:
    return await connection_go.receive()


class Scripted:
    """A transport that does what it is told to, request by request; a stream is a text of frames."""

    def __init__(self, clock: VirtualClock, *steps: Callable[[], HttpAnswer], streams: tuple[bytes, ...] = ()) -> None:
        self.clock = clock
        self.steps = list(steps)
        self.streams = list(streams)
        self.asked: list[Mapping[str, str]] = []

    async def request(self, _method: str, _path: str, headers: Mapping[str, str], _body: bytes | None) -> HttpAnswer:
        self.asked.append(headers)
        return self.steps.pop(0)()

    async def lines(self, _path: str, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        self.asked.append(headers)
        for line in self.streams.pop(0).splitlines(keepends=True):
            yield line

    async def close(self) -> None: ...


def scripted(*steps: Callable[[], HttpAnswer], streams: tuple[bytes, ...] = ()) -> tuple[Connection, Scripted]:
    clock = VirtualClock()
    transport = Scripted(clock, *steps, streams=streams)
    return Connection("http://server", transport, clock, None), transport


async def in_time(clock: VirtualClock, work: Coroutine[Any, Any, T]) -> T:
    """What comes of this, while time passes."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        clock.advance(100)
    return await task


def well() -> HttpAnswer:
    return HttpAnswer(200, {}, b'{"done": true}')


def under_way() -> HttpAnswer:
    return HttpAnswer(409, {}, msgspec.json.encode(problem_of(KeyInProgress("k", "terminate_all", 5), "r")[1]))


async def test_an_answer_that_is_lost_after_long_is_asked_for_again() -> None:
    """Who waits for a result asks for twenty seconds: a server that dies in the last of them is back in a moment."""

    def lost() -> HttpAnswer:
        transport.clock.advance(2 * PATIENCE_MS)
        raise ConnectionError("the server has died")

    connection, transport = scripted(lost, well)
    assert await in_time(transport.clock, connection.get("/v1/runs/-/result")) == b'{"done": true}'


async def test_what_goes_on_after_its_answer_was_lost_is_waited_for() -> None:
    """To end a million runs takes longer than a connection lives; the same key gives the answer in the end."""

    def lost() -> HttpAnswer:
        raise ConnectionError("it took too long")

    connection, transport = scripted(lost, *[under_way] * 100, well)
    assert await in_time(transport.clock, connection.post("/v1/bulk/terminate", {})) == b'{"done": true}'
    assert len({headers["idempotency-key"] for headers in transport.asked}) == 1


async def test_what_is_under_way_for_another_caller_is_told_at_once() -> None:
    connection, transport = scripted(under_way, well)
    with pytest.raises(KeyInProgress):
        await in_time(transport.clock, connection.post("/v1/bulk/terminate", {}, key="k"))
    assert len(transport.asked) == 1


async def test_who_is_sent_elsewhere_is_told_the_address() -> None:
    """A page that says where to go is no answer: it would be read as one, and be a riddle."""

    def moved() -> HttpAnswer:
        return HttpAnswer(308, {"location": "https://shop.example/v1/runs"}, b"<html>moved</html>")

    connection, transport = scripted(moved)
    with pytest.raises(StoreUnavailable, match=r"https://shop\.example/v1/runs"):
        await in_time(transport.clock, connection.get("/v1/runs"))


async def test_a_reader_that_was_too_slow_goes_on_after_the_gap() -> None:
    """What the server says of the stream itself is no event of the run."""
    first = b'id: 1\nevent: event\ndata: {"n": 1}\n\nid: 1\nevent: gap\ndata: {"after": "1"}\n\n'
    second = b'id: 2\nevent: event\ndata: {"n": 2}\n\nid: 2\nevent: end\ndata: {}\n\n'
    connection, transport = scripted(streams=(first, second))

    async def heard() -> list[bytes]:
        return [frame.data async for frame in connection.frames("/v1/runs/-/events")]

    assert await in_time(transport.clock, heard()) == [b'{"n": 1}', b'{"n": 2}']
    assert transport.asked[1]["last-event-id"] == "1"


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[str]:
    """A server that gives these answers, a connection for each."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + left.pop(0))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def in_http(status: bytes, kind: bytes, body: bytes) -> bytes:
    return b"%s\r\ncontent-type: %s\r\nconnection: close\r\n\r\n%s" % (status, kind, body)


STREAM = in_http(b"200 OK", b"text/event-stream", b'id: 1\nevent: event\ndata: {"n": 1}\n\nevent: end\ndata: {}\n\n')


async def heard_from(*answers: bytes) -> list[bytes]:
    async with answering(*answers) as url:
        clock = VirtualClock()
        connection = Connection(url, AiohttpTransport(url), clock, None)

        async def heard() -> list[bytes]:
            return [frame.data async for frame in connection.frames("/v1/runs/-/events")]

        try:
            async with asyncio.timeout(PATIENCE):
                return await in_time(clock, heard())
        finally:
            await connection.close()


async def test_a_stream_is_asked_for_again_while_the_server_cannot_give_it() -> None:
    """As it begins, or while its database is away: as patiently as anything else is."""
    away = msgspec.json.encode(problem_of(StoreUnavailable("sqlite:///x", "it is away"), "r")[1])
    busy = in_http(b"503 Service Unavailable", b"application/problem+json", away)
    assert await heard_from(busy, busy, STREAM) == [b'{"n": 1}']


async def test_a_stream_of_what_is_not_there_is_refused_at_once() -> None:
    missing = msgspec.json.encode(problem_of(RunNotFound("o-1", "main"), "r")[1])
    with pytest.raises(RunNotFound):
        await heard_from(in_http(b"404 Not Found", b"application/problem+json", missing), STREAM)


async def test_callers_who_wait_leave_a_connection_to_others(quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll has one for twenty seconds; else a hundred waits would keep out the signal that they wait for."""
    monkeypatch.setattr(aiohttp_transport, "MOST_CONNECTIONS", 2)
    monkeypatch.setattr(aiohttp_transport, "CONNECT_SECONDS", 1.0)
    async with Perdure(f"sqlite:///{quick_path / 'many.db'}") as app, asyncio.timeout(PATIENCE):
        server, key = await begin_server(app, ServerOptions(listen="127.0.0.1:0"))
        try:
            async with Perdure(server.url, worker=False, key=key) as client:
                runs = [await client.start(connection_flow.options(id=f"r-{n}")) for n in range(6)]
                results = [asyncio.ensure_future(run.result()) for run in runs]
                streams = [asyncio.ensure_future(last_of(run.events(follow=True))) for run in runs]
                for _ in range(3):
                    assert await client.count() == len(runs)
                for n, run in enumerate(runs):
                    await run.signal(connection_go, n)
                assert await asyncio.gather(*results) == list(range(6))
                assert {event.kind for event in await asyncio.gather(*streams)} == {"RunCompleted"}
        finally:
            await server.end(1)


async def last_of(events: AsyncIterator[Any]) -> Any:
    found = None
    async for event in events:
        found = event
    return found
