"""How answers are made and sent: in one piece, without waiting, and with what is on disk."""

import asyncio
import socket

import pytest

from perdure import Perdure, Signal, workflow
from perdure.http.access import anybody
from perdure.http.mounting.connections import JoinedAnswers
from perdure.http.server import Listening, _bound
from tests.server.in_process import Caller

go = Signal("answers-go", int)


@workflow
async def answers_waiter(number: int = 1) -> int:
    return number + await go.receive()


@pytest.fixture(params=["file", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """A database of each kind."""
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_url"))
    return f"sqlite:///{request.getfixturevalue('quick_path')}/test.db"


class SentBytes:
    """What a transport was told to send, a piece for each call of the system."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.pieces.append(data)

    def close(self) -> None:
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return 0


async def test_the_head_of_an_answer_goes_with_its_body() -> None:
    sent = SentBytes()
    answers = JoinedAnswers(sent, asyncio.get_running_loop())  # type: ignore[arg-type]
    answers.write(b"HTTP/1.1 200 OK\r\n\r\n")
    answers.write(b"{}")
    assert sent.pieces == [b"HTTP/1.1 200 OK\r\n\r\n{}"]
    answers.write(b"more")
    assert sent.pieces[1:] == [b"more"]


async def test_a_head_that_nothing_follows_goes_by_itself() -> None:
    sent = SentBytes()
    answers = JoinedAnswers(sent, asyncio.get_running_loop())  # type: ignore[arg-type]
    answers.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await asyncio.sleep(0)
    assert sent.pieces == [b"HTTP/1.1 200 OK\r\n\r\n"]
    answers.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    answers.close()
    assert sent.pieces[1:] == [b"HTTP/1.1 204 No Content\r\n\r\n"]
    assert sent.is_closed


async def test_no_answer_waits_for_the_acknowledgement_of_another() -> None:
    """Nagle and delayed acknowledgements together would add 40 ms to every answer."""
    listening = _bound(Listening("127.0.0.1", 0))
    listening.listen()
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sock = transport.get_extra_info("socket")
            accepted.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    server = await asyncio.get_running_loop().create_server(Accepting, sock=listening)
    _, writer = await asyncio.open_connection(*listening.getsockname())
    assert await accepted == 1
    writer.close()
    server.close()


async def test_what_a_start_answers_is_what_is_on_disk(url: str) -> None:
    async with Perdure(url, worker=False, workflows=[answers_waiter]) as app:
        call = Caller(app.asgi(authenticate=anybody))
        rich = {"id": "rich", "priority": 7, "timeout": 60, "delay": 30, "entity_id": "e", "correlation_id": "c"}
        for options in ({}, {**rich, "attributes": {"a": 1}}):
            wanted = {"workflow": "answers_waiter", "input": [3], "queue": "nobody", **options}
            answer = await call("POST", "/v1/runs", wanted)
            batch = await call("POST", "/v1/runs/batch", {"runs": [{**wanted, "id": f"{options.get('id')}-batch"}]})
            for said in (answer.json, batch.json["items"][0]["run"]):
                found = (await call.get(f"/v1/runs/{said['id']}")).json
                # Why it does not move is told of one that could have.
                assert said == {**found, "waiting_for": []}
