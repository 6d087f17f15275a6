"""What is read to find out why a run does not move; nobody reads it in the ordinary course of things.

In:   a database that answers questions, each as it can.
Out:  counts and names; every answer is bounded, however many runs there are.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from perdure.errors import RunUnreadable
from perdure.stores import rows
from perdure.stores.records import AttemptRow, RowHolder, RunRow, StuckFilter
from perdure.stores.rows import Garbled
from perdure.stores.rules.questions import Ask, Query, Steps

# How runs are asked for; those that cannot be read are among them as such.
AskForRuns: TypeAlias = Callable[[Query], Awaitable[list[RunRow | RunUnreadable]]]
# So many queues and workflows are looked at.
MOST_KINDS = 10_000


class InspectionReads:
    """What can be read of what is in the way of runs."""

    def __init__(self, url: str, ask: Ask, runs: AskForRuns) -> None:
        self.url = url
        self.ask = ask
        self._runs = runs

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

    async def due_kinds(self, namespace: str, now: int) -> list[tuple[str, str]]:
        return await self.ask(lambda: _due_kinds(namespace, now))

    async def stuck(self, wanted: StuckFilter) -> list[RunRow | RunUnreadable]:
        asked = Query(
            "stuck_runs",
            {
                "namespace": wanted.namespace,
                "queues": [queue for queue, _ in wanted.kinds],
                "workflows": [workflow for _, workflow in wanted.kinds],
                "owners": wanted.owners,
                "now": wanted.now,
                "until": wanted.until,
                "before": wanted.before,
                "limit": wanted.limit,
            },
        )
        return await self._runs(asked)

    async def row_holders(self, run_id: str) -> list[RowHolder]:
        def ask() -> Steps[list[RowHolder]]:
            return [RowHolder(*row) for row in (yield Query("row_holders", {"run_ids": [run_id]})).rows]

        return await self.ask(ask)


def _due_kinds(namespace: str, now: int) -> Steps[list[tuple[str, str]]]:
    """From one kind to the next without what is between, as the index has them; then those of suspects."""
    found: list[tuple[str, str]] = []
    last = {"queue": "", "namespace": "", "workflow": "", "now": now}
    for _ in range(MOST_KINDS):
        row = (yield Query("next_kind", last)).first
        if row is None:
            break
        queue, of, workflow, is_due = row
        last |= {"queue": queue, "namespace": of, "workflow": workflow}
        if is_due and of == namespace:
            found.append((queue, workflow))
    suspects = (yield Query("suspect_kinds", {"namespace": namespace, "now": now})).rows
    # What is no text there is a finding of the audit.
    kinds = dict.fromkeys([*found, *((queue, workflow) for queue, workflow in suspects)])
    return [kind for kind in kinds if all(type(name) is str for name in kind)]
