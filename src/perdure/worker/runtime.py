"""The runtime of a run: all that workflow code and the authoring functions see of it.

In:   durable calls, by the names of their kinds, and what the code says by the way.
Out:  calls that wait, by their places; those that are new, those nobody waits for any more, and what was said.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.authoring.info import Info
from perdure.authoring.options import recorded_attributes
from perdure.authoring.undo import Undo
from perdure.authoring.workflow import Workflow
from perdure.engine.ports import OwnedRun
from perdure.errors import NeverAwaited, StreamFull
from perdure.kernel.events import CancelRequested, DeferredFailed, DeferredResolved, TimeoutReached
from perdure.kernel.failure import Failure
from perdure.kernel.requests import RequestAnswer
from perdure.tokens import deferred_token
from perdure.worker.calls.call import KINDS, DurableCall
from perdure.worker.loop.loop import RunLoop, RunTask, RunTimer
from perdure.worker.loop.places import current_branch
from perdure.worker.loop.undo import UndoStack

# So many values a workflow may publish between two waits.
MOST_UNWRITTEN = 10_000


class Asides:
    """What the code said by the way since it was last asked: changes it came by, and whether its row must show more."""

    def __init__(self) -> None:
        self.patches: list[str] = []
        self.is_annotated = False
        # What is to be said to callers, by the ids of their messages.
        self.answers: dict[str, RequestAnswer] = {}
        # Values for streams, with their time.
        self.published: list[tuple[str, int, str]] = []


class RunRuntime:
    """Implements authoring's Runtime for the code of one run."""

    # How calls are asked for, by the names of their kinds.
    calls = KINDS
    # Most runs leave these as they are.
    given_up: list[DurableCall] | None = None
    asides: Asides | None = None
    cancelled: CancelRequested | None = None
    timed_out: TimeoutReached | None = None
    undos: UndoStack | None = None
    step: str | None = None
    is_replaying = False
    # The first call that was made and never awaited.
    forgotten: NeverAwaited | None = None
    # What the last activity failed with.
    last_failure: Failure | None = None
    # Which changes to its code the run takes, by their ids.
    patches: dict[str, bool] | None = None
    # The number of the event that the code handles.
    seq = 1
    # Which calls listen to a key, in the order they began to.
    listening: dict[str, deque[DurableCall]] | None = None
    # The requests that the code took before it was loaded, and that have no answer on disk.
    unanswered: frozenset[str] = frozenset()
    # The deferreds that the code has waited for, and what they came to.
    resolved: dict[str, DeferredResolved | DeferredFailed] | None = None
    # What the code shows of itself, by name.
    exposed: dict[str, Callable[[], object]] | None = None
    said: "CodeOutputs | None" = None
    _rng: random.Random | None = None
    _attributes: dict[str, object] | None = None
    _keyed: dict[str, float] | None = None

    def __init__(self, workflow: Workflow[..., Any], owned: OwnedRun) -> None:
        self.workflow = workflow
        self.owned = owned
        # What it lacks of a loop, workflows must not use.
        self.loop = RunLoop(self, owned.seed, owned.begun_at or owned.created_at)  # type: ignore[abstract]
        self.pending: dict[str, DurableCall] = {}
        self.fresh: list[DurableCall] = []

    # Calls

    def place(self, name: str) -> str:
        """The place of a call of this name, made now."""
        if self.loop.is_dead:
            self.loop.refuse_when_dead()
        return current_branch.get(self.loop.root).place(name)

    def add(self, call: DurableCall) -> None:
        """The call begins to wait."""
        self.pending[call.place] = call
        self.fresh.append(call)

    def listen(self, call: DurableCall, key: str) -> None:
        """Messages of this key are for the call, after those that listen already."""
        if self.listening is None:
            self.listening = {}
        calls = self.listening.setdefault(key, deque())
        _drop_answered(calls)
        calls.append(call)

    def listener(self, key: str) -> DurableCall | None:
        """The call that waits longest for a message of this key, which may be the place of the call."""
        addressed = self.pending.get(key)
        if addressed is not None and addressed.is_found_by_place:
            return addressed if addressed.is_waiting else None
        calls = (self.listening or {}).get(key)
        if not calls:
            return None
        _drop_answered(calls)
        return calls[0] if calls else None

    def cancel_call(self, call: DurableCall) -> None:
        """Nobody waits for the call any more."""
        if self.pending.get(call.place) is call:
            del self.pending[call.place]
        if self.given_up is None:
            self.given_up = []
        self.given_up.append(call)

    def places(self) -> list[str]:
        """Where the code waits."""
        return sorted(place for place, call in self.pending.items() if call.is_waiting)

    def note_forgotten(self, error: NeverAwaited) -> None:
        """A call was made and never awaited."""
        self.forgotten = self.forgotten or error

    def timer(self, key: str, delay: float) -> "asyncio.Future[None]":
        """A timer known by its key; its first time holds for all that wait for it."""
        if self._keyed is None:
            self._keyed = {}
        at = self._keyed.setdefault(key, self.loop.time() + delay)
        return self.loop.keyed_timer(key, at)

    def start_timer(self, handle: RunTimer) -> None:
        self.calls["timer"](self, handle)

    def cancel_timer(self, handle: RunTimer) -> None:
        self.pending.pop(handle.place, None)

    # By the way

    def patched(self, change_id: str) -> bool:
        if self.patches is None:
            self.patches = {}
        known = self.patches.get(change_id)
        if known is None:
            # Code that went by here before knew nothing of the change; code that comes first takes the new way.
            known = self.patches[change_id] = not self.is_replaying
            if known:
                self.aside().patches.append(change_id)
        return known

    def set_attributes(self, patch: dict[str, Any]) -> None:
        merged = self.attributes | patch
        recorded_attributes(merged)
        self._attributes = {name: value for name, value in merged.items() if value is not None}
        self.aside().is_annotated = True

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
        self.aside().is_annotated = True

    def begin_undos(self) -> dict[Undo, None]:
        # The row is to say that there is something now.
        self.aside()
        if self.undos is None:
            self.undos = UndoStack(self.loop)
        return self.undos.waiting

    @property
    def outputs(self) -> "CodeOutputs":
        if self.loop.is_dead:
            self.loop.refuse_when_dead()
        if self.said is None:
            self.said = CodeOutputs(self)
        return self.said

    def aside(self) -> Asides:
        """What the code says by the way, for the worker to take when the code waits."""
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
            history_length=self.seq,
            attributes=dict(self.attributes),
            parent_id=traits.parent_id,
            entity_id=traits.entity_id,
            correlation_id=traits.correlation_id,
            continued_from=traits.continued_from,
            cancel_requested=self.cancelled is not None,
            schedule=traits.schedule,
            scheduled_for=None
            if traits.scheduled_for is None
            else datetime.fromtimestamp(traits.scheduled_for / 1000, UTC),
        )

    def answer(self, message_id: str, answer: RequestAnswer) -> None:
        asides = self.aside()
        # What the code has said before it was replayed is on disk, but for what its last owner died over.
        if not self.is_replaying or message_id in self.unanswered:
            asides.answers[message_id] = answer

    def token(self, name: str) -> str:
        owned = self.owned
        return deferred_token(owned.tenure.key_of(owned.run_id), owned.namespace, owned.run_id, name)

    @property
    def main_task(self) -> RunTask | None:
        return self.loop.main

    def now(self) -> int:
        return self.loop.now

    def rng(self) -> random.Random:
        if self._rng is None:
            self._rng = random.Random(self.owned.seed)
        return self._rng


class CodeOutputs:
    """What the code of a run shows and publishes."""

    def __init__(self, runtime: RunRuntime) -> None:
        self._runtime = runtime
        # How many values were published by stream; and the event that is handled, with how many of them since.
        self._published: Counter[str] = Counter()
        self._seq = self._since = 0

    def expose(self, name: str, function: Callable[[], object]) -> None:
        runtime = self._runtime
        if runtime.exposed is None:
            runtime.exposed = {}
        runtime.exposed[name] = function

    def publish(self, name: str, body: str) -> None:
        """A value for a stream; one that was published before, by a worker that had the run, is not published again."""
        runtime, owned = self._runtime, self._runtime.owned
        if self._seq != runtime.seq:
            self._seq, self._since = runtime.seq, 0
        if self._since >= MOST_UNWRITTEN:
            raise StreamFull(owned.workflow_id, name, MOST_UNWRITTEN)
        self._since += 1
        self._published[name] += 1
        if owned.published is None or self._published[name] > owned.published.get(name, 0):
            runtime.aside().published.append((name, runtime.loop.now, body))


def _drop_answered(calls: deque[DurableCall]) -> None:
    """Let go of the first ones that do not wait any more: those that wait longest are answered first."""
    while calls and not calls[0].is_waiting:
        calls.popleft()
