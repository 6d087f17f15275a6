"""Alarms: what runs wait for by the clock, all under one alarm set for the earliest."""

import heapq
import itertools
import logging
from collections.abc import Callable
from typing import Any, Protocol

from perdure.clock import Alarm, Clock

log = logging.getLogger("perdure.worker")


class Ringing(Protocol):
    """What an alarm is set for."""

    @property
    def is_waiting(self) -> bool: ...


class Ringer(Protocol):
    """The live run that an alarm is set for."""

    is_gone: bool

    @property
    def run_id(self) -> str: ...


class Alarms:
    """Timers to fire, activities to try again and runs to end; `ring` is called with each when its time has come."""

    def __init__(self, clock: Clock, ring: Callable[[Any, Any], None]) -> None:
        self._clock = clock
        self._ring_one = ring
        self._heap: list[tuple[int, int, Ringer, Ringing]] = []
        self._numbers = itertools.count()
        self._alarm: Alarm | None = None
        self._alarm_at = 0

    def add(self, at: int, live: Ringer, call: Ringing) -> None:
        """Ring for this call, not before the given time."""
        heapq.heappush(self._heap, (at, next(self._numbers), live, call))
        if self._alarm is None or at < self._alarm_at:
            self._set()

    def compact(self) -> None:
        """Forget what nobody waits for any more: runs that ended or were parked, timers that were cancelled."""
        self._heap = [entry for entry in self._heap if not entry[2].is_gone and entry[3].is_waiting]
        heapq.heapify(self._heap)

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._set()

    def _set(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._heap:
            self._alarm_at = self._heap[0][0]
            self._alarm = self._clock.call_at(self._alarm_at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        while self._heap and self._clock.is_over(self._heap[0][0]):
            _, _, live, call = heapq.heappop(self._heap)
            if not live.is_gone:
                self._ring_for(live, call)
        self._set()

    def _ring_for(self, live: Ringer, call: Ringing) -> None:
        """Ring for one run; what fails there must not keep the others from being rung for."""
        try:
            self._ring_one(live, call)
        except Exception as error:  # noqa: BLE001 - one failure must not end this loop
            tell_broken("an alarm", live, error)


def tell_broken(what: str, live: Ringer, error: Exception) -> None:
    """Log that something of ours has failed for one run, while it goes on for the others."""
    text, fields = "%s of run %s failed; the other runs go on", {"event": "broken", "run_id": live.run_id}
    log.error(text, what, live.run_id, exc_info=error, extra=fields)
