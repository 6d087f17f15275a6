"""Suspects: runs whose workers were lost with them, brought back in groups that get smaller, and in the end alone.

In:   runs that were lost and are brought back, and what they do then.
Out:  whether there is room for another suspect; in the store, what is still held against a run.

A run has got on when everything has ended that was under way when its worker was lost, timers that were due
included: what it began since may tick on beside the very call that kills. A suspect makes room when it has got on,
is let go of, or has ended. One that does none of that is watched for a while and then cleared: should it be what its
workers die of, it will be watched for longer the next time.
"""

from collections.abc import Callable
from typing import NamedTuple

from perdure.clock import Alarm
from perdure.engine.ports import Engine
from perdure.kernel.quarantine import MOST_TOGETHER, is_suspect, patience_ms
from perdure.stores.records import RunRow
from perdure.worker.live_run import LiveRun

# A timer that is due by then is about to let the run's code go on, and that may be what kills.
SOON_MS = 1000


class Watched(NamedTuple):
    """A suspect, and how long it is watched, by the clock that nobody sets."""

    live: LiveRun
    until: int


class Suspects:
    """Watches the suspects of this worker; `look` claims the next one."""

    def __init__(self, engine: Engine, look: Callable[[], None]) -> None:
        self._owner = engine.owner
        self._clock = engine.clock
        self._look = look
        self._alarm: Alarm | None = None
        self.watched: list[Watched] = []

    @property
    def room(self) -> int:
        """How many suspects may be claimed now."""
        return 0 if self.watched else MOST_TOGETHER

    def bring_back(self, live: LiveRun, row: RunRow) -> None:
        """A run that was lost is about to be brought back."""
        live.losses, live.outlived = row.losses, row.outlived
        if is_suspect(row.losses):
            self.watched.append(Watched(live, self._clock.monotonic() + patience_ms(row.outlived)))
            self._schedule()

    def caught_up(self, live: LiveRun) -> None:
        """A run that was lost is where it was then."""
        live.under_way = live.calls_under_way(self._clock.now() + SOON_MS) or None
        if live.under_way is None and is_suspect(live.losses):
            self._clear(live)

    def see(self, live: LiveRun) -> None:
        """A run that was lost has gone a step on."""
        live.under_way = (live.under_way or set()) & live.program.pending.keys()
        if not live.under_way and not live.is_leaving:
            self._clear(live)

    def _clear(self, live: LiveRun) -> None:
        live.under_way = None
        live.losses = 0
        # What it did is on its way to disk, in front of the claim that this makes room for.
        self._owner.note_losses(live.owned, 0, 0)
        self.look_again()

    def look_again(self) -> None:
        """Whether those that are watched make room."""
        if not self.watched:
            return
        self.close()
        self.watched = [watched for watched in self.watched if not self._is_settled(watched)]
        if self.watched:
            self._schedule()
        else:
            self._look()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def clear(self) -> None:
        """All runs are dropped."""
        self.close()
        self.watched = []

    def _schedule(self) -> None:
        if self._alarm is None:
            left = min(watched.until for watched in self.watched) - self._clock.monotonic()
            self._alarm = self._clock.call_at(self._clock.now() + max(left, 1), self.look_again)

    def _is_settled(self, watched: Watched) -> bool:
        live = watched.live
        if live.is_gone or not live.losses:
            return True
        if self._clock.monotonic() >= watched.until:
            self._owner.note_losses(live.owned, 1, live.outlived + 1)
            return True
        return False
