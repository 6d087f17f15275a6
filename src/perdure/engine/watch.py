"""Watching: what other processes on the same database have done.

In:   a store that can tell whether anything changed.
Out:  rescues of dead workers, messages for runs that live here, ends and holds of runs that are waited for.
Everything here is a hint or a rescue; whatever it misses, the next look finds.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from perdure.clock import Clock
from perdure.engine.awaited import Awaited
from perdure.engine.deadlines import Deadlines
from perdure.engine.leasing.lease import Lease
from perdure.engine.outages import Outage
from perdure.engine.ports import Host
from perdure.errors import PerdureError, RunUnreadable
from perdure.kernel.messages import Message
from perdure.stores.port import Store
from perdure.stores.records import NewMessage, RunRow

# How often to look whether another process has changed something, and for dead workers.
WATCH_MS = 50
RESCUE_MS = 1000
# How often to look whether anything keeps runs from going on that are waited for, and at how many of them.
HINDERED_MS = 5000
FEW = 10
# One of so many that were looked at has ended: then it is worth it to look at the next ones at once.
MANY_ENDED = 10


class Watch:
    """Looks around every now and then, and passes on what it sees."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        lease: Lease,
        *,
        notice: Callable[[str, Message, int | None], None],
        unreadable: Callable[[RunUnreadable], None],
        overdue: Callable[[int], Awaitable[None]],
        deadlines: Deadlines,
        ended_or_held: Callable[[RunRow | RunUnreadable], None],
        awaited: Awaited,
        hindered: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._notice = notice
        self._unreadable = unreadable
        self._close_overdue = overdue
        self._deadlines = deadlines
        self._ended_or_held = ended_or_held
        self._awaited = awaited
        self._tell_hindered = hindered
        # Awaited runs of which it was looked in this round whether anything keeps them from going on.
        self._looked_at: set[str] = set()
        self._next_hindered_at = 0
        self._host: Host | None = None
        self._before_look: Callable[[], None] = lambda: None
        self._last_message = 0
        self._next_rescue_at = 0
        self._is_stopped = False
        self._is_late = False
        self._look: asyncio.Task[None] | None = None
        self._outage = Outage(
            clock, "watch_failed", "watching failed, will try again", "what others have done can be seen again"
        )

    async def begin(self, host: Host | None, before_look: Callable[[], None]) -> None:
        """Start to look; `before_look` is called each time."""
        self._host = host
        self._before_look = before_look
        if host is not None:
            self._last_message = await self._store.last_message()
            await self._lease.rescue()
        self._next_rescue_at = self._clock.now() + RESCUE_MS
        self._schedule()
        self._deadlines.look = self._look_again
        self._store.on_change(self._hurry)

    def _hurry(self, has_work: bool) -> None:
        """Look at once: somebody says that there is work, or an end of what is waited for here."""
        if has_work or self._awaited.are_some_elsewhere:
            self._awaited.something_changed()
            self._look_again()

    def _look_again(self) -> None:
        """Look at once, or once more when the look that is under way has ended."""
        self._is_late = True
        self._look_now()

    def stop(self) -> None:
        self._is_stopped = True
        self._deadlines.stop()
        self._alarm.cancel()
        if self._look is not None:
            self._look.cancel()

    @property
    def is_idle(self) -> bool:
        return self._look is None

    def _schedule(self) -> None:
        self._alarm = self._clock.call_at(self._clock.now() + WATCH_MS, self._wake)

    def _wake(self) -> None:
        if self._is_stopped:
            return
        self._before_look()
        if self._store.has_changed():
            self._awaited.something_changed()
            self._look_now()
        elif self._awaited.is_due or self._clock.now() >= self._next_rescue_at:
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
            self._next_rescue_at = now + RESCUE_MS
            if self._host is not None:
                await self._lease.rescue()
        if is_rescue_due or self._deadlines.is_due:
            self._deadlines.is_due = False
            await self._close_overdue(now)
        # Others may have set an end that is nearer than those known of.
        self._deadlines.expect(await self._store.next_close(self._lease.namespace, now))
        if self._host is not None:
            found, self._last_message = await self._store.new_messages(self._lease.worker_id, self._last_message)
            for run_id, message, count in in_their_order(found):
                if isinstance(message, RunUnreadable):
                    self._unreadable(message)
                else:
                    self._notice(run_id, message, count)
            self._host.look_around()
        looked_at = await self._look_at_awaited()
        if is_rescue_due and looked_at and now >= self._next_hindered_at:
            self._next_hindered_at = now + HINDERED_MS
            await self._look_for_hindrances(looked_at)

    async def _look_at_awaited(self) -> list[str]:
        """Look at some of those that are waited for; at more of them at once while many have ended."""
        looked_at: list[str] = []
        is_worth_it = True
        while is_worth_it and (awaited := self._awaited.bite()):
            found = await self._store.ended_or_held(awaited)
            for row in found:
                self._ended_or_held(row)
            is_worth_it = self._awaited.is_due and MANY_ENDED * len(found) >= len(awaited)
            looked_at += awaited
        return looked_at

    async def _look_for_hindrances(self, awaited: Sequence[str]) -> None:
        """A few at a time, each in its turn: there may be very many, and few names that are missing."""
        left = [run_id for run_id in awaited if run_id not in self._looked_at]
        if not left:
            self._looked_at.clear()
            left = list(awaited)
        self._looked_at.update(left[:FEW])
        await self._tell_hindered(left[:FEW])


def in_their_order(found: list[NewMessage]) -> list[NewMessage]:
    """The same messages, each with how many its run had had with it, if none is missing."""
    later: Counter[str] = Counter()
    counted = []
    for run_id, message, had in reversed(found):
        counted.append(NewMessage(run_id, message, had - later[run_id]))
        later[run_id] += 1
    return counted[::-1]
