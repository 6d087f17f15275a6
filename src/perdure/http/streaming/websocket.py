"""WebSockets: the same frames as server-sent events, each a text of JSON with `id`, `event` and `data`.

In:   frames from a handler; whatever the caller sends is read and dropped.
Out:  texts, and an end with a code; a refusal before it begins is the same problem that any route answers with.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from typing import Any, TypeAlias, cast

import msgspec

from perdure.http.access import AsgiScope
from perdure.http.server_stop import ServerStop
from perdure.http.streaming.sse import Frame, ReaderGone, send_frames

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

ENDED = 1000
# Where a server cannot answer an attempt with a problem.
REFUSED = 1008
WITH_ANSWER = "websocket.http.response"


def answering(scope: AsgiScope, send: Send) -> Send:
    """A way to answer an attempt with a response, as if it were a request; where there is none it is closed."""
    can_answer = WITH_ANSWER in (scope.get("extensions") or {})

    async def answer(message: MutableMapping[str, Any]) -> None:
        if can_answer:
            await send({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            await send({"type": "websocket.close", "code": REFUSED})

    return answer


async def stream(
    frames: AsyncIterator[Frame], since: str, stopping: ServerStop, is_over: asyncio.Event, receive: Receive, send: Send
) -> None:
    """Send frames until they end, the server stops or the caller leaves, as a stream of events does.

    Who leaves is no trouble of the server's, and so it ends without a word.
    """

    async def send_one(frame: Frame) -> None:
        await _sent(send, {"type": "websocket.send", "text": msgspec.json.encode(frame).decode()})

    with suppress(ReaderGone):
        async with aclosing(cast("Any", frames)):
            await _sent(send, {"type": "websocket.accept"})
            if await send_frames(frames, since, stopping, is_over, _until_gone(receive), send_one):
                await _sent(send, {"type": "websocket.close", "code": ENDED})


async def _sent(send: Send, message: MutableMapping[str, Any]) -> None:
    """Hand a message to the server below; ReaderGone, without what that raised: its text may hold the message."""
    try:
        await send(message)
    except Exception:  # noqa: BLE001 - each server has its own error for a connection that is closed
        raise ReaderGone from None


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass
