"""A child: a run that another one calls and waits for.

In:   calls of a live run whose cause is on disk.
Out:  child runs; what becomes of them comes back as a message to the parent.

A child's run_id follows from its parent and its place, so starting it twice starts
it once. Its id may be taken by a run that is not this parent's: then the rule for
that decides, and a run that is not ours is waited for instead.
"""

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from perdure import errors
from perdure.authoring.workflow import Workflow
from perdure.clock import pause
from perdure.engine import endings, starts
from perdure.engine.background import Background
from perdure.engine.outages import Outage
from perdure.engine.ports import Ending, StartRequest
from perdure.errors import BadInput, BadOption, IdConflict, NotOpen, PerdureError, StoreUnavailable
from perdure.ids import LONGEST_ID, child_run_id
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.conflict import GiveIt, OnConflict
from perdure.kernel.events import ChildCompleted, ChildFailed, Event
from perdure.kernel.messages import ChildFailure, ChildResult
from perdure.kernel.traits import OnParentClose
from perdure.stores.records import RunRow
from perdure.worker.calls.call import (
    AwaitedCall,
    CallingCode,
    CallingRun,
    CallServices,
    NeededCode,
    given_in,
    unexpected,
    unreadable,
)
from perdure.worker.failures.failures import failure_of, raised

log = logging.getLogger("perdure.worker")

AGAIN_MS = 1000
# How often a parked run looks after one that it waits for but has not started.
LOOK_AGAIN_MS = 10_000
# So many starts of children are on their way to disk at once.
MOST_UNDER_WAY = 500


def place_of(ended: ChildResult | ChildFailure) -> str:
    """What the end of a child is waited for by; a run that continues the child sends it to the same place."""
    return ended.place


class ChildCall(AwaitedCall, kind="child"):
    """A child run to be started and waited for; its run_id is the same on every replay.

    One that waits for a run it did not start, because that had its id, is `attached`: nobody sends
    it a message when that ends.
    """

    __slots__ = ("attached", "child_id", "data", "run_id", "seed", "workflow")

    messages = {ChildResult: place_of, ChildFailure: place_of}  # noqa: RUF012 - it is read when the class is made
    is_found_by_place = True
    # An activity that ends at once may end the run with it; children that were called are started all the same.
    starts_first = True

    def __init__(self, runtime: CallingCode, place: str, workflow: Workflow[..., Any], data: bytes) -> None:
        super().__init__(runtime, place)
        self.workflow = workflow
        self.data = data
        self.run_id, self.seed = child_run_id(runtime.owned.run_id, place, runtime.loop.now)
        default_id = f"{runtime.owned.workflow_id}/{place}"
        self.child_id = workflow.settings.id or (default_id if len(default_id) <= LONGEST_ID else self.run_id)
        self.attached = False

    @classmethod
    def ask(
        cls, runtime: CallingCode, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "ChildCall":
        data, _, _ = workflow.signature.record(args, kwargs)
        call = cls(runtime, runtime.place(workflow.name), workflow, data)
        runtime.add(call)
        return call

    def listens_to(self) -> tuple[str, ...]:
        return (self.place,)

    def answer(self, event: Event, restored: object) -> None:
        fact = event.fact
        if type(fact) is ChildFailed:
            self.future.set_exception(self.raised(fact))
            return
        if type(fact) is not ChildCompleted:
            raise unexpected(event, self.runtime)
        try:
            self.future.set_result(self.workflow.signature.result.restore(fact.result, self.place))
        except BadInput as error:
            raise unreadable(event, self.runtime, error) from None

    def as_answer(self, event: Event) -> ChildCompleted:
        return ChildCompleted(self.workflow.name, self.child_id, self.run_id, given_in(event))

    def raised(self, fact: ChildFailed) -> Exception:
        """The error that the code sees when the child has ended without a result."""
        return raised(fact.failure, partial(errors.ChildFailed, fact.child_id, fact.workflow))

    def start(self, live: CallingRun, services: CallServices) -> None:
        services.part(Children).start(live, self)

    def cancel_effect(self, live: CallingRun, services: CallServices) -> None:
        services.part(Children).cancel(live, self)

    @property
    def outlives_its_run(self) -> bool:
        return self.workflow.settings.traits.on_parent_close == OnParentClose.ABANDON

    def is_waiting_outside(self, live: CallingRun) -> bool:
        return self.attached or self.run_id in (live.children or ())

    def wake_at(self, live: CallingRun, now: int) -> int | None:
        # Nobody tells it when a run ends that it has not started: it has to look.
        return now + LOOK_AGAIN_MS if self.attached else None

    def shown(self, live: CallingRun) -> dict[str, object]:
        return {"kind": "child", "place": self.place, "name": self.child_id}

    def needs(self, live: CallingRun) -> NeededCode | None:
        queue = self.workflow.settings.queue or live.owned.queue
        return NeededCode(f"the child {self.child_id}", self.workflow.name, queue)


class Children:
    """Starts and cancels the children of a worker's runs."""

    def __init__(self, services: CallServices) -> None:
        self._engine = engine = services.engine
        self._advance = services.advance
        self._queue: deque[tuple[CallingRun, ChildCall]] = deque()
        self._under_way = 0
        self._background = Background(engine.clock)
        self._outage = Outage(
            engine.clock, "child_failed", "a child is in trouble, will try again", "children can be cared for again"
        )

    def start(self, live: CallingRun, call: ChildCall) -> None:
        """Start the child in its turn, unless it has been before."""
        if live.children is None:
            live.children = set()
        if call.run_id in live.children:
            return
        live.children.add(call.run_id)
        live.owned.has_children = True
        live.starting += 1
        self._queue.append((live, call))
        if self._under_way < MOST_UNDER_WAY:
            self._go_on()

    def _go_on(self) -> None:
        """Start what waits for its turn: thousands at once would all be in memory before the first has ended."""
        while self._queue and self._under_way < MOST_UNDER_WAY:
            live, call = self._queue.popleft()
            live.starting -= 1
            if live.pause is not None:
                # It is to be paused, and begins nothing more.
                live.pause.put_off[call.place] = False
                (live.children or set()).discard(call.run_id)
            elif not live.is_gone and not live.is_leaving and call.is_waiting:
                self._start(live, call, self._request(live, call))

    def clear(self) -> None:
        """Forget what waits for its turn: nothing is ours any more."""
        self._queue.clear()
        self._under_way = 0

    def _request(self, live: CallingRun, call: ChildCall) -> StartRequest:
        """The child's start; what its options do not say it has from its parent."""
        settings, parent = call.workflow.settings, live.owned
        traits = msgspec.structs.replace(
            settings.traits,
            parent_id=live.run_id,
            parent_place=call.place,
            correlation_id=settings.traits.correlation_id or parent.traits.correlation_id,
        )
        return StartRequest(
            call.workflow.name,
            call.data.decode(),
            call.child_id,
            settings.queue or parent.queue,
            parent.priority if settings.priority is None else settings.priority,
            traits=traits,
            delay_ms=settings.delay_ms,
            run_id=call.run_id,
            seed=call.seed,
        )

    def _start(self, live: CallingRun, call: ChildCall, request: StartRequest) -> None:
        self._under_way += 1
        live.starting += 1

        def then(holder: RunRow | None) -> None:
            self._under_way -= 1
            live.starting -= 1
            self._go_on()
            if holder is not None and not live.is_gone and call.is_waiting:
                # Not to be let go of before it is settled whom it waits for.
                live.starting += 1
                self._background.spawn(self._resolve(live, call, request, holder))

        self._engine.owner.start_child(live.owned, request, then)

    async def _resolve(self, live: CallingRun, call: ChildCall, request: StartRequest, holder: RunRow) -> None:
        """Another run has the id: take it over, or wait for that one."""
        try:
            is_attached = await self._patiently(live, lambda: self._settle_conflict(live, call, request, holder))
        finally:
            live.starting -= 1
        if is_attached:
            call.attached = True
            await self._patiently(live, lambda: self._attach(live, call, holder))

    async def _settle_conflict(self, live: CallingRun, call: ChildCall, request: StartRequest, holder: RunRow) -> bool:
        """Whether the call has to wait for the run that has the id."""
        settings = call.workflow.settings
        if holder.run_id == live.run_id:
            error = BadOption(f"the run {live.owned.workflow_id!r} cannot wait for itself; give the child another id")
            self._record(live, call, ChildFailed(call.workflow.name, call.child_id, holder.run_id, failure_of(error)))
            return False
        if live.owned.traits.forked_from is not None and await self._is_left_behind(live, holder):
            self._start(live, call, msgspec.structs.replace(request, supersedes=holder.run_id))
            return False
        if settings.id is None and holder.closed_at is None:
            # Nobody chose this id; the child takes one that nobody else can have.
            self._start(live, call, msgspec.structs.replace(request, workflow_id=request.run_id))
            return False
        policy = OnConflict.REPLACE if settings.id is None else settings.on_conflict
        defaults = call.workflow.signature.defaults
        resolution = await starts.resolution_of(self._engine.reader, holder, request, policy, defaults)
        if isinstance(resolution, GiveIt):
            return True
        try:
            request = await starts.superseding(self._engine.client, request, holder, resolution)
        except IdConflict as conflict:
            failed = ChildFailed(call.workflow.name, holder.workflow_id, holder.run_id, failure_of(conflict))
            self._record(live, call, failed)
            return False
        # It may have taken a while to make way, and the parent may have ended meanwhile.
        if not live.is_gone and not live.is_leaving and call.is_waiting:
            self._start(live, call, request)
        return False

    async def _is_left_behind(self, live: CallingRun, holder: RunRow) -> bool:
        """Whether a run that has ended by now is a child of one that this is a retry or a fork of.

        One that was told to stop when its parent ended is waited for; one that goes on keeps its id.
        """
        namespace, before = live.owned.namespace, live.owned.traits.forked_from
        while before is not None:
            row = await self._engine.reader.read(namespace, before)
            if row.run_id == holder.parent_id:
                goes_on = row.closed_at is None or holder.on_parent_close == OnParentClose.ABANDON
                if holder.closed_at is None and not goes_on:
                    await self._engine.client.wait(namespace, holder.run_id)
                return holder.closed_at is not None or not goes_on
            before = row.forked_from
        return False

    async def _attach(self, live: CallingRun, call: ChildCall, holder: RunRow) -> bool:
        """Wait for a run that is not ours."""
        run_id, client = holder.run_id, self._engine.client
        ending = await client.wait(holder.namespace, run_id)
        while ending.next_run_id is not None:
            run_id = ending.next_run_id
            ending = await client.wait(holder.namespace, run_id)
        self._record(live, call, _outcome(call, holder.workflow_id, run_id, ending))
        return True

    def _record(self, live: CallingRun, call: ChildCall, outcome: ChildCompleted | ChildFailed) -> None:
        if not live.is_gone:
            self._advance(live, RecordOutcome(call.place, outcome))

    def cancel(self, live: CallingRun, call: ChildCall) -> None:
        """Nobody waits for the child any more: ask it to stop, with the reason its parent was given."""
        if not call.attached and live.children is not None and call.run_id in live.children:
            cancelled = call.runtime.cancelled
            reason = None if cancelled is None else cancelled.reason
            text = reason or f"its parent {live.owned.workflow_id!r} does not wait for it any more"
            self._engine.owner.cancel_child(live.owned, call.place, text)

    async def _patiently(self, live: CallingRun, work: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
        """Until it is done, as long as the run is ours: nobody else will do it."""
        while not live.is_gone:
            try:
                done = await work()
            except NotOpen:
                return False
            except StoreUnavailable as error:
                self._outage.fails(error)
                await pause(self._engine.clock, AGAIN_MS)
            except PerdureError:
                log.warning("a child is in trouble, will try again", exc_info=True, extra={"event": "child_failed"})
                await pause(self._engine.clock, AGAIN_MS)
            else:
                self._outage.is_over()
                return done
        return False

    def abandon(self) -> None:
        """Wait for nothing any more."""
        self._background.cancel()


def _outcome(call: ChildCall, child_id: str, run_id: str, ending: Ending) -> ChildCompleted | ChildFailed:
    if ending.result is not None:
        return ChildCompleted(call.workflow.name, child_id, run_id, msgspec.Raw(bytes(ending.result)))
    return ChildFailed(call.workflow.name, child_id, run_id, endings.failure_of(child_id, ending))
