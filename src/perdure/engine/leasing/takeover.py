"""Takeover: the runs of workers that are gone are freed, so that others go on with them.

In:   the rows of all workers, which of them have lost their lock, our own monotonic clock.
Out:  raised epochs, freed runs, rows of dead workers that are deleted.

Safety is the epoch alone: looking at clocks and locks only decides when to raise that of another worker. The
time in its row is by its own clock, and is only ever looked at for a change.
"""

import logging

from perdure.clock import Clock
from perdure.engine.committer import Committer
from perdure.engine.held import tell_blamed
from perdure.engine.leasing.lease import Lease
from perdure.engine.leasing.living import LivingWorkers, dead_among
from perdure.stores.answers import Applied, Freed
from perdure.stores.operations import DeleteWorker, FreeOrphans, FreeRuns, RaiseEpoch
from perdure.stores.port import Store
from perdure.stores.records import WorkerRow

log = logging.getLogger("perdure.engine")

# How many runs of a dead worker are freed in one transaction.
BITE = 500
# How often it is looked for runs whose owner has no row; only a hand in the database brings that about.
ORPHANS_MS = 10_000
# So much is told of an owner that is none of ours.
LONGEST_NAME = 60


class Takeover:
    """Finds workers that are gone, and frees their runs."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, lease: Lease, living: LivingWorkers) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._lease = lease
        self._living = living
        # The other workers' rows as they were last seen to change, and when that was by our monotonic clock.
        self._seen: dict[str, tuple[WorkerRow, int]] = {}
        self._next_orphans_at = 0
        # Whether a lease that is over by the clock which all share is enough: who lives for seconds sees no change.
        self.trusts_clock = False

    async def rescue(self) -> int:
        """Free the runs of workers that are gone; answers how many."""
        freed = 0
        worker_id, epoch = self._lease.worker_id, self._lease.epoch
        workers = await self._store.reads.workers()
        if (worker_id, epoch) not in {(worker.worker_id, worker.epoch) for worker in workers}:
            # Whoever took our runs over is running them: what runs here is to stop soon, not with the next renewal.
            self._lease.renew_soon()
        known = {worker.worker_id for worker in workers}
        self._seen = {worker_id: seen for worker_id, seen in self._seen.items() if worker_id in known}
        others = [worker for worker in workers if worker.worker_id != self._lease.worker_id]
        dead = await dead_among(self._store, others)
        self._living.note(workers, dead)
        for worker in others:
            if worker.worker_id in dead or self._is_silent(worker):
                freed += await self.take_over(worker)
        if self._clock.monotonic() >= self._next_orphans_at:
            self._next_orphans_at = self._clock.monotonic() + ORPHANS_MS
            freed += await self._free_orphans()
        return freed

    async def is_free(self, worker_id: str | None) -> bool:
        """Whether nobody owns what this worker did: there is none, or it is gone, and its runs are freed by then.

        One that hangs is gone when it was asked for before, a lease ago, and its row is still the same.
        """
        if worker_id is None or worker_id == self._lease.worker_id:
            return worker_id is None
        for worker in await self._store.reads.workers():
            if worker.worker_id == worker_id:
                if not await dead_among(self._store, [worker]) and not self._is_silent(worker):
                    return False
                await self.take_over(worker)
        return True

    def _is_silent(self, worker: WorkerRow) -> bool:
        """Whether its row has not changed for as long as its lease is, by our own clock.

        A process that starts beside a worker that hangs has seen nothing of it yet, and waits for one lease.
        """
        if self._store.is_held_up:
            # Nobody can write, so nobody can renew.
            self._seen.clear()
            return False
        if self.trusts_clock and worker.lease_until < self._clock.now():
            return True
        now = self._clock.monotonic()
        seen, since = self._seen.get(worker.worker_id, (None, now))
        if seen is None or (seen.epoch, seen.lease_until) != (worker.epoch, worker.lease_until):
            self._seen[worker.worker_id] = (worker, now)
            return False
        return now - since > (worker.lease_ms or self._lease.lease_ms)

    async def take_over(self, worker: WorkerRow) -> int:
        """Raise the epoch that was read and free the runs; another rescuer, or the worker itself, wins by moving it."""
        bite = FreeRuns(worker.worker_id, self._clock.now(), BITE)
        fence = RaiseEpoch(worker.worker_id, worker.epoch, worker.lease_until)
        answer = await self._committer.apply(fence, bite)
        freed = 0
        while isinstance(answer, Applied) and isinstance(answer.value, Freed) and answer.value.count > 0:
            freed += answer.value.count
            if answer.value.blamed is not None:
                tell_blamed(answer.value.blamed, self._clock.now())
            # Each with its own time: what is ripe since long may be looked for last.
            answer = await self._committer.apply(bite._replace(now=self._clock.now()))
        if isinstance(answer, Applied):
            await self._committer.apply(DeleteWorker(worker.worker_id))
            self._store.presence.forget(worker.worker_id)
            log.log(
                logging.WARNING if freed else logging.INFO,
                "took over %d run(s) of worker %s (process %d on %s), which is gone",
                freed,
                worker.worker_id,
                worker.pid,
                worker.host,
                extra={"event": "worker_taken_over", "worker_id": worker.worker_id, "runs": freed},
            )
        return freed

    async def _free_orphans(self) -> int:
        """Free runs whose owner has no row, or none that can be read: nobody would ever see it gone."""
        owners = await self._store.reads.owners()
        # An owner has had a row before it owned anything; read in this order, one that has just come is in it.
        known = {worker.worker_id for worker in await self._store.reads.workers()}
        freed = 0
        for owner in owners:
            if owner not in known:
                freed += await self._free_orphans_of(owner)
        return freed

    async def _free_orphans_of(self, owner: object) -> int:
        freed, bite = 0, FreeOrphans(owner, self._clock.now(), BITE)
        while isinstance(answer := await self._committer.apply(bite), Applied) and answer.value:
            assert isinstance(answer.value, int)
            freed += answer.value
        if freed:
            name = repr(owner)[:LONGEST_NAME]
            extra = {"event": "orphans_freed", "runs": freed}
            log.warning("took over %d run(s) of %s, which is no worker that is known", freed, name, extra=extra)
        return freed
