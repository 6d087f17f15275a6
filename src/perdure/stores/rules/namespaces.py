"""Namespaces: how one is deleted, and what can be read of them, whatever the database.

In:   operations on namespaces, and their names.
Out:  questions to the database; what is left in one, and what there is in it.
"""

from collections import Counter

from perdure.kernel.status import OPEN
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.answers import Answer, Moved, Remaining
from perdure.stores.operations import DeleteNamespace
from perdure.stores.records import Census, NamespaceRow
from perdure.stores.rules.questions import Ask, Query, Steps

# So many runs are counted of a namespace that cannot be deleted; and one more, so that more than that can be told.
MOST_COUNTED = 10_000
# So many of the newest open runs of a workflow are looked at for their queues.
FEW_RUNS = 1000


def delete_namespace(delete: DeleteNamespace) -> Steps[Answer | None]:
    """Delete a namespace that nothing is left in; its row is taken first, so that no worker begins there meanwhile."""
    named = {"namespace": delete.namespace}
    if not (yield Query("reach_namespace", named)).rows:
        return Moved()
    ((runs, workers, schedules, sinks),) = (yield Query("left_in_namespace", named | {"most": MOST_COUNTED + 1})).rows
    if runs or workers or schedules or sinks:
        return Remaining(runs, workers, schedules, sinks)
    yield Query("delete_keys", named)
    yield Query("delete_announced", named)
    yield Query("delete_namespace", named)
    return None


class NamespaceReads:
    """What can be read of namespaces."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask

    async def all(self) -> list[NamespaceRow]:
        def ask() -> Steps[list[NamespaceRow]]:
            return [NamespaceRow(*row) for row in (yield Query("namespaces", {})).rows]

        return await self.ask(ask)

    async def census(self, namespace: str, most: int) -> Census:
        return await self.ask(lambda: _census(namespace, most))


def _census(namespace: str, most: int) -> Steps[Census]:
    runs: Counter[str] = Counter()
    queues: set[str] = set()
    found = (yield Query("runs_by_status", {"namespace": namespace, "most": most})).rows
    for workflow, status, number in found:
        # Activities on a queue are runs as well, but nobody has started them.
        runs[status] += 0 if str(workflow).startswith(TASK_PREFIX) else number
        if status in OPEN:
            asked = {"namespace": namespace, "workflow": workflow, "status": status, "most": FEW_RUNS}
            queues |= {queue for (queue,) in (yield Query("queues_of_open_runs", asked)).rows}
    return Census({status: min(number, most) for status, number in runs.items() if number}, sorted(queues))
