"""The engine over a store: kernel decides, committer writes, lease guards.

In:   the verbs of the Engine port.
Out:  answers after the commit.
Knows nothing of workflow code; a Host runs that.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress

from perdure.clock import Clock
from perdure.engine.client import RequestEngine
from perdure.engine.committer import OwnersQuestion
from perdure.engine.groups import deliver
from perdure.engine.hindrances import NoCode, Served, has_code, told_missing
from perdure.engine.leasing.heartbeat import Heartbeat
from perdure.engine.outages import Outage
from perdure.engine.ownership import READ_AGAIN_MS
from perdure.engine.ports import MAX_UNREAD, Host, OwnedRun
from perdure.engine.watch import Watch
from perdure.errors import (
    NotOpen,
    RunUnreadable,
    StoreUnavailable,
)
from perdure.ids import Ids
from perdure.kernel.events import Closing
from perdure.kernel.run import RunState
from perdure.kernel.status import Status
from perdure.stores import rows
from perdure.stores.answers import Applied, Outcome, Unknown
from perdure.stores.operations import (
    ClaimRuns,
    FreeMismatches,
)
from perdure.stores.port import Store
from perdure.stores.records import LoadedRun

log = logging.getLogger("perdure.engine")

# So many workflows of a queue are looked at when a worker starts; where there are more, names are made up.
MOST_LOOKED_AT = 100


class StoreEngine(RequestEngine):
    """Runs, kept in a store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        namespace: str = "main",
        lease_ms: int = 30_000,
        heartbeat: type[Heartbeat] | None = Heartbeat,
        max_unread: int = MAX_UNREAD,
    ) -> None:
        super().__init__(store, clock, ids, namespace=namespace, lease_ms=lease_ms, max_unread=max_unread)
        self._heartbeats = heartbeat
        self._heartbeat: Heartbeat | None = None
        self._watch = Watch(
            store,
            clock,
            self._lease,
            notice=self._notice,
            unreadable=self._unreadable,
            overdue=lambda now: self._stopping.close_overdue(namespace, now),
            deadlines=self._deadlines,
            ended_or_held=self._ended_or_held,
            awaited=self._awaited,
            hindered=self._tell_hindered,
        )

    # Opening and closing

    async def open(self, host: Host | None = None, queues: tuple[str, ...] = ()) -> None:
        """Open the store; with a host, also become a worker for these queues."""
        await self._store.open()
        try:
            if host is not None:
                self._host = host
                await self._lease.begin(queues, host.names())
                self._start_heartbeat()
            await self._watch.begin(host, self._renew_without_heartbeat)
        except BaseException:
            if self._heartbeat is not None:
                self._heartbeat.stop()
            await self._store.close()
            raise

    async def close(self) -> None:
        """Write what is left, give the lease back and let go of the store."""
        self._is_closed = True
        self._watch.stop()
        if not self._committer.is_stopped:
            await self._committer.idle()
        if self._committer.is_stalled:
            # What could not be written is left to whoever takes these runs over.
            self._committer.give_up()
        for task in list(self._tasks):
            task.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
            await self._heartbeat.stopped()
        # One that has lost its lease, or cannot write, has nothing to give back.
        if self._host is not None and not self._committer.is_stopped:
            await self._lease.end()
        # Nobody brings a new epoch any more to those that wait for one, nor writes what comes late.
        self._committer.give_up()
        for task in list(self._tasks):
            task.cancel()
        for waiter in [w for waiters in self._waiters.values() for w in waiters]:
            if not waiter.done():
                waiter.set_exception(NotOpen())
                # Whoever waited may be gone by now; nobody needs to be told of that.
                waiter.exception()
        await self._store.close()

    def abandon(self) -> None:
        """Stop at once and write nothing more, as if the process had died."""
        self._watch.stop()
        for task in list(self._tasks):
            task.cancel()

    def _start_heartbeat(self) -> None:
        if self._heartbeats is not None:
            self._heartbeat = self._heartbeats(self._lease.renew, self._on_renewal_refused)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written or recovered."""
        return self._committer.is_idle and self._watch.is_idle and not self._tasks

    @property
    def is_stalled(self) -> bool:
        """Whether the database was unavailable, and only time can help."""
        return self._committer.is_stalled or self._pauses > 0

    @property
    def worker_id(self) -> str:
        return self._lease.worker_id

    # Claiming and loading

    async def claim(self, queues: tuple[str, ...], workflows: tuple[str, ...], limit: int, suspects: int) -> int:
        """Take ripe runs, at most so many suspects among them, and hand them to the host; answers how many."""
        if workflows != self._lease.workflows:
            # Some were registered since it was opened.
            await self._lease.tell(workflows)
        now = self.clock.now()
        operation = ClaimRuns(self._lease.worker_id, self.namespace, queues, workflows, now, limit, suspects)
        answer = await self._committer.apply(operation, kind=OwnersQuestion)
        if not isinstance(answer, Applied) or not answer.value:
            return 0
        assert isinstance(answer.value, list)
        await self._load(answer.value, now)
        return len(answer.value)

    async def _load(self, run_ids: list[str], claimed_at: int | None = None) -> None:
        """Bring runs of ours to life; messages that come while they are being read are not lost."""
        assert self._host is not None
        self._arriving |= {run_id: [] for run_id in run_ids}
        tenure = self._tenure
        try:
            found = await self._patiently(lambda: self._store.load_runs(run_ids, self._lease.worker_id), tenure)
        finally:
            early = {run_id: self._arriving.pop(run_id, []) for run_id in run_ids}
        # What was read before a loss says nothing of now; and while the epoch is not settled nothing is ours.
        if tenure is not self._tenure or self._committer.is_stopped:
            return
        for loaded in found:
            if isinstance(loaded, RunUnreadable):
                self._hold_unread(loaded)
                continue
            owned = owned_from(loaded)
            owned.tenure = tenure
            # The claim that begins a run leaves its own time in it, or that of the start if its clock is behind.
            begins_now = claimed_at is not None and loaded.row.begun_at == max(claimed_at, loaded.row.created_at)
            owned.has_begun_before = bool(loaded.events) or not begins_now
            try:
                self._host.adopt(owned, loaded)
            except Exception as error:
                log.exception("a run could not be brought to life", extra={"event": "adopt_failed"})
                self._host.broken(owned.run_id, f"{type(error).__name__}: {error}")
            deliver(self._host, loaded.row.run_id, early[loaded.row.run_id])

    async def next_wake(
        self, queues: tuple[str, ...], workflows: tuple[str, ...], *, suspects: bool = False
    ) -> int | None:
        """When the next free run becomes ripe, suspects among them or not."""
        return await self._store.next_wake(self.namespace, queues, workflows, suspects=suspects)

    def is_worked(self, queue: str) -> bool:
        """Whether a worker that was alive a moment ago works this queue, in this namespace."""
        return queue in self._lease.served

    def has_code(self, queue: str, workflow: str) -> bool:
        """Whether a worker that was alive a moment ago has this workflow on this queue, in this namespace."""
        return has_code(self._lease.served, queue, workflow)

    async def serving(self) -> Served:
        """What living workers have code for, by queue."""
        return await self._lease.serving()

    async def without_code(self, queues: tuple[str, ...]) -> list[NoCode]:
        """What free runs of these queues wait for and no living worker has, as far as that is quickly seen."""
        served, missing = await self.serving(), dict[tuple[str, str], NoCode]()
        for queue in queues:
            for found in await self._store.waking_workflows(self.namespace, queue, MOST_LOOKED_AT):
                if not has_code(served, queue, found.workflow):
                    since = max(found.updated_at, min(found.wake_at, self.clock.now()))
                    reason = told_missing(found.workflow, queue, served)
                    missing.setdefault((queue, found.workflow), NoCode(found.workflow, queue, since, reason))
        return list(missing.values())

    async def free_mismatches(self, workflows: tuple[str, ...]) -> None:
        """Give runs held for a mismatch another try; the code may be back."""
        await self._committer.apply(FreeMismatches(self.namespace, workflows, self.clock.now()))

    # Reading and waiting

    async def _tell_children(self, run_id: str, end: Closing) -> None:
        """Children of a run that ended were asked to stop: those that live here are told, free ones are closed."""
        await self._read_children(run_id)
        try:
            await self._stopping.close_free_children(run_id, end)
        except StoreUnavailable:
            log.warning("children are left to whoever has them next", extra={"event": "children_left"})

    async def settle(self, patience_ms: int) -> None:
        """Until everything asked for so far is on disk; while the database is unavailable, not for longer than this."""
        await self._committer.idle()
        if self._committer.is_stalled:
            await self._stall(patience_ms)

    async def _tell_hindered(self, run_ids: Sequence[str]) -> None:
        """Say what keeps runs from going on that somebody here waits for."""
        served, now = await self.serving(), self.clock.now()
        for run_id in run_ids:
            with suppress(RunUnreadable):
                row = await self._store.run(self.namespace, run_id)
                if row is not None:
                    self._hindered.look_at(row, served, now)

    # Losing the lease

    def _renew_without_heartbeat(self) -> None:
        """Renewal where no thread does it: under a clock that does not tick by itself."""
        if self._host is None or self._heartbeat is not None:
            return
        try:
            is_held = self._lease.renew()
        except StoreUnavailable as error:
            log.warning("the lease could not be renewed: %s", error, extra={"event": "renewal_failed"})
        else:
            if not is_held:
                self._on_renewal_refused()

    def _on_renewal_refused(self) -> None:
        self._committer.stop_for(Unknown(StoreUnavailable(self._store.url, "the lease was not renewed")))

    def _on_lost(self, outcome: Outcome) -> None:
        self._tenure = object()
        if self._host is None:
            self._committer.resume(None, 0)
            return
        self._host.drop_all()
        self._spawn(self._recover())

    async def _recover(self) -> None:
        """Get a new epoch, whatever it takes; then bring back the runs that are still ours."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        outage = Outage(self.clock, "recovery_failed", "no new epoch yet, will try again", "the worker has a new epoch")
        while True:
            try:
                still_ours = await self._lease.recover()
                break
            except StoreUnavailable as error:
                outage.fails(error)
                self._committer.refuse_waiting(error)
                await self._stall(READ_AGAIN_MS)
        outage.is_over()
        self._start_heartbeat()
        if still_ours:
            await self._load(still_ours)


def owned_from(loaded: LoadedRun) -> OwnedRun:
    """The handle of a run that was claimed, in the state its history leads to."""
    row = loaded.row
    owned = OwnedRun(row.run_id, row.workflow_id, row.workflow, row.input, row.seed, row.created_at)
    owned.messages = row.messages
    owned.namespace = row.namespace
    owned.queue = row.queue
    owned.priority = row.priority
    owned.traits = rows.traits_of(row)
    owned.has_children = bool(loaded.children)
    if row.begun_at is not None and row.begun_at != row.created_at:
        owned.begun_at = row.begun_at
        owned.state = RunState(Status.RUNNING, 1, row.begun_at)
    if loaded.events:
        last = loaded.events[-1]
        owned.state = RunState(Status.RUNNING, last.seq, last.at)
    return owned
