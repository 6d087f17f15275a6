"""The only reader of time.

Out:  engine time in integer milliseconds since 1970 (UTC), and calls at such a time.
Engine time never goes back: when the wall clock is set back, engine time goes on from
where it was; when the wall clock is set forward, it follows. How long something took is
measured by another clock, which nobody sets.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from time import monotonic_ns, time_ns
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

    def monotonic(self) -> int:
        """Milliseconds on a clock that nobody sets; only differences mean anything, and only in this process."""

    def is_over(self, at: int) -> bool:
        """Whether this millisecond is over: a timer set somewhere within one must not fire within another."""

    def call_at(self, at: int, callback: Callable[[], None]) -> Alarm:
        """Call back on the running loop when about this millisecond is over; whoever is called looks again."""


class SystemClock:
    """The machine's clock, kept from going back; a simulator may give it other sources of time, in nanoseconds."""

    def __init__(self, wall_ns: Callable[[], int] = time_ns, steady_ns: Callable[[], int] = monotonic_ns) -> None:
        self._wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._last_ns = 0
        self._ahead_ns = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        now = self._wall_ns() + self._ahead_ns
        if now < self._last_ns:
            return self._not_back()
        self._last_ns = now
        return now // 1_000_000

    def _not_back(self) -> int:
        """Set back, or another thread was quicker: engine time stays where it is and goes on from there."""
        with self._lock:
            behind = self._last_ns - self._wall_ns() - self._ahead_ns
            if behind > 0:
                self._ahead_ns += behind
            return self._last_ns // 1_000_000

    def monotonic(self) -> int:
        return self._steady_ns() // 1_000_000

    def is_over(self, at: int) -> bool:
        return self.now() > at

    def call_at(self, at: int, callback: Callable[[], None]) -> Alarm:
        loop = asyncio.get_running_loop()
        # One hour at most: a loop's timer does not see that the machine slept.
        return loop.call_later(min(max(0, at + 1 - self.now()) / 1000, 3600.0), callback)
