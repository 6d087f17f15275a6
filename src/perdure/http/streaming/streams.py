"""Streams under way: how many each key has, and that they end when the key does.

In:   callers who open streams; whether their keys are still good.
Out:  TooManyRequests for one too many; word that a key has been revoked, within a second.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.clock import Clock, pause
from perdure.engine.ports import AccessKeys
from perdure.errors import PerdureError, TooManyRequests
from perdure.http.access import Caller

MOST_STREAMS = 100
LOOK_MS = 900


class _Open:
    """The streams of one key, or of one token until it expires."""

    def __init__(self, expires_at: int | None) -> None:
        self.count = 0
        self.expires_at = expires_at
        self.is_over = asyncio.Event()


class OpenStreams:
    """The streams of an application."""

    def __init__(self, keys: AccessKeys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._open: dict[str, _Open] = {}
        self._looking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def one_more(self, caller: Caller) -> AsyncIterator[asyncio.Event]:
        """While a stream of this caller goes on; what is given is set when its key is good no more."""
        name = caller.key_id or f"of {caller.label} {caller.expires_at}"
        mine = self._open.setdefault(name, _Open(caller.expires_at))
        has_end = caller.key_id is not None or caller.expires_at is not None
        if has_end and mine.count >= MOST_STREAMS:
            raise TooManyRequests(f"the key {caller.label!r} has {MOST_STREAMS} streams open already")
        mine.count += 1
        if has_end and self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        try:
            yield mine.is_over
        finally:
            mine.count -= 1
            if not mine.count and self._open.get(name) is mine:
                del self._open[name]
            if not self._open and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look(self) -> None:
        """Look again and again whether the keys of open streams are good."""
        while True:
            await pause(self._clock, LOOK_MS)
            for name, found in list(self._open.items()):
                if not await self._is_good(name, found):
                    self._open.pop(name, None)
                    found.is_over.set()

    async def _is_good(self, name: str, found: _Open) -> bool:
        if name.startswith("of "):
            return found.expires_at is None or found.expires_at > self._clock.now()
        try:
            return await self._keys.good(name) is not None
        except PerdureError:
            # Nobody can have revoked it in a database that is not there; and the others are looked at all the same.
            return True
