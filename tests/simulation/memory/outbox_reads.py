"""What the memory store reads of sinks and the events that wait for them."""

from collections.abc import Sequence

from perdure.stores.records import BacklogRow, DeadLetterRow, OutboxRow, SinkRow
from tests.simulation.memory.tables import Tables, WaitingEvent


class MemoryOutbox:
    """What can be read of sinks."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    async def sink(self, namespace: str, name: str) -> SinkRow | None:
        return next((row for row in await self.sinks(namespace) if row.name == name), None)

    async def sinks(self, namespace: str) -> list[SinkRow]:
        found = [row for row in self.tables.sinks.rows.values() if row.namespace == namespace]
        return sorted(found, key=lambda row: row.name)

    def _waiting(self, sink_id: str) -> list[WaitingEvent]:
        rows = self.tables.outbox.rows
        return [rows[n] for n in sorted(rows) if rows[n].sink_id == sink_id]

    async def next_at(self, sink_id: str) -> int | None:
        return min((row.next_at for row in self._waiting(sink_id) if row.next_at is not None), default=None)

    async def due(self, sink_id: str, now: int, limit: int) -> list[OutboxRow]:
        waiting = self._waiting(sink_id)
        tried = [row for row in waiting if row.next_at is not None and 0 < row.next_at <= now]
        tried.sort(key=lambda row: (row.next_at, row.n))
        fresh = [row for row in waiting if row.next_at == 0]
        return [self._row(row, waiting) for row in (*tried[:limit], *fresh[:limit])]

    def _row(self, event: WaitingEvent, waiting: Sequence[WaitingEvent]) -> OutboxRow:
        earlier = [row.n for row in waiting if row.run_id == event.run_id and row.n < event.n]
        run = self.tables.runs.rows.get(event.run_id)
        ids = (None, None, None) if run is None else (run.entity_id, run.correlation_id, run.parent_id)
        return OutboxRow(event.n, *event[2:13], *ids, max(earlier, default=None))

    async def values(self, numbers: Sequence[int]) -> dict[int, str]:
        found = {n: self._value(self.tables.outbox.rows[n]) for n in numbers if n in self.tables.outbox.rows}
        return {n: value for n, value in found.items() if value is not None}

    def _value(self, event: WaitingEvent) -> str | None:
        run = self.tables.runs.rows.get(event.run_id)
        step = self.tables.events.rows.get((event.run_id, event.number))
        if step is not None:
            return step.body
        if run is None or event.number not in {1, run.last_seq}:
            return None
        return run.input if event.number == 1 else run.outcome

    async def backlog(self, sink_id: str) -> BacklogRow:
        waiting = self._waiting(sink_id)
        dead = sum(row.event.sink_id == sink_id for row in self.tables.letters.rows.values())
        return BacklogRow(len(waiting), min((row.at for row in waiting), default=None), dead)

    async def dead_letters(self, sink_id: str, after: int, limit: int) -> list[DeadLetterRow]:
        letters = [self.tables.letters.rows[n] for n in sorted(self.tables.letters.rows) if n > after]
        found = [letter for letter in letters if letter.event.sink_id == sink_id][:limit]
        return [
            DeadLetterRow(self._row(each.event._replace(next_at=None), ()), each.event.error, each.died_at)
            for each in found
        ]
