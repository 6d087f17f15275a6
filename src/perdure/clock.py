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

steady_ns = monotonic_ns
"""Nanoseconds on the clock of this machine that nobody sets."""

# After so long whoever waits for a time looks at the clock again.
LONGEST_WAIT_MS = 2000
# Two machines' clocks drift apart by less than one part in so many: 100 µs a second.
DRIFT = 10_000
# To the microsecond the server tells its time; what is below that is cut off.
TOLD_NS = 1000


class Alarm(Protocol):
    """A call that is due later and can be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Where the engine gets its time from; tests put a clock of their own here."""

    def now(self) -> int:
        """Engine time in milliseconds; never ahead of the clock that all processes on the database share."""

    def latest(self) -> int:
        """Engine time at the latest that it can be by that clock: what lasts for a while is counted from here.

        Whoever ends it goes by `is_over`, which is true at the earliest: so it is never too short, though the two
        may be different processes, one of which knows the time better than the other.
        """

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

    # On one machine all look at the same clock.
    latest = now

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
    """The wall clock of another machine, as far as its answers tell: not before, and not after.

    It read its clock after it was asked and before its answer was here. So by now it is at least what it said and what
    has passed since the answer came; and at most what it said and what has passed since the question was sent. An
    answer that took long says little: of several, those bounds hold that are closest.
    """

    def __init__(self, steady_ns: Callable[[], int] = monotonic_ns) -> None:
        self._steady_ns = steady_ns
        # Both bounds, and when they were that by the clock nobody sets.
        self._told: tuple[int, int, int] | None = None

    def tell(self, wall_ns: int, asked_ns: int) -> None:
        """It said that it is so late, asked at that moment of the clock nobody sets. Any thread may call."""
        answered_ns = self._steady_ns()
        low, high = wall_ns, wall_ns + answered_ns - asked_ns + TOLD_NS
        if self._told is not None:
            known_low, known_high, at_ns = self._told
            passed = answered_ns - at_ns
            known_low += passed - passed // DRIFT - 1
            known_high += passed + passed // DRIFT + 1
            # Bounds that have no moment in common tell that somebody has set that clock: then the last one holds.
            if known_low <= high and low <= known_high:
                low, high = max(low, known_low), min(high, known_high)
        self._told = (low, high, answered_ns)

    def __call__(self) -> int:
        """The earliest that it can be there by now."""
        told = self._told
        if told is None:
            return time_ns()
        passed = self._steady_ns() - told[2]
        return told[0] + passed - passed // DRIFT - 1

    def latest(self) -> int:
        """The latest that it can be there by now."""
        told = self._told
        if told is None:
            return time_ns()
        passed = self._steady_ns() - told[2]
        return told[1] + passed + passed // DRIFT + 1


class SharedClock(SystemClock):
    """The clock of a database's server, as this process knows it."""

    def __init__(self, told: ToldTime, steady_ns: Callable[[], int] = monotonic_ns) -> None:
        super().__init__(told, steady_ns)
        self._told = told

    def latest(self) -> int:
        # Where the server's clock was set back, engine time is ahead of it.
        return max(self.now(), self._told.latest() // 1_000_000)


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


async def pause(clock: Clock, ms: int) -> None:
    """Wait so long by a clock."""
    woken = asyncio.Event()
    alarm = clock.call_at(clock.now() + ms, woken.set)
    try:
        await woken.wait()
    finally:
        alarm.cancel()
