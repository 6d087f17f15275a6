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
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from perdure import codec
from perdure.authoring.attempts import Attempt
from perdure.authoring.calls import ContinueAsNew
from perdure.authoring.functions import Activity, BoundCall, Workflow, recorded_attributes
from perdure.authoring.info import Info
from perdure.authoring.signals import Signal
from perdure.engine.port import OwnedRun
from perdure.errors import ActivityFailed, BadInput, BadOption, ChildFailed
from perdure.ids import LONGEST_ID, child_run_id
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
from perdure.kernel.traits import OnParentClose
from perdure.worker.failures import failure_of, revive
from perdure.worker.loop import RunLoop, RunTask, RunTimer, current_branch

UNRESTORED = object()
_ANY = codec.ValueType(Any)


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

    __slots__ = ("activity", "args", "attempts", "data", "kwargs")

    # Only there after a failed one.
    attempts: int

    def __init__(
        self, program: "Program", place: str, activity: Activity[..., Any], arguments: codec.Arguments
    ) -> None:
        self.program = program
        self.place = place
        self.future = asyncio.Future(loop=program.loop)
        self.activity = activity
        self.data, self.args, self.kwargs = arguments

    def attempt(self) -> Attempt:
        """What the activity's code can know of this attempt."""
        owned = self.program.owned
        key = f"{owned.run_id}/{self.place}"
        number = getattr(self, "attempts", 1)
        return Attempt(self.activity.name, key, number, owned.workflow_id, owned.run_id, owned.workflow)

    @property
    def resources(self) -> Sequence[object]:
        return self.program.owned.resources


class PendingValue(PendingCall):
    """A side effect to be recorded, under the annotation its function has."""

    __slots__ = ("fn", "kind")

    def __init__(self, program: "Program", place: str, fn: Callable[[], Any]) -> None:
        super().__init__(program, place)
        self.fn = fn
        annotated = "return" in getattr(fn, "__annotations__", ())
        self.kind = codec.Signature(fn, place).result if annotated else _ANY


class PendingSignal(PendingCall):
    """A signal to be received."""

    __slots__ = ("signal",)

    def __init__(self, program: "Program", place: str, signal: Signal[Any]) -> None:
        super().__init__(program, place)
        self.signal = signal

    @property
    def key(self) -> str:
        """What its message is found by."""
        return f"signal({self.signal.name})"


class PendingChild(PendingCall):
    """A child run to be started and waited for; its run_id is the same on every replay.

    One that waits for a run it did not start, because that had its id, is `attached`: nobody sends
    it a message when that ends.
    """

    __slots__ = ("attached", "child_id", "data", "run_id", "seed", "workflow")

    def __init__(self, program: "Program", place: str, workflow: Workflow[..., Any], data: bytes) -> None:
        super().__init__(program, place)
        self.workflow = workflow
        self.data = data
        self.run_id, self.seed = child_run_id(program.owned.run_id, place, program.loop.now)
        default_id = f"{program.owned.workflow_id}/{place}"
        self.child_id = workflow.settings.id or (default_id if len(default_id) <= LONGEST_ID else self.run_id)
        self.attached = False

    @property
    def key(self) -> str:
        """What its message is found by; the run that sends it may be one that continues the child."""
        return self.place

    @property
    def outlives_its_parent(self) -> bool:
        return self.workflow.settings.traits.on_parent_close == OnParentClose.ABANDON


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


Pending: TypeAlias = PendingActivity | PendingValue | PendingSignal | PendingChild | PendingTimer


class Asides:
    """What the code said by the way since it was last asked: changes it came by, and whether its row must show more."""

    def __init__(self) -> None:
        self.patches: list[str] = []
        self.is_annotated = False


class Program:
    """Workflow code on its event loop, with the calls it waits for by their places."""

    # Most runs leave these as they are.
    abandoned: list[PendingCall] | None = None
    asides: Asides | None = None
    cancelled: CancelRequested | None = None
    step: str | None = None
    is_replaying = False
    _main: RunTask | None = None
    _rng: random.Random | None = None
    _patches: dict[str, bool] | None = None
    _attributes: dict[str, object] | None = None
    _seq = 1
    _keyed: dict[str, float] | None = None
    # Who waits for a signal, by what it is found by, in the order they began to.
    _waiting: "dict[str, dict[str, PendingSignal]] | None" = None

    def __init__(self, workflow: Workflow[..., Any], owned: OwnedRun) -> None:
        self.owned = owned
        self._workflow = workflow
        # What it lacks of a loop, workflows must not use.
        self.loop = RunLoop(self, owned.seed, owned.begun_at or owned.created_at)  # type: ignore[abstract]
        self.pending: dict[str, Pending] = {}
        self.fresh: list[Pending] = []

    @property
    def main_task(self) -> RunTask | None:
        return self._main

    # Driving it

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
            pending.future.set_exception(_raised_by_child(ended))
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
        error = main.exception()
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
        return inner if isinstance(inner, ContinueAsNew) else events.RunFailed(failure_of(error))

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

    # What workflow code asks for

    def run_activity(
        self, activity: Activity[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PendingActivity:
        if self.loop.is_dead:
            self.loop.refuse_when_dead()
        if activity.key is None:
            place = current_branch.get(self.loop.root).place(activity.name)
        else:
            place = self.loop.root.place(f"{activity.name}({activity.key})")
        arguments = activity.signature.record(args, kwargs)
        self.pending[place] = call = PendingActivity(self, place, activity, arguments)
        self.fresh.append(call)
        return call

    def run_child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PendingChild:
        data, _, _ = workflow.signature.record(args, kwargs)
        call = PendingChild(self, self._place(workflow.name), workflow, data)
        self._add(call)
        return call

    def record(self, fn: Callable[[], Any]) -> PendingValue:
        name = getattr(fn, "__name__", type(fn).__name__).strip("<>")
        call = PendingValue(self, self._place(f"side_effect({name})"), fn)
        self._add(call)
        return call

    def receive(self, signal: Signal[Any]) -> PendingSignal:
        call = PendingSignal(self, self._place(f"signal({signal.name})"), signal)
        self._add(call)
        self._wait_for(call)
        return call

    def _wait_for(self, call: PendingSignal) -> None:
        if self._waiting is None:
            self._waiting = {}
        self._waiting.setdefault(call.key, {})[call.place] = call

    def waits_by(self, key: str) -> PendingSignal | PendingChild | None:
        """The call that waits longest for a message of this key; for a child's that is its place."""
        child = self.pending.get(key)
        if isinstance(child, PendingChild):
            return child if child.is_waiting else None
        calls = (self._waiting or {}).get(key)
        while calls:
            place, call = next(iter(calls.items()))
            if call.is_waiting:
                return call
            del calls[place]
        return None

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
        if self.abandoned is None:
            self.abandoned = []
        self.abandoned.append(call)

    def timer(self, key: str, delay: float) -> "asyncio.Future[None]":
        """A timer known by its key; its first time holds for all that wait for it."""
        if self._keyed is None:
            self._keyed = {}
        at = self._keyed.setdefault(key, self.loop.time() + delay)
        return self.loop.keyed_timer(key, at)

    def start_timer(self, handle: RunTimer) -> None:
        self._add(PendingTimer(self, handle))

    def cancel_timer(self, handle: RunTimer) -> None:
        self.pending.pop(handle.place, None)

    # What workflow code says and asks by the way

    def patched(self, change_id: str) -> bool:
        if self._patches is None:
            self._patches = {}
        known = self._patches.get(change_id)
        if known is None:
            # Code that went by here before knew nothing of the change; whoever comes first takes the new way.
            known = self._patches[change_id] = not self.is_replaying
            if known:
                self._aside().patches.append(change_id)
        return known

    def set_attributes(self, patch: dict[str, Any]) -> None:
        merged = self.attributes | patch
        recorded_attributes(merged)
        self._attributes = {name: value for name, value in merged.items() if value is not None}
        self._aside().is_annotated = True

    @property
    def attributes(self) -> dict[str, object]:
        """The run's attributes, as the code has made them."""
        if self._attributes is None:
            self._attributes = msgspec.json.decode(self.owned.traits.attributes or "{}", type=dict[str, object])
        return self._attributes

    @property
    def attributes_text(self) -> str | None:
        """The attributes as they are written."""
        return self.owned.traits.attributes if self._attributes is None else recorded_attributes(self._attributes)

    def set_step(self, step: str | None) -> None:
        self.step = step
        self._aside().is_annotated = True

    def _aside(self) -> Asides:
        if self.loop.is_dead:
            self.loop.refuse_when_dead()
        if self.asides is None:
            self.asides = Asides()
        return self.asides

    def info(self) -> Info:
        owned, traits = self.owned, self.owned.traits
        return Info(
            id=owned.workflow_id,
            run_id=owned.run_id,
            workflow=owned.workflow,
            namespace=owned.namespace,
            queue=owned.queue,
            started_at=datetime.fromtimestamp((owned.begun_at or owned.created_at) / 1000, UTC),
            history_length=self._seq,
            attributes=dict(self.attributes),
            parent_id=traits.parent_id,
            entity_id=traits.entity_id,
            correlation_id=traits.correlation_id,
            continued_from=traits.continued_from,
            cancel_requested=self.cancelled is not None,
        )

    def successor(self, call: BoundCall[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> BoundCall[Any]:
        if call is None:
            return BoundCall(self._workflow, self._workflow.signature.record(args, kwargs))
        if call.workflow.name != self._workflow.name:
            raise BadOption(f"a run of {self._workflow.name!r} cannot continue as one of {call.workflow.name!r}")
        return call

    def now(self) -> int:
        return self.loop.now

    def rng(self) -> random.Random:
        if self._rng is None:
            self._rng = random.Random(self.owned.seed)
        return self._rng


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
