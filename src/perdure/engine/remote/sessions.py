"""A call of a remote worker: who it is, by its row, and what it writes, each run's in one group under its own epoch.

In:   a worker's id and epoch.
Out:  its row, or LeaseLost; an Ownership that gathers what it is asked, to be written all or nothing.
"""

import asyncio

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import CallbackGroup, Committer, Group, Settlement, refusal_of
from perdure.engine.held import tell_unreadable
from perdure.engine.leasing.claims import owned_from
from perdure.engine.ownership import Ownership
from perdure.engine.ports import Host, OwnedRun, RemoteWorker, Tenure
from perdure.errors import LeaseLost, NotAllowed, RunUnreadable
from perdure.kernel.run import RunState
from perdure.kernel.status import Status
from perdure.stores import rows
from perdure.stores.answers import Applied, Broken, Moved, Stale
from perdure.stores.operations import ExpectOwner, Fence, HoldRun, Operation, RenewWorker
from perdure.stores.port import Store
from perdure.stores.records import LoadedRun, RunRow, WorkerRow

LEASE_MS = 10_000


class AskedOnce(CallbackGroup):
    """A group of a remote worker: where nobody knows what became of it, its worker is told that, and asks again."""

    __slots__ = ()

    is_repeatable = False


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
        # What one of them wants instead is not asked for: the worker is told, and says what it wants.
        told, self.groups = self.groups, []
        for group in told:
            group.settle(Applied() if isinstance(answer, Applied) else answer)


class RemoteTenure:
    """In the place of the lease of this process: that of a remote worker, which has no host here."""

    host: Host | None = None

    def __init__(self, worker_id: str, tenure: Tenure) -> None:
        self.worker_id = worker_id
        self.tenure = tenure


class WorkerSession:
    """One call of one remote worker."""

    def __init__(self, row: WorkerRow, sessions: "WorkerSessions") -> None:
        self.row = row
        self.queues: tuple[str, ...] = tuple(msgspec.json.decode(row.queues, type=list[str]))
        self.workflows: tuple[str, ...] = tuple(msgspec.json.decode(row.workflows or "[]", type=list[str]))
        self._sessions = sessions

    @property
    def fence(self) -> Fence:
        return Fence(self.row.worker_id, self.row.epoch)

    def lost(self) -> LeaseLost:
        return LeaseLost(self.row.worker_id, self.row.epoch)

    async def renew(self) -> None:
        """Prolong the lease; LeaseLost."""
        until = self._sessions.clock.now() + LEASE_MS
        renewal = RenewWorker(self.row.worker_id, self.row.epoch, until)
        answer = await self._sessions.committer.apply(self.fence, renewal)
        if isinstance(answer, Stale | Moved):
            raise self.lost()
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._sessions.store.url)

    @property
    def is_due(self) -> bool:
        """Whether the lease is to be prolonged: a third of it is over."""
        return self.row.lease_until <= self._sessions.clock.now() + LEASE_MS - LEASE_MS // 3

    def ask(self, *operations: Operation) -> "asyncio.Future[Settlement]":
        """Put a group of this worker into the next batch."""
        return self._sessions.committer.ask(self.fence, *operations, kind=AskedOnce)

    async def write(self, *operations: Operation) -> Settlement:
        """Write a group of this worker; LeaseLost."""
        return self.held(await self.ask(*operations))

    async def last_seq(self, run_id: str) -> int:
        """The number of a run's last event."""
        last = await self._sessions.store.reads.last_event(run_id)
        return 1 if last is None else last[0]

    def held(self, answer: Settlement) -> Settlement:
        """The same answer; LeaseLost when it says that the epoch has moved."""
        if isinstance(answer, Stale):
            raise self.lost()
        return answer

    async def hold(self, error: RunUnreadable) -> None:
        """A run cannot be handed out: no other worker could go on with it either."""
        report = rows.held_report(error.trouble, error.id)
        hold = HoldRun(error.run_id, self.row.worker_id, "quarantine", report, self._sessions.clock.now())
        if isinstance(await self.write(hold), Applied):
            tell_unreadable(error)

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
        answer = await self.or_moved(await self._session.write(*self.operations))
        self.settle(answer)
        return answer

    async def or_moved(self, answer: Settlement) -> Settlement:
        """The same answer; Moved when it was refused since another call of the same batch has moved the run."""
        if not isinstance(answer, Broken):
            return answer
        seq = await self._session.last_seq(self.owned.run_id)
        return answer if seq == self.first_seq else Moved()

    @property
    def operations(self) -> list[Operation]:
        """What it all comes to so far."""
        return [self._expected, *self._gathering.operations, *self._beside]

    def settle(self, answer: Settlement) -> None:
        """Tell those who asked for it what became of it."""
        self._gathering.settle(answer)


class WorkerSessions:
    """Finds out who calls."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, owner: Ownership) -> None:
        self.store = store
        self.committer = committer
        self.clock = clock
        self.owner = owner
        # Whether remote workers call this process: then it looks after them.
        self.are_used = False

    async def find(self, worker: RemoteWorker, *, renews: bool = True) -> WorkerSession:
        """The worker of this call, which prolongs its lease when that is due, whatever else it asks.

        LeaseLost when it is none any more, NotAllowed when another key's.
        """
        self.are_used = True
        row = await self.store.reads.remote.worker(worker.worker_id)
        if row is None or row.epoch != worker.epoch or not row.remote or row.namespace != worker.namespace:
            raise LeaseLost(worker.worker_id, worker.epoch)
        session = WorkerSession(row, self)
        if worker.queues and not {*session.queues} <= {*worker.queues}:
            raise NotAllowed(f"worker {worker.worker_id!r} works queues that this key is not for", "use its own key")
        if renews and session.is_due:
            await session.renew()
        return session


def owned_row(run: RunRow, last: tuple[int, int] | None) -> OwnedRun:
    """A run in the state that its last event leads to; what only replay needs is not read."""
    owned = owned_from(LoadedRun(run, (), None, ()))
    # Its children, if it has any, are told of its end.
    owned.has_children = True
    if last is not None:
        owned.state = RunState(Status.RUNNING, *last)
    return owned
