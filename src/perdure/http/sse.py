"""Server-sent events: frames with ids, sent until the caller leaves, the source ends or the server stops.

In:   frames from a handler.
Out:  `id`, `event` and `data` lines; a sign of life with an id every few seconds, so that a caller that was cut off
      resumes where it was.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from perdure.http.server_stop import ServerStop

ALIVE_SECONDS = 15.0
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # A proxy that gathers frames would hold them back.
    (b"x-accel-buffering", b"no"),
]


class Frame(msgspec.Struct, frozen=True):
    """One event of a stream; `id` is where the caller goes on after it."""

    id: str
    data: Any
    event: str = "message"


class Sender(Protocol):
    """The answer that frames go into."""

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None: ...

    async def part(self, data: bytes, *, more: bool = True) -> None: ...


def encoded(frame: Frame) -> bytes:
    """A frame as it goes over the wire; JSON has no line breaks, so its data is one line."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        frame.id.encode(),
        frame.event.encode(),
        msgspec.json.encode(frame.data),
    )


async def stream(
    frames: AsyncIterator[Frame], stopping: ServerStop, receive: Callable[[], Awaitable[Any]], response: Sender
) -> None:
    """Send frames until they end; who leaves frees everything at once."""
    leaving = asyncio.ensure_future(_until_gone(receive))
    stops = asyncio.ensure_future(stopping.wait())
    last = ""
    await response.begin(200, HEADERS)
    async with aclosing(cast("Any", frames)):
        coming = asyncio.ensure_future(anext(frames, None))
        try:
            while True:
                await asyncio.wait({coming, leaving, stops}, timeout=ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    return
                if coming.done():
                    frame = coming.result()
                    if frame is None:
                        break
                    last = frame.id
                    await response.part(encoded(frame))
                    coming = asyncio.ensure_future(anext(frames, None))
                elif stops.done():
                    await response.part(encoded(Frame(last, {}, "stop")))
                    break
                else:
                    last = _cursor(frames) or last
                    await response.part(encoded(Frame(last, {}, "alive")) if last else b": alive\n\n")
            await response.part(b"", more=False)
        finally:
            for task in (coming, leaving, stops):
                task.cancel()
            await asyncio.gather(coming, leaving, stops, return_exceptions=True)


@runtime_checkable
class HasCursor(Protocol):
    """Frames that know where to go on after them, also when none has come for long."""

    @property
    def cursor(self) -> str: ...


def _cursor(frames: object) -> str:
    return frames.cursor if isinstance(frames, HasCursor) else ""


async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
