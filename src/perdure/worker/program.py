"""A program: one incarnation of a run's code, alive in memory.

In:   the run's events, one at a time.
Out:  the durable calls that wait for an answer, and at the end what was returned
      or raised. What the code asks for meanwhile is in `asking.py`.

Live and on replay it is the same: an event is handed to the call that waits at its
place, the loop is drained, and what the code asked for meanwhile is collected.
Knows nothing of stores, leases or how activities are run.
"""

import traceback
from typing import Any

import msgspec

from perdure.authoring.calls import ContinueAsNew
from perdure.errors import ActivityFailed, BadInput, ChildFailed
from perdure.kernel import events
from perdure.kernel.events import (
    ActivityCompleted,
    CancelRequested,
    ChildCompleted,
    Event,
    Patched,
    SignalReceived,
    TimerFired,
    ValueRecorded,
)
from perdure.kernel.failure import Failure
from perdure.worker.calls.pending import (
    Pending,
    PendingActivity,
    PendingChild,
    PendingSignal,
    PendingTask,
    PendingTimer,
    PendingValue,
)
from perdure.worker.calls.tasks import Task
from perdure.worker.failures.failures import failure_of, revive
from perdure.worker.loop.loop import RunTask
from perdure.worker.runtime import Asking

UNRESTORED = object()


class Mismatch(Exception):
    """The code does not fit the history: the event finds nobody waiting at its place."""

    def __init__(self, event: Event | None, waiting: list[str], trouble: str) -> None:
        super().__init__(event, waiting, trouble)
        self.event = event
        self.waiting = waiting
        self.trouble = trouble

    def __str__(self) -> str:
        return self.trouble


class Program(Asking):
    """Workflow code on its event loop: driven by events, up to its end."""

    _main: RunTask | None = None
    # How many new calls were unanswered when it was last looked.
    _unanswered = 0
    # What the last activity failed with.
    _failed: Failure | None = None

    @property
    def main_task(self) -> RunTask | None:
        return self._main

    def begin(self, arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None) -> None:
        """Call the workflow function, up to its first wait; with its input restored already, if somebody has."""
        try:
            args, kwargs = arguments or self._workflow.signature.restore(self.owned.input.encode())
            work = self._workflow.fn(*args, **kwargs)
        except (BadInput, TypeError) as error:
            raise Mismatch(None, [], f"the run's input does not fit the code: {error}") from None
        self._main = self.loop.begin(work)
        self.loop.drain()

    def replay(self, history: list[Event]) -> None:
        """Be told that the code has been here before, and what the history says of changes to it."""
        self.is_replaying = True
        found = {event.fact.change_id: True for event in history if type(event.fact) is Patched}
        if found:
            self._patches = found

    def deliver(self, event: Event, restored: object = UNRESTORED) -> None:
        """Hand an event to the call that waits for it, and run on to the next wait.

        `restored` is an activity's result as a replay would restore it, if somebody has done so already.
        """
        pending = self.pending.pop(event.place, None)
        self._seq = event.seq
        if pending is None or not pending.is_waiting:
            self._take_note(event)
            return
        self.loop.now = event.at
        if type(pending) is PendingActivity:
            self._answer_activity(pending, event, restored)
        else:
            self._answer(pending, event)
        self.loop.drain()

    def _answer(self, pending: Pending, event: Event) -> None:
        """Hand over anything but the end of an activity."""
        match pending, event.fact:
            case PendingTimer(), TimerFired():
                self.loop.fire(pending.handle)
            case PendingSignal(), SignalReceived() as received:
                self._answer_signal(pending, received)
            case PendingValue(), ValueRecorded(value):
                self._answer_value(pending, event, value)
            case PendingChild(), ChildCompleted() | events.ChildFailed() as ended:
                self._answer_child(pending, event, ended)
            case _:
                raise self._mismatch(event)

    def _take_note(self, event: Event) -> None:
        """An event that answers no call: something about the run itself."""
        match event.fact:
            case Patched():
                return
            case CancelRequested():
                self.cancelled = event.fact
                self.loop.now = event.at
                assert self._main is not None
                self._main.cancel(event.fact.reason)
                self.loop.drain()
            case _:
                raise self._mismatch(event)

    def _answer_child(self, pending: PendingChild, event: Event, ended: ChildCompleted | events.ChildFailed) -> None:
        if isinstance(ended, events.ChildFailed):
            task = pending.activity.name if isinstance(pending, PendingTask) else None
            pending.future.set_exception(_raised_by_child(ended) if task is None else _raised(task, ended.failure))
            return
        try:
            pending.future.set_result(pending.workflow.signature.result.restore(ended.result, pending.place))
        except BadInput as error:
            raise Mismatch(event, self.places(), f"the recorded result does not fit the code: {error}") from None

    def _answer_activity(self, pending: PendingActivity, event: Event, restored: object) -> None:
        fact = event.fact
        if type(fact) is ActivityCompleted:
            if restored is UNRESTORED:
                try:
                    restored = pending.activity.signature.result.restore(fact.result, pending.place)
                except BadInput as error:
                    trouble = f"the recorded result does not fit the code: {error}"
                    raise Mismatch(event, self.places(), trouble) from None
            pending.future.set_result(restored)
        elif type(fact) is events.ActivityFailed:
            self._failed = fact.failure
            pending.future.set_exception(_raised(pending.activity.name, fact.failure))
        else:
            raise self._mismatch(event)

    def _answer_value(self, pending: PendingValue, event: Event, value: msgspec.Raw) -> None:
        try:
            pending.future.set_result(pending.kind.restore(value, pending.place))
        except BadInput as error:
            raise Mismatch(event, self.places(), f"the recorded value does not fit the code: {error}") from None

    def _answer_signal(self, pending: PendingSignal, fact: SignalReceived) -> None:
        try:
            pending.future.set_result(pending.signal.payload.restore(fact.payload, f"the signal {fact.name!r}"))
        except BadInput as error:
            pending.future.set_exception(error)

    def _mismatch(self, event: Event) -> Mismatch:
        return Mismatch(
            event,
            self.places(),
            f"event {event.seq} is {event.kind} at {event.place!r}, but the code waits there for nothing of the kind",
        )

    @property
    def is_done(self) -> bool:
        return self._main is not None and self._main.done()

    def end(self) -> events.Closing | ContinueAsNew:
        """What the workflow returned or raised, once it is done."""
        main = self._main
        assert main is not None
        if main.cancelled():
            if self.cancelled is not None:
                return events.RunCancelled(self.cancelled.reason)
            return events.RunFailed(Failure("asyncio.CancelledError", "the workflow cancelled itself"))
        # A call that never ran is told of only when nothing else is.
        error = main.exception() or self.forgotten
        if error is None:
            try:
                data, _ = self._workflow.signature.result.record(main.result(), self._workflow.result_name)
                return events.RunCompleted(msgspec.Raw(data))
            except BadInput as refused:
                error = refused
        # A task group wraps whatever leaves it.
        inner = error
        while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
            inner = inner.exceptions[0]
        if isinstance(inner, ContinueAsNew):
            # The code has been left in the middle: what it held goes now, calls that it never awaited among it.
            with self.loop.as_running_loop():
                traceback.clear_frames(inner.__traceback__)
            if self.forgotten is None:
                return inner
            error = self.forgotten
        # A task has no code of its own: where its activity failed is what its caller wants to know.
        told = self._failed if isinstance(self._workflow, Task) else None
        return events.RunFailed(told or failure_of(error))

    def forget_answered(self) -> None:
        """Of the calls that are new to whoever starts them, let go of those a long history has answered by now."""
        if len(self.fresh) > 2 * self._unanswered:
            self.fresh = [call for call in self.fresh if call.is_waiting]
            self._unanswered = len(self.fresh)

    def places(self) -> list[str]:
        """Where the code waits."""
        return sorted(place for place, pending in self.pending.items() if pending.is_waiting)

    def evict(self) -> None:
        """Take the code out of memory."""
        self.loop.evict()
        self.pending.clear()
        # Calls hold their program; it would hold them until a collection finds both.
        self._waiting = None
        self.fresh = []


def _raised(name: str, failure: Failure) -> Exception:
    """The error a workflow sees when an activity has failed."""
    revived = revive(failure)
    # A future cannot carry StopIteration.
    if revived is not None and not isinstance(revived, StopIteration):
        return revived
    return ActivityFailed(name, failure.type.removeprefix("builtins."), failure.message)


def _raised_by_child(fact: events.ChildFailed) -> Exception:
    """The error a workflow sees when a child has ended without a result."""
    revived = revive(fact.failure)
    if revived is not None and not isinstance(revived, StopIteration):
        return revived
    error_type = fact.failure.type.removeprefix("builtins.")
    return ChildFailed(fact.child_id, fact.workflow, error_type, fact.failure.message)
