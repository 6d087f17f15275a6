"""Effects: what programs asked for, started once the event that made them ask is on disk.

In:   calls of a live run.
Out:  steps of that run: how an activity ended, a recorded value, a timer that is due.
Knows nothing of commits, whose caller does, nor of the kinds of calls, each of which knows itself how it starts.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from perdure.engine.ports import Engine
from perdure.worker.activities import ActivityRunner
from perdure.worker.calls.call import Commits, DurableCall
from perdure.worker.inbox import Inbox
from perdure.worker.live_run import LiveRun
from perdure.worker.timers import Alarms

S = TypeVar("S")


class RunEnd:
    """What stands for the end of a run by the clock."""

    is_waiting = True


END = RunEnd()


class DueMessage:
    """What stands for the time of a message in a run's inbox."""

    is_waiting = True


DUE = DueMessage()


class CallPart(Protocol):
    """What calls of a kind share in a worker."""

    def clear(self) -> None:
        """Forget everything: no run is this worker's any more."""

    def abandon(self) -> None:
        """Wait for nothing any more, as if the process had died."""


class Effects:
    """Starts, rings and cancels calls, and does for them what they ask for.

    `advance` gets what comes of them, `fail` what must not be, `expire` a run whose time may be over, `settle` one
    of which a message has come due;
    `advance` takes the live run and the step, and for an activity its result as a replay would restore it. `commits`
    is who goes on with a run when the transaction of an activity is over.
    """

    def __init__(
        self,
        engine: Engine,
        runner: ActivityRunner,
        advance: Callable[..., None],
        fail: Callable[[LiveRun, Exception], None],
        expire: Callable[[LiveRun], None],
        settle: Callable[[LiveRun, None], None],
        commits: Commits,
    ) -> None:
        self.engine = engine
        self.clock = engine.clock
        self.runner = runner
        self.advance = advance
        self.fail = fail
        self._expire = expire
        self._settle = settle
        self.commits = commits
        self._alarms = Alarms(engine.clock, self._ring)
        self.ring_at = self._alarms.add
        self._parts: dict[type[Any], CallPart] = {}
        self.is_stopped = False

    def part(self, kind: type[S]) -> S:
        """What calls of a kind share; made when it is first asked for."""
        found = self._parts.get(kind)
        if found is None:
            made: Any = kind
            found = self._parts[kind] = made(self)
        return cast("S", found)

    def clear(self) -> None:
        """Forget all timers, and what waits for its turn."""
        self._alarms.clear()
        for part in self._parts.values():
            part.clear()

    def abandon(self) -> None:
        """Wait for nothing any more, as if the process had died."""
        for part in self._parts.values():
            part.abandon()

    def tidy(self) -> None:
        """Let go of timers nobody waits for, and of deadlines of what is over."""
        self._alarms.compact()
        self.runner.tidy()

    def start(self, live: LiveRun, calls: list[DurableCall]) -> None:
        """Start what the program asked for; the event that made it ask is on disk."""
        if len(calls) > 1:
            for call in calls:
                if call.starts_first and call.is_waiting and not live.begins_nothing and not self.is_stopped:
                    call.start(live, self)
        for call in calls:
            # A worker that stops begins nothing; the next owner does.
            if live.begins_nothing or self.is_stopped:
                self._put_off(live, calls)
                return
            if call.is_waiting:
                call.start(live, self)

    def _put_off(self, live: LiveRun, calls: list[DurableCall]) -> None:
        """A run that is to be paused begins nothing; but an only attempt whose begin is on disk would be lost."""
        if live.pause is None or self.is_stopped:
            return
        for call in calls:
            if call.is_waiting and (live.owned.begins or {}).get(call.place):
                call.start(live, self)
            elif call.is_waiting and call.place not in live.running:
                live.pause.put_off.setdefault(call.place, False)

    def start_outliving(self, live: LiveRun, calls: list[DurableCall]) -> None:
        """A run ends that has just made these calls: what shall outlive it is started before."""
        for call in calls:
            if call.outlives_its_run and call.is_waiting and not live.is_gone and not self.is_stopped:
                call.start(live, self)

    def try_again(self, live: LiveRun) -> None:
        """Make the attempts that fell due while the run was to be let go of, and ring for those to come."""
        if live.retries is not None:
            waiting = (live.program.pending.get(place) for place in list(live.retries.next_at))
            self.start(live, [call for call in waiting if call is not None])

    def cancel(self, live: LiveRun) -> None:
        """Cancel what nobody waits for any more."""
        for call in live.program.runtime.given_up or ():
            call.cancel_effect(live, self)
        live.program.runtime.given_up = None

    def end_by(self, live: LiveRun, at: int) -> None:
        """The run has to end by this time."""
        self._alarms.add(at, live, END)

    def release_due(self, live: LiveRun, inbox: Inbox) -> bool:
        """Let a run have the messages whose time has come, and ring for the next one; answers whether any is unread."""
        at = inbox.release(self.clock.is_over)
        if at is not None:
            self._alarms.add(at, live, DUE)
        return bool(inbox.unread)

    def _ring(self, live: LiveRun, call: Any) -> None:
        """A time has come that a call wanted to be told of, the end of the run, or the time of a message for it."""
        if call is END:
            self._expire(live)
            return
        if call is DUE:
            if not live.is_leaving and not live.is_committing:
                self._settle(live, None)
            return
        # After a rebuild the one that waits is another one at the same place.
        waiting = live.program.pending.get(call.place)
        if waiting is not None and live.pause is not None:
            live.pause.put_off[call.place] = True
        elif waiting is not None:
            waiting.ring(live, self)
