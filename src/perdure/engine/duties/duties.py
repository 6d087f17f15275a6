"""Duties: what one worker of a namespace does now and then, so that the others need not look.

In:   duties, each of which says when there is something to do, and does it.
Out:  one worker that does it: a row names it, and is free when that worker has no row any more.

No safety rests on who has a duty: whatever one writes is conditional on what it read. A duty that has nothing to do
costs nothing: no alarm is set, and it is looked again when somebody says that there may be something. A new duty is
a file with a class that has a `name`, `due_at` and `tick`, and an `add` in the engine.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from perdure.clock import Alarm, Clock
from perdure.engine.background import Background
from perdure.engine.committer import Committer, Unavailable
from perdure.engine.leasing.lease import Lease
from perdure.engine.outages import Outage
from perdure.errors import PerdureError
from perdure.stores.answers import Applied
from perdure.stores.operations import NoteDuty, TakeDuty
from perdure.stores.port import Store
from perdure.stores.records import DutyRow

log = logging.getLogger("perdure.engine")

# While another worker has the duty it is looked so often whether that is still so; and so soon after a failure.
LOOK_MS = 1000
# A holder that has not done well for so long, though there was something to do, loses the duty.
STALE_MS = 60_000
# How often a holder writes that all is well.
NOTE_MS = 10_000
# Between two ticks lies at least this.
PAUSE_MS = 50
LONGEST_ERROR = 500


class Duty(Protocol):
    """Something that one worker of a namespace does now and then."""

    name: str

    async def due_at(self, namespace: str, now: int) -> int | None:
        """When there is something to do; None when nothing is known of."""

    async def tick(self, namespace: str, now: int, *, is_first: bool) -> int | None:
        """Do what is due, in bounded bites; the first time after this worker took the duty, look at everything.

        Answers how many things were done, if it counts them; it may have a word for these as its `counted_as`, and say
        by `waits_outside` that somebody outside may keep it waiting.
        """


class DutyLost(Exception):  # noqa: N818 - never leaves this room
    """Another worker has the duty by now."""


class Duties:
    """All duties of this process; a client only asks who has them."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, lease: Lease, background: Background) -> None:
        self._parts = (store, committer, clock, lease, background)
        self._store = store
        self._lease = lease
        self.loops: dict[str, DutyLoop] = {}
        # Who looks whether there are more duties by now.
        self.finders: list[Callable[[], None]] = []

    def add(self, duty: Duty) -> None:
        """Take part in this duty from the beginning on."""
        self.loops[duty.name] = DutyLoop(duty, *self._parts)

    def begin(self, namespace: str) -> None:
        """Look whether there is something to do, if this is a worker."""
        if self._lease.host is not None:
            for loop in self.loops.values():
                loop.begin(namespace)

    def take_part(self, duty: Duty, namespace: str) -> None:
        """Take part in a duty that was found by now."""
        self.add(duty)
        self.loops[duty.name].begin(namespace)

    def leave(self, name: str) -> None:
        """Take no part in a duty any more."""
        if (loop := self.loops.pop(name, None)) is not None:
            loop.cancel()

    def look(self) -> None:
        """There may be something to do."""
        for find in self.finders:
            find()
        for loop in self.loops.values():
            loop.look()

    def cancel(self) -> None:
        """Do nothing more; the duties are free when the worker's row is gone."""
        for loop in self.loops.values():
            loop.cancel()

    async def all(self, namespace: str) -> list[DutyRow]:
        """The duties that somebody has or had, by name."""
        return await self._store.reads.schedules.duties(namespace)


class DutyLoop:
    """One duty in this process: waits for what is due, takes the duty when it is free, and does it."""

    def __init__(
        self, duty: Duty, store: Store, committer: Committer, clock: Clock, lease: Lease, background: Background
    ) -> None:
        self._duty = duty
        self.name = duty.name
        self._store = store
        self._committer = committer
        self._clock = clock
        self._lease = lease
        self._background = background
        self._namespace = ""
        self._alarm: Alarm | None = None
        self._is_begun = False
        self._is_running = False
        self._is_wanted = False
        # The worker that has it, as long as that is this one; and whether it has not ticked yet.
        self._held_as = ""
        self._is_first = True
        self._noted_at = 0
        self._has_failed = False
        # How many things the last tick did.
        self._done = 0
        self._outage = Outage(
            clock,
            "duty_failed",
            f"the duty {duty.name!r} failed, will try again",
            f"the duty {duty.name!r} does well again",
        )

    def begin(self, namespace: str) -> None:
        """Look from now on."""
        self._namespace, self._is_begun = namespace, True
        self.look()

    def cancel(self) -> None:
        """Look no more."""
        self._is_begun = False
        self._set_alarm(None)

    def look(self) -> None:
        """There may be something to do."""
        if not self._is_begun:
            return
        self._is_wanted = True
        if not self._is_running:
            self._is_running = True
            self._background.spawn(self._look())

    async def _look(self) -> None:
        """Look as long as somebody says so; whatever fails is told and tried again."""
        next_at: int | None = None
        try:
            while self._is_wanted and self._is_begun:
                self._is_wanted = False
                next_at = await self._safely_step()
        finally:
            self._is_running = False
        if self._is_begun:
            self._set_alarm(next_at)

    async def _safely_step(self) -> int | None:
        try:
            next_at = await self.step(self._clock.now())
        except Exception as error:  # noqa: BLE001 - it must outlive one failure, whatever that is
            self._outage.fails(error)
            await self._note_failure(error)
            return self._clock.now() + LOOK_MS
        self._outage.is_over()
        return next_at

    @property
    def counted_as(self) -> str:
        """What people call the things it does."""
        return str(getattr(self._duty, "counted_as", self._duty.name))

    @property
    def waits_outside(self) -> bool:
        """Whether somebody outside may keep it waiting."""
        return bool(getattr(self._duty, "waits_outside", False))

    async def once(self, namespace: str) -> int:
        """Do what is due now, unless another worker has the duty; answers how many things that were."""
        self._namespace, self._done = namespace, 0
        try:
            await self.step(self._clock.now())
        except Exception as error:
            await self._note_failure(error)
            raise
        return self._done

    async def step(self, now: int) -> int | None:
        """Do what is due, if this worker has the duty or can take it; answers when to look again."""
        due = await self._duty.due_at(self._namespace, now)
        if due is None or due > now:
            return due
        if self._held_as != self._lease.worker_id and not await self._take(now, due):
            return now + LOOK_MS
        try:
            self._done = await self._duty.tick(self._namespace, now, is_first=self._is_first) or 0
        except DutyLost:
            self._held_as = ""
            return now + LOOK_MS
        self._is_first = False
        await self._note_success(now)
        due = await self._duty.due_at(self._namespace, self._clock.now())
        return None if due is None else max(due, now + PAUSE_MS)

    async def _take(self, now: int, due: int) -> bool:
        """Take the duty, if nobody has it, or its holder is gone or does not get on."""
        worker_id = self._lease.worker_id
        stale_before = now - STALE_MS if due <= now - STALE_MS else None
        known = {row.name: row for row in await self._store.reads.schedules.duties(self._namespace)}
        row = known.get(self._duty.name)
        is_anothers = row is not None and row.is_held and row.holder != worker_id
        # Asked first, for a refusal costs a transaction.
        if row is not None and is_anothers and (stale_before is None or row.last_ok_at > stale_before):
            return False
        answer = await self._committer.apply(TakeDuty(self._namespace, self._duty.name, worker_id, now, stale_before))
        if isinstance(answer, Unavailable):
            raise answer.error
        if not isinstance(answer, Applied):
            return False
        self._held_as, self._is_first, self._noted_at = worker_id, True, now
        extra = {"event": "duty_taken", "worker_id": worker_id, "duty": self._duty.name}
        log.info("this worker has the duty %r now", self._duty.name, extra=extra)
        return True

    async def _note_success(self, now: int) -> None:
        """Write now and then that all is well; whoever has lost the duty learns it here."""
        if not self._has_failed and now < self._noted_at + NOTE_MS:
            return
        self._noted_at, self._has_failed = now, False
        note = NoteDuty(self._namespace, self._duty.name, self._held_as, now, None)
        if not isinstance(await self._committer.apply(note), Applied):
            self._held_as = ""

    async def _note_failure(self, error: Exception) -> None:
        if self._held_as and not self._has_failed:
            self._has_failed = True
            text = f"{type(error).__name__}: {error}"[:LONGEST_ERROR]
            with suppress(PerdureError):
                await self._committer.apply(NoteDuty(self._namespace, self._duty.name, self._held_as, None, text))

    def _set_alarm(self, at: int | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if at is None else self._clock.call_at(at, self.look)
