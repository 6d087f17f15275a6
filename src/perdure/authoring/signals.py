"""Signals: messages from outside that a workflow waits for."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar, cast

from perdure.authoring.channels import Channel
from perdure.authoring.durations import Duration, seconds
from perdure.authoring.runtime import answered, required

T = TypeVar("T")


class Signal(Channel[T]):
    """A named kind of message with a typed payload: `Signal("approved", bool)` or `Signal[bool]("approved")`.

    Each message is received once, in the order they were sent; those nobody waits
    for yet are kept.
    """

    what = "signal"

    async def receive(self, timeout: Duration | None = None) -> T:
        """The next payload; TimeoutError when none came in time."""
        runtime = required(f"receiving the signal {self.name!r}", "send signals from outside with `run.signal(...)`")
        if timeout is None:
            return cast("T", await answered(runtime.calls["signal"](runtime, self)))
        # A message that is there already comes before any timer; so even 0 looks into the inbox.
        try:
            async with asyncio.timeout(max(seconds(timeout, "timeout"), 0.001)):
                return cast("T", await answered(runtime.calls["signal"](runtime, self)))
        except TimeoutError:
            raise TimeoutError(f"no signal {self.name!r} came within {timeout}") from None

    async def __aiter__(self) -> AsyncIterator[T]:
        """Every payload in its turn, for ever: `async for order in orders:`."""
        while True:
            yield await self.receive()
