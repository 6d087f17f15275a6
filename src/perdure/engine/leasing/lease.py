"""The lease: one worker's right to own runs.

In:   a store, a committer, a clock; a host when the process becomes a worker.
Out:  a worker id and an epoch under which the committer writes, and the tenure that owned runs are given under.

Safety is the epoch alone, compared in every transaction.
"""

import logging
import os
import socket

from perdure.clock import Clock
from perdure.engine.committer import Committer
from perdure.engine.ports import NO_TENURE, Host, Tenure
from perdure.errors import StoreUnavailable
from perdure.ids import Ids
from perdure.stores.answers import Applied, Committed, Failed, Moved, Unknown
from perdure.stores.operations import DeleteWorker, NoteWorkflows, RaiseEpoch, RegisterWorker
from perdure.stores.port import Store

log = logging.getLogger("perdure.engine")


class Lease:
    """A worker's row: taken, renewed, given back. A process that is only a client has no host and no row."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, ids: Ids, lease_ms: int) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._ids = ids
        self.lease_ms = lease_ms
        self.host: Host | None = None
        self.workflows: tuple[str, ...] = ()
        self.worker_id = ""
        self.epoch = 0
        # Everything owned was given under a tenure; losing the lease, or not knowing, begins another.
        self.tenure = NO_TENURE
        self._secret: bytes | None = None
        self._namespace = ""
        self._queues: tuple[str, ...] = ()
        self._renewed_at = 0
        self._until = 0

    async def begin(self, namespace: str, queues: tuple[str, ...], host: Host) -> None:
        """Become a worker for these queues of a namespace."""
        self._namespace, self._queues, self.workflows = namespace, queues, host.names()
        self.host = host
        self._secret = await self._store.reads.channels.secret()
        self.begin_tenure()
        await self._register()

    def begin_tenure(self) -> None:
        """Whatever was owned so far is void."""
        self.tenure = Tenure(self._store.url, self._secret)

    async def _register(self) -> None:
        """Take a new random id, a lock that shows we are alive, a row."""
        worker_id = self._ids.token()
        await self._store.presence.keep_alive(worker_id)
        now, began = self._clock.now(), self._clock.monotonic()
        process = (socket.gethostname(), os.getpid())
        self._until = now + self.lease_ms
        row = (worker_id, self._namespace, self._until, self._queues, *process, now, self.lease_ms, self.workflows)
        outcome = await self._committer.write_alone(RegisterWorker(*row))
        if not isinstance(outcome, Committed):
            await self._store.presence.let_die(worker_id)
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
            self.workflows = workflows

    async def release(self) -> None:
        """Give the row back; if that cannot be, others see that we are gone when the store is closed."""
        if isinstance(await self._committer.apply(DeleteWorker(self.worker_id)), Applied):
            await self._store.presence.let_die(self.worker_id)

    async def recover(self) -> list[str]:
        """After a loss or an unknown outcome: a new epoch. Answers the runs that are still ours."""
        outcome = await self._committer.write_alone(RaiseEpoch(self.worker_id, self.epoch))
        if not isinstance(outcome, Committed):
            raise StoreUnavailable(self._store.url, "the worker's epoch could not be raised")
        if isinstance(outcome.answers.get(0), Moved):
            log.warning("lease lost", extra={"event": "lease_lost", "worker_id": self.worker_id})
            await self._store.presence.let_die(self.worker_id)
            await self._register()
            return []
        self.epoch += 1
        # Asked before anything is written under the new epoch: what is taken under it comes to life by itself.
        owned = await self._store.reads.owned_runs(self.worker_id)
        self._become(self.worker_id, self.epoch)
        return owned

    def renew_soon(self) -> None:
        """Renew the lease with the next beat: what was seen of the own row says that it may be lost."""
        self._renewed_at = -self.lease_ms

    def renew(self) -> bool:
        """Prolong the lease when a third of it has passed; False when it is lost. Any thread may call."""
        began = self._clock.monotonic()
        if began < self._renewed_at + self.lease_ms // 3:
            return True
        # Others see that we live by the change alone, also when our clock stands still.
        until = max(self._until + 1, self._clock.now() + self.lease_ms)
        is_held = self._store.presence.renew(self.worker_id, self.epoch, until)
        if is_held:
            self._renewed_at, self._until = began, until
        return is_held
