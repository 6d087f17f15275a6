"""Asking: what workflow code asks of its program, and what it says by the way.

In:   calls of the authoring functions, on the run's own loop.
Out:  calls that wait, by their places; those that are new, those nobody waits for any more, and what was said.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.authoring.functions import Activity, BoundCall, Workflow, recorded_attributes
from perdure.authoring.info import Info
from perdure.authoring.signals import Signal
from perdure.engine.ports import OwnedRun
from perdure.errors import BadOption, NeverAwaited
from perdure.kernel.events import CancelRequested
from perdure.worker.calls.pending import (
    Pending,
    PendingActivity,
    PendingCall,
    PendingChild,
    PendingSignal,
    PendingTask,
    PendingTimer,
    PendingValue,
)
from perdure.worker.calls.tasks import Task, input_of
from perdure.worker.loop.loop import RunLoop, RunTimer, current_branch


class Asides:
    """What the code said by the way since it was last asked: changes it came by, and whether its row must show more."""

    def __init__(self) -> None:
        self.patches: list[str] = []
        self.is_annotated = False


class Asking:
    """The half of a program that its code talks to."""

    # Most runs leave these as they are.
    abandoned: list[PendingCall] | None = None
    asides: Asides | None = None
    cancelled: CancelRequested | None = None
    step: str | None = None
    is_replaying = False
    # The first call that was made and never awaited.
    forgotten: NeverAwaited | None = None
    _rng: random.Random | None = None
    _patches: dict[str, bool] | None = None
    _attributes: dict[str, object] | None = None
    _seq = 1
    _keyed: dict[str, float] | None = None
    # Who waits for a signal, by what it is found by, in the order they began to; and who has at some time.
    _waiting: "dict[str, deque[PendingSignal]] | None" = None

    def __init__(self, workflow: Workflow[..., Any], owned: OwnedRun) -> None:
        self.owned = owned
        self._workflow = workflow
        # What it lacks of a loop, workflows must not use.
        self.loop = RunLoop(self, owned.seed, owned.begun_at or owned.created_at)  # type: ignore[abstract]
        self.pending: dict[str, Pending] = {}
        self.fresh: list[Pending] = []

    # Calls

    def run_activity(
        self, activity: Activity[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> PendingActivity | PendingTask:
        if self.loop.is_dead:
            self.loop.refuse_when_dead()
        if activity.key is None:
            place = current_branch.get(self.loop.root).place(activity.name)
        else:
            place = self.loop.root.place(f"{activity.name}({activity.key})")
        arguments = activity.signature.record(args, kwargs)
        call: PendingActivity | PendingTask
        if activity.settings.queue is None:
            call = PendingActivity(self, place, activity, arguments)
        else:
            call = PendingTask(self, place, Task(activity), input_of(activity, arguments[0]))
        self.pending[place] = call
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
        calls = self._waiting.setdefault(call.key, deque())
        _drop_answered(calls)
        calls.append(call)

    def waits_by(self, key: str) -> PendingSignal | PendingChild | None:
        """The call that waits longest for a message of this key; for a child's that is its place."""
        child = self.pending.get(key)
        if isinstance(child, PendingChild):
            return child if child.is_waiting else None
        calls = (self._waiting or {}).get(key)
        if not calls:
            return None
        _drop_answered(calls)
        return calls[0] if calls else None

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

    def note_forgotten(self, error: NeverAwaited) -> None:
        self.forgotten = self.forgotten or error

    @property
    def workflow(self) -> Workflow[..., Any]:
        return self._workflow

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

    # By the way

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


def _drop_answered(calls: deque[PendingSignal]) -> None:
    """Let go of the first ones that do not wait any more: those that wait longest are answered first."""
    while calls and not calls[0].is_waiting:
        calls.popleft()
