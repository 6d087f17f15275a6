"""What is read to find out why a run does not move; nobody reads it in the ordinary course of things.

In:   a database that answers questions, each as it can.
Out:  counts and names; every answer is bounded, however many runs there are.
"""

from collections.abc import Sequence

from perdure.errors import RunUnreadable
from perdure.stores import rows
from perdure.stores.records import AttemptRow, RowHolder, RunRow
from perdure.stores.rows import Garbled
from perdure.stores.rules.questions import Ask, Query, Steps


class InspectionReads:
    """What can be read of what is in the way of runs."""

    def __init__(self, url: str, ask: Ask) -> None:
        self.url = url
        self.ask = ask

    async def last_attempt(self, run_id: str, place: str) -> AttemptRow | None:
        def ask() -> Steps[AttemptRow | None]:
            found = yield Query("last_attempt", {"run_id": run_id, "place": place})
            return rows.attempt_of(*found.first) if found.rows else None

        try:
            return await self.ask(ask)
        except Garbled as error:
            raise RunUnreadable(self.url, run_id, run_id, str(error)) from None

    async def count_ahead(self, row: RunRow, workflows: Sequence[str], now: int, most: int) -> int:
        asked = {
            "queue": row.queue,
            "namespace": row.namespace,
            "workflows": workflows,
            "priority": row.priority,
            "wake_at": row.wake_at,
            "run_id": row.run_id,
            "now": now,
            "most": most,
        }

        def ask() -> Steps[int]:
            ((count,),) = (yield Query("count_ahead", asked)).rows
            return min(int(count), most)

        return await self.ask(ask)

    async def row_holders(self, run_id: str) -> list[RowHolder]:
        def ask() -> Steps[list[RowHolder]]:
            return [RowHolder(*row) for row in (yield Query("row_holders", {"run_ids": [run_id]})).rows]

        return await self.ask(ask)
