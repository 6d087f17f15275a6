"""Stopping runs from outside: pause, cancel, terminate, and the end that comes by the clock.

In:   a run, and how it shall end.
Out:  a closed run, or a message to its owner.

A run that nobody owns is closed by the process that is asked, in one transaction that is
conditional on nobody owning it; an owned run is only ever closed by its owner.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perdure.clock import Alarm, Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.background import Background
from perdure.engine.committer import Committer, Settlement
from perdure.engine.endings import ending, told_to_parent
from perdure.engine.leasing.takeover import Takeover
from perdure.engine.ports import Ending
from perdure.engine.waiting.waiters import Waiters
from perdure.errors import RunUnreadable, StoreUnavailable
from perdure.ids import Ids
from perdure.kernel.events import Closing, RunCancelled, RunTerminated, RunTimedOut
from perdure.kernel.messages import Body, CancelRequest, Message, PauseRequest, ResumeRequest, TerminateRequest
from perdure.kernel.run import timed_out
from perdure.kernel.status import OPEN, Status
from perdure.kernel.traits import OnParentClose
from perdure.stores import rows
from perdure.stores.answers import Applied, Moved, Posted
from perdure.stores.operations import (
    CloseFreeRun,
    NoteCancel,
    Operation,
    PauseRun,
    PostMessage,
    ResumeRun,
    StopChildren,
    TellRun,
)
from perdure.stores.port import Store
from perdure.stores.records import RunFilter, RunRow

log = logging.getLogger("perdure.engine")

# How many overdue runs are closed in one look.
BITE = 200


def stop_children(run_id: str, workflow_id: str, end: object, at: int) -> StopChildren:
    """What the end of a run means for its children."""
    reason = end.reason if isinstance(end, RunCancelled | RunTerminated) else None
    reason = reason or f"its parent {workflow_id!r} has ended"
    cancel, terminate = rows.message_body(CancelRequest(reason)), rows.message_body(TerminateRequest(reason))
    return StopChildren(run_id, f"parent:{run_id}", cancel, terminate, isinstance(end, RunTerminated), reason, at)


def stop_child(run_id: str, place: str, reason: str, at: int) -> StopChildren:
    """What it means for a child that its parent does not wait for it any more."""
    cancel, terminate = rows.message_body(CancelRequest(reason)), rows.message_body(TerminateRequest(reason))
    return StopChildren(run_id, f"unawaited:{run_id}", cancel, terminate, False, reason, at, place)


class Deadlines:
    """One alarm, for the earliest end by the clock that is known of; `look` is called then.

    Every process looks: the first one closes what nobody owns.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alarm: Alarm | None = None
        self._alarm_at = 0
        self.look: Callable[[], None] = lambda: None
        self.is_due = False

    def expect(self, at: int | None) -> None:
        """A run ends at this time, unless it has ended before: then the look is for nothing, and no harm."""
        if at is None or (self._alarm is not None and self._alarm_at <= at):
            return
        self.cancel()
        self._alarm_at = at
        self._alarm = self._clock.call_at(at, self._ring)

    def cancel(self) -> None:
        """Look no more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        self.is_due = True
        self.look()


class Stopping:
    """Ends runs, and tells those in this process whom it concerns: parents, children, callers that wait."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        ids: Ids,
        takeover: Takeover,
        arrivals: Arrivals,
        waiters: Waiters,
        background: Background,
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._ids = ids
        self._takeover = takeover
        self._arrivals = arrivals
        self._waiters = waiters
        self._background = background
        self.deadlines = Deadlines(clock)

    async def cancel(
        self,
        row: RunRow,
        reason: str | None,
        deadline_ms: int | None,
        guard: Sequence[Operation] = (),
        message_id: str | None = None,
    ) -> Settlement | None:
        """Ask an open run to stop; None when it is closed now, else what became of the message.

        Of this and its likes, `guard` is written in the same group: what it refuses is not done; of requests under one
        `message_id` the first one counts.
        """
        now = self._clock.now()
        is_forced = deadline_ms == 0
        is_free = (
            await self._takeover.is_free(row.owner)
            if is_forced
            else row.begun_at is None and row.status == Status.PENDING
        )
        if is_free and await self._close(row, RunCancelled(reason), guard, only_unbegun=not is_forced):
            return None
        close_at = None if deadline_ms is None else self._clock.latest() + deadline_ms
        self.deadlines.expect(close_at)
        note = NoteCancel(row.run_id, reason, close_at, now)
        return await self._post(row.run_id, CancelRequest(reason, close_at), message_id, note, *guard)

    async def terminate(
        self, row: RunRow, reason: str | None, guard: Sequence[Operation] = (), message_id: str | None = None
    ) -> Settlement | None:
        """End an open run at once; None when it is closed now, else what became of the message to its owner."""
        if await self._takeover.is_free(row.owner) and await self._close(row, RunTerminated(reason), guard):
            return None
        return await self._post(row.run_id, TerminateRequest(reason), message_id, *guard)

    # Pausing

    async def pause(self, row: RunRow, reason: str | None, guard: Sequence[Operation] = ()) -> Settlement:
        """Hold an open run, or tell its owner to; the answer tells which, or what speaks against it."""
        now, message_id, body = self._clock.now(), self._ids.token(), PauseRequest(reason)
        # The runs of a worker that is gone are nobody's; else they would be held only when another one has them.
        await self._takeover.is_free(row.owner)
        report, tasks = rows.paused_report(row.workflow_id, reason), rows.paused_with(row.workflow_id)
        pause = PauseRun(row.run_id, report, tasks, message_id, rows.message_body(body), now)
        answer = await self._committer.apply(*guard, pause)
        self.notice(answer, row.run_id, message_id, body, now)
        return answer

    async def resume(self, row: RunRow, guard: Sequence[Operation] = ()) -> Settlement:
        """Let a held run go on, or take back that it is to be held; Moved when neither is so."""
        now, message_id = self._clock.now(), self._ids.token()
        resume = ResumeRun(row.run_id, now, rows.paused_with(row.workflow_id), message_id)
        answer = await self._committer.apply(*guard, resume)
        self.notice(answer, row.run_id, message_id, ResumeRequest(), now)
        return answer

    def notice(self, answer: Settlement, run_id: str, message_id: str, body: Body, at: int) -> None:
        """Tell the owner at once of a message that was posted, if it is this process."""
        if isinstance(answer, Applied) and isinstance(answer.value, Posted):
            self._arrivals.notice(run_id, Message(answer.value.number, message_id, body, at), answer.value.count)

    async def close_overdue(self, namespace: str, now: int) -> int:
        """Close the runs whose end by the clock has come, unless they have an owner, who does it; answers how many."""
        closed, total = BITE, 0
        while closed == BITE:
            overdue = await self._store.reads.overdue(namespace, now, BITE)
            free = [row for row in overdue if await self._takeover.is_free(row.owner)]
            # All at once, for they go into one transaction.
            told = await asyncio.gather(*map(self._close_overdue, free), return_exceptions=True)
            if trouble := next((error for error in told if isinstance(error, BaseException)), None):
                raise trouble
            closed = sum(map(bool, told))
            total += closed
        return total

    async def _close_overdue(self, row: RunRow) -> bool:
        is_cancelled = row.close_as == Status.CANCELLED
        return await self._close(row, RunCancelled(row.cancel_reason) if is_cancelled else timed_out(row.timeout_ms))

    async def _close(
        self,
        row: RunRow,
        end: RunCancelled | RunTerminated | RunTimedOut,
        guard: Sequence[Operation] = (),
        *,
        only_unbegun: bool = False,
    ) -> bool:
        now = self._clock.now()
        final = ending(end)
        operations: list[Operation] = [
            CloseFreeRun(row.run_id, row.namespace, final.status.value, rows.outcome_of(end), now, only_unbegun),
            stop_children(row.run_id, row.workflow_id, end, now),
        ]
        message = None
        if row.parent_id is not None and row.parent_place is not None:
            body = told_to_parent(row.parent_place, row.workflow, row.workflow_id, row.run_id, end)
            message = TellRun(row.parent_id, f"child:{row.run_id}", type(body).__name__, rows.message_body(body), now)
            operations.append(message)
        answer = await self._committer.apply(*guard, *operations)
        if not isinstance(answer, Applied) and not (isinstance(answer, Moved) and await self._is_done(row, final, now)):
            return False
        log.info("run %r was closed as %s", row.workflow_id, final.status, extra={"event": "run_closed"})
        if message is not None and isinstance(answer, Applied) and isinstance(answer.value, Posted):
            posted = answer.value
            self._arrivals.notice(message.run_id, Message(posted.number, message.message_id, body, now), posted.count)
        self._waiters.tell(row.run_id, final)
        self._arrivals.tell_children(row.namespace, row.run_id)
        await self._close_free_children(row.namespace, row.run_id, end)
        return True

    async def _is_done(self, row: RunRow, final: Ending, at: int) -> bool:
        """Whether the run has ended so since then: written once more, as its answer was lost, an end finds itself."""
        try:
            found = await self._store.reads.run(row.namespace, row.run_id)
        except RunUnreadable:
            return False
        return found is not None and found.status == final.status and (found.closed_at or 0) >= at

    def tell_children(self, namespace: str, run_id: str, end: Closing) -> None:
        """Children of a run that ended were asked to stop: those that live here are told, free ones are closed."""
        self._background.spawn(self._tell_children(namespace, run_id, end))

    async def _tell_children(self, namespace: str, run_id: str, end: Closing) -> None:
        await self._arrivals.read_children(namespace, run_id)
        try:
            await self._close_free_children(namespace, run_id, end)
        except StoreUnavailable:
            log.warning("children are left to whoever has them next", extra={"event": "children_left"})

    async def _close_free_children(self, namespace: str, run_id: str, end: object) -> None:
        """Close the children that were told to stop at once, and that nobody owns."""
        reason = end.reason if isinstance(end, RunCancelled | RunTerminated) else None
        after = None
        while True:
            wanted = RunFilter(namespace, tuple(OPEN), parent_id=run_id, before=after, limit=BITE)
            page = await self._store.reads.list_runs(wanted)
            for row in page:
                if isinstance(row, RunUnreadable):
                    continue
                terminates = isinstance(end, RunTerminated) or row.on_parent_close == OnParentClose.TERMINATE
                is_left_alone = row.on_parent_close == OnParentClose.ABANDON
                if terminates and not is_left_alone and await self._takeover.is_free(row.owner):
                    await self._close(row, RunTerminated(reason))
            if len(page) < BITE:
                return
            after = page[-1].run_id

    async def _post(
        self, run_id: str, body: CancelRequest | TerminateRequest, message_id: str | None, *beside: Operation
    ) -> Settlement:
        message_id, now = message_id or self._ids.token(), self._clock.now()
        post = PostMessage(run_id, message_id, type(body).__name__, rows.message_body(body), now)
        answer = await self._committer.apply(post, *beside)
        self.notice(answer, run_id, message_id, body, now)
        return answer


async def first_of(*work: Coroutine[Any, Any, object]) -> None:
    """Until one of these is done; the others are given up."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
