"""Finding sinks: those that this process can send to, each a duty; found when there are more of them.

In:   the sinks of a namespace, and what can be sent to from here.
Out:  a duty for each. Looks for events when this process has written, and now and then for those of others.

Without sinks nothing is looked for.
"""

import logging

import msgspec

from perdure.clock import Alarm, Clock
from perdure.engine.background import Background
from perdure.engine.committer import Committer
from perdure.engine.duties.duties import Duties
from perdure.engine.duties.sinks import SinkDuty
from perdure.engine.leasing.lease import Lease
from perdure.engine.outbox.rows import sink_of
from perdure.engine.outbox.sinks import EventSenders
from perdure.errors import PerdureError
from perdure.stores.port import Store
from perdure.stores.records import SinkRow

log = logging.getLogger("perdure.engine")

# How long after a write of this process it is looked for events, and how often for those of others.
SOON_MS, POLL_MS = 50, 500


class SinkFinder:
    """The sinks that a worker takes part in."""

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        lease: Lease,
        background: Background,
        duties: Duties,
        senders: EventSenders,
    ) -> None:
        self._parts = (store, committer, clock, lease)
        self._reads = store.reads.outbox
        self._committer = committer
        self._clock = clock
        self._background = background
        self._duties = duties
        self._senders = senders
        self._namespace: str | None = None
        self._sinks: dict[str, tuple[str, SinkDuty]] = {}
        # Of those that cannot be read which revision was told of.
        self._told: dict[str, int] = {}
        self._soon: Alarm | None = None
        self._poll: Alarm | None = None
        self._is_poll_near = False
        self._is_finding = self._is_wanted = False

    def begin(self, namespace: str) -> None:
        """Take part in the sinks of a namespace."""
        self._namespace = namespace
        self._duties.finders.append(self.find)
        self.find()

    async def join(self, namespace: str) -> None:
        """Take part in those there are, for who lives for a call only: each is done when it is asked for."""
        for row in (await self._readable(namespace)).values():
            duty = SinkDuty(*self._parts, row, self._senders, self.look_soon, is_patient=True)
            self._sinks[row.name] = (row.sink_id, duty)
            self._duties.add(duty)

    def find(self) -> None:
        """There may be more sinks, or fewer."""
        self._is_wanted = True
        if self._namespace is not None and not self._is_finding and not self._background.is_closed:
            self._is_finding = True
            self._background.spawn(self._look(self._namespace))

    async def _look(self, namespace: str) -> None:
        """Look as long as somebody says so: one that was made meanwhile may be missing in what was read."""
        try:
            while self._is_wanted:
                self._is_wanted = False
                await self._find(namespace)
        except PerdureError:
            # The next look finds them.
            return
        finally:
            self._is_finding = False

    async def _find(self, namespace: str) -> None:
        found = await self._readable(namespace)
        for name, (sink_id, duty) in list(self._sinks.items()):
            if name not in found or found[name].sink_id != sink_id:
                del self._sinks[name]
                duty.drop()
                self._duties.leave(duty.name)
                # Nobody else would let its connections go.
                await duty.close()
        for name, row in found.items():
            if name in self._sinks:
                await self._sinks[name][1].refresh(row)
            else:
                duty = SinkDuty(*self._parts, row, self._senders, self.look_soon)
                self._sinks[name] = (row.sink_id, duty)
                self._duties.take_part(duty, namespace)
        self._committer.on_written = self._was_written if self._sinks else None
        if self._sinks and self._poll is None:
            self._set_poll()

    async def _readable(self, namespace: str) -> dict[str, SinkRow]:
        """The sinks by name, but those that cannot be read, as of a version to come; these must not stop the others."""
        found: dict[str, SinkRow] = {}
        for row in await self._reads.sinks(namespace):
            try:
                sink_of(row)
            except msgspec.ValidationError as error:
                if self._told.get(row.sink_id) != row.revision:
                    self._told[row.sink_id] = row.revision
                    extra = {"event": "sink_unreadable", "sink": row.name}
                    log.error("the sink %r is told nothing, for it cannot be read: %s", row.name, error, extra=extra)  # noqa: TRY400
            else:
                found[row.name] = row
        return found

    # Looking for events

    def look_soon(self) -> None:
        """Something was sent: there are outcomes to note."""
        if self._soon is None and not self._background.is_closed:
            self._soon = self._clock.call_at(self._clock.now() + SOON_MS, self.look)

    def _was_written(self) -> None:
        """There may be events."""
        if not self._is_poll_near and self._poll is not None:
            self._poll.cancel()
            self._set_poll(SOON_MS)

    def look(self) -> None:
        """Look for events now."""
        self._soon = None
        for _, duty in self._sinks.values():
            if (loop := self._duties.loops.get(duty.name)) is not None:
                loop.look()

    def wake(self) -> None:
        """It is time to look for what others have written."""
        self._poll = None
        if self._sinks and not self._background.is_closed:
            self.look()
            self._set_poll()

    def _set_poll(self, pause_ms: int = POLL_MS) -> None:
        self._is_poll_near = pause_ms < POLL_MS
        self._poll = self._clock.call_at(self._clock.now() + pause_ms, self.wake)

    # Ending

    def cancel(self) -> None:
        """Look no more, and leave what is under way to others."""
        self._namespace = self._committer.on_written = None
        for alarm in (self._soon, self._poll):
            if alarm is not None:
                alarm.cancel()
        for _, duty in self._sinks.values():
            duty.drop()

    async def close(self) -> None:
        """Note what was sent."""
        for _, duty in self._sinks.values():
            await duty.close()
