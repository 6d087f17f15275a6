"""Parking: letting go of runs that wait, and of all of them at the end.

In:   live runs that have been quiet.
Out:  rows: what a run waits for, and when it wakes.
A run that is being let go of does nothing until that is settled; what happens to it
meanwhile is put aside, and done if a message came first and it goes on.
"""

from collections.abc import Callable, Collection
from functools import partial

from perdure.engine.ports import Engine, HandBack, Park
from perdure.worker import warnings
from perdure.worker.held import Pausing
from perdure.worker.live_run import LiveRun, LiveRuns
from perdure.worker.messages import IncomingMessages
from perdure.worker.outputs.snapshots import Snapshots
from perdure.worker.timers import tell_broken

SWEEP_MS = 1000
# Beyond so many live runs, those that nobody has written to yet are parked as soon as they wait, and
# while that is worth it they are looked at more often: memory that was once in use is hard to give back.
MANY = 1500
SOON_MS = 50
# After so long without an event a run shows what it waits for.
NOTE_AFTER_MS = 1000


class Parking:
    """Looks at quiet runs once a second."""

    def __init__(
        self,
        engine: Engine,
        runs: LiveRuns,
        messages: IncomingMessages,
        snapshots: Snapshots,
        pausing: Pausing,
        park_after_ms: int,
    ) -> None:
        self._engine = engine
        self._runs = runs
        self._messages = messages
        self._snapshots = snapshots
        self._pausing = pausing
        self._park_after_ms = park_after_ms
        self._unworked = warnings.Unworked(engine)

    def sweep(self, runs: Collection[LiveRun], now: int, *, is_crowded: bool) -> bool:
        """Show what quiet runs wait for; park those that have been quiet for long, or all when it is crowded.

        Answers whether there are many, and many of those were parked at once.
        """
        is_many, hurried = len(runs) >= MANY, 0
        for live in list(runs):
            hurries = is_crowded or (is_many and live.inbox is None)
            try:
                hurried += self._look_at(live, now, hurries=hurries)
            except Exception as error:  # noqa: BLE001 - one failure must not end this loop
                tell_broken("the parking", live, error)
        return is_many and hurried * 10 > len(runs)

    def _look_at(self, live: LiveRun, now: int, *, hurries: bool) -> bool:
        """Park a run or show what it waits for, if it is time; answers whether it was parked because that hurries."""
        idle = now - max(live.owned.state.at, live.alive_since)
        if idle < 0:
            idle = live.quiet_for(now)
        if live.owned.state.seq > warnings.LONG_HISTORY and not live.is_long:
            warnings.tell_long_history(live)
        if live.pause is not None:
            # Something of it was under way, and may have ended without an event.
            self._pausing.hold_if_quiet(live)
            return False
        if live.is_leaving or (idle < NOTE_AFTER_MS and not hurries):
            return False
        if (idle >= self._park_after_ms or hurries) and live.is_waiting_outside():
            self.park(live, now)
            return hurries
        if not live.is_noted and idle >= NOTE_AFTER_MS:
            live.is_noted = True
            self._unworked.look_at(live)
            live.note_undo(self._engine.owner)
            self._engine.owner.note_waiting(live.owned, live.waiting())
        return False

    def park(self, live: LiveRun, now: int) -> None:
        """Let go of a run that only waits, unless it is to go on or to end in a moment."""
        wake_at, ends_at = live.wake_at(now), live.ends_at
        if any(at is not None and at <= now + SWEEP_MS for at in (wake_at, ends_at)):
            return
        if live.program.runtime.exposed is not None:
            self._snapshots.take(live)
        self._release(live, Park(wake_at, live.waiting()), partial(self._parked, live))

    def paused(self, live: LiveRun, is_gone: bool) -> None:
        """A run that was to be paused is held, and leaves; or a message came first, which may take that back."""
        if not is_gone and self._runs.is_stopping:
            self._handed_back(live, is_gone)
        else:
            self._parked(live, is_gone)

    def _parked(self, live: LiveRun, is_gone: bool) -> None:
        if is_gone:
            self._runs.evict(live)
        else:
            live.is_leaving = False
            live.alive_since = self._engine.clock.now()
            self._messages.go_on(live)

    def hand_back_all(self, runs: Collection[LiveRun]) -> None:
        """Let go of all runs because the worker stops."""
        for live in list(runs):
            try:
                self.hand_back(live)
            except Exception as error:  # noqa: BLE001 - one failure must not end this loop
                tell_broken("the handing back", live, error)

    def hand_back(self, live: LiveRun) -> None:
        """Let go of a run because the worker stops: parked if it only waits, else ripe for others at once."""
        if live.is_committing or (live.is_leaving and not live.is_replaying):
            return
        for attempt in live.running.values():
            attempt.leave()
        self._pausing.hold_if_quiet(live)
        if live.is_leaving and not live.is_replaying:
            return
        # One that waits for nothing anybody could bring was interrupted in the middle, by Ctrl-C for one.
        only_waits = (
            not live.is_replaying
            and live.is_waiting_outside()
            and any(call.is_waiting for call in live.program.pending.values())
            and (live.inbox is None or not live.inbox.unread)
        )
        if live.program.runtime.exposed is not None and not live.is_replaying:
            self._snapshots.take(live)
        wake_at = live.wake_at(self._engine.clock.now())
        how = Park(wake_at, live.waiting()) if only_waits else HandBack()
        self._release(live, how, partial(self._handed_back, live))

    def _handed_back(self, live: LiveRun, is_gone: bool) -> None:
        if is_gone:
            self._runs.evict(live)
        else:
            # A message came first: then it is ripe at once.
            self._release(live, HandBack(), lambda _: self._runs.evict(live))

    def _release(self, live: LiveRun, how: Park | HandBack, done: Callable[[bool], None]) -> None:
        live.is_leaving = True
        if live.undo_noted is not None:
            live.note_undo(self._engine.owner)
        self._engine.owner.release(live.owned, how, done)
