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
# A reader who takes longer for a frame is told where to go on; after the second time nothing is sent any more.
SLOW_SECONDS, CUT_SECONDS = 10.0, 60.0
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
    frames: AsyncIterator[Frame],
    stopping: ServerStop,
    is_over: asyncio.Event,
    receive: Callable[[], Awaitable[Any]],
    response: Sender,
) -> None:
    """Send frames until they end, the server stops or the caller has no right to them any more; who leaves frees all.

    A reader who is slow is sent where to go on, and closed; one who takes nothing at all is cut off.
    """
    async with aclosing(cast("Any", frames)):
        leaving = asyncio.ensure_future(_until_gone(receive))
        stops, revoked = (asyncio.ensure_future(each.wait()) for each in (stopping, is_over))
        coming = asyncio.ensure_future(anext(frames, None))
        sending, last = _Sending(response), ""
        try:
            await response.begin(200, HEADERS)
            while True:
                waited = {coming, leaving, stops, revoked}
                await asyncio.wait(waited, timeout=ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    return
                if revoked.done():
                    await sending.frame(Frame(last, {}, "stop"))
                    break
                if coming.done():
                    frame = coming.result()
                    if frame is None:
                        break
                    last = frame.id
                    await sending.frame(frame)
                    coming = asyncio.ensure_future(anext(frames, None))
                elif stops.done():
                    await sending.frame(Frame(last, {}, "stop"))
                    break
                else:
                    last = _cursor(frames) or last
                    await sending.frame(Frame(last, {}, "alive"))
                if sending.is_slow:
                    await sending.frame(Frame(last, {"after": last}, "gap"))
                    break
            await response.part(b"", more=False)
        finally:
            for task in (coming, leaving, stops, revoked):
                task.cancel()
            await asyncio.gather(coming, leaving, stops, revoked, return_exceptions=True)


class _Sending:
    """Sends frames, and notices how long the reader takes for them."""

    def __init__(self, response: Sender) -> None:
        self._response = response
        self.is_slow = False

    async def frame(self, frame: Frame) -> None:
        data = encoded(frame) if frame.id or frame.event != "alive" else b": alive\n\n"
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(CUT_SECONDS):
                await self._response.part(data)
        except TimeoutError:
            raise ConnectionError("the reader takes nothing") from None
        self.is_slow = clock() - began > SLOW_SECONDS


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
