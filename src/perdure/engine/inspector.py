"""The inspector: what may be in the way of runs.

In:   a store, and this process's own lease.
Out:  workers and how they are, what is ahead of a run, who holds its row, which runs are stuck. Nothing is changed.
"""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from perdure.clock import Clock
from perdure.engine.hindrances import has_code, served_by
from perdure.engine.leasing.lease import Lease
from perdure.engine.leasing.living import dead_among
from perdure.engine.ports import Liveness, WorkerLife
from perdure.errors import RunUnreadable
from perdure.stores.port import Store
from perdure.stores.records import RunRow, StuckFilter, WorkerRow


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
        dead = await dead_among(self._store, [each for each in found if each.worker_id != self._lease.worker_id])
        return [WorkerLife(worker, self._liveness(worker, is_dead=worker.worker_id in dead)) for worker in found]

    async def stuck(
        self, namespace: str, after_ms: int, before: str | None, limit: int
    ) -> list[RunRow | RunUnreadable]:
        """Runs that no living worker has code for, and those whose owner is gone, that did not move for so long."""
        now = self._clock.now()
        workers = await self.workers(namespace)
        alive = [each.row for each in workers if each.liveness is Liveness.ALIVE]
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            # A row of another version, or one that was spoilt, is no reason to call anything stuck.
            served = served_by(alive, namespace)
            reads = self._store.reads
            kinds = [kind for kind in await reads.inspection.due_kinds(namespace, now) if not has_code(served, *kind)]
            kept = {each.worker_id for each in await reads.workers()} - _gone(workers, now - after_ms)
            owners = [owner for owner in await reads.owners() if isinstance(owner, str) and owner not in kept]
            if kinds or owners:
                wanted = StuckFilter(namespace, tuple(kinds), tuple(owners), now, now - after_ms, before, limit)
                return await reads.inspection.stuck(wanted)
        return []

    def _liveness(self, worker: WorkerRow, *, is_dead: bool) -> Liveness:
        if is_dead:
            return Liveness.DEAD
        # While nobody can write, nobody can renew.
        is_late = worker.lease_until < self._clock.now() and not self._store.is_held_up
        return Liveness.STALLED if is_late and worker.worker_id != self._lease.worker_id else Liveness.ALIVE


def _gone(workers: Iterable[WorkerLife], until: int) -> set[str]:
    """Those that do not live, and have not renewed their leases since a time."""
    return {
        each.row.worker_id
        for each in workers
        if each.liveness is not Liveness.ALIVE and each.row.lease_until - (each.row.lease_ms or 0) <= until
    }
