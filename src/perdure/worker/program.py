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
from perdure.errors import BadInput, BadOption
from perdure.kernel import events
from perdure.kernel.events import CancelRequested, Event, Patched, ResultGiven, TimeoutReached
from perdure.kernel.failure import Failure, with_notes
from perdure.worker.calls.call import UNRESTORED, Mismatch, unexpected
from perdure.worker.calls.interrupted import tell_interrupted
from perdure.worker.failures.failures import failure_of
from perdure.worker.loop.loop import RunTask
from perdure.worker.loop.undo import UndoStack
from perdure.worker.runtime import RunRuntime


class Program:
    """Workflow code on its event loop: driven by events, up to its end."""

    main: RunTask | None = None
    # How many new calls were unanswered when it was last looked.
    _unanswered = 0
    _refusal: BadOption | None = None

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
        if self.runtime.undos is not None and self.main.done():
            self._unwind(self.runtime.undos)

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
        undos = self.runtime.undos
        if undos is not None and undos.last is None and self.main is not None and self.main.done():
            self._unwind(undos)

    def redeliver(self, event: Event) -> None:
        """Hand over an event of the past; Mismatch when the code has ended by now.

        The end of one that was to be paused is not written, and its time may be over before that.
        """
        if self.is_done and type(event.fact) is not TimeoutReached:
            if type(event.fact) is Patched:
                # The code came by on its way to the end, and a fork goes on right before that.
                return
            raise Mismatch(event, [], f"the code has ended, but event {event.seq} is {event.kind} at {event.place!r}")
        if type(event.fact) is ResultGiven and (call := self.pending.get(event.place)) is not None:
            try:
                self.deliver(msgspec.structs.replace(event, fact=call.as_answer(event)))
            except Mismatch as mismatch:
                raise Mismatch(event, mismatch.waiting, mismatch.trouble) from None
            return
        self.deliver(event)

    def _take_note(self, event: Event) -> None:
        """An event that answers no call: something about the run itself."""
        match event.fact:
            case Patched():
                return
            case CancelRequested():
                self.runtime.cancelled = event.fact
                self._cancel(event, event.fact.reason, is_told=tell_interrupted(self.runtime, event.fact))
            case TimeoutReached():
                self.runtime.timed_out = event.fact
                self._cancel(event, event.fact.reason)
            case _:
                raise unexpected(event, self.runtime)

    def _cancel(self, event: Event, reason: str | None, *, is_told: bool = False) -> None:
        """Tell the code where it waits that it is to end, unless a branch that waits to be told knows it by now."""
        self.loop.now = event.at
        assert self.main is not None
        if not is_told:
            self.main.cancel(reason)
        self.loop.drain()
        if self.runtime.undos is not None and self.main.done():
            self._unwind(self.runtime.undos)

    def _unwind(self, undos: UndoStack) -> None:
        """Begin to undo what the code has done, if it has not ended well."""
        if undos.last is None and undos.waiting and self._is_unwell(undos):
            undos.finish()
            self.loop.drain()

    def _is_unwell(self, undos: UndoStack) -> bool:
        """Whether the code has ended with an error, a cancel or its time over."""
        main, runtime = self.main, self.runtime
        assert main is not None
        if runtime.timed_out is not None or main.cancelled():
            return True
        error = main.exception() or runtime.forgotten
        if error is None:
            # Its result may be one that cannot be kept.
            return isinstance(self._outcome(), events.RunFailed)
        if not isinstance(error, Exception):
            self._refused(undos)
        return True

    @property
    def is_ending(self) -> bool:
        """Whether the code was told to end, or has ended and is being undone."""
        runtime = self.runtime
        if runtime.cancelled is not None or runtime.timed_out is not None:
            return True
        return runtime.undos is not None and runtime.undos.is_unwinding

    @property
    def is_done(self) -> bool:
        undos = self.runtime.undos
        return self.main is not None and self.main.done() and (undos is None or not undos.is_unwinding)

    def end(self) -> events.Closing | ContinueAsNew:
        """What the workflow returned or raised, once it is done; with notes of what could not be undone after it."""
        undos = self.runtime.undos
        return self._outcome(() if undos is None or undos.last is None else undos.notes)

    def _outcome(self, notes: tuple[str, ...] = ()) -> events.Closing | ContinueAsNew:
        main, runtime, workflow = self.main, self.runtime, self.runtime.workflow
        assert main is not None
        if runtime.timed_out is not None:
            return events.RunTimedOut(runtime.timed_out.reason, notes)
        if main.cancelled():
            if runtime.cancelled is not None:
                return events.RunCancelled(runtime.cancelled.reason, notes)
            itself = Failure("asyncio.CancelledError", "the workflow cancelled itself")
            return events.RunFailed(with_notes(itself, notes))
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
            trouble = runtime.forgotten or self._refused(runtime.undos)
            if trouble is None:
                return inner
            error = trouble
        for note in notes:
            error.add_note(note)
        told = runtime.last_failure if workflow.passes_failures_on else None
        return events.RunFailed(told or failure_of(error))

    def _refused(self, undos: UndoStack | None) -> BadOption | None:
        """Why the code cannot go on in another run: it has registered something to undo on its way out."""
        if self._refusal is None and undos is not None and undos.waiting:
            self._refusal = BadOption(f"the run cannot continue as a new one with something to undo: {undos.names()}")
        return self._refusal

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
        runtime.listening = runtime.exposed = runtime.said = None
        if runtime.undos is not None:
            runtime.undos.clear()
        runtime.fresh = []
