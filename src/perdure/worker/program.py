"""A program: one incarnation of a run's code, alive in memory.

In:   the run's events, one at a time.
Out:  the durable calls that wait for an answer, and at the end what was returned
      or raised. What the code asks for meanwhile it asks of its runtime.

Live and on replay it is the same: an event is handed to the call that waits at its
place, the loop is drained, and what the code asked for meanwhile is collected.
Knows nothing of stores, leases or how activities are run.
"""

import traceback
from typing import Any

import msgspec

from perdure.authoring.calls import ContinueAsNew
from perdure.authoring.workflow import Workflow
from perdure.engine.ports import OwnedRun
from perdure.errors import BadInput
from perdure.kernel import events
from perdure.kernel.events import CancelRequested, Event, Patched
from perdure.kernel.failure import Failure
from perdure.worker.calls.call import UNRESTORED, Mismatch, unexpected
from perdure.worker.failures.failures import failure_of
from perdure.worker.loop.loop import RunTask
from perdure.worker.runtime import RunRuntime


class Program:
    """Workflow code on its event loop: driven by events, up to its end."""

    main: RunTask | None = None
    # How many new calls were unanswered when it was last looked.
    _unanswered = 0

    def __init__(self, workflow: Workflow[..., Any], owned: OwnedRun) -> None:
        self.runtime = runtime = RunRuntime(workflow, owned)
        self.loop = runtime.loop
        self.pending = runtime.pending

    def begin(self, arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None) -> None:
        """Call the workflow function, up to its first wait; with its input restored already, if the caller has."""
        workflow = self.runtime.workflow
        try:
            args, kwargs = arguments or workflow.signature.restore(self.runtime.owned.input.encode())
            work = workflow.fn(*args, **kwargs)
        except (BadInput, TypeError) as error:
            raise Mismatch(None, [], f"the run's input does not fit the code: {error}") from None
        self.main = self.loop.begin(work)
        self.loop.drain()

    def replay(self, history: list[Event]) -> None:
        """Be told that the code has been here before, and what the history says of changes to it."""
        self.runtime.is_replaying = True
        found = {event.fact.change_id: True for event in history if type(event.fact) is Patched}
        if found:
            self.runtime.patches = found

    def deliver(self, event: Event, restored: object = UNRESTORED) -> None:
        """Hand an event to the call that waits for it, and run on to the next wait.

        `restored` is an activity's result as a replay would restore it, if the caller has done so already.
        """
        call = self.pending.pop(event.place, None)
        self.runtime.seq = event.seq
        if call is None or not call.is_waiting:
            self._take_note(event)
            return
        self.loop.now = event.at
        call.answer(event, restored)
        self.loop.drain()

    def redeliver(self, event: Event) -> None:
        """Hand over an event of the past; Mismatch when the code has ended by now."""
        if self.is_done:
            raise Mismatch(event, [], f"the code has ended, but event {event.seq} is {event.kind} at {event.place!r}")
        self.deliver(event)

    def _take_note(self, event: Event) -> None:
        """An event that answers no call: something about the run itself."""
        match event.fact:
            case Patched():
                return
            case CancelRequested():
                self.runtime.cancelled = event.fact
                self.loop.now = event.at
                assert self.main is not None
                self.main.cancel(event.fact.reason)
                self.loop.drain()
            case _:
                raise unexpected(event, self.runtime)

    @property
    def is_done(self) -> bool:
        return self.main is not None and self.main.done()

    def end(self) -> events.Closing | ContinueAsNew:
        """What the workflow returned or raised, once it is done."""
        main, runtime, workflow = self.main, self.runtime, self.runtime.workflow
        assert main is not None
        if main.cancelled():
            if runtime.cancelled is not None:
                return events.RunCancelled(runtime.cancelled.reason)
            return events.RunFailed(Failure("asyncio.CancelledError", "the workflow cancelled itself"))
        # A call that never ran is told of only when nothing else is.
        error = main.exception() or runtime.forgotten
        if error is None:
            try:
                data, _ = workflow.signature.result.record(main.result(), workflow.result_name)
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
            if runtime.forgotten is None:
                return inner
            error = runtime.forgotten
        told = runtime.last_failure if workflow.passes_failures_on else None
        return events.RunFailed(told or failure_of(error))

    def forget_answered(self) -> None:
        """Of the calls that are new to the worker, let go of those a long history has answered by now."""
        runtime = self.runtime
        if len(runtime.fresh) > 2 * self._unanswered:
            runtime.fresh = [call for call in runtime.fresh if call.is_waiting]
            self._unanswered = len(runtime.fresh)

    def evict(self) -> None:
        """Take the code out of memory."""
        runtime = self.runtime
        self.loop.evict()
        # Calls hold their runtime; it would hold them until a collection finds both.
        runtime.pending.clear()
        runtime.listening = None
        runtime.fresh = []
