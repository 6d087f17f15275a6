"""The only reader of time.

Out:  engine time in integer milliseconds since 1970 (UTC), and calls at such a time.
Engine time never goes back: when the wall clock is set back it goes on at the
rate of the monotonic clock; when it is set forward it follows.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

elapsed = time.perf_counter
"""Seconds on a clock that only measures durations of this process's own work."""


class Alarm(Protocol):
    """A call that is due later and can be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where the engine gets its time from; tests put a clock of their own here."""

    def now(self) -> int:
        """Engine time in milliseconds."""

    def call_at(self, at: int, callback: Callable[[], None]) -> Alarm:
        """Call back on the running loop at about this engine time; whoever is called looks at now() again."""


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        monotonic = time.monotonic_ns()
        offset = time.time_ns() - monotonic
        self._offset_ns = max(self._offset_ns, offset)
        return (monotonic + self._offset_ns) // 1_000_000

    def call_at(self, at: int, callback: Callable[[], None]) -> Alarm:
        loop = asyncio.get_running_loop()
        # One hour at most: a loop's timer does not see that the machine slept.
        return loop.call_later(min(max(0, at - self.now()) / 1000, 3600.0), callback)
