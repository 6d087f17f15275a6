"""Suspects: runs whose workers were lost with them, brought back one at a time.

In:   a suspect that was claimed.
Out:  whether there is room for another one.

A suspect makes room when it has shown progress, is let go of, or has ended; one that only waits is let go of
at once. One that does neither is watched for a while and then cleared: should it be what its workers die of,
it will be watched for longer the next time.
"""

from collections.abc import Callable
from typing import NamedTuple

from perdure.clock import Alarm
from perdure.engine.port import Engine
from perdure.kernel.poison import patience_ms
from perdure.stores.records import LoadedRun
from perdure.worker.live import LiveRun

LOOK_AGAIN_MS = 10


class Watched(NamedTuple):
    """A suspect, how far it had come when it was claimed, and how long it is watched."""

    live: LiveRun
    mark: int
    until: int


class Suspects:
    """Watches the suspects of this worker; `park` lets go of one that only waits, `look` claims the next."""

    def __init__(self, engine: Engine, park: Callable[[LiveRun, int], None], look: Callable[[], None]) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._park = park
        self._look = look
        self._alarm: Alarm | None = None
        self.watched: list[Watched] = []

    @property
    def room(self) -> int:
        """How many suspects may be claimed now."""
        return 0 if self.watched else 1

    def watch(self, live: LiveRun, loaded: LoadedRun) -> None:
        """A suspect is about to be brought back."""
        mark = live.owned.state.seq + len(loaded.attempts)
        self.watched.append(Watched(live, mark, self._clock.now() + patience_ms(loaded.row.outlived)))
        self._schedule()

    def look_again(self) -> None:
        """Whether those that are watched make room."""
        self.stop()
        self.watched = [watched for watched in self.watched if not self._is_settled(watched)]
        if self.watched:
            self._schedule()
        else:
            self._look()

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def clear(self) -> None:
        """All runs are dropped."""
        self.stop()
        self.watched = []

    def _schedule(self) -> None:
        if self._alarm is None:
            self._alarm = self._clock.call_at(self._clock.now() + LOOK_AGAIN_MS, self.look_again)

    def _is_settled(self, watched: Watched) -> bool:
        live, now = watched.live, self._clock.now()
        # What it did is on its way to disk, in front of the claim that this makes room for.
        if live.is_gone or live.mark != watched.mark:
            return True
        if now >= watched.until:
            self._engine.clear_suspect(live.owned)
            return True
        if not live.is_leaving and live.is_waiting_outside():
            self._park(live, now)
        return False
