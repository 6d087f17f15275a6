"""The inspector: what may be in the way of runs.

In:   a store, and this process's own lease.
Out:  workers and how they are, what is ahead of a run, who holds its row. Nothing is changed.
"""

from perdure.clock import Clock
from perdure.engine.leasing.lease import Lease
from perdure.engine.ports import Liveness, WorkerLife
from perdure.stores.port import Store
from perdure.stores.records import WorkerRow


class StoreInspector:
    """Looks at a store; the Inspector of an engine."""

    def __init__(self, store: Store, clock: Clock, lease: Lease) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        # What is answered as it is known.
        self.last_attempt = store.reads.inspection.last_attempt
        self.count_ahead = store.reads.inspection.count_ahead
        self.row_holders = store.reads.inspection.row_holders

    async def workers(self, namespace: str) -> list[WorkerLife]:
        """The workers of a namespace, and how they are."""
        found = [worker for worker in await self._store.reads.workers() if worker.namespace == namespace]
        others = [worker.worker_id for worker in found if worker.worker_id != self._lease.worker_id]
        dead = await self._store.presence.dead_among(others)
        return [WorkerLife(worker, self._liveness(worker, is_dead=worker.worker_id in dead)) for worker in found]

    def _liveness(self, worker: WorkerRow, *, is_dead: bool) -> Liveness:
        if is_dead:
            return Liveness.DEAD
        # While nobody can write, nobody can renew.
        is_late = worker.lease_until < self._clock.now() and not self._store.is_held_up
        return Liveness.STALLED if is_late and worker.worker_id != self._lease.worker_id else Liveness.ALIVE
