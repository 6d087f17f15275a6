"""Connections to our own server: cut when the head of a request takes too long, or has no end.

So is one whose body goes on after its answer.

uvicorn waits for the end of a head for as long as it takes, and keeps all of it meanwhile. It also sends the head of an
answer and its body apart, which wakes the caller twice.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
LARGEST_HEAD = 64 * 1024
# A caller who takes nothing of its answer for so long is cut, with what is left of it.
STUCK_SECONDS = 10.0


class CarefulConnection(HttpToolsProtocol):
    """A connection whose caller must say within a few seconds what it wants."""

    _is_in_head = False
    _head_size = 0
    _cutting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", JoinedAnswers(transport, self.loop)))
        self._hurry()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_size = True, 0

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._calm()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._calm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # What was refused before it was read is sent in vain, and maybe for ever.
        if self.cycle.response_complete and self.cycle.more_body:
            self._hurry()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Most heads come in one piece, and cost no timer.
        if self._is_in_head:
            self._head_size += len(data)
            if self._head_size > LARGEST_HEAD:
                self.transport.abort()
            elif self._cutting is None:
                self._hurry()

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm()
        super().connection_lost(exc)

    def _hurry(self) -> None:
        self._calm()
        self._cutting = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _calm(self) -> None:
        if self._cutting is not None:
            self._cutting.cancel()
            self._cutting = None


class JoinedAnswers:
    """A transport that sends the head of an answer together with what follows it at once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._is_closed = False

    def write(self, data: bytes) -> None:
        """Send, or keep what may be the head of an answer until the code that wrote it has had its turn."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        elif data.startswith(b"HTTP/"):
            self._head = data
            self._loop.call_soon(self._send_head)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """End the connection when all is sent, or when nothing of it is taken any more."""
        self._send_head()
        self._transport.close()
        if not self._is_closed:
            self._is_closed = True
            self._cut_unless_less_than(self._transport.get_write_buffer_size() + 1)

    def _cut_unless_less_than(self, before: int) -> None:
        left = self._transport.get_write_buffer_size()
        if left >= before:
            self._transport.abort()
        elif left:
            self._loop.call_later(STUCK_SECONDS, self._cut_unless_less_than, left)

    def _send_head(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
