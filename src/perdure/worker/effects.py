"""Effects: what programs asked for, started once the event that made them ask is on disk.

In:   calls of a live run.
Out:  steps of that run: how an activity ended, a recorded value, a timer that is due.
Knows nothing of commits; whoever calls it does.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perdure.authoring.activity_context import running
from perdure.engine.ports import Engine
from perdure.errors import BadInput
from perdure.kernel import events
from perdure.kernel.commands import FireTimer, RecordOutcome
from perdure.kernel.events import ActivityCompleted, ValueRecorded
from perdure.kernel.retry import is_retryable, next_attempt_at
from perdure.stores.records import Attempt as FailedAttempt
from perdure.worker.activities import ActivityRunner, Manner, manner_of, run_at_once
from perdure.worker.calls.pending import (
    Pending,
    PendingActivity,
    PendingChild,
    PendingSignal,
    PendingTimer,
    PendingValue,
)
from perdure.worker.children import Children
from perdure.worker.failures.failures import failure_of
from perdure.worker.live_run import LiveRun
from perdure.worker.timers import END, Alarms, End

Raw = msgspec.Raw

SIDE_EFFECT_TIMEOUT = 60.0


class Effects:
    """Starts activities, timers, children and side effects.

    `advance` gets what comes of them, `fail` what must not be, `expire` a run whose time may be over;
    `advance` takes the live run and the step, and for an activity its result as a replay would restore it.
    """

    def __init__(
        self,
        engine: Engine,
        runner: ActivityRunner,
        advance: Callable[..., None],
        fail: Callable[[LiveRun, Exception], None],
        expire: Callable[[LiveRun], None],
    ) -> None:
        self._owner = engine.owner
        self._clock = engine.clock
        self._runner = runner
        self._advance = advance
        self._fail = fail
        self._expire = expire
        self._alarms = Alarms(engine.clock, self._ring)
        self._children = Children(engine, advance)
        self._manners: dict[Callable[..., Any], Manner] = {}
        self.is_stopped = False

    def clear(self) -> None:
        """Forget all timers, and the children that wait for their turn."""
        self._alarms.clear()
        self._children.clear()

    def abandon(self) -> None:
        """Wait for nothing any more, as if the process had died."""
        self._children.abandon()

    def tidy(self) -> None:
        """Let go of timers nobody waits for, and of deadlines of what is over."""
        self._alarms.compact()
        self._runner.tidy()

    def start(self, live: LiveRun, calls: list[Pending]) -> None:
        """Start what the program asked for; the event that made it ask is on disk."""
        if len(calls) > 1:
            # An activity that ends at once may end the run with it; children that were called are started all the same.
            self._start_children(live, calls)
        for call in calls:
            # A worker that stops begins nothing; whoever gets the run does.
            if live.is_gone or self.is_stopped:
                return
            if not call.is_waiting:
                continue
            match call:
                case PendingActivity():
                    self._start_activity(live, call)
                case PendingTimer():
                    self._alarms.add(call.fire_at, live, call)
                case PendingValue():
                    self._start_value(live, call)
                case PendingChild():
                    self._children.start(live, call)
                case PendingSignal():
                    pass

    def _start_children(self, live: LiveRun, calls: list[Pending]) -> None:
        for call in calls:
            if isinstance(call, PendingChild) and call.is_waiting and not live.is_gone and not self.is_stopped:
                self._children.start(live, call)

    def start_abandoned(self, live: LiveRun, calls: list[Pending]) -> None:
        """A run ends that has just called these: children that shall outlive it are started before."""
        outliving = [c for c in calls if isinstance(c, PendingChild) and c.outlives_its_parent]
        self._start_children(live, list(outliving))

    def _start_activity(self, live: LiveRun, call: PendingActivity) -> None:
        place = call.place
        began = self._clock.now()
        if place in live.running:
            return
        activity = call.activity
        if live.retries is not None:
            next_at = live.retries.next_at.get(place)
            if next_at is not None and not self._clock.is_over(next_at):
                self._alarms.add(next_at, live, call)
                return
            live.retries.next_at.pop(place, None)
            failed = live.retries.failed.get(place, 0)
            if failed:
                call.attempts = failed + 1
                # The attempt before may have changed its arguments.
                call.args, call.kwargs = activity.signature.restore(call.data)
        fn = activity.fn
        manner = self._manners.get(fn)
        if manner is None:
            manner = self._manners[fn] = manner_of(fn)
        running.set(call)
        if manner is Manner.AT_ONCE:
            error, value = run_at_once(fn, call.args, call.kwargs)
            self._activity_ended(live, call, began, error, value)
        else:
            ended = partial(self._activity_ended, live, call, began)
            live.running[place] = self._runner.run(fn, call.args, call.kwargs, activity.settings.timeout, ended)

    def _activity_ended(
        self, live: LiveRun, call: PendingActivity, began: int, error: BaseException | None, value: Any
    ) -> None:
        """Record what the activity returned; or try again later; or record that it failed."""
        if live.is_gone:
            return
        place = call.place
        if live.running:
            live.running.pop(place, None)
        if error is None:
            try:
                data, restored = call.activity.signature.result.record(value, call.activity.result_name)
            except BadInput as refused:
                # Another attempt would return the like of it, and do whatever it does once more.
                self._record_failure(live, call, began, refused)
            else:
                number = 1 if live.retries is None else live.failed_attempts(place) + 1
                outcome = ActivityCompleted(call.activity.name, Raw(call.data), Raw(data), began, number)
                self._advance(live, RecordOutcome(place, outcome), restored)
        if error is not None:
            self._activity_failed(live, call, began, error)

    def _activity_failed(self, live: LiveRun, call: PendingActivity, began: int, error: BaseException) -> None:
        place, activity = call.place, call.activity
        number = live.failed_attempts(place) + 1
        failure = failure_of(error)
        retry = activity.settings.retry
        now = self._clock.latest()
        next_at = next_attempt_at(retry, number, now) if is_retryable(retry, error, failure) else None
        if next_at is None:
            self._record_failure(live, call, began, error)
            return
        if live.is_leaving:
            # Another worker may have the run by now; whoever has it makes this attempt again.
            return
        record = FailedAttempt(place, number, activity.name, failure, now, next_at)
        live.add_failed(record)
        self._owner.record_attempt(live.owned, record, partial(self.start, live, [call]))

    def _record_failure(self, live: LiveRun, call: PendingActivity, began: int, error: BaseException) -> None:
        number = live.failed_attempts(call.place) + 1
        failed = events.ActivityFailed(call.activity.name, Raw(call.data), failure_of(error), began, number)
        self._advance(live, RecordOutcome(call.place, failed))

    def _start_value(self, live: LiveRun, call: PendingValue) -> None:
        if call.place in live.running:
            return

        def ended(error: BaseException | None, value: Any) -> None:
            live.running.pop(call.place, None)
            if live.is_gone:
                return
            if error is None:
                try:
                    data, _ = call.kind.record(value, "the value of side_effect()")
                except BadInput as refused:
                    error = refused
                else:
                    self._advance(live, RecordOutcome(call.place, ValueRecorded(Raw(data))))
                    return
            self._fail(live, _as_exception(error))

        live.running[call.place] = self._runner.run(call.fn, (), {}, SIDE_EFFECT_TIMEOUT, ended)

    def try_again(self, live: LiveRun) -> None:
        """Make the attempts that fell due while the run was to be let go of, and ring for those to come."""
        if live.retries is not None:
            waiting = (live.program.pending.get(place) for place in list(live.retries.next_at))
            self.start(live, [call for call in waiting if isinstance(call, PendingActivity)])

    def call_off(self, live: LiveRun) -> None:
        """Cancel the activities and children nobody waits for any more."""
        for call in live.program.abandoned or ():
            if isinstance(call, PendingChild):
                self._children.call_off(live, call)
            attempt = live.running.pop(call.place, None)
            if attempt is not None:
                attempt.call_off()
        live.program.abandoned = None

    def end_by(self, live: LiveRun, at: int) -> None:
        """The run has to end by this time."""
        self._alarms.add(at, live, END)

    def _ring(self, live: LiveRun, call: PendingTimer | PendingActivity | End) -> None:
        """A timer is due, an activity's next attempt, or the end of the run."""
        if isinstance(call, End):
            self._expire(live)
            return
        # After a rebuild the one that waits is another one at the same place.
        waiting = live.program.pending.get(call.place)
        if isinstance(call, PendingTimer) and isinstance(waiting, PendingTimer):
            self._advance(live, FireTimer(call.place, call.fire_at))
        elif isinstance(waiting, PendingActivity) and not live.is_leaving:
            self.start(live, [waiting])


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
