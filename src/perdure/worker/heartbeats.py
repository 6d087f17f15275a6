"""Heartbeats: what activities say of themselves while they run, written down now and then.

In:   calls of heartbeat(), from tasks and threads, as often as code likes.
Out:  the newest details of each call, in the store, at most about once a second.

When an attempt was last heard of is kept in memory alone: only its own worker asks for it.
"""

import asyncio
import math
from asyncio.events import _get_running_loop
from collections.abc import Sequence
from typing import Any, Protocol

from perdure.authoring.activity_context import SAME_DETAILS
from perdure.clock import Alarm, Clock
from perdure.codec import ValueType
from perdure.engine.committer import collecting_later
from perdure.engine.ports import Engine, OwnedRun
from perdure.kernel.status import OPEN
from perdure.stores.records import CallProgress
from perdure.worker.activities import Ended, RunningAttempt

# Details of one call are not written more often, nor more often than every third of the time it may be silent for.
WRITE_AFTER_MS = 1000
# So often it is looked for those that are due, so that they are written together.
PULSE_MS = 500
# What counts beyond this is encoded with more care.
MANY = 2**53
# Of details that are on their way to disk.
NOT_BEFORE_THAT = 2**62

_DETAILS = ValueType(Any)


class BeatServices(Protocol):
    """What writing heartbeats takes."""

    engine: Engine
    clock: Clock


def recorded_details(details: object) -> str:
    """Details as JSON; BadValue."""
    return _DETAILS.record(details, "the details of heartbeat()")[0].decode()


def restored_details(known: CallProgress | None) -> object:
    """Details as the next attempt finds them."""
    if known is None or known.details is None:
        return None
    return _DETAILS.restore(known.details.encode(), "the details of heartbeat()")


class BeatingAttempt(RunningAttempt):
    """An attempt whose code may say that it is alive, and how far it is."""

    __slots__ = (
        "_count",
        "_heartbeats",
        "_monotonic",
        "details",
        "gap_ms",
        "is_unwritten",
        "owned",
        "place",
        "write_ms",
    )

    def __init__(
        self,
        ended: Ended,
        timeout: float,
        heartbeat: float | None,
        owned: OwnedRun,
        place: str,
        heartbeats: "Heartbeats",
    ) -> None:
        super().__init__(ended, timeout, heartbeat)
        self._heartbeats = heartbeats
        self._monotonic = heartbeats.monotonic
        self.owned = owned
        self.place = place
        known = None if owned.progress is None else owned.progress.get(place)
        self.details = None if known is None else known.details
        self._count: int | None = None
        self.gap_ms = max(WRITE_AFTER_MS, math.ceil((heartbeat or 0) * 1000 / 3))
        self.is_unwritten = False
        # When the details may be written again; 0 as long as they never were.
        self.write_ms = 0

    def heartbeat(self, details: object) -> None:
        """The code is alive; CancelledError when nobody waits for it any more. Any thread may call."""
        if self._ended is None:
            if self.is_cancelled:
                raise asyncio.CancelledError("nobody waits for this activity any more")
            return
        self.beat_ms = self._monotonic()
        if type(details) is int and -MANY < details < MANY:
            # Most count something; what cannot change, nor be refused, is encoded when it is written.
            self._count = details
        elif details is not SAME_DETAILS:
            self.details = recorded_details(details)
            self._count = None
        if not self.is_unwritten:
            self.is_unwritten = True
            self._heartbeats.add(self)

    @property
    def newest_details(self) -> str | None:
        """The newest details as JSON."""
        count = self._count
        return self.details if count is None else str(count)

    def leave(self) -> None:
        if self.is_unwritten and not self.is_over:
            self._heartbeats.write([self])

    def last_words(self) -> CallProgress | None:
        """The details the attempt gave, for the next one; None when it never beat."""
        return self._heartbeats.progress_of(self) if self.is_unwritten or self.write_ms else None


class Heartbeats:
    """Writes the newest details of all activities of a worker."""

    def __init__(self, services: BeatServices) -> None:
        self._owner = services.engine.owner
        self.clock = services.clock
        self.monotonic = services.clock.monotonic
        self._loop = asyncio.get_running_loop()
        self._unwritten: list[BeatingAttempt] = []
        self._alarm: Alarm | None = None
        self._begins = False

    def add(self, attempt: BeatingAttempt) -> None:
        """Write its newest details, right away or when that is due again. Any thread may call."""
        if _get_running_loop() is self._loop:
            self._add(attempt)
            return
        try:
            self._loop.call_soon_threadsafe(self._add, attempt)
        except RuntimeError:
            # The loop is closed: the worker is gone, and others have its runs.
            return

    def _add(self, attempt: BeatingAttempt) -> None:
        self._unwritten.append(attempt)
        if attempt.write_ms:
            self._set_alarm()
        elif not self._begins:
            # With all others that beat for the first time in this turn of the loop.
            self._begins = True
            self._loop.call_soon(self._write_first)

    def write(self, attempts: Sequence[BeatingAttempt]) -> None:
        """Write the newest details of attempts of one run, as far as they are still wanted."""
        now, owned = self.monotonic(), attempts[0].owned
        for attempt in attempts:
            attempt.is_unwritten = False
        wanted = [attempt for attempt in attempts if not attempt.is_over] if owned.state.status in OPEN else []
        for attempt in wanted:
            attempt.write_ms = NOT_BEFORE_THAT

        def written() -> None:
            for attempt in wanted:
                attempt.write_ms = now + attempt.gap_ms

        if wanted:
            self._owner.record_beats(owned, [self.progress_of(attempt) for attempt in wanted], written)

    def progress_of(self, attempt: BeatingAttempt) -> CallProgress:
        """What there is to know of an attempt's call."""
        at = self.clock.now() - (self.monotonic() - attempt.beat_ms)
        return CallProgress(attempt.place, details=attempt.newest_details, beat_at=at)

    def _set_alarm(self) -> None:
        if self._alarm is None:
            self._alarm = self.clock.call_at(self.clock.now() + PULSE_MS, self._pulse)

    def _write_first(self) -> None:
        self._begins = False
        self._write_due()

    def _pulse(self) -> None:
        self._alarm = None
        self._write_due()

    def _write_due(self) -> None:
        now, waiting = self.monotonic(), self._unwritten
        self._unwritten = [attempt for attempt in waiting if attempt.write_ms > now and not attempt.is_over]
        due: dict[str, list[BeatingAttempt]] = {}
        for attempt in waiting:
            if attempt.write_ms <= now:
                due.setdefault(attempt.owned.run_id, []).append(attempt)
        with collecting_later():
            for attempts in due.values():
                self.write(attempts)
        if self._unwritten:
            self._set_alarm()

    def clear(self) -> None:
        """Forget everything: no run is this worker's any more."""
        self._unwritten.clear()

    def abandon(self) -> None:
        """Write nothing more."""
        self.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
