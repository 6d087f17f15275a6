"""A clock that stands still until a test moves it: hours pass in microseconds."""

import heapq
import itertools
from collections.abc import Callable

FIRST_MS = 1_800_000_000_000


class VirtualAlarm:
    """A call that is due at a virtual time."""

    __slots__ = ("callback", "is_cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class VirtualClock:
    """Implements Clock; time passes only by `advance`, and `set_by` sets the time without any passing."""

    def __init__(self, now: int = FIRST_MS) -> None:
        self._now = now
        self._passed = 0
        self._alarms: list[tuple[int, int, VirtualAlarm]] = []
        self._numbers = itertools.count()

    def now(self) -> int:
        return self._now

    def latest(self) -> int:
        return self._now

    def monotonic(self) -> int:
        return self._passed

    def is_over(self, at: int) -> bool:
        # Virtual time has no moments within a millisecond.
        return self._now >= at

    def call_at(self, at: int, callback: Callable[[], None]) -> VirtualAlarm:
        alarm = VirtualAlarm(callback)
        heapq.heappush(self._alarms, (self._passed + at - self._now, next(self._numbers), alarm))
        return alarm

    def advance(self, ms: int) -> None:
        """Let time pass in one jump, and make the calls that are due by then, once each."""
        self._passed += ms
        self._now += ms
        due = []
        while self._alarms and self._alarms[0][0] <= self._passed:
            due.append(heapq.heappop(self._alarms)[2])
        for alarm in due:
            if not alarm.is_cancelled:
                alarm.callback()

    def due_in(self, is_ignored: Callable[[Callable[[], None]], bool]) -> int | None:
        """Milliseconds until the next call, without those to ignore; None when there is none."""
        due = [at for at, _, alarm in self._alarms if not alarm.is_cancelled and not is_ignored(alarm.callback)]
        return min(due) - self._passed if due else None

    def set_by(self, ms: int) -> None:
        """Set the clock forward or back; calls come when as much time has passed as there was to go, as a loop's do."""
        self._now += ms

    def forget_alarms(self) -> None:
        """What a crashed process had planned does not happen."""
        self._alarms.clear()
