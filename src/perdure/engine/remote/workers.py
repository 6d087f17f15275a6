"""Remote workers: they register, renew their leases and leave; what is due while they are silent is seen to.

In:   calls of workers over a server, each with the worker's id and epoch.
Out:  rows like those of any worker, with a lease and without a lock; no process keeps anything about one.
"""

from perdure.clock import Clock, pause
from perdure.engine.arrivals import Arrivals
from perdure.engine.committer import Committer, refusal_of
from perdure.engine.ports import Announcements, Registration, RemoteLease, RemoteWorker, Renewal
from perdure.engine.remote.runs import StoreRemoteRuns
from perdure.engine.remote.sessions import LEASE_MS, WorkerSessions
from perdure.engine.remote.tasks import StoreRemoteTasks
from perdure.ids import Ids
from perdure.kernel.events import RunCancelled, RunTerminated
from perdure.kernel.messages import CancelRequest, TerminateRequest
from perdure.kernel.run import timed_out
from perdure.kernel.status import Status
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.answers import Applied, Moved
from perdure.stores.operations import DeleteWorker, ForgetDeadline, ParkRun, RegisterWorker
from perdure.stores.port import Store

# How often a worker that waits for something to do is looked for.
LOOK_AGAIN_MS = 200
# So many runs are handed back in one transaction.
BITE = 200


class StoreRemoteWorkers:
    """Remote workers in a store; the RemoteWorkerRegistry of an engine."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        ids: Ids,
        sessions: WorkerSessions,
        arrivals: Arrivals,
        announcements: Announcements,
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._ids = ids
        self._sessions = sessions
        self._announcements = announcements
        self._arrivals = arrivals
        self.tasks = StoreRemoteTasks(store, clock, sessions, arrivals)
        self.runs = StoreRemoteRuns(store, clock, sessions, arrivals)
        # Up to which message those of each remote worker were looked at.
        self._looked: dict[str, int] = {}
        # Whether remote workers call this process: then it looks after them.
        self.is_used = False

    async def register(self, namespace: str, worker: Registration) -> RemoteLease:
        """Begin a worker, and let others know of its workflows."""
        self.is_used = True
        now, worker_id = self._clock.now(), self._ids.token()
        names = (*(each.name for each in worker.workflows), *(f"{TASK_PREFIX}{name}" for name in worker.activities))
        row = (worker_id, namespace, now + LEASE_MS, worker.queues, worker.name, 0, now, LEASE_MS, names)
        answer = await self._committer.apply(RegisterWorker(*row, is_remote=True))
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._store.url)
        await self._announcements.announce(namespace, worker.workflows)
        return RemoteLease(worker_id, 1, LEASE_MS, now)

    async def renew(self, worker: RemoteWorker) -> Renewal:
        """Prolong a lease; what is to stop is named."""
        self.is_used = True
        session = await self._sessions.find(worker)
        await session.write()
        unread, _ = await self._store.reads.new_messages(worker.worker_id, 0)
        bodies = [(run_id, getattr(message, "body", None)) for run_id, message, _ in unread]
        asked = [run_id for run_id, body in bodies if isinstance(body, CancelRequest | TerminateRequest)]
        return Renewal(LEASE_MS, self._clock.now(), tuple(dict.fromkeys(asked)))

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

    async def wait_for_work(self, worker: RemoteWorker, *, are_tasks: bool) -> None:
        """Until there may be something to claim; the lease is renewed meanwhile."""
        while True:
            session = await self._sessions.find(worker)
            names = tuple(name for name in session.workflows if name.startswith(TASK_PREFIX) == are_tasks)
            at = await self._store.reads.next_wake(worker.namespace, session.queues, names, suspects=True)
            now = self._clock.now()
            if at is not None and at <= now:
                return
            if session.renewal(now):
                await session.write()
            await pause(self._clock, LOOK_AGAIN_MS if at is None else min(LOOK_AGAIN_MS, at - now))

    async def look(self, now: int) -> None:
        """End what is over of remote workers, in their names: attempts, runs that are terminated or took too long."""
        await self.tasks.end_overdue(now)
        remote = {each.worker_id: each for each in await self._store.reads.workers() if each.remote}
        self._looked = {worker_id: at for worker_id, at in self._looked.items() if worker_id in remote}
        for worker_id, worker in remote.items():
            after = self._looked.get(worker_id, 0)
            found, self._looked[worker_id] = await self._store.reads.new_messages(worker_id, after)
            for run_id, message, _ in found:
                body = getattr(message, "body", None)
                if isinstance(body, TerminateRequest):
                    await self.runs.end(worker, run_id, RunTerminated(body.reason))
        for namespace in {worker.namespace for worker in remote.values()}:
            for row in await self._store.reads.overdue(namespace, now, BITE):
                if row.owner in remote:
                    is_cancelled = row.close_as == Status.CANCELLED
                    end = RunCancelled(row.cancel_reason) if is_cancelled else timed_out(row.timeout_ms)
                    await self.runs.end(remote[row.owner], row.run_id, end)
