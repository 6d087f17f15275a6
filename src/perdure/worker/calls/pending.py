"""Calls that wait: what workflow code has asked for and has no answer to yet.

Each knows its place, by which the event that answers it is found, live and on replay.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from perdure import codec
from perdure.authoring.activity_context import Attempt
from perdure.authoring.functions import Activity, Workflow
from perdure.authoring.signals import Signal
from perdure.ids import LONGEST_ID, child_run_id
from perdure.kernel.traits import OnParentClose
from perdure.worker.calls.tasks import Task
from perdure.worker.loop.loop import RunTimer

if TYPE_CHECKING:
    from perdure.worker.runtime import Asking

_ANY = codec.ValueType(Any)


class PendingCall:
    """A durable call that waits for its answer."""

    __slots__ = ("future", "place", "program")

    def __init__(self, program: "Asking", place: str) -> None:
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

    def __init__(self, program: "Asking", place: str, activity: Activity[..., Any], arguments: codec.Arguments) -> None:
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

    def __init__(self, program: "Asking", place: str, fn: Callable[[], Any]) -> None:
        super().__init__(program, place)
        self.fn = fn
        annotated = "return" in getattr(fn, "__annotations__", ())
        self.kind = codec.Signature(fn, place).result if annotated else _ANY


class PendingSignal(PendingCall):
    """A signal to be received."""

    __slots__ = ("signal",)

    def __init__(self, program: "Asking", place: str, signal: Signal[Any]) -> None:
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

    def __init__(self, program: "Asking", place: str, workflow: Workflow[..., Any], data: bytes) -> None:
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


class PendingTask(PendingChild):
    """An activity on a queue: a child that runs it, wherever that queue is worked."""

    __slots__ = ()

    workflow: Task

    @property
    def activity(self) -> Activity[..., Any]:
        return self.workflow.activity


class PendingTimer:
    """A timer of the run's loop."""

    __slots__ = ("handle", "place", "program")

    def __init__(self, program: "Asking", handle: RunTimer) -> None:
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
