"""Remote workers: they register, renew their leases and leave; what is due while they are silent is seen to.

In:   calls of workers over a server, each with the worker's id and epoch.
Out:  rows like those of any worker, with a lease and without a lock; no process keeps anything about one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.background import Background
from perdure.engine.committer import Committer, refusal_of
from perdure.engine.leasing.takeover import Takeover
from perdure.engine.ports import Announcements, Registration, RemoteLease, RemoteWorker, Renewal
from perdure.engine.remote.hints import StoreWorkerHints
from perdure.engine.remote.listening import StoreRemoteListening
from perdure.engine.remote.runs import StoreRemoteRuns
from perdure.engine.remote.sessions import LEASE_MS, AskedOnce, WorkerSessions
from perdure.engine.remote.tasks import StoreRemoteTasks
from perdure.engine.remote.waiting import LOOK_AGAIN_MS, WorkWaiter, WorkWaiters
from perdure.errors import PerdureError
from perdure.ids import Ids
from perdure.kernel.events import RunCancelled, RunTerminated
from perdure.kernel.messages import TerminateRequest
from perdure.kernel.run import timed_out
from perdure.kernel.status import Status
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.answers import Applied, Moved
from perdure.stores.operations import DeleteWorker, ForgetDeadline, ParkRun, RegisterWorker, ShortenLease
from perdure.stores.port import Store
from perdure.stores.records import WorkerRow

# A worker whose stream broke is gone when it is silent for so long.
SILENT_MS = 2000
# So long a worker has to end a run whose time is over by itself: it knows what there was to undo.
GRACE_MS = 1000
# So many runs are handed back in one transaction.
BITE = 200


class StoreRemoteWorkers:
    """Remote workers in a store; the RemoteWorkerRegistry of an engine."""

    lease_ms = LEASE_MS

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        ids: Ids,
        sessions: WorkerSessions,
        arrivals: Arrivals,
        announcements: Announcements,
        takeover: Takeover,
        background: Background,
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._ids = ids
        self._sessions = sessions
        self._announcements = announcements
        self._arrivals = arrivals
        self._takeover = takeover
        self._background = background
        self.tasks = StoreRemoteTasks(store, clock, sessions, arrivals)
        self.runs = StoreRemoteRuns(store, clock, sessions, arrivals)
        self.waiters = waiters = WorkWaiters(committer, clock)
        self.listening = StoreRemoteListening(store, clock, sessions, waiters, self.runs, announcements)

    @property
    def is_used(self) -> bool:
        """Whether remote workers call this process: then it looks after them."""
        return self._sessions.are_used

    async def register(self, namespace: str, worker: Registration) -> RemoteLease:
        """Begin a worker, and let others know of its workflows."""
        self._sessions.are_used = True
        now, worker_id = self._clock.now(), self._ids.token()
        names = (*(each.name for each in worker.workflows), *(f"{TASK_PREFIX}{name}" for name in worker.activities))
        row = (worker_id, namespace, now + self.lease_ms, worker.queues, worker.name, 0, now, self.lease_ms, names)
        # Done again it would be refused, for it is there.
        answer = await self._committer.apply(RegisterWorker(*row, is_remote=True), kind=AskedOnce)
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._store.url)
        await self._announcements.announce(namespace, worker.workflows)
        return RemoteLease(worker_id, 1, self.lease_ms, now)

    async def renew(self, worker: RemoteWorker, holding: Sequence[str] | None = None) -> Renewal:
        """Prolong a lease; what is to stop is named, and what it has and does not hold, if it says what it holds."""
        session = await self._sessions.find(worker, renews=False)
        await session.renew()
        asked = dict.fromkeys(run_id for run_id, _ in await self._store.reads.remote.stops(worker.worker_id))
        owned = {} if holding is None else await self._store.reads.remote.owned(worker.worker_id)
        held = {*(holding or ())}
        unheld = tuple(run_id for run_id in owned if run_id not in held)
        return Renewal(LEASE_MS, self._clock.now(), tuple(asked), unheld)

    async def leave(self, worker: RemoteWorker) -> None:
        """Hand everything back, and end a worker; what it had under way is begun again by others."""
        session = await self._sessions.find(worker)
        while run_ids := await self._store.reads.owned_runs(worker.worker_id):
            now = self._clock.now()
            of_bite = run_ids[:BITE]
            parks = [ParkRun(each, worker.worker_id, Status.PENDING.value, now, None, None, now) for each in of_bite]
            answer = await session.write(*parks, *(ForgetDeadline(run_id) for run_id in of_bite))
            # One that has ended meanwhile is not its own any more.
            if not isinstance(answer, Applied | Moved):
                raise refusal_of(answer, self._store.url)
        answer = await session.write(DeleteWorker(worker.worker_id))
        if not isinstance(answer, Applied | Moved):
            raise refusal_of(answer, self._store.url)
        self._arrivals.look_around()

    @contextmanager
    def waiting(self, worker: RemoteWorker, *, are_tasks: bool | None) -> "Iterator[StoreWorkWait]":
        """Wait for something to claim."""
        with self.waiters.one_more() as waiter:
            yield StoreWorkWait(self._store, self._clock, self._sessions, waiter, worker, are_tasks=are_tasks)

    async def hints(self, worker: RemoteWorker, after: int) -> StoreWorkerHints:
        """Tell a worker what it may want to know; that it listens is a sign of life."""
        session = await self._sessions.find(worker)
        return StoreWorkerHints(self._store, self._clock, self._sessions, self.waiters, session, worker, after)

    def stream_broke(self, worker: RemoteWorker) -> None:
        """Take a worker over soon whose stream broke, unless it shows life, at this server or another."""
        if not self._background.is_closed:
            self._background.spawn(self._doubt(worker))

    async def _doubt(self, worker: RemoteWorker) -> None:
        # What cannot be read or written now is left to its lease.
        with suppress(PerdureError):
            if (doubted := await self._shortened(worker)) is not None:
                self._clock.call_at(self._clock.now() + SILENT_MS, partial(self._end_doubt, doubted))

    def _end_doubt(self, doubted: WorkerRow) -> None:
        if not self._background.is_closed:
            self._background.spawn(self._take_over_silent(doubted))

    async def _take_over_silent(self, doubted: WorkerRow) -> None:
        with suppress(PerdureError):
            row = await self._store.reads.remote.worker(doubted.worker_id)
            # Where nobody can write, nobody can show life.
            if row is not None and row.lease_until == doubted.lease_until and not self._store.is_held_up:
                await self._takeover.take_over(row)

    async def _shortened(self, worker: RemoteWorker) -> WorkerRow | None:
        """The worker with a lease so short that whatever it does next prolongs it; None when it is gone."""
        while (row := await self._store.reads.remote.worker(worker.worker_id)) is not None:
            until = self._clock.now() + SILENT_MS
            if row.epoch != worker.epoch:
                return None
            if row.lease_until <= until:
                return row
            shorten = ShortenLease(row.worker_id, row.epoch, row.lease_until, until)
            if isinstance(await self._committer.apply(shorten), Applied):
                return msgspec.structs.replace(row, lease_until=until)
        return None

    async def look(self, now: int) -> None:
        """End what is over of remote workers, in their names: attempts, runs that are terminated or took too long."""
        await self.tasks.end_overdue(now)
        remote = {each.worker_id: each for each in await self._store.reads.workers() if each.remote}
        for worker_id, worker in remote.items():
            for run_id, message in await self._store.reads.remote.stops(worker_id):
                if isinstance(message.body, TerminateRequest):
                    await self.runs.end(worker, run_id, RunTerminated(message.body.reason))
        for namespace in {worker.namespace for worker in remote.values()}:
            for row in await self._store.reads.overdue(namespace, now - GRACE_MS, BITE):
                if row.owner in remote:
                    is_cancelled = row.close_as == Status.CANCELLED
                    end = RunCancelled(row.cancel_reason) if is_cancelled else timed_out(row.timeout_ms)
                    await self.runs.end(remote[row.owner], row.run_id, end)


class StoreWorkWait:
    """A remote worker that waits for something to claim; the WorkWait of an engine."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sessions: WorkerSessions,
        waiter: WorkWaiter,
        worker: RemoteWorker,
        *,
        are_tasks: bool | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sessions = sessions
        self._waiter = waiter
        self._worker = worker
        self._are_tasks = are_tasks
        self._is_first = True

    async def comes(self) -> bool:
        """Until there may be something to claim, something new after the first time; the lease is renewed meanwhile."""
        if not self._is_first:
            await self._waiter.wait(LOOK_AGAIN_MS)
        self._is_first = False
        while (wait_ms := await self._look()) > 0:
            await self._waiter.wait(wait_ms)
        return True

    async def _look(self) -> int:
        """How long to wait for something to claim; 0 when there is something."""
        worker, session = self._worker, await self._sessions.find(self._worker)
        are_tasks = self._are_tasks
        names = tuple(
            name for name in session.workflows if are_tasks is None or name.startswith(TASK_PREFIX) == are_tasks
        )
        at = await self._store.reads.next_wake(worker.namespace, session.queues, names, suspects=True)
        return LOOK_AGAIN_MS if at is None else min(LOOK_AGAIN_MS, max(0, at - self._clock.now()))
