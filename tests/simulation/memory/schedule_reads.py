"""What the memory store reads of schedules and duties."""

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.stores.records import DecisionRow, DutyRow, ScheduleRow
from tests.simulation.memory.tables import Tables


class MemorySchedules:
    """What can be read of schedules and duties."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def _of(self, namespace: str) -> list[ScheduleRow]:
        found = [row for row in self.tables.schedules.rows.values() if row.namespace == namespace]
        return [replace(row, open_runs=int(self._is_open(row))) for row in sorted(found, key=lambda row: row.name)]

    def _is_open(self, schedule: ScheduleRow) -> bool:
        key = (schedule.namespace, schedule.name)
        return any(
            (run.namespace, run.schedule) == key and run.closed_at is None for run in self.tables.runs.rows.values()
        )

    async def get(self, namespace: str, name: str) -> ScheduleRow | None:
        return next((row for row in self._of(namespace) if row.name == name), None)

    async def page(self, namespace: str, after: str, limit: int) -> list[ScheduleRow]:
        return [row for row in self._of(namespace) if row.name > after][:limit]

    async def declared(self, namespace: str) -> list[ScheduleRow]:
        return [replace(row, open_runs=0) for row in self._of(namespace) if row.source == "code"]

    async def due(self, namespace: str, now: int, limit: int) -> list[ScheduleRow]:
        due = [row for row in self._of(namespace) if row.next_at is not None and row.next_at <= now]
        return sorted(due, key=lambda row: (row.next_at, row.schedule_id))[:limit]

    async def waiting(self, namespace: str, after: str, limit: int, *, all: bool) -> list[ScheduleRow]:
        waiting = [row for row in self._of(namespace) if row.waits and row.name > after]
        return [row for row in waiting if all or not row.open_runs][:limit]

    async def next(self, namespace: str) -> tuple[int | None, bool]:
        rows = self._of(namespace)
        first = min((row.next_at for row in rows if row.next_at is not None), default=None)
        return first, any(row.waits for row in rows)

    async def decisions(self, schedule_id: str) -> list[DecisionRow]:
        found = [row for row in self.tables.decisions.rows.values() if row.schedule_id == schedule_id]
        newest = sorted(found, key=lambda row: -row.number)
        return [DecisionRow(row.number, row.time, row.kind, row.times, row.starts) for row in newest]

    async def runs_of_ids(self, namespace: str, workflow_ids: Sequence[str]) -> dict[str, str]:
        latest = self.tables.latest.rows
        return {id: latest[namespace, id] for id in workflow_ids if (namespace, id) in latest}

    async def duties(self, namespace: str) -> list[DutyRow]:
        found = [row for key, row in sorted(self.tables.duties.rows.items()) if key[0] == namespace]
        return [row._replace(is_held=row.holder in self.tables.workers.rows) for row in found]
