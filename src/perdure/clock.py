"""The only reader of time.

Out:  engine time in integer milliseconds since 1970 (UTC), and calls at such a time.
Engine time never goes back: when the wall clock is set back, engine time goes on from
where it was until the wall has caught up; when the wall clock is set forward, it follows.
How long something took is measured by another clock, which nobody sets.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from time import monotonic_ns, time_ns
from typing import Protocol

elapsed = time.perf_counter
"""Seconds on a clock that only measures durations of this process's own work."""

wall_ns = time_ns
"""Nanoseconds on the wall clock of this machine, which anybody may set."""

# After so long whoever waits for a time looks at the clock again.
LONGEST_WAIT_MS = 2000


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
        # While the wall clock is behind: where engine time goes on from, and where it is by now.
        self._from_ns = self._from_steady_ns = 0
        self._held_ns = -1
        self._lock = threading.Lock()

    def now(self) -> int:
        now = self._wall_ns()
        if now < self._last_ns:
            return self._not_back()
        self._last_ns = now
        return now // 1_000_000

    def _not_back(self) -> int:
        """Set back, or another thread was quicker: engine time goes on from where it is until the wall catches up."""
        with self._lock:
            steady = self._steady_ns()
            if self._last_ns != self._held_ns:
                self._from_ns, self._from_steady_ns = self._last_ns, steady
            held = self._from_ns + steady - self._from_steady_ns
            self._last_ns = self._held_ns = max(self._last_ns, held)
            return self._last_ns // 1_000_000

    def monotonic(self) -> int:
        return self._steady_ns() // 1_000_000

    def is_over(self, at: int) -> bool:
        return self.now() > at

    def call_at(self, at: int, callback: Callable[[], None]) -> Alarm:
        ms = at + 1 - self.now()
        if ms > LONGEST_WAIT_MS:
            return LongWait(self, at, callback)
        return asyncio.get_running_loop().call_later(max(0, ms) / 1000, callback)


class ToldTime:
    """The wall clock of another machine: what it last said, and what has passed since by the clock nobody sets."""

    def __init__(self, steady_ns: Callable[[], int] = monotonic_ns) -> None:
        self._steady_ns = steady_ns
        self._told: tuple[int, int] | None = None

    def tell(self, wall_ns: int) -> None:
        """It is so late there, or has been a moment ago. Any thread may call."""
        self._told = (wall_ns, self._steady_ns())

    def __call__(self) -> int:
        told = self._told
        return time_ns() if told is None else told[0] + self._steady_ns() - told[1]


class LongWait:
    """A call that is far away: looked after every now and then, and made when its time has come."""

    def __init__(self, clock: SystemClock, at: int, callback: Callable[[], None]) -> None:
        self.at = at
        self._clock = clock
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self.look()

    def look(self) -> None:
        """Make the call, or wait on."""
        ms = self.at + 1 - self._clock.now()
        # A loop's timer does not see that the wall clock was set, or that the machine slept.
        is_last = ms <= LONGEST_WAIT_MS
        wait_ms = max(0, ms) if is_last else LONGEST_WAIT_MS
        self._handle = self._loop.call_later(wait_ms / 1000, self._callback if is_last else self.look)

    def cancel(self) -> None:
        self._handle.cancel()
