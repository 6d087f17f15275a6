"""Hints for remote workers: that there may be work, that something has come for a run, that one is to stop.

In:   words of what was written, the rows of the worker and its messages.
Out:  hints, one at a time. Whatever is missed is found by the next claim or renewal.
"""

from collections import deque

from perdure.clock import Clock
from perdure.engine.ports import RemoteWorker
from perdure.engine.ports.remote_registry import WorkHint
from perdure.engine.remote.sessions import WorkerSession, WorkerSessions
from perdure.engine.remote.waiting import LOOK_AGAIN_MS, WorkWaiter, WorkWaiters
from perdure.kernel.messages import CancelRequest, TerminateRequest
from perdure.stores.port import Store

# Between two hints that there is work lies at least so much.
WORK_GAP_MS = 100


class StoreWorkerHints:
    """What one worker is told while its stream is open; the WorkerHints of an engine."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sessions: WorkerSessions,
        waiters: WorkWaiters,
        session: WorkerSession,
        worker: RemoteWorker,
        after: int,
    ) -> None:
        self._reads = store.reads
        self._clock = clock
        self._sessions = sessions
        self._waiters = waiters
        self._waiter: WorkWaiter = waiters.join()
        self._worker = worker
        self.after = after
        self._lease_until = session.row.lease_until
        self._no_work_before = 0
        self._found: deque[WorkHint] = deque()

    async def next(self) -> WorkHint:
        """The next one; LeaseLost."""
        while True:
            if self._found:
                return self._found.popleft()
            wait_ms = await self._look()
            if not self._found:
                await self._waiter.wait(wait_ms)

    def close(self) -> None:
        """Nobody listens any more."""
        self._waiters.leave(self._waiter)

    async def _look(self) -> int:
        """Find what there is to tell; how long to wait for more."""
        # A stream that is open prolongs nothing by itself: the worker may hang, or the network between.
        session = await self._sessions.find(self._worker, renews=False)
        if session.row.lease_until < self._lease_until:
            # An older stream of the worker broke; this one is a sign of life.
            await session.renew()
        self._lease_until = session.row.lease_until
        found, self.after = await self._reads.new_messages(self._worker.worker_id, self.after)
        for run_id, message, _ in found:
            is_stop = isinstance(getattr(message, "body", None), CancelRequest | TerminateRequest)
            self._found.append(WorkHint("cancel" if is_stop else "message", run_id))
        return await self._look_for_work(session)

    async def _look_for_work(self, session: WorkerSession) -> int:
        namespace = self._worker.namespace
        at = await self._reads.next_wake(namespace, session.queues, session.workflows, suspects=True)
        now, steady = self._clock.now(), self._clock.monotonic()
        if at is None or at > now:
            return LOOK_AGAIN_MS if at is None else min(LOOK_AGAIN_MS, at - now)
        if steady < self._no_work_before:
            return self._no_work_before - steady
        self._no_work_before = steady + WORK_GAP_MS
        self._found.append(WorkHint("work"))
        return LOOK_AGAIN_MS
