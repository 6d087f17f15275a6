"""The end of a server: who waits is answered, streams end, nothing new is begun.

In:   the word that it is time to stop.
Out:  the same to everything that would otherwise wait for long.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class ServerStop:
    """Says whether the server stops, and breaks off waits when it does."""

    def __init__(self) -> None:
        self._stops = asyncio.Event()

    @property
    def is_set(self) -> bool:
        return self._stops.is_set()

    def stop(self) -> None:
        """Let everything that waits be answered now."""
        self._stops.set()

    async def wait(self) -> None:
        """Until the server stops."""
        await self._stops.wait()

    async def within(self, waiting: Awaitable[T], seconds: float) -> T | None:
        """What is waited for; None when it has not come in time, or the server stops."""
        wanted = asyncio.ensure_future(waiting)
        stops = asyncio.ensure_future(self._stops.wait())
        try:
            await asyncio.wait({wanted, stops}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return wanted.result() if wanted.done() else None
        finally:
            for task in (wanted, stops):
                task.cancel()
            await asyncio.gather(wanted, stops, return_exceptions=True)
