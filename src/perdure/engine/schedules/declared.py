"""Schedules that come with code: made, changed and removed when a worker with that code opens.

In:   what workflows declare, and which workflows this worker has.
Out:  their schedules as the code says, in one transaction. Those that people made are never touched.
"""

import logging
from collections.abc import Mapping, Sequence

from perdure.engine.ports import Declared
from perdure.engine.schedules.deciding import Deciding
from perdure.engine.schedules.rows import ScheduleRows
from perdure.errors import StoreError
from perdure.kernel.schedules import Schedule
from perdure.stores.operations import DeleteSchedule, Operation
from perdure.stores.records import ScheduleRow

log = logging.getLogger("perdure.engine")

PAGE = 500


class DeclaredSchedules:
    """Sees to it that schedules are as the code has them; of two workers the one that opens last wins."""

    def __init__(self, rows: ScheduleRows, deciding: Deciding) -> None:
        self._rows = rows
        self._reads = rows.reads
        self._deciding = deciding

    async def reconcile(
        self, namespace: str, declared: Mapping[str, Declared], workflows: Sequence[str], queues: Sequence[str] = ()
    ) -> None:
        """Make, change and remove schedules as the code of these workflows says, in one transaction.

        With queues, those that start runs elsewhere stay as they are.
        """
        is_done = False
        while not is_done:
            operations: list[Operation] = []
            told: list[str] = []
            rows = {row.name: row for row in await self._reads.declared(namespace)}
            others = {name for name, row in rows.items() if queues and not self._starts_on(row, queues)}
            for name, wanted in declared.items():
                if name not in others and (not queues or wanted.call.queue in queues):
                    operations += await self._reconciled(namespace, name, wanted, rows.get(name), told)
            for name in sorted(rows.keys() & set(workflows) - declared.keys() - others):
                operations.append(DeleteSchedule(rows[name].schedule_id, rows[name].revision))
                told.append(f"removed {name!r}")
            is_done = not operations or await self._rows.is_applied(*operations)
        for change in told:
            log.info("schedules as the code has them: %s", change, extra={"event": "schedule_reconciled"})

    async def _reconciled(
        self, namespace: str, name: str, declared: Declared, row: ScheduleRow | None, told: list[str]
    ) -> list[Operation]:
        """The operations that make one as it is declared; none when it is so, or its name is taken."""
        call, when = declared
        if row is None and await self._reads.get(namespace, name) is not None:
            text = "the schedule of the workflow %r is not made: one that people made has its name"
            log.warning(text, name, extra={"event": "schedule_name_taken"})
            return []
        if row is None:
            told.append(f"made {name!r}, {when}")
            return [self._rows.insertion(namespace, name, call, when, "code")]
        known = self._read(row)
        if known is None:
            return []
        if (known.call, known.when) == declared:
            return []
        told.append(f"changed {name!r} to {when}")
        return self._rows.change(await self._rows.decided(row), when, call, "code")

    def _starts_on(self, row: ScheduleRow, queues: Sequence[str]) -> bool:
        known = self._read(row)
        return known is not None and known.call.queue in queues

    def _read(self, row: ScheduleRow) -> Schedule | None:
        """The schedule in a row; None for one that cannot be read, which must not keep others from being made."""
        try:
            return self._rows.read(row)
        except StoreError as error:
            log.error("a schedule stays as it is: %s", error, extra={"event": "schedule_unreadable"})  # noqa: TRY400
            return None

    async def refresh(self, namespace: str) -> None:
        """Compute the next times anew, by the rules of time zones that are installed now."""
        next_look, _ = await self._reads.next(namespace)
        after = ""
        while next_look is not None and (page := await self._reads.page(namespace, after, PAGE)):
            for row in page:
                await self._deciding.refresh(row)
            after = page[-1].name
