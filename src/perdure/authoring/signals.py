"""Signals: messages from outside that a workflow waits for."""

import asyncio
import typing
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

from perdure.authoring.durations import Duration, seconds
from perdure.authoring.runtime import answered, required
from perdure.codec import ValueType
from perdure.ids import checked_id

T = TypeVar("T")


class Signal(Generic[T]):
    """A named kind of message with a typed payload: `Signal("approved", bool)` or `Signal[bool]("approved")`.

    Each message is received once, in the order they were sent; those nobody waits
    for yet are kept.
    """

    def __init__(self, name: str, type: type[T] | None = None) -> None:
        self.name = checked_id("signal name", name)
        self._given_type = type
        if type is not None:
            self.payload.refuse_clashes(f"the signal {name!r}")

    @cached_property
    def payload(self) -> ValueType:
        """How payloads are written and restored."""
        if self._given_type is not None:
            return ValueType(self._given_type)
        generic = typing.get_args(getattr(self, "__orig_class__", None))
        return ValueType(generic[0] if generic else Any)

    @cached_property
    def accepts(self) -> bytes | None:
        """The JSON schema of payloads, for people who send them by hand; None when anything will do, or it is long."""
        return self.payload.schema

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

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.payload.annotation)

    def __repr__(self) -> str:
        return f"<signal {self.name}>"
