"""A program: one incarnation of a run's code, alive in memory.

In:   the run's events, one at a time.
Out:  the durable calls that wait for an answer, and at the end what was returned
      or raised.

Live and on replay it is the same: an event is handed to the call that waits at its
place, the loop is drained, and what the code asked for meanwhile is collected.
Knows nothing of stores, leases or how activities are run.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, TypeAlias, assert_never

import msgspec

from perdure import codec
from perdure.authoring.functions import Activity, Workflow
from perdure.authoring.signals import Signal
from perdure.errors import ActivityFailed, BadInput
from perdure.kernel import events
from perdure.kernel.events import (
    ActivityCompleted,
    Event,
    SignalReceived,
    TimerFired,
    ValueRecorded,
)
from perdure.kernel.failure import Failure
from perdure.worker.failures import failure_of, revive
from perdure.worker.loop import RunLoop, RunTask, RunTimer, current_branch

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


class PendingCall:
    """A durable call that waits for its answer."""

    __slots__ = ("future", "place", "program")

    def __init__(self, program: "Program", place: str) -> None:
        self.program = program
        self.place = place
        self.future: asyncio.Future[Any] = program.loop.create_future()

    @property
    def is_waiting(self) -> bool:
        return not self.future.done()

    def abandon(self) -> None:
        """Nobody waits for the answer any more."""
        self.program.abandon(self)


class PendingActivity(PendingCall):
    """An activity to be run; its arguments as written, and as a replay would restore them."""

    __slots__ = ("activity", "args", "data", "kwargs")

    def __init__(
        self, program: "Program", place: str, activity: Activity[..., Any], arguments: codec.Arguments
    ) -> None:
        self.program = program
        self.place = place
        self.future = asyncio.Future(loop=program.loop)
        self.activity = activity
        self.data, self.args, self.kwargs = arguments


class PendingValue(PendingCall):
    """A side effect to be recorded."""

    __slots__ = ("fn",)

    def __init__(self, program: "Program", place: str, fn: Callable[[], Any]) -> None:
        super().__init__(program, place)
        self.fn = fn


class PendingSignal(PendingCall):
    """A signal to be received."""

    __slots__ = ("signal",)

    def __init__(self, program: "Program", place: str, signal: Signal[Any]) -> None:
        super().__init__(program, place)
        self.signal = signal


class PendingTimer:
    """A timer of the run's loop."""

    __slots__ = ("handle", "place", "program")

    def __init__(self, program: "Program", handle: RunTimer) -> None:
        self.program = program
        self.handle = handle
        self.place = handle.place

    @property
    def is_waiting(self) -> bool:
        return not self.handle.cancelled()

    @property
    def fire_at(self) -> int:
        return self.handle.fire_at


Pending: TypeAlias = PendingActivity | PendingValue | PendingSignal | PendingTimer


class Program:
    """Workflow code on its event loop, with the calls it waits for by their places."""

    # Most runs leave these as they are.
    abandoned: list[PendingCall] | None = None
    _main: RunTask | None = None
    _rng: random.Random | None = None

    def __init__(self, workflow: Workflow[..., Any], input: str, seed: int, started_at: int) -> None:
        self._workflow = workflow
        self._input = input
        self._seed = seed
        self.loop = RunLoop(self, seed, started_at)  # type: ignore[abstract]  # what it lacks, workflows must not use
        self.pending: dict[str, Pending] = {}
        self.fresh: list[Pending] = []

    # Driving it

    def begin(self, arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None) -> None:
        """Call the workflow function, up to its first wait; with its input restored already, if somebody has."""
        try:
            args, kwargs = arguments or self._workflow.signature.restore(self._input.encode())
            work = self._workflow.fn(*args, **kwargs)
        except (BadInput, TypeError) as error:
            raise Mismatch(None, [], f"the run's input does not fit the code: {error}") from None
        self._main = self.loop.begin(work)
        self.loop.drain()

    def deliver(self, event: Event, restored: object = UNRESTORED) -> None:
        """Hand an event to the call that waits for it, and run on to the next wait.

        `restored` is an activity's result as a replay would restore it, if somebody has done so already.
        """
        pending = self.pending.pop(event.place, None)
        if pending is None or not pending.is_waiting:
            raise self._mismatch(event)
        fact = event.fact
        self.loop.now = event.at
        match pending:
            case PendingActivity():
                self._answer_activity(pending, event, restored)
            case PendingTimer():
                if not isinstance(fact, TimerFired):
                    raise self._mismatch(event)
                self.loop.fire(pending.handle)
            case PendingSignal():
                if not isinstance(fact, SignalReceived):
                    raise self._mismatch(event)
                self._answer_signal(pending, fact)
            case PendingValue():
                if not isinstance(fact, ValueRecorded):
                    raise self._mismatch(event)
                pending.future.set_result(codec.load(bytes(fact.value)))
            case _:
                assert_never(pending)
        self.loop.drain()

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
            pending.future.set_exception(_raised(pending.activity.name, fact.failure))
        else:
            raise self._mismatch(event)

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

    def end(self) -> events.Closing:
        """What the workflow returned or raised, once it is done."""
        assert self._main is not None
        if self._main.cancelled():
            return events.RunFailed(Failure("asyncio.CancelledError", "the workflow cancelled itself"))
        error = self._main.exception()
        if error is None:
            try:
                data, _ = self._workflow.signature.result.record(self._main.result(), self._workflow.result_name)
                return events.RunCompleted(msgspec.Raw(data))
            except BadInput as refused:
                error = refused
        return events.RunFailed(failure_of(error))

    def places(self) -> list[str]:
        """Where the code waits."""
        return sorted(place for place, pending in self.pending.items() if pending.is_waiting)

    def evict(self) -> None:
        """Take the code out of memory."""
        self.loop.evict()
        self.pending.clear()

    # What workflow code asks for

    def run_activity(
        self, activity: Activity[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PendingActivity:
        if self.loop.is_dead:
            self.loop.refuse_when_dead()
        place = current_branch.get(self.loop.root).place(activity.name)
        arguments = activity.signature.record(args, kwargs)
        self.pending[place] = call = PendingActivity(self, place, activity, arguments)
        self.fresh.append(call)
        return call

    def record(self, fn: Callable[[], Any]) -> PendingValue:
        name = getattr(fn, "__name__", type(fn).__name__).strip("<>")
        call = PendingValue(self, self._place(f"side_effect({name})"), fn)
        self._add(call)
        return call

    def receive(self, signal: Signal[Any]) -> PendingSignal:
        call = PendingSignal(self, self._place(f"signal({signal.name})"), signal)
        self._add(call)
        return call

    def _place(self, name: str) -> str:
        """The place of a call of this name, made now."""
        if self.loop.is_dead:
            self.loop.refuse_when_dead()
        return current_branch.get(self.loop.root).place(name)

    def _add(self, pending: Pending) -> None:
        self.pending[pending.place] = pending
        self.fresh.append(pending)

    def abandon(self, call: PendingCall) -> None:
        if self.pending.get(call.place) is call:
            del self.pending[call.place]
        self.abandoned = [*(self.abandoned or ()), call]

    def start_timer(self, handle: RunTimer) -> None:
        self._add(PendingTimer(self, handle))

    def cancel_timer(self, handle: RunTimer) -> None:
        self.pending.pop(handle.place, None)

    def now(self) -> int:
        return self.loop.now

    def rng(self) -> random.Random:
        if self._rng is None:
            self._rng = random.Random(self._seed)
        return self._rng


def _raised(name: str, failure: Failure) -> Exception:
    """The error a workflow sees when an activity has failed."""
    revived = revive(failure)
    # A future cannot carry StopIteration.
    if revived is not None and not isinstance(revived, StopIteration):
        return revived
    return ActivityFailed(name, failure.type.removeprefix("builtins."), failure.message)
