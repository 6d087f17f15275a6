"""Watching: what other processes on the same database have done.

In:   a store that can tell whether anything changed.
Out:  rescues of dead workers, messages for runs that live here, ends and holds of runs that are waited for.
Everything here is a hint or a rescue; whatever it misses, the next look finds.
"""

import asyncio
from collections import Counter

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.duties.duties import Duties
from perdure.engine.leasing.lease import Lease
from perdure.engine.leasing.recovery import Recovery
from perdure.engine.leasing.takeover import Takeover
from perdure.engine.outages import Outage
from perdure.engine.remote.workers import StoreRemoteWorkers
from perdure.engine.stopping import Stopping
from perdure.engine.waiting.waiters import Waiters
from perdure.errors import PerdureError, RunUnreadable
from perdure.stores.port import Store
from perdure.stores.records import NewMessage

# How often to look whether another process has changed something, and for dead workers.
WATCH_MS = 50
RESCUE_MS = 1000
# How often to look whether anything keeps runs from going on that are waited for.
HINDERED_MS = 5000


class Watch:
    """Looks around every now and then, and passes on what it sees."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease: Lease,
        takeover: Takeover,
        recovery: Recovery,
        arrivals: Arrivals,
        waiters: Waiters,
        stopping: Stopping,
        duties: Duties,
        remote: StoreRemoteWorkers,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._takeover = takeover
        self._recovery = recovery
        self._arrivals = arrivals
        self._waiters = waiters
        self._stopping = stopping
        self._duties = duties
        self._remote = remote
        # Whether another process has written since it was last looked for something to do.
        self._has_news = False
        self._namespace = ""
        self._next_hindered_at = 0
        self._last_message = 0
        self._next_rescue_at = 0
        self._is_stopped = False
        self._is_late = False
        self._look: asyncio.Task[None] | None = None
        self._outage = Outage(
            clock, "watch_failed", "watching failed, will try again", "what others have done can be seen again"
        )

    async def begin(self, namespace: str, *, rescues: bool = True) -> None:
        """Start to look; runs of this namespace are closed when their end by the clock has come."""
        self._namespace = namespace
        if self._lease.host is not None:
            self._last_message = await self._store.reads.last_message()
            if rescues:
                await self._takeover.rescue()
        self._next_rescue_at = self._clock.now() + RESCUE_MS
        self._schedule()
        self._stopping.deadlines.look = self._waiters.askers.look_soon = self._look_again
        self._store.changes.on_change(self._hurry)

    def _hurry(self, has_work: bool) -> None:
        """Look at once: another process says that there is work, or an end of what is waited for here."""
        self._has_news |= has_work
        if has_work:
            self._remote.waiters.tell()
        if has_work or self._waiters.turns.are_some_elsewhere or self._waiters.askers.by_run:
            self._waiters.turns.something_changed()
            self._look_again()

    def _look_again(self) -> None:
        """Look at once, or once more when the look that is under way has ended."""
        self._is_late = True
        self._look_now()

    def cancel(self) -> None:
        """Look no more, and break off a look that is under way."""
        self._is_stopped = True
        self._stopping.deadlines.cancel()
        self._alarm.cancel()
        if self._look is not None:
            self._look.cancel()

    @property
    def is_idle(self) -> bool:
        return self._look is None

    def _schedule(self) -> None:
        self._alarm = self._clock.call_at(self._clock.now() + WATCH_MS, self.wake)

    def wake(self) -> None:
        """It is time for the next look."""
        if self._is_stopped:
            return
        self._recovery.renew()
        if self._store.changes.has_changed():
            self._waiters.turns.something_changed()
            self._remote.waiters.tell()
            self._has_news = True
            self._look_now()
        elif self._waiters.turns.is_due or self._clock.now() >= self._next_rescue_at:
            self._look_now()
        self._schedule()

    def _look_now(self) -> None:
        if self._look is None and not self._is_stopped:
            self._is_late = False
            self._look = asyncio.get_running_loop().create_task(self._safely_tick(self._clock.now()))

    async def _safely_tick(self, now: int) -> None:
        try:
            await self.tick(now)
            self._outage.is_over()
        except PerdureError as error:
            self._outage.fails(error)
        finally:
            self._look = None
        if self._is_late:
            # It was told of while the last look was under way.
            self._look_now()

    async def tick(self, now: int) -> None:
        """One look at what other processes have done: dead ones, messages, ripe runs, ends and holds."""
        is_rescue_due = now >= self._next_rescue_at
        if is_rescue_due:
            await self._look_after_others(now)
        if is_rescue_due or self._stopping.deadlines.is_due:
            self._stopping.deadlines.is_due = False
            await self._stopping.close_overdue(self._namespace, now)
        # Others may have set an end that is nearer than those known of.
        self._stopping.deadlines.expect(await self._store.reads.next_close(self._namespace, now))
        if self._lease.host is not None:
            found, self._last_message = await self._store.reads.new_messages(self._lease.worker_id, self._last_message)
            for run_id, message, count in in_their_order(found):
                if isinstance(message, RunUnreadable):
                    self._arrivals.notice_unreadable(message)
                else:
                    self._arrivals.notice(run_id, message, count)
            self._arrivals.look_around()
        looked_at = await self._waiters.look()
        if self._waiters.askers.by_run:
            await self._waiters.askers.look()
        if is_rescue_due and looked_at and now >= self._next_hindered_at:
            self._next_hindered_at = now + HINDERED_MS
            await self._waiters.tell_hindered(looked_at)

    async def _look_after_others(self, now: int) -> None:
        """See to workers that are gone, and to what is over of those that work over this process."""
        self._next_rescue_at = now + RESCUE_MS
        if self._lease.host is not None or self._remote.is_used:
            await self._takeover.rescue()
        if self._remote.is_used:
            await self._remote.look(now)
        if self._has_news:
            # Others may have made schedules, or left a duty.
            self._has_news = False
            self._duties.look()


def in_their_order(found: list[NewMessage]) -> list[NewMessage]:
    """The same messages, each with how many its run had had with it, if none is missing."""
    later: Counter[str] = Counter()
    counted = []
    for run_id, message, had in reversed(found):
        counted.append(NewMessage(run_id, message, had - later[run_id]))
        later[run_id] += 1
    return counted[::-1]
