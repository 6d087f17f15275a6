"""Server-sent events: frames with ids, sent until the caller leaves, the source ends or the server stops.

In:   frames from a handler.
Out:  `id`, `event` and `data` lines; a sign of life with an id every few seconds, so that a caller that was cut off
      resumes where it was.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from perdure.http.server_stop import ServerStop

ALIVE_SECONDS = 15.0
# A reader who takes longer for a frame is told where to go on; after the second time nothing is sent any more.
SLOW_SECONDS, CUT_SECONDS = 10.0, 60.0
# One who takes nothing keeps a server that ends for no longer than this.
LAST_SECONDS = 2.0
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


class ReaderGone(ConnectionError):  # noqa: N818 - errors name the trouble
    """The reader of a stream has left, or takes nothing of it."""


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
    since: str,
    stopping: ServerStop,
    is_over: asyncio.Event,
    receive: Callable[[], Awaitable[Any]],
    response: Sender,
) -> None:
    """Send frames until they end, the server stops or the caller has no right to them any more; who leaves frees all.

    `since` is where the caller goes on after while nothing has come.
    A reader who is slow is sent where to go on, and closed; one who takes nothing at all is cut off.
    """

    async def send(frame: Frame) -> None:
        await response.part(encoded(frame) if frame.id or frame.event != "alive" else b": alive\n\n")

    async with aclosing(cast("Any", frames)):
        await response.begin(200, HEADERS)
        if await send_frames(frames, since, stopping, is_over, _until_gone(receive), send):
            await response.part(b"", more=False)


async def send_frames(
    frames: AsyncIterator[Frame],
    since: str,
    stopping: ServerStop,
    is_over: asyncio.Event,
    gone: Coroutine[Any, Any, None],
    send: Callable[[Frame], Awaitable[None]],
) -> bool:
    """The same, however frames are sent; the caller closes them. Answers whether the reader is there at the end."""
    leaving = asyncio.ensure_future(gone)
    stops, revoked = (asyncio.ensure_future(each.wait()) for each in (stopping, is_over))
    coming = asyncio.ensure_future(anext(frames, None))
    sending = _Sending(frames, send, since)
    stops.add_done_callback(sending.hurry)
    try:
        while not sending.is_over:
            waited = {coming, leaving, stops, revoked}
            await asyncio.wait(waited, timeout=ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                sending.note_leaving()
                return False
            if revoked.done():
                await sending.stop()
            elif stops.done():
                # Before what is there to send: that may never end, and is read after the cursor elsewhere.
                await sending.stop(*_farewell(frames))
            elif coming.done():
                await sending.next(coming.result())
                coming = asyncio.ensure_future(anext(frames, None))
            else:
                await sending.alive()
    except ConnectionError:
        sending.note_leaving()
        raise
    finally:
        for task in (coming, leaving, stops, revoked):
            task.cancel()
        await asyncio.gather(coming, leaving, stops, revoked, return_exceptions=True)
    return True


class _Sending:
    """Sends frames, and notices how long the reader takes for them."""

    def __init__(self, frames: object, send: Callable[[Frame], Awaitable[None]], since: str) -> None:
        self._frames = frames
        self._send = send
        # An empty id would make a browser forget the one that it has.
        self._last = since
        self.is_over = False
        self._limit = CUT_SECONDS
        # While something is sent, how long that may take.
        self._timeout: asyncio.Timeout | None = None

    def hurry(self, _: object) -> None:
        """The server ends, and waits for no reader."""
        self._limit = LAST_SECONDS
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + LAST_SECONDS)

    async def next(self, frame: Frame | None) -> None:
        """Send the next one; None is the end."""
        if frame is None:
            self.is_over = True
        else:
            self._last = frame.id
            await self._frame(frame)

    async def stop(self, *farewell: Frame) -> None:
        """Send the reader away."""
        for frame in farewell:
            await self._frame(frame)
        await self._frame(Frame(self._last, {}, "stop"))
        self.is_over = True

    async def alive(self) -> None:
        """Send a sign of life, with where to go on after it."""
        if isinstance(self._frames, HasCursor):
            self._last = self._frames.cursor or self._last
        await self._frame(Frame(self._last, {}, "alive"))

    def note_leaving(self) -> None:
        """The reader has gone."""
        if isinstance(self._frames, HasReader):
            self._frames.left()

    async def _frame(self, frame: Frame) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._limit) as self._timeout:
                await self._send(frame)
                if clock() - began > SLOW_SECONDS:
                    await self._send(Frame(self._last, {"after": self._last}, "gap"))
                    self.is_over = True
        except TimeoutError:
            raise ReaderGone("the reader takes nothing") from None
        finally:
            self._timeout = None


@runtime_checkable
class HasCursor(Protocol):
    """Frames that know where to go on after them, also when none has come for long."""

    @property
    def cursor(self) -> str: ...


@runtime_checkable
class HasReader(Protocol):
    """Frames whose reader is known: it is told that the server ends, and missed when it leaves."""

    def farewell(self) -> Sequence[Frame]:
        """What is sent last when the server ends."""

    def left(self) -> None:
        """The reader has gone, and was not sent away."""


def _farewell(frames: object) -> Sequence[Frame]:
    return frames.farewell() if isinstance(frames, HasReader) else ()


async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
