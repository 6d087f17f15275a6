"""The lease: one worker's right to own runs, and the rescue of those whose worker is gone.

In:   a store, a committer, a clock.
Out:  a worker id and an epoch under which the committer writes.

Safety is the epoch alone, compared in every transaction. Everything here that
looks at clocks and locks only decides when to raise somebody's epoch. The time in
another worker's row is by its own clock, and is only ever looked at for a change.
"""

import logging
import os
import socket
from collections.abc import Collection, Iterable
from contextlib import suppress

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import Committer
from perdure.engine.held import tell_blamed
from perdure.engine.hindrances import Served, served_by
from perdure.errors import StoreUnavailable
from perdure.ids import Ids
from perdure.stores.answers import Applied, Committed, Failed, Freed, Moved, Unknown
from perdure.stores.operations import DeleteWorker, FreeOrphans, FreeRuns, NoteWorkflows, RaiseEpoch, RegisterWorker
from perdure.stores.port import Store
from perdure.stores.records import WorkerRow

log = logging.getLogger("perdure.engine")

# How many runs of a dead worker are freed in one transaction.
BITE = 500
# What workers have code for is asked again after so long.
SERVED_MS = 1000
# How often it is looked for runs whose owner has no row; only a hand in the database brings that about.
ORPHANS_MS = 10_000
# So much is told of an owner that is none of ours.
LONGEST_NAME = 60


class Lease:
    """A worker's row: taken, renewed, given back."""

    def __init__(
        self, store: Store, committer: Committer, clock: Clock, ids: Ids, *, namespace: str, lease_ms: int
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._ids = ids
        self.namespace = namespace
        self._lease_ms = lease_ms
        self._queues: tuple[str, ...] = ()
        self.workflows: tuple[str, ...] = ()
        self._renewed_at = 0
        self._until = 0
        # The other workers' rows as they were last seen to change, and when that was by our monotonic clock.
        self._seen: dict[str, tuple[WorkerRow, int]] = {}
        self._next_orphans_at = 0
        # What living workers have code for, by the queues they work, as of the last look; and until when that will do.
        self.served: Served = {}
        self._served_until = -1
        self.worker_id = ""
        self.epoch = 0

    async def begin(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> None:
        """Become a worker: a new random id, a lock that shows we are alive, a row."""
        self._queues, self.workflows = queues, workflows
        worker_id = self._ids.token()
        await self._store.keep_alive(worker_id)
        now, began = self._clock.now(), self._clock.monotonic()
        process = (socket.gethostname(), os.getpid())
        self._until = now + self._lease_ms
        row = (worker_id, self.namespace, self._until, queues, *process, now, self._lease_ms, workflows)
        outcome = await self._committer.write_alone(RegisterWorker(*row))
        if not isinstance(outcome, Committed):
            await self._store.let_die(worker_id)
            if isinstance(outcome, Failed | Unknown):
                raise outcome.error
            raise StoreUnavailable(self._store.url, f"the worker could not register: {outcome}")
        self._become(worker_id, 1)
        self._renewed_at = began
        log.info("worker registered", extra={"event": "worker_registered", "worker_id": worker_id})

    def _become(self, worker_id: str, epoch: int) -> None:
        self.worker_id = worker_id
        self.epoch = epoch
        self._committer.resume(worker_id, epoch)

    async def tell(self, workflows: tuple[str, ...]) -> None:
        """Let the row say what this worker has code for by now."""
        if isinstance(await self._committer.apply(NoteWorkflows(self.worker_id, workflows)), Applied):
            self.workflows, self._served_until = workflows, -1

    async def end(self) -> None:
        """Give the row back; if that cannot be, others see that we are gone when the store is closed."""
        if isinstance(await self._committer.apply(DeleteWorker(self.worker_id)), Applied):
            await self._store.let_die(self.worker_id)

    async def recover(self) -> list[str]:
        """After a loss or an unknown outcome: a new epoch. Answers the runs that are still ours."""
        outcome = await self._committer.write_alone(RaiseEpoch(self.worker_id, self.epoch))
        if not isinstance(outcome, Committed):
            raise StoreUnavailable(self._store.url, "the worker's epoch could not be raised")
        if isinstance(outcome.answers.get(0), Moved):
            log.warning("lease lost", extra={"event": "lease_lost", "worker_id": self.worker_id})
            await self._store.let_die(self.worker_id)
            await self.begin(self._queues, self.workflows)
            return []
        self.epoch += 1
        # Asked before anything is written under the new epoch: what is taken under it comes to life by itself.
        owned = await self._store.owned_runs(self.worker_id)
        self._become(self.worker_id, self.epoch)
        return owned

    def renew(self) -> bool:
        """Prolong the lease when a third of it has passed; False when it is lost. Any thread may call."""
        began = self._clock.monotonic()
        if began < self._renewed_at + self._lease_ms // 3:
            return True
        # Others see that we live by the change alone, also when our clock stands still.
        until = max(self._until + 1, self._clock.now() + self._lease_ms)
        is_held = self._store.renew(self.worker_id, self.epoch, until)
        if is_held:
            self._renewed_at, self._until = began, until
        return is_held

    async def rescue(self) -> int:
        """Free the runs of workers that are gone; answers how many."""
        freed = 0
        workers = await self._store.workers()
        known = {worker.worker_id for worker in workers}
        self._seen = {worker_id: seen for worker_id, seen in self._seen.items() if worker_id in known}
        others = [worker for worker in workers if worker.worker_id != self.worker_id]
        dead = await self._store.dead_among([worker.worker_id for worker in others])
        self._note_served(workers, dead)
        for worker in others:
            if worker.worker_id in dead or self._is_silent(worker):
                freed += await self._take_over(worker)
        if self._clock.monotonic() >= self._next_orphans_at:
            self._next_orphans_at = self._clock.monotonic() + ORPHANS_MS
            freed += await self._free_orphans()
        return freed

    async def serving(self) -> Served:
        """What living workers have code for, by queue, as of a moment ago."""
        if self._clock.monotonic() >= self._served_until:
            workers = await self._store.workers()
            others = [worker.worker_id for worker in workers if worker.worker_id != self.worker_id]
            self._note_served(workers, await self._store.dead_among(others))
        return self.served

    def _note_served(self, workers: Iterable[WorkerRow], dead: Collection[str]) -> None:
        self._served_until = self._clock.monotonic() + SERVED_MS
        # A row of another version, or one that was spoilt, is no reason to warn of anything.
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            self.served = served_by((each for each in workers if each.worker_id not in dead), self.namespace)

    async def _free_orphans(self) -> int:
        """Free runs whose owner has no row, or none that can be read: nobody would ever see it gone."""
        owners = await self._store.owners()
        # Whoever owns something has had a row before; read in this order, one that has just come is in it.
        known = {worker.worker_id for worker in await self._store.workers()}
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

    async def rescue_from(self, worker_id: str) -> bool:
        """Free the runs of this worker, if it is gone; whether it is.

        One that hangs is gone when it was asked for before, a lease ago, and its row is still the same.
        """
        for worker in await self._store.workers():
            if worker.worker_id == worker_id:
                if not await self._store.dead_among([worker_id]) and not self._is_silent(worker):
                    return False
                await self._take_over(worker)
        return True

    def _is_silent(self, worker: WorkerRow) -> bool:
        """Whether its row has not changed for as long as its lease is, by our own clock.

        Whoever starts beside a worker that hangs has seen nothing of it yet, and waits for one lease.
        """
        if self._store.is_held_up:
            # Nobody can write, so nobody can renew.
            self._seen.clear()
            return False
        now = self._clock.monotonic()
        seen, since = self._seen.get(worker.worker_id, (None, now))
        if seen is None or (seen.epoch, seen.lease_until) != (worker.epoch, worker.lease_until):
            self._seen[worker.worker_id] = (worker, now)
            return False
        return now - since > (worker.lease_ms or self._lease_ms)

    async def _take_over(self, worker: WorkerRow) -> int:
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
            self._store.forget(worker.worker_id)
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
