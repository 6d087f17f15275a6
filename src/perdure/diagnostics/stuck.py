"""Stuck: runs that should move and never will unless somebody acts.

In:   the engine, and for how long a run must not have moved.
Out:  a page of runs: due ones that no living worker has code for, and those whose owner is gone and not replaced.

A run that waits for a time or for somebody outside is not stuck, however long that takes; nor is one that a living
worker has code for, since it has its turn. They are found by the indexes of ripe and of owned runs: what is healthy is
not read.
"""

from perdure.diagnostics.explain import HasDiagnoses
from perdure.engine.ports import Engine
from perdure.views.finding import checked_cursor
from perdure.views.run import Page, checked_limit, shown_page


async def stuck_page(engine: Engine, namespace: str, after_ms: int, cursor: str | None, limit: int) -> Page:
    """One page of the runs that have been stuck for so long, newest first."""
    limit = checked_limit(limit)
    if isinstance(engine, HasDiagnoses):
        return await engine.diagnoses.stuck(namespace, after_ms, cursor, limit)
    await checked_cursor(engine, namespace, cursor)
    return await shown_page(engine, await engine.inspector.stuck(namespace, after_ms, cursor, limit + 1), limit)
