"""What can be read of sinks and the events that wait for them, whatever the database.

In:   a database that answers questions.
Out:  records.
"""

from collections.abc import Sequence
from typing import Any

from perdure.stores.records import BacklogRow, DeadLetterRow, OutboxRow, SinkRow
from perdure.stores.rules.questions import Ask, Query, Question, Several, Steps


class OutboxReads:
    """What can be read of sinks."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def sink(self, namespace: str, name: str) -> SinkRow | None:
        found = await self._found(Query("sink", {"namespace": namespace, "name": name}))
        return SinkRow(*found[0]) if found else None

    async def sinks(self, namespace: str) -> list[SinkRow]:
        return [SinkRow(*row) for row in await self._found(Query("sinks_of", {"namespace": namespace}))]

    async def next_at(self, sink_id: str) -> int | None:
        ((at,),) = await self._found(Query("next_event", {"sink_id": sink_id}))
        return None if at is None else int(at)

    async def due(self, sink_id: str, now: int, limit: int) -> list[OutboxRow]:
        asked = {"sink_id": sink_id, "now": now, "limit": limit}
        tried, fresh = await self._found(Several(("tried_events", "fresh_events"), asked))
        return [OutboxRow(*row) for row in (*tried, *fresh)]

    async def values(self, numbers: Sequence[int]) -> dict[int, str]:
        found = await self._found(Query("event_values", {"numbers": list(numbers)}))
        return {n: body for n, body in found if body is not None}

    async def backlog(self, sink_id: str) -> BacklogRow:
        (found,) = await self._found(Query("backlog", {"sink_id": sink_id}))
        return BacklogRow(*found)

    async def dead_letters(self, sink_id: str, after: int, limit: int) -> list[DeadLetterRow]:
        asked = {"sink_id": sink_id, "after": after, "limit": limit}
        return [
            DeadLetterRow(OutboxRow(*row[:16]), *row[16:]) for row in await self._found(Query("dead_letters", asked))
        ]

    async def _found(self, question: Question) -> Sequence[Any]:
        return await self._ask(lambda: _rows(question))


def _rows(question: Question) -> Steps[Sequence[Any]]:
    return (yield question).rows
