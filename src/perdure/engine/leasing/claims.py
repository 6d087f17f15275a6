"""Claims: ripe runs are taken for the worker of this process, read and brought to life.

In:   queues, the names of what there is code for, room.
Out:  owned runs, handed to the host with their past; a warning of free runs that no worker has code for.
"""

import logging
from collections import Counter

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals, deliver
from perdure.engine.committer import Committer, OwnersGroup, Settlement
from perdure.engine.held import tell_unreadable
from perdure.engine.hindrances import Hindered, NoCode, has_code, told_missing
from perdure.engine.leasing.lease import Lease
from perdure.engine.leasing.living import LivingWorkers
from perdure.engine.ports import Host, OwnedRun
from perdure.engine.waiting.askers import Askers
from perdure.errors import RunUnreadable
from perdure.kernel.run import RunState
from perdure.kernel.status import Status
from perdure.stores import rows
from perdure.stores.answers import Applied
from perdure.stores.operations import ClaimOne, ClaimRuns, FreeMismatches, HoldRun
from perdure.stores.port import Store
from perdure.stores.records import LoadedRun

log = logging.getLogger("perdure.engine")

# So many workflows of a queue are looked at for code that is missing; where there are more, names are made up.
MOST_LOOKED_AT = 100


class StoreClaimer:
    """Takes runs from a store; the Claimer of an engine."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        lease: Lease,
        living: LivingWorkers,
        arrivals: Arrivals,
        hindered: Hindered,
        askers: Askers,
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._lease = lease
        self._living = living
        self._arrivals = arrivals
        self._hindered = hindered
        self._askers = askers
        self.next_wake = store.reads.next_wake
        self.read_messages_of = arrivals.read_messages_of

    async def claim(
        self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...], limit: int, suspects: int
    ) -> list[str]:
        """Take ripe runs, at most so many suspects among them, and hand them to the host; answers their ids."""
        if workflows != self._lease.workflows:
            # Some were registered since it was opened.
            await self._lease.tell(workflows)
            self._living.look_again()
        now = self._clock.now()
        operation = ClaimRuns(self._lease.worker_id, namespace, queues, workflows, now, limit, suspects)
        answer = await self._committer.apply(operation, kind=OwnersGroup)
        if not isinstance(answer, Applied) or not answer.value:
            return []
        assert isinstance(answer.value, list)
        await self.load(answer.value, now)
        return answer.value

    async def claim_one(self, namespace: str, run_id: str, workflows: tuple[str, ...]) -> bool:
        """Take this run and hand it to the host; False when it is not due, or somebody else has it."""
        now = self._clock.now()
        operation = ClaimOne(run_id, self._lease.worker_id, namespace, workflows, now)
        is_taken = isinstance(await self._committer.apply(operation, kind=OwnersGroup), Applied)
        if is_taken:
            await self.load([run_id], now)
        return is_taken

    async def load(self, run_ids: list[str], claimed_at: int | None = None) -> None:
        """Bring runs of ours to life; messages that come while they are being read are not lost."""
        lease, early = self._lease, self._arrivals.early
        host, tenure, worker_id = lease.host, lease.tenure, lease.worker_id
        assert host is not None
        early |= {run_id: [] for run_id in run_ids}
        try:
            found = await self._arrivals.patiently(lambda: self._store.reads.load_runs(run_ids, worker_id), tenure)
        finally:
            came = {run_id: early.pop(run_id, []) for run_id in run_ids}
        # What was read before a loss says nothing of now; and while the epoch is not settled nothing is ours.
        if tenure is not lease.tenure or self._committer.is_stopped:
            return
        for loaded in found:
            if isinstance(loaded, RunUnreadable):
                self._hold(loaded)
            else:
                self._bring_to_life(host, loaded, claimed_at)
                deliver(host, loaded.row.run_id, came[loaded.row.run_id])
        self._askers.came_here(run_ids)

    def _bring_to_life(self, host: Host, loaded: LoadedRun, claimed_at: int | None) -> None:
        owned = owned_from(loaded)
        owned.tenure = self._lease.tenure
        owned.has_begun_before = has_begun_before(loaded, claimed_at)
        try:
            host.adopt(owned, loaded)
        except Exception as error:
            log.exception("a run could not be brought to life", extra={"event": "adopt_failed"})
            host.broken(owned.run_id, f"{type(error).__name__}: {error}")

    def _hold(self, error: RunUnreadable) -> None:
        """A run of ours cannot be brought to life: no other worker that claims it could do so either."""
        report = rows.held_report(error.trouble, error.id)
        hold = HoldRun(error.run_id, self._lease.worker_id, "quarantine", report, self._clock.now())

        def told(answer: Settlement) -> None:
            if isinstance(answer, Applied):
                tell_unreadable(error)

        self._committer.submit(OwnersGroup((hold,), told))

    def is_worked(self, namespace: str, queue: str) -> bool:
        """Whether a worker that was alive a moment ago works this queue."""
        return queue in self._living.served(namespace)

    def has_code(self, namespace: str, queue: str, workflow: str) -> bool:
        """Whether a worker that was alive a moment ago has this workflow on this queue."""
        return has_code(self._living.served(namespace), queue, workflow)

    async def tell_missing(self, namespace: str, queues: tuple[str, ...]) -> None:
        """Warn of what free runs of these queues wait for and no living worker has, as far as that is quickly seen."""
        served, now = await self._living.serving(namespace), self._clock.now()
        missing: dict[tuple[str, str], NoCode] = {}
        for queue in queues:
            for found in await self._store.reads.waking_workflows(namespace, queue, MOST_LOOKED_AT):
                if not has_code(served, queue, found.workflow):
                    since = max(found.updated_at, min(found.wake_at, now))
                    reason = told_missing(found.workflow, queue, served)
                    missing.setdefault((queue, found.workflow), NoCode(found.workflow, queue, since, reason))
        self._hindered.tell_missing(missing.values(), served, now)

    async def free_mismatches(self, namespace: str, queues: tuple[str, ...], workflows: tuple[str, ...]) -> None:
        """Give runs of these queues that are held for a mismatch another try; the code may be back."""
        await self._committer.apply(FreeMismatches(namespace, queues, workflows, self._clock.now()))


def has_begun_before(loaded: LoadedRun, claimed_at: int | None) -> bool:
    """Whether the code of a run was called before it was claimed at this time."""
    # The claim that begins a run leaves its own time in it, or that of the start if its clock is behind.
    begins_now = claimed_at is not None and loaded.row.begun_at == max(claimed_at, loaded.row.created_at)
    return bool(loaded.events) or not begins_now


def know_published(owned: OwnedRun, loaded: LoadedRun) -> None:
    """Note what a run has published before; an attempt that did so and did not fail was lost with its worker."""
    owned.published = {head.name: head.own for head in loaded.heads if not head.source}
    failed: Counter[str] = Counter(attempt.place for attempt in loaded.attempts)
    lost: dict[str, int] = {}
    for head in loaded.heads:
        if head.attempt > failed[head.source]:
            lost[head.source] = max(head.attempt - failed[head.source], lost.get(head.source, 0))
    owned.lost_attempts = lost or None


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
    if loaded.progress:
        owned.progress = {known.place: known for known in loaded.progress}
    if loaded.heads:
        know_published(owned, loaded)
    if row.begun_at is not None and row.begun_at != row.created_at:
        owned.begun_at = row.begun_at
        owned.state = RunState(Status.RUNNING, 1, row.begun_at)
    if loaded.events:
        last = loaded.events[-1]
        owned.state = RunState(Status.RUNNING, last.seq, last.at)
    return owned
