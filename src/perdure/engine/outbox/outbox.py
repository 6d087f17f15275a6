"""The outbox: what people ask of sinks.

In:   names, and what a sink is to be.
Out:  sinks made, changed and forgotten; what they did not take, and what is sent anew. SinkNotFound, SinkExists.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from perdure.clock import Clock, pause
from perdure.engine.committer import Committer, Settlement, refusal_of
from perdure.engine.duties.duties import Duties
from perdure.engine.outbox.events import event_of, moment
from perdure.engine.outbox.rows import checked_sink, columns_of, sink_of
from perdure.engine.outbox.sinks import EventSenders, Sink
from perdure.engine.ports.outbox import SinkState, Undelivered
from perdure.errors import SinkExists, SinkFailed, SinkNotFound, SinkNotReady, StoreError
from perdure.ids import Ids
from perdure.kernel.outbox import TEST, OutboxEvent
from perdure.kernel.position import Position
from perdure.stores.answers import Applied, Moved
from perdure.stores.operations import (
    DeleteSink,
    InsertSink,
    MoveSink,
    Operation,
    ReplayDeadLetters,
    ResendEvents,
)
from perdure.stores.port import Store
from perdure.stores.records import SinkRow

log = logging.getLogger("perdure.engine")

# So long it is waited for transactions that were open when a sink was made, and looked so often.
PATIENCE_MS, LOOK_MS = 10_000, 50
# So many rows are deleted, revived or resent in one transaction.
BITE = 500
# What stays as it is when code declares a sink once more.
_STAYS = ("created_at", "paused", "reason", "down_at", "error")


class StoreOutbox:
    """Sinks in a store; the OutboxKeeper of an engine."""

    def __init__(
        self, store: Store, committer: Committer, clock: Clock, ids: Ids, duties: Duties, senders: EventSenders
    ) -> None:
        self._url = store.url
        self._reads = store.reads.outbox
        self._changelog = store.reads.changelog
        self._committer = committer
        self._clock = clock
        self._ids = ids
        self._duties = duties
        self._senders = senders

    # Making and changing

    async def add(self, namespace: str, name: str, sink: Sink) -> None:
        """A new one, which is told of everything from now on; SinkExists, SinkNotReady."""
        if not await self._insert(namespace, name, sink):
            raise SinkExists(name, namespace)
        still_open = await self._until_seen()
        if still_open:
            raise SinkNotReady(name, tuple(map(str, still_open)))

    async def _insert(self, namespace: str, name: str, sink: Sink) -> bool:
        now = self._clock.now()
        made = msgspec.structs.replace(sink, created_at=now)
        given = (self._ids.run_id(now), namespace, name, *columns_of(made))
        return isinstance(await self._apply(InsertSink(*given)), Applied)

    async def _until_seen(self) -> list[str]:
        """Wait until all transactions have ended that may not have seen what was written; those that have not."""
        before, until = await self._changelog.position(), self._clock.now() + PATIENCE_MS
        still_open = before.open
        while still_open and self._clock.now() < until:
            await pause(self._clock, LOOK_MS)
            still_open &= (await self._changelog.position()).open
        return await self._changelog.named(Position(before.end, still_open)) if still_open else []

    async def update(self, namespace: str, name: str, changes: Mapping[str, object]) -> None:
        """Change what is given; what waits already stays as it is."""
        while True:
            row = await self._row(namespace, name)
            if await self._change(row, replaced(self._read(row), changes)):
                self._duties.look()
                return

    async def _change(self, row: SinkRow, sink: Sink) -> bool:
        return isinstance(await self._apply(MoveSink(row.sink_id, row.revision, *columns_of(sink))), Applied)

    async def remove(self, namespace: str, name: str) -> bool:
        """Forget it and all that waits for it, if there is one."""
        row = await self._reads.sink(namespace, name)
        if row is None:
            return False
        await self._delete(row.sink_id)
        # A transaction that had seen it may have queued more meanwhile.
        await self._until_seen()
        await self._delete(row.sink_id)
        self._duties.look()
        return True

    async def _delete(self, sink_id: str) -> None:
        while (await self._apply(DeleteSink(sink_id, BITE))) == Applied(value=True):
            pass

    async def reconcile(self, namespace: str, declared: Mapping[str, Sink]) -> None:
        """Make sinks as the code of this worker says; how each does stays as it is.

        Where all of them have been so for long, no transaction is open that has not seen them.
        """
        is_new = False
        for name, sink in declared.items():
            is_done = False
            while not is_done:
                row = await self._reads.sink(namespace, name)
                if row is None:
                    is_done = await self._insert(namespace, name, sink)
                    is_new |= is_done
                    continue
                try:
                    known = self._read(row)
                except StoreError as error:
                    # It must not keep this worker from its runs.
                    log.error("a sink stays as it is: %s", error, extra={"event": "sink_unreadable"})  # noqa: TRY400
                    break
                if type(known.target) is not type(sink.target):
                    text = "the sink %r of the code is not made: one that people made has its name"
                    log.warning(text, name, extra={"event": "sink_name_taken"})
                    break
                wanted = msgspec.structs.replace(sink, **{field: getattr(known, field) for field in _STAYS})
                is_new |= wanted != known or known.created_at > self._clock.now() - PATIENCE_MS
                is_done = wanted == known or await self._change(row, wanted)
        if is_new:
            await self._until_seen()
        if declared:
            self._duties.look()

    # Reading

    async def all(self, namespace: str) -> list[SinkState]:
        """All of them, by name."""
        rows = await self._reads.sinks(namespace)
        return [SinkState(row, self._read(row), await self._reads.backlog(row.sink_id)) for row in rows]

    async def dead_letters(self, namespace: str, name: str, limit: int) -> list[Undelivered]:
        """What it did not take, the oldest first."""
        row = await self._row(namespace, name)
        return await self._letters(row, -1, limit)

    async def _letters(self, row: SinkRow, after: int, limit: int) -> list[Undelivered]:
        found = await self._reads.dead_letters(row.sink_id, after, limit)
        return [
            Undelivered(
                letter.event.n,
                event_of(letter.event, row.name, row.namespace, None, include_values=False),
                letter.event.attempts,
                letter.error,
                letter.died_at,
            )
            for letter in found
        ]

    # Sending

    async def replay(self, namespace: str, name: str, ids: Sequence[str] | None) -> int:
        """Deliver dead letters after all, all or those of these ids; how many."""
        row = await self._row(namespace, name)
        count = 0
        if ids is not None:
            chosen = await self._numbers(row, set(ids))
            for first in range(0, len(chosen), BITE):
                count += await self._revive(ReplayDeadLetters(row.sink_id, tuple(chosen[first : first + BITE]), BITE))
        else:
            while revived := await self._revive(ReplayDeadLetters(row.sink_id, None, BITE)):
                count += revived
        self._duties.look()
        return count

    async def _numbers(self, row: SinkRow, ids: set[str]) -> list[int]:
        numbers: list[int] = []
        after = -1
        while page := await self._letters(row, after, BITE):
            numbers += [letter.n for letter in page if letter.event.id in ids]
            after = page[-1].n
        return numbers

    async def _revive(self, replay: ReplayDeadLetters) -> int:
        answer = await self._apply(replay)
        assert isinstance(answer, Applied)
        return int(str(answer.value))

    async def resend(self, namespace: str, name: str, since: int, until: int) -> int:
        """Make the events of a time anew from histories, with the ids they had; how many."""
        row = await self._row(namespace, name)
        count, after = 0, ""
        while True:
            answer = await self._apply(ResendEvents(row.sink_id, after, since, until, BITE))
            assert isinstance(answer, Applied)
            last, made = cast("tuple[str | None, int]", answer.value)
            count += made
            if last is None:
                self._duties.look()
                return count
            after = last

    async def test(self, namespace: str, name: str) -> None:
        """Send an event from this process, now; SinkFailed."""
        row = await self._row(namespace, name)
        sender = self._senders(name, self._read(row).target)
        if sender is None:
            raise SinkFailed(name, "this process has no code for it; test it where the worker is")
        now = self._clock.now()
        data: dict[str, object] = {"sink": name, "text": "This is a test; nothing has happened."}
        event = OutboxEvent(f"test:{self._ids.token()}", TEST, moment(now), namespace, None, None, None, 0, data)
        try:
            await sender.send(event)
        except Exception as error:
            raise SinkFailed(name, str(error) or type(error).__name__) from error
        finally:
            await sender.close()

    async def _row(self, namespace: str, name: str) -> SinkRow:
        row = await self._reads.sink(namespace, name)
        if row is None:
            raise SinkNotFound(name, namespace)
        return row

    def _read(self, row: SinkRow) -> Sink:
        """The sink in a row; StoreError when it cannot be read."""
        try:
            return sink_of(row)
        except msgspec.ValidationError as error:
            trouble = f"the sink {row.name!r} cannot be read: {error}; remove it and make it anew"
            raise StoreError(self._url, trouble) from None

    async def _apply(self, operation: Operation) -> Settlement:
        answer = await self._committer.apply(operation)
        if not isinstance(answer, Applied | Moved):
            raise refusal_of(answer, self._url)
        if isinstance(answer, Applied):
            self._duties.look()
        return answer


def replaced(sink: Sink, changes: Mapping[str, object]) -> Sink:
    """A sink with some fields changed; BadSink."""
    then = msgspec.structs.replace(sink, **changes)
    # One that would not be taken today can be paused all the same.
    return then if "paused" in changes else checked_sink(then)
