"""Children: starting the runs a workflow calls, and calling them off.

In:   calls of a live run whose cause is on disk.
Out:  child runs; what becomes of them comes back as a message to the parent.

A child's run_id follows from its parent and its place, so starting it twice starts
it once. Its id may be taken by a run that is not this parent's: then the rule for
that decides, and a run that is not ours is waited for instead.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from perdure.clock import pause
from perdure.engine import endings, starts
from perdure.engine.outages import Outage
from perdure.engine.ports import Ending, Engine, StartRequest
from perdure.errors import BadOption, IdConflict, NotOpen, PerdureError, StoreUnavailable
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.conflict import GiveIt, OnConflict
from perdure.kernel.events import ChildCompleted, ChildFailed
from perdure.stores.records import RunRow
from perdure.worker.calls.pending import PendingChild
from perdure.worker.failures.failures import failure_of
from perdure.worker.live_run import LiveRun

log = logging.getLogger("perdure.worker")

AGAIN_MS = 1000
# So many starts of children are on their way to disk at once.
MOST_UNDER_WAY = 500


class Children:
    """Starts and calls off children; `advance` gets the ends of runs that are nobody's child."""

    def __init__(self, engine: Engine, advance: Callable[..., None]) -> None:
        self._engine = engine
        self._advance = advance
        self._queue: deque[tuple[LiveRun, PendingChild]] = deque()
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._outage = Outage(
            engine.clock, "child_failed", "a child is in trouble, will try again", "children can be cared for again"
        )

    def start(self, live: LiveRun, call: PendingChild) -> None:
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
            if not live.is_gone and not live.is_leaving and call.is_waiting:
                self._start(live, call, self._request(live, call))

    def clear(self) -> None:
        """Forget what waits for its turn: nothing is ours any more."""
        self._queue.clear()
        self._under_way = 0

    def _request(self, live: LiveRun, call: PendingChild) -> StartRequest:
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

    def _start(self, live: LiveRun, call: PendingChild, request: StartRequest) -> None:
        self._under_way += 1
        live.starting += 1

        def then(holder: RunRow | None) -> None:
            self._under_way -= 1
            live.starting -= 1
            self._go_on()
            if holder is not None and not live.is_gone and call.is_waiting:
                # Not to be let go of before it is settled whom it waits for.
                live.starting += 1
                self._spawn(self._resolve(live, call, request, holder))

        self._engine.owner.start_child(live.owned, request, then)

    async def _resolve(self, live: LiveRun, call: PendingChild, request: StartRequest, holder: RunRow) -> None:
        """Another run has the id: take it over, or wait for that one."""
        try:
            is_attached = await self._patiently(live, lambda: self._settle_conflict(live, call, request, holder))
        finally:
            live.starting -= 1
        if is_attached:
            call.attached = True
            await self._patiently(live, lambda: self._attach(live, call, holder))

    async def _settle_conflict(self, live: LiveRun, call: PendingChild, request: StartRequest, holder: RunRow) -> bool:
        """Whether the call has to wait for the run that has the id."""
        settings = call.workflow.settings
        if holder.run_id == live.run_id:
            error = BadOption(f"the run {live.owned.workflow_id!r} cannot wait for itself; give the child another id")
            self._record(live, call, ChildFailed(call.workflow.name, call.child_id, holder.run_id, failure_of(error)))
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

    async def _attach(self, live: LiveRun, call: PendingChild, holder: RunRow) -> bool:
        """Wait for a run that is not ours."""
        run_id, client = holder.run_id, self._engine.client
        ending = await client.wait(holder.namespace, run_id)
        while ending.next_run_id is not None:
            run_id = ending.next_run_id
            ending = await client.wait(holder.namespace, run_id)
        self._record(live, call, _outcome(call, holder.workflow_id, run_id, ending))
        return True

    def _record(self, live: LiveRun, call: PendingChild, outcome: ChildCompleted | ChildFailed) -> None:
        if not live.is_gone:
            self._advance(live, RecordOutcome(call.place, outcome))

    def call_off(self, live: LiveRun, call: PendingChild) -> None:
        """Nobody waits for the child any more: ask it to stop, with the reason its parent was given."""
        if not call.attached and live.children is not None and call.run_id in live.children:
            cancelled = live.program.cancelled
            reason = None if cancelled is None else cancelled.reason
            text = reason or f"its parent {live.owned.workflow_id!r} does not wait for it any more"
            self._engine.owner.cancel_child(live.owned, call.place, text)

    async def _patiently(self, live: LiveRun, work: Callable[[], Coroutine[Any, Any, bool]]) -> bool:
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

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def abandon(self) -> None:
        """Wait for nothing any more."""
        for task in self._tasks:
            task.cancel()


def _outcome(call: PendingChild, child_id: str, run_id: str, ending: Ending) -> ChildCompleted | ChildFailed:
    if ending.result is not None:
        return ChildCompleted(call.workflow.name, child_id, run_id, msgspec.Raw(bytes(ending.result)))
    return ChildFailed(call.workflow.name, child_id, run_id, endings.failure_of(child_id, ending))
