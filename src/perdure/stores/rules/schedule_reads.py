"""What can be read of schedules and duties, whatever the database.

In:   a database that answers questions.
Out:  records; a row whose columns are none is left out, and told by the audit.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.stores.records import DecisionRow, DutyRow, ScheduleRow
from perdure.stores.rules.questions import Ask, Query, Question, Steps


class ScheduleReads:
    """What can be read of schedules."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def get(self, namespace: str, name: str) -> ScheduleRow | None:
        found = await self._rows("schedule", namespace=namespace, name=name)
        return found[0] if found else None

    async def page(self, namespace: str, after: str, limit: int) -> list[ScheduleRow]:
        return await self._rows("schedules", namespace=namespace, after=after, limit=limit)

    async def declared(self, namespace: str) -> list[ScheduleRow]:
        return await self._rows("declared_schedules", namespace=namespace)

    async def due(self, namespace: str, now: int, limit: int) -> list[ScheduleRow]:
        return await self._rows("due_schedules", namespace=namespace, now=now, limit=limit)

    async def waiting(self, namespace: str, after: str, limit: int, *, all: bool) -> list[ScheduleRow]:
        return await self._rows("waiting_schedules", namespace=namespace, after=after, limit=limit, all=all)

    async def next(self, namespace: str) -> tuple[int | None, bool]:
        ((at, waits),) = await self._ask(lambda: _found(Query("next_schedule", {"namespace": namespace})))
        return at, bool(waits)

    async def decisions(self, schedule_id: str) -> list[DecisionRow]:
        found = await self._ask(lambda: _found(Query("decisions_of", {"schedule_id": schedule_id})))
        return [DecisionRow(*row) for row in found]

    async def runs_of_ids(self, namespace: str, workflow_ids: Sequence[str]) -> dict[str, str]:
        asked = {"namespace": namespace, "workflow_ids": list(workflow_ids)}
        return dict(await self._ask(lambda: _found(Query("runs_of_ids", asked))))

    async def duties(self, namespace: str) -> list[DutyRow]:
        found = await self._ask(lambda: _found(Query("duties", {"namespace": namespace})))
        return [DutyRow._make((*row[:-1], bool(row[-1]))) for row in found]

    async def _rows(self, query: str, /, **parameters: object) -> list[ScheduleRow]:
        return await self._ask(lambda: _schedule_rows(Query(query, parameters)))


def _found(question: Question) -> Steps[Sequence[Any]]:
    return (yield question).rows


def _schedule_rows(question: Question) -> Steps[list[ScheduleRow]]:
    found = (yield question).dicts()
    rows = []
    for columns in found:
        try:
            rows.append(msgspec.convert(columns, ScheduleRow))
        except msgspec.ValidationError:
            continue
    return rows
