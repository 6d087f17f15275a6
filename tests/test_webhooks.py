"""Webhooks: a real receiver on this machine that checks signatures, fails, hangs, redirects and is gone."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest
from aiohttp import web
from standardwebhooks import Webhook as Receiver

from perdure import BadSink, Log, OutboxEvent, Perdure, SinkFailed, Webhook, workflow
from perdure.app.internals import engine_of
from perdure.engine.outbox.sinks import NotDelivered
from perdure.http import webhooks
from perdure.http.webhooks import WebhookSender, body_of, pause_of

SECRET = "a secret that nobody can guess"
EVENT = OutboxEvent("r-1:1", "run.started", datetime(2027, 1, 1, tzinfo=UTC), "main", "r-1", "o-1", "pay", 1, {"a": 1})


@asynccontextmanager
async def receiver(answer: Callable[[web.Request, bytes], object]) -> AsyncIterator[str]:
    """A server on a free port; what the function gives is the answer, or is waited for."""

    async def handle(request: web.Request) -> web.StreamResponse:
        given = answer(request, await request.read())
        if asyncio.iscoroutine(given):
            given = await given
        return given if isinstance(given, web.StreamResponse) else web.Response(status=int(str(given)))

    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}/hook"
    finally:
        await runner.cleanup()


async def send(url: str, secret: str | tuple[str, str] = SECRET) -> None:
    sender = WebhookSender(Webhook(url, secret, allow_private=True))
    try:
        await sender.send(EVENT)
    finally:
        await sender.close()


async def test_a_receiver_can_check_who_sent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the old secret and by the new one, while they are rotated."""
    new = "another secret that nobody knows"
    monkeypatch.setenv("NEW_HOOK_SECRET", new)
    got: list[object] = []

    def answer(request: web.Request, body: bytes) -> int:
        for secret in (SECRET, new):
            headers = {name.lower(): value for name, value in request.headers.items()}
            got.append(Receiver(secret.encode()).verify(body.decode(), headers))
        got.append(request.headers["webhook-id"])
        return 204

    async with receiver(answer) as url:
        await send(url, ("env:NEW_HOOK_SECRET", SECRET))
    told = {
        "type": "run.started",
        "timestamp": "2027-01-01T00:00:00Z",
        "data": {"id": "r-1:1", "namespace": "main", "a": 1},
    }
    assert got == [told, told, "r-1:1"]


async def test_everything_but_a_success_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redirects are not followed, a hanging receiver is given up, 410 means never again."""
    monkeypatch.setattr(webhooks, "TIMEOUT_SECONDS", 0.2)
    asked: list[str] = []

    def answer(request: web.Request, body: bytes) -> object:
        asked.append(request.path)
        match request.path:
            case "/hook/busy":
                return web.Response(status=503, headers={"retry-after": "120"})
            case "/hook/gone":
                return 410
            case "/hook/moved":
                return web.Response(status=302, headers={"location": "/hook/elsewhere"})
            case _:
                return asyncio.sleep(0.5, 200)

    async with receiver(answer) as url:
        with pytest.raises(NotDelivered, match="503") as busy:
            await send(f"{url}/busy")
        assert (busy.value.pause_ms, busy.value.is_gone) == (120_000, False)
        with pytest.raises(NotDelivered, match="410") as gone:
            await send(f"{url}/gone")
        assert gone.value.is_gone
        with pytest.raises(NotDelivered, match="302"):
            await send(f"{url}/moved")
        with pytest.raises(NotDelivered, match="no answer"):
            await send(f"{url}/hangs")
        assert "/hook/elsewhere" not in asked
    with pytest.raises(NotDelivered, match="connect|Connect"):
        await send(url)


async def test_private_addresses_are_refused_when_the_connection_is_made() -> None:
    """A name may lead to an address inside, whatever it led to when the sink was made."""
    sender = WebhookSender(Webhook("https://hook.example", SECRET))
    resolver = sender._resolver()
    with pytest.raises(NotDelivered, match="private address 127"):
        await resolver.resolve("localhost", 443)
    await resolver.close()
    await sender.close()


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "\uff11\uff12\uff17.0.0.1",
        "127\u30020\u30020\u30021",
        "\u24dbocalhost",
        "[::ffff:10.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[fec0::1]",
        "[fe80::1%25eth0]",
    ],
)
def test_private_addresses_are_refused_however_they_are_written(host: str) -> None:
    """What is written as an address is not looked up, so that nothing else would refuse it."""
    with pytest.raises(BadSink, match="private address"):
        Webhook(f"https://{host}/hook", SECRET).refuse_private()


@pytest.mark.parametrize("host", ["8.8.8.8", "[2001:4860:4860::8888]", "[64:ff9b::808:808]", "bücher.example"])
def test_public_addresses_are_not_refused(host: str) -> None:
    Webhook(f"https://{host}/hook", SECRET).refuse_private()


async def test_an_address_in_letters_that_only_the_connection_reads_is_refused_there() -> None:
    """Digits of a newer Unicode than Python's own table of host names."""
    sender = WebhookSender(Webhook("https://\U0001fbf1\U0001fbf2\U0001fbf7.0.0.1:9/hook", SECRET))
    with pytest.raises(NotDelivered, match="private address 127"):
        await sender.send(EVENT)
    await sender.close()


async def test_a_secret_that_is_not_in_the_environment_is_told() -> None:
    with pytest.raises(NotDelivered, match="NO_SUCH_SECRET"):
        await send("http://127.0.0.1:9/", "env:NO_SUCH_SECRET")


def test_what_makes_a_body_too_large_is_left_out() -> None:
    large = msgspec.structs.replace(EVENT, data={"input": "x" * 15_000, "attributes": {"y": "y" * 15_000}, "step": "s"})
    body = msgspec.json.decode(body_of(large))
    assert body["data"]["left_out"] == ["input"]
    assert len(body_of(large)) < 20_000
    with pytest.raises(NotDelivered, match="the most is 20,000"):
        body_of(msgspec.structs.replace(EVENT, data={"other": "x" * 30_000}))


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (None, 0),
        ("7", 7000),
        ("soon", 0),
        ("²", 0),
        ("9" * 5000, 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00", 0),
        ("Wed, 21 Oct 2015 07:28:00 -0000", 0),
    ],
)
def test_the_pause_that_a_receiver_asks_for(text: str | None, ms: int) -> None:
    assert pause_of(text) == ms


@workflow
async def webhook_nothing() -> None: ...


async def test_a_webhook_is_told_end_to_end() -> None:
    """On the machine's own clock: started, told, noted; and one that is gone pauses the sink."""
    told: list[str] = []
    has_come = asyncio.Event()

    def answer(request: web.Request, body: bytes) -> int:
        told.append(msgspec.json.decode(body)["type"])
        if "run.completed" in told:
            has_come.set()
        return 410 if request.path == "/hook/gone" else 200

    async with receiver(answer) as url, Perdure("sqlite://") as app:
        await app.outbox.add("crm", Webhook(url, SECRET, allow_private=True), events=("run.*",))
        await app.outbox.test("crm")
        assert told == ["outbox.test"]
        await app.run(webhook_nothing)
        await asyncio.wait_for(has_come.wait(), 30)
        assert told[1:] == ["run.started", "run.completed"]
        await app.outbox.add("gone", Webhook(f"{url}/gone", SECRET, allow_private=True), events=("run.completed",))
        with pytest.raises(SinkFailed, match="410"):
            await app.outbox.test("gone")
        await app.outbox.add("log", Log(), events=("run.*",))
        await app.run(webhook_nothing)
        async with asyncio.timeout(30):
            while (await app.outbox.get("gone")).state != "paused":  # noqa: ASYNC110 - on the real clock
                await asyncio.sleep(0.05)


async def test_a_secret_that_changes_while_an_event_is_under_way_costs_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was sent ends as it was begun, and what comes after it is signed anew; nothing is sent twice."""
    new = "another secret that nobody knows"
    got: list[tuple[str, bool]] = []
    has_come, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request, body: bytes) -> int:
        headers = {name.lower(): value for name, value in request.headers.items()}
        signed = [part for part in headers["webhook-signature"].split() if part]
        got.append((msgspec.json.decode(body)["type"], len(signed) == 2))
        has_come.set()
        await may_answer.wait()
        return 204

    async with receiver(answer) as url, Perdure("sqlite://") as app:
        sink = Webhook(url, SECRET, allow_private=True)
        await app.outbox.add("crm", sink, events=("run.*",), max_attempts=1)
        await app.run(webhook_nothing)
        await asyncio.wait_for(has_come.wait(), 30)
        await app.outbox.update("crm", target=Webhook(url, (new, SECRET), allow_private=True))
        async with asyncio.timeout(30):
            while engine_of(app)._sinks._sinks["crm"][1]._sink.target == sink:  # type: ignore[union-attr]  # ours  # noqa: ASYNC110 - a few turns
                await asyncio.sleep(0.01)
        may_answer.set()
        async with asyncio.timeout(30):
            while (found := await app.outbox.get("crm")).backlog:  # noqa: ASYNC110 - on the real clock
                await asyncio.sleep(0.05)
        assert (found.dead, found.error, found.delivered) == (0, None, 2)
        assert got == [("run.started", False), ("run.completed", True)]


async def test_a_sink_that_is_removed_lets_its_connections_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only at the end of the process, which may stay for months."""
    has_come, is_closed = asyncio.Event(), asyncio.Event()
    close = WebhookSender.close

    async def closing(self: WebhookSender) -> None:
        await close(self)
        is_closed.set()

    def answer(request: web.Request, body: bytes) -> int:
        has_come.set()
        return 200

    monkeypatch.setattr(WebhookSender, "close", closing)
    async with receiver(answer) as url, Perdure("sqlite://") as app:
        await app.outbox.add("crm", Webhook(url, SECRET, allow_private=True), events=("run.*",))
        await app.run(webhook_nothing)
        await asyncio.wait_for(has_come.wait(), 30)
        assert await app.outbox.remove("crm")
        await asyncio.wait_for(is_closed.wait(), 30)
