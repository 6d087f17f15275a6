"""Deadlines: when the next run ends by the clock, so that somebody looks then and not up to a second later.

In:   when runs are to end, from those who start or cancel them here, and from the store.
Out:  a look at that time.
Knows nothing of how runs are closed. Every process looks: whoever is first closes what nobody owns.
"""

from collections.abc import Callable

from perdure.clock import Alarm, Clock


class Deadlines:
    """One alarm, for the earliest end that is known of; `look` is called then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alarm: Alarm | None = None
        self._alarm_at = 0
        self.look: Callable[[], None] = lambda: None
        self.is_due = False

    def expect(self, at: int | None) -> None:
        """A run ends at this time, unless it has ended before: then the look is for nothing, and no harm."""
        if at is None or (self._alarm is not None and self._alarm_at <= at):
            return
        self.stop()
        self._alarm_at = at
        self._alarm = self._clock.call_at(at, self._ring)

    def stop(self) -> None:
        """Look no more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        self.is_due = True
        self.look()
