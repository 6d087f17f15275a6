"""The duty of a sink: what waits for it is sent, in order for each run, runs beside each other.

In:   events that are due, and a sender.
Out:  events sent, at least once; what became of each, noted in few transactions.

Nothing here waits for a sender: events are sent by tasks, and what came of them is noted by the next tick. A run of
which an event is under way, or is not noted yet, is left alone. What is noted holds only while this worker has the
duty, so of two that send, one learns that it is not to.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import Committer, Settlement, refusal_of
from perdure.engine.duties.duties import DutyLost
from perdure.engine.leasing.lease import Lease
from perdure.engine.outbox.events import event_of, needs_history
from perdure.engine.outbox.rows import body_of, sink_of
from perdure.engine.outbox.sinks import EventSender, EventSenders, NotDelivered, Sink
from perdure.errors import PerdureError
from perdure.kernel.outbox import GAP, LONGEST_RETRY_MS, UP, OutboxEvent, SinkHealth, retry_at
from perdure.stores.answers import Applied, Moved
from perdure.stores.operations import EndGap, FailedDelivery, MoveSink, NoteDeliveries, Operation
from perdure.stores.port import Store
from perdure.stores.records import OutboxRow, SinkRow

log = logging.getLogger("perdure.engine")

# So many events are read at once; of a sink that is done with each at once, so many times in one tick.
PAGE, PAGES = 256, 20
LONGEST_ERROR = 500
# While all that is due is of runs that are under way, it is looked so often for others.
FULL_MS = 500
# What a sink missed may have happened so much before it was behind, and may be written until so much after it is told.
LATE_MS = 60_000


class Outcomes:
    """What became of events since it was noted last."""

    def __init__(self) -> None:
        self.delivered: list[int] = []
        self.failed: list[FailedDelivery] = []
        self.behind: list[int] = []
        # Runs of which an event is done, and those that nothing is under way of any more.
        self.moved: set[str] = set()
        self.ended: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.delivered or self.failed or self.behind)


class SinkDuty:
    """Sends what waits for one sink; one that `is_patient` waits in each tick until that is done."""

    counted_as = "delivered"
    waits_outside = True

    def __init__(
        self,
        store: Store,
        committer: Committer,
        clock: Clock,
        lease: Lease,
        row: SinkRow,
        senders: EventSenders,
        look: Callable[[], None],
        *,
        is_patient: bool = False,
    ) -> None:
        self.name = f"sink:{row.name}"
        self._store = store
        self._reads = store.reads.outbox
        self._committer = committer
        self._clock = clock
        self._lease = lease
        self._senders = senders
        self._is_patient = is_patient
        # Called when there is something to note.
        self._look = look
        self._row = row
        self._sink = sink_of(row)
        self._sender: EventSender | None = None
        self._replaced: list[EventSender] = []
        self._health = UP if self._sink.down_at is None else SinkHealth(down_at=self._sink.down_at)
        self._probe_at = 0
        # Whether the receiver wants nothing more at all.
        self._is_gone = False
        self._outcomes = Outcomes()
        self._busy: set[str] = set()
        self._waiting: deque[list[OutboxRow]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bodies: dict[int, str] = {}
        self._due_since: int | None = None
        self._count = 0
        # Until when it is not looked, for all that is due is of runs that are under way.
        self._full_until = 0

    # When there is something to do

    async def due_at(self, namespace: str, now: int) -> int | None:
        """When an event is due; None while nothing is, or can be done about it."""
        if self._outcomes:
            return now
        if self._sink.paused or not self._can_send():
            return None
        due = await self._reads.next_at(self._row.sink_id)
        if due is None and self._row.behind_at is not None:
            due = 0
        if due is not None:
            due = max(due, self._full_until, 0 if self._health.down_at is None else self._probe_at)
        if due is None or due > now:
            self._due_since = None
            return due
        # Since when it is known: a holder that does not get on for long loses the duty.
        self._due_since = self._due_since or now
        return self._due_since

    def _can_send(self) -> bool:
        """Whether this process has what it takes."""
        if self._sender is None:
            self._sender = self._senders(self._row.name, self._sink.target)
        return self._sender is not None

    async def refresh(self, row: SinkRow) -> None:
        """The sink as it is by now."""
        before, (self._row, self._sink) = self._sink.target, (row, sink_of(row))
        if self._sink.target != before and self._sender is not None:
            # What is under way ends as it was begun.
            self._replaced.append(self._sender)
            self._sender = None
        if not self._tasks:
            await self._close_replaced()
        if self._sink.paused:
            self._give_back()

    # Sending

    async def tick(self, namespace: str, now: int, *, is_first: bool) -> int:
        """Note what was sent, then send what is due; a sink that is down is tried with one event."""
        self._count = 0
        if is_first:
            self.drop()
        row = await self._reads.sink(namespace, self._row.name)
        if row is None or row.sink_id != self._row.sink_id:
            self.drop()
            return 0
        await self.refresh(row)
        await self._note(now)
        await self._end_gap(now)
        if not self._sink.paused and self._can_send() and not await self._send(now) and self._busy:
            self._full_until = now + FULL_MS
        return self._count

    async def _send(self, now: int) -> bool:
        """Send what is due, or have it under way; answers whether there was something."""
        has_sent = False
        # What was broken off had its place until it ended, and nobody says when that was.
        self._pump()
        for _ in range(PAGES):
            chains = await self._chains(now)
            if not chains or self._sender is None:
                break
            has_sent = True
            if self._sender.is_instant:
                for chain in chains:
                    await self._send_chain(self._sender, chain)
            else:
                self._waiting.extend(chains)
                self._pump()
                if not self._is_patient:
                    break
                while self._tasks:
                    await asyncio.wait(self._tasks)
            await self._note(now)
        return has_sent

    async def _chains(self, now: int) -> list[list[OutboxRow]]:
        """What is due of runs that nothing is under way of, a list for each run; one event for a sink that is down."""
        is_probe = self._health.down_at is not None
        if (is_probe and (self._busy or now < self._probe_at)) or len(self._waiting) >= self._sink.concurrency:
            return []
        by_run: dict[str, list[OutboxRow]] = {}
        for row in await self._reads.due(self._row.sink_id, now, PAGE):
            if row.run_id not in self._busy:
                by_run.setdefault(row.run_id, []).append(row)
        chains = [chain for rows in by_run.values() if (chain := self._chain(rows))]
        if is_probe:
            # Another one each time: the same one may be to blame for its failure.
            chains = [min(chains, key=lambda chain: chain[0].next_at or 0)[:1]] if chains else []
        # This may fail, and then nothing of them is under way.
        await self._read_bodies([row for chain in chains for row in chain])
        self._busy |= {chain[0].run_id for chain in chains}
        return chains

    def _chain(self, rows: list[OutboxRow]) -> list[OutboxRow]:
        """Those that follow on each other from the first that waits; the others are behind ones that are not due."""
        rows.sort()
        chain: list[OutboxRow] = []
        for row in rows:
            if row.previous == (chain[-1].n if chain else None):
                chain.append(row)
            else:
                self._outcomes.behind.append(row.n)
        return chain

    async def _read_bodies(self, rows: Sequence[OutboxRow]) -> None:
        wanted = [row.n for row in rows if needs_history(row, include_values=self._sink.include_values)]
        if wanted:
            self._bodies |= await self._reads.values(wanted)

    def _pump(self) -> None:
        """Have as many runs under way beside each other as the sink takes."""
        while self._waiting and len(self._tasks) < self._sink.concurrency:
            task = asyncio.get_running_loop().create_task(self._send_waiting())
            self._tasks.add(task)
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a sink could not be seen to", exc_info=error, extra={"event": "sink_failed"})

    async def _send_waiting(self) -> None:
        """Send one run after the other, until none waits."""
        while self._waiting and self._sender is not None:
            await self._send_chain(self._sender, self._waiting.popleft())
            self._full_until = 0
            self._look()

    async def _send_chain(self, sender: EventSender, chain: list[OutboxRow]) -> None:
        """Send the events of one run, in order, up to the first that is not taken; the others are behind it."""
        run_id = chain[0].run_id
        for place, row in enumerate(chain):
            if sender is not self._sender:
                # The sink is another one by now; the rest is read again.
                break
            try:
                await sender.send(self._event(row))
            except Exception as error:  # noqa: BLE001 - users' code, and networks
                if self._fail(row, error):
                    self._outcomes.moved.add(run_id)
                # Also after a dead letter: until that is noted, the next worker would send it again, after later ones.
                self._outcomes.behind += [later.n for later in chain[place + 1 :]]
                break
            self._health = self._health.succeeded()
            self._outcomes.delivered.append(row.n)
            self._outcomes.moved.add(run_id)
        self._outcomes.ended.add(run_id)

    def _event(self, row: OutboxRow) -> OutboxEvent:
        given = (self._row.name, self._row.namespace, self._bodies.pop(row.n, None))
        return event_of(row, *given, include_values=self._sink.include_values)

    def _fail(self, row: OutboxRow, error: Exception) -> bool:
        """Note that an event was not taken; answers whether it is a dead letter, so that the next one has its turn."""
        now, trouble = self._clock.now(), f"{type(error).__name__}: {error}"[:LONGEST_ERROR]
        asked_ms, is_probe = 0, self._health.down_at is not None
        if isinstance(error, NotDelivered):
            trouble, asked_ms = str(error)[:LONGEST_ERROR], min(error.pause_ms, LONGEST_RETRY_MS)
            self._is_gone |= error.is_gone
        self._health = self._health.failed_with(row.n, now)
        if self._health.down_at is not None:
            self._probe_at = max(self._health.probe_at(now), now + asked_ms)
            self._give_back()
        if is_probe:
            # Nobody's attempts are used up by a sink that takes nothing; another event has the next turn.
            self._outcomes.failed.append(FailedDelivery(row.n, row.attempts, now, trouble))
            return False
        next_at = retry_at(row.attempts + 1, self._sink.max_attempts, now, asked_ms)
        self._outcomes.failed.append(FailedDelivery(row.n, row.attempts + 1, next_at, trouble))
        return next_at is None

    def _give_back(self) -> None:
        """Leave what is not under way yet; it is read again."""
        while self._waiting:
            self._busy.discard(self._waiting.pop()[0].run_id)

    # Noting

    async def _note(self, now: int) -> None:
        """Write what became of events; DutyLost when another worker has the duty by now."""
        taken, self._outcomes = self._outcomes, Outcomes()
        if taken:
            duty = (self._row.sink_id, self._row.namespace, self.name, self._lease.worker_id)
            done = (tuple(taken.delivered), tuple(taken.failed), tuple(taken.behind), tuple(sorted(taken.moved)))
            answer = await self._committer.apply(NoteDeliveries(*duty, *done, now))
            if isinstance(answer, Moved):
                self.drop()
                raise DutyLost
            if not isinstance(answer, Applied):
                # What was sent is sent again, rather than forgotten.
                self.drop()
                raise refusal_of(answer, self._store.url)
        self._count += len(taken.delivered)
        self._busy -= taken.ended
        await self._note_health(taken.failed[-1].error if taken.failed else None)

    async def _note_health(self, error: str | None) -> None:
        """Show people how the sink does, when that has changed."""
        known = sink_of(self._row)
        is_up = self._health.down_at is None
        error = error or (None if is_up and not self._health.failed else self._sink.error)
        then = msgspec.structs.replace(self._sink, down_at=self._health.down_at, error=error)
        if self._is_gone:
            self._is_gone, then = False, msgspec.structs.replace(then, paused=True, reason=error)
        if (then.down_at, then.paused) == (known.down_at, known.paused):
            return
        if isinstance(await self._apply(moved_to(self._row, then)), Applied):
            self._row, self._sink = self._row._replace(revision=self._row.revision + 1, body=body_of(then)), then
            how = "is paused" if then.paused else "is down" if then.down_at is not None else "takes events again"
            extra = {"event": "sink_changed", "sink": self._row.name}
            log.warning("the sink %r %s: %s", self._row.name, how, error or "all is well", extra=extra)

    async def _end_gap(self, now: int) -> None:
        """Tell a sink that was behind that it missed events, once half of what waited is gone."""
        behind_at = self._row.behind_at
        if behind_at is None:
            return
        if (await self._reads.backlog(self._row.sink_id)).waiting * 2 <= self._row.max_backlog:
            body = msgspec.json.encode({"since": behind_at - LATE_MS, "until": self._clock.now() + LATE_MS}).decode()
            await self._apply(EndGap(self._row.sink_id, GAP, body, now))
            self._row = self._row._replace(behind_at=None)

    async def _apply(self, operation: Operation) -> Settlement:
        answer = await self._committer.apply(operation)
        if not isinstance(answer, Applied | Moved):
            raise refusal_of(answer, self._store.url)
        return answer

    # Ending

    def drop(self) -> None:
        """Forget what is under way; whoever has the duty sends it again."""
        for task in self._tasks:
            task.cancel()
        self._waiting.clear()
        self._busy.clear()
        self._bodies.clear()
        self._outcomes = Outcomes()

    async def close(self) -> None:
        """Note what was sent, and leave the rest."""
        outcomes = self._outcomes
        self._waiting.clear()
        for task in self._tasks:
            task.cancel()
        if outcomes:
            # What cannot be noted is sent again by the next one.
            with suppress(PerdureError, DutyLost):
                await self._note(self._clock.now())
        if self._sender is not None:
            await self._sender.close()
        await self._close_replaced()

    async def _close_replaced(self) -> None:
        while self._replaced:
            await self._replaced.pop().close()


def moved_to(row: SinkRow, sink: Sink) -> MoveSink:
    """The operation that changes only what a sink's body says."""
    return MoveSink(row.sink_id, row.revision, row.types, row.workflows, row.max_backlog, body_of(sink))
