"""Claims: taking ripe runs, level by level: the highest priority first, and within one the queues share alike."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from perdure.stores.answers import Applied
from perdure.stores.operations import ClaimRuns
from perdure.stores.records import RunRow
from perdure.testing.memory.tables import Ripe
from perdure.testing.memory.view import Progress, Steps, View

_CLAIM = Progress("claim_runs")


def claim_runs(view: View, claim: ClaimRuns) -> Steps[Applied]:
    levels = _ripe_levels(view, claim.queues)
    taken: list[str] = []
    for place, (queue, priority) in enumerate(levels):
        alike = sum(other == priority for _, other in levels[place:])
        share = -(-(claim.limit - len(taken)) // alike)
        if share <= 0:
            break
        if place:
            yield _CLAIM
        taken += _claim_level(view, claim, queue, priority, share)
    return Applied(taken)


def _ripe_levels(view: View, queues: Sequence[str]) -> list[tuple[str, int]]:
    """The queues and priorities that have free runs with a time to wake at."""
    levels = []
    for queue in queues:
        committed = view.tables.runs.ripe.get(queue, {})
        found = {priority for priority, level in committed.items() if _has_others(view, level)}
        found |= {row.priority for row in _own_free(view, queue)}
        levels += [(queue, priority) for priority in sorted(found)]
    return sorted(levels, key=lambda level: -level[1])


def _claim_level(view: View, claim: ClaimRuns, queue: str, priority: int, limit: int) -> list[str]:
    """Take the ripest of one queue and one priority, without those that others hold."""
    ripest = sorted([*_own_ripe(view, claim, queue, priority), *_others_ripe(view, claim, queue, priority, limit)])
    claimed = sorted(run_id for _, _, run_id in ripest[:limit])
    for run_id in claimed:
        row = view.runs.get(run_id)
        assert row is not None
        begun_at = claim.now if row.begun_at is None else row.begun_at
        owned = replace(row, owner=claim.worker_id, begun_at=begun_at, status="RUNNING", waiting=None)
        view.runs.put(run_id, owned)
    return claimed


def _others_ripe(view: View, claim: ClaimRuns, queue: str, priority: int, limit: int) -> Iterator[Ripe]:
    """Ripe runs that this transaction has not changed, in order, as many as wanted."""
    runs = view.runs
    for entry in view.tables.runs.ripe.get(queue, {}).get(priority, ()):
        wake_at, _, run_id = entry
        if wake_at > claim.now or limit <= 0:
            return
        if run_id not in runs.table.held and _is_wanted(runs.table.rows[run_id], claim):
            limit -= 1
            yield entry


def _own_ripe(view: View, claim: ClaimRuns, queue: str, priority: int) -> Iterator[Ripe]:
    for row in _own_free(view, queue):
        assert row.wake_at is not None
        if row.priority == priority and row.wake_at <= claim.now and _is_wanted(row, claim):
            yield (row.wake_at, view.tables.runs.places[row.run_id], row.run_id)


def _is_wanted(row: RunRow, claim: ClaimRuns) -> bool:
    return row.held is None and row.namespace == claim.namespace and row.workflow in claim.workflows


def _has_others(view: View, level: list[Ripe]) -> bool:
    return any(run_id not in view.runs.own for _, _, run_id in level)


def _own_free(view: View, queue: str) -> Iterator[RunRow]:
    for row in view.runs.own.values():
        if row is not None and row.owner is None and row.wake_at is not None and row.queue == queue:
            yield row
