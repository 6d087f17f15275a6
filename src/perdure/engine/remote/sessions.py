"""A call of a remote worker: who it is, by its row, and what it writes, each run's in one group under its own epoch.

In:   a worker's id and epoch.
Out:  its row, or LeaseLost; an Ownership that gathers what it is asked, to be written all or nothing.
"""

from collections.abc import Callable, Sequence

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import Committer, Group, Settlement
from perdure.engine.leasing.claims import owned_from
from perdure.engine.ownership import Ownership
from perdure.engine.ports import Host, OwnedRun, RemoteWorker, Tenure
from perdure.errors import LeaseLost, NotAllowed
from perdure.kernel.run import RunState
from perdure.kernel.status import Status
from perdure.stores.answers import Applied, Stale
from perdure.stores.operations import ExpectOwner, Fence, Operation, RenewWorker
from perdure.stores.port import Store
from perdure.stores.records import LoadedRun, RunRow, WorkerRow

LEASE_MS = 10_000


class GatheredGroups:
    """Takes the groups that one run's commands lead to, and writes them as one."""

    is_stopped = False

    def __init__(self) -> None:
        self.groups: list[Group] = []

    def submit(self, group: Group) -> None:
        """Keep a group until all are there."""
        self.groups.append(group)

    @property
    def operations(self) -> list[Operation]:
        """What all of them want, in their order."""
        return [operation for group in self.groups for operation in group.operations]

    def settle(self, answer: Settlement) -> None:
        """Tell all of them; what a single one was asked to tell is not known of many."""
        for group in self.groups:
            group.settle(Applied() if isinstance(answer, Applied) else answer)


class RemoteTenure:
    """In the place of the lease of this process: that of a remote worker, which has no host here."""

    host: Host | None = None

    def __init__(self, worker_id: str, tenure: Tenure) -> None:
        self.worker_id = worker_id
        self.tenure = tenure


class WorkerSession:
    """One call of one remote worker."""

    def __init__(self, row: WorkerRow, sessions: "WorkerSessions", *, is_alive: bool = True) -> None:
        self.row = row
        # Not when it is written in its name: then only the worker itself shows that it lives.
        self._is_alive = is_alive
        self.queues: tuple[str, ...] = tuple(msgspec.json.decode(row.queues, type=list[str]))
        self.workflows: tuple[str, ...] = tuple(msgspec.json.decode(row.workflows or "[]", type=list[str]))
        self._sessions = sessions

    @property
    def fence(self) -> Fence:
        return Fence(self.row.worker_id, self.row.epoch)

    def lost(self) -> LeaseLost:
        return LeaseLost(self.row.worker_id, self.row.epoch)

    def renewal(self, now: int) -> tuple[Operation, ...]:
        """What prolongs the lease, when a third of it is over."""
        until = now + LEASE_MS
        if not self._is_alive or self.row.lease_until > until - LEASE_MS // 3:
            return ()
        return (RenewWorker(self.row.worker_id, self.row.epoch, until),)

    async def write(self, *operations: Operation) -> Settlement:
        """Write a group of this worker; LeaseLost."""
        renewal = self.renewal(self._sessions.clock.now())
        answer = await self._sessions.committer.apply(self.fence, *renewal, *operations)
        if isinstance(answer, Stale):
            raise self.lost()
        return answer

    def begin(self, run: RunRow, last: tuple[int, int] | None) -> "Writing":
        """Begin to write to one of its runs, whose last event has this number and time."""
        return Writing(self, self._sessions.owner, run, last)


class Writing:
    """What one call wants to write to one run."""

    def __init__(self, session: WorkerSession, owner: Ownership, run: RunRow, last: tuple[int, int] | None) -> None:
        self._session = session
        self._gathering = GatheredGroups()
        self.owned = owned_row(run, last)
        self.owned.tenure = tenure = Tenure()
        self._expected = ExpectOwner(run.run_id, session.row.worker_id, self.owned.state.seq)
        self.owner = owner.over(self._gathering, RemoteTenure(session.row.worker_id, tenure))
        self._beside: list[Operation] = []
        self.worker_id = session.row.worker_id
        self.first_seq = self.owned.state.seq

    def add(self, *operations: Operation) -> None:
        """Write this as well."""
        self._beside += operations

    async def write(self) -> Settlement:
        """Write all of it or nothing; Moved when the run is not what it was read as. LeaseLost."""
        operations = [self._expected, *self._gathering.operations, *self._beside]
        answer = await self._session.write(*operations)
        self._gathering.settle(answer)
        return answer


class WorkerSessions:
    """Finds out who calls."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, owner: Ownership) -> None:
        self.store = store
        self.committer = committer
        self.clock = clock
        self.owner = owner
        # Called when something was written that other runs, or callers that wait, may want to know of.
        self.on_written: Callable[[Sequence[str]], None] = lambda _: None

    async def find(self, worker: RemoteWorker) -> WorkerSession:
        """The worker of this call; LeaseLost when it is none any more, NotAllowed when another key's."""
        row = await self.store.reads.remote.worker(worker.worker_id)
        if row is None or row.epoch != worker.epoch or not row.remote or row.namespace != worker.namespace:
            raise LeaseLost(worker.worker_id, worker.epoch)
        session = WorkerSession(row, self)
        if worker.queues and not {*session.queues} <= {*worker.queues}:
            raise NotAllowed(f"worker {worker.worker_id!r} works queues that this key is not for", "use its own key")
        return session


def owned_row(run: RunRow, last: tuple[int, int] | None) -> OwnedRun:
    """A run in the state that its last event leads to; what only replay needs is not read."""
    owned = owned_from(LoadedRun(run, (), None, ()))
    # Its children, if it has any, are told of its end.
    owned.has_children = True
    if last is not None:
        owned.state = RunState(Status.RUNNING, *last)
    return owned
