"""The engine over a store: makes its parts, opens and closes them.

In:   a store, a clock, a maker of ids.
Out:  the nouns of the Engine port, each a part of its own.
Knows nothing of workflow code; a Host runs that. The rules are in the parts.
"""

import asyncio
from contextlib import suppress
from typing import cast

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.background import Background
from perdure.engine.client import StoreClient
from perdure.engine.committer import Committer
from perdure.engine.duties.duties import Duties
from perdure.engine.duties.finding import SinkFinder
from perdure.engine.duties.housekeeping import HousekeepingDuty
from perdure.engine.duties.maintenance import Maintenance
from perdure.engine.duties.schedules import ScheduleDuty
from perdure.engine.hindrances import Hindered
from perdure.engine.inspector import StoreInspector
from perdure.engine.keys.keyed import Base, KeyedEngine
from perdure.engine.leasing.claims import StoreClaimer
from perdure.engine.leasing.heartbeat import Heartbeat
from perdure.engine.leasing.lease import Lease
from perdure.engine.leasing.living import LivingWorkers
from perdure.engine.leasing.recovery import Recovery
from perdure.engine.leasing.takeover import Takeover
from perdure.engine.outbox.outbox import StoreOutbox
from perdure.engine.outbox.sinks import EventSenders
from perdure.engine.outputs.outputs import StoreOutputs
from perdure.engine.ownership import Ownership
from perdure.engine.ports import MAX_UNREAD, CommandKey, Engine, Host
from perdure.engine.reads import StoreReader
from perdure.engine.remote.sessions import WorkerSessions
from perdure.engine.remote.workers import StoreRemoteWorkers
from perdure.engine.schedules.deciding import Deciding
from perdure.engine.schedules.declared import DeclaredSchedules
from perdure.engine.schedules.rows import ScheduleRows
from perdure.engine.schedules.schedules import StoreSchedules
from perdure.engine.starts import Starts
from perdure.engine.steering.bulk import StoreBulk
from perdure.engine.steering.forking import StoreForker
from perdure.engine.stopping import Stopping
from perdure.engine.subscriptions.subscriptions import StoreSubscriptions
from perdure.engine.tenancy.access_keys import StoreAccessKeys
from perdure.engine.tenancy.announcements import StoreAnnouncements
from perdure.engine.tenancy.namespaces import MAIN, StoreNamespaceRegistry
from perdure.engine.transactions.transactor import StoreTransactor
from perdure.engine.waiting.waiters import Waiters
from perdure.engine.watch import Watch
from perdure.errors import PerdureError
from perdure.ids import Ids
from perdure.stores.port import Store


class StoreEngine:
    """Runs, kept in a store."""

    # No key: what is asked twice is done twice.
    once = None

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        lease_ms: int = 30_000,
        heartbeat: type[Heartbeat] | None = Heartbeat,
        max_unread: int = MAX_UNREAD,
        is_brief: bool = False,
        senders: EventSenders = lambda name, target: None,  # noqa: ARG005 - this one has none
    ) -> None:
        self.clock = clock
        # Whether this lives for a call only: it does nothing by itself that would be broken off at its end.
        self._is_brief = is_brief
        self._store = store
        self._ids = ids
        # What all others stand on
        self.committer = committer = Committer(store, clock)
        self._background = background = Background(clock)
        self.lease = lease = Lease(store, committer, clock, ids, lease_ms)
        hindered = Hindered()
        living = LivingWorkers(store, clock, lease)
        self.takeover = takeover = Takeover(store, committer, clock, lease, living)
        takeover.trusts_clock = is_brief
        self.arrivals = arrivals = Arrivals(store, clock, lease, background)
        # The nouns of the port
        self.reader = reader = StoreReader(store, living, background)
        self.waiters = waiters = Waiters(store, clock, lease, reader, hindered)
        stopping = Stopping(store, committer, clock, ids, takeover, arrivals, waiters, background)
        starts = Starts(ids, lease, arrivals, stopping.deadlines)
        self.client = StoreClient(
            store,
            committer,
            clock,
            ids,
            lease,
            starts,
            arrivals,
            reader,
            waiters,
            stopping,
            background,
            max_unread,
        )
        self.announcements = StoreAnnouncements(store, committer, clock)
        self.forker = StoreForker(store, committer, clock, starts, arrivals, reader, background, self.announcements)
        self.bulk = StoreBulk(committer, clock, reader, stopping, self.forker, store.changes, store.url, max_unread)
        self.claimer = StoreClaimer(store, committer, clock, lease, living, arrivals, hindered, waiters.askers)
        self.outputs = outputs = StoreOutputs(store, committer, clock, lease, reader, background)
        self.inspector = StoreInspector(store, clock, lease)
        self.namespaces = StoreNamespaceRegistry(store, committer, clock, takeover, background)
        self.access_keys = StoreAccessKeys(store, committer, clock)
        self.subscriptions = StoreSubscriptions(store, committer, clock, background)
        self.transactor = StoreTransactor(store, committer, clock, lease)
        self.owner = Ownership(committer, clock, lease, starts, arrivals, waiters, stopping, outputs.followers)
        sessions = WorkerSessions(store, committer, clock, self.owner)
        self.remote = StoreRemoteWorkers(
            store, committer, clock, ids, sessions, arrivals, self.announcements, takeover, background
        )
        # What one worker does for all
        self.duties = duties = Duties(store, committer, clock, lease, background)
        deciding = Deciding(store, committer, clock, starts, stopping)
        rows = ScheduleRows(store, committer, clock, ids, deciding, duties)
        self._declared = declared = DeclaredSchedules(rows, deciding)
        self.schedules = StoreSchedules(clock, ids, rows, declared, deciding, arrivals)
        duties.add(ScheduleDuty(store, arrivals, deciding))
        duties.add(HousekeepingDuty(store, committer))
        self.maintenance = Maintenance(clock, takeover, stopping, duties)
        self.outbox = StoreOutbox(store, committer, clock, ids, duties, senders)
        self._sinks = SinkFinder(store, committer, clock, lease, background, duties, senders)
        # What goes on by itself
        self.recovery = recovery = Recovery(store.url, committer, clock, lease, self.claimer, background, heartbeat)
        self.watch = Watch(store, clock, lease, takeover, recovery, arrivals, waiters, stopping, duties, self.remote)

    @property
    def url(self) -> str:
        """The database, as people name it."""
        return self._store.url

    @property
    def worker_id(self) -> str:
        """The id of this process's worker; empty when it is none."""
        return self.lease.worker_id

    def with_key(self, key: CommandKey) -> Engine:
        """The same engine, whose commands are done once under this key, and answered alike each time."""
        base = Base(self, self._store, self.committer, self.clock, self._ids)
        # What is no command it has from this one.
        return cast("Engine", KeyedEngine(base, key))

    async def open(self, namespace: str, host: Host | None = None, queues: tuple[str, ...] = ()) -> None:
        """Open the store; with a host, also become a worker for these queues of the namespace.

        A worker makes its namespace; a client on one that is not there gets NamespaceNotFound.
        """
        await self._store.open()
        try:
            if host is not None:
                await self.lease.begin(namespace, queues, host)
                self.recovery.begin()
            elif namespace != MAIN:
                await self.namespaces.find(namespace)
            await self.watch.begin(namespace, rescues=not self._is_brief)
            if host is not None and not self._is_brief:
                self.duties.begin(namespace)
                self._sinks.begin(namespace)
                self._background.spawn(self._refresh_schedules(namespace))
            elif host is not None:
                await self._sinks.join(namespace)
        except BaseException:
            self.recovery.cancel()
            await self._store.close()
            raise

    async def _refresh_schedules(self, namespace: str) -> None:
        # A zone whose rules have changed is seen to with the next start, if not with this one.
        with suppress(PerdureError):
            await self._declared.refresh(namespace)

    async def close(self) -> None:
        """Write what is left, give the lease back and let go of the store, also when this is broken off."""
        try:
            await self._close()
        except asyncio.CancelledError:
            self.abandon()
            await self._store.close()
            raise

    async def _close(self) -> None:
        if not self.committer.is_stopped and not self.committer.is_stalled:
            await self._sinks.close()
        self._sinks.cancel()
        self._background.is_closed = True
        self.watch.cancel()
        self.duties.cancel()
        if not self.committer.is_stopped:
            await self.committer.idle()
        if self.committer.is_stalled:
            # What could not be written is left to the worker that takes these runs over.
            self.committer.abandon()
        self._background.cancel()
        await self.recovery.close()
        # One that has lost its lease, or cannot write, has nothing to give back.
        if self.lease.host is not None and not self.committer.is_stopped:
            await self.lease.release()
        # Nobody brings a new epoch any more to those that wait for one, nor writes what comes late.
        self.committer.abandon()
        self._background.cancel()
        self.waiters.close()
        self.outputs.close()
        self.subscriptions.close()
        await self._store.close()

    def abandon(self) -> None:
        """Stop at once and write nothing more, as if the process had died."""
        self.watch.cancel()
        self.duties.cancel()
        self._sinks.cancel()
        self._background.cancel()

    async def settle(self, patience_ms: int) -> None:
        """Until everything asked for so far is on disk; while the database is unavailable, not for longer than this."""
        await self.committer.idle()
        if self.committer.is_stalled:
            await self._background.stall(patience_ms)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written or recovered."""
        return self.committer.is_idle and self.watch.is_idle and self._background.is_idle

    @property
    def is_stalled(self) -> bool:
        """Whether the database was unavailable, and only time can help."""
        return self.committer.is_stalled or self._background.is_stalled
