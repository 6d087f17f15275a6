"""Claims: taking ripe runs, level by level: the highest priority first, and within one the queues share alike."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from perdure.kernel.quarantine import is_suspect, suspects_at_once
from perdure.stores.answers import Applied
from perdure.stores.operations import ClaimRuns
from perdure.stores.records import RunRow
from perdure.stores.rules.claims import MOST_DUE
from tests.simulation.memory.tables import Ripe
from tests.simulation.memory.view import Progress, Steps, View

_LEVEL = Progress("claim_runs")
_SUSPECTS = Progress("claim_suspects")


def claim_runs(view: View, claim: ClaimRuns) -> Steps[Applied]:
    if view.tables.has_turns:
        for queue in claim.queues:
            _ripen(view, queue, claim.now)
    levels = _ripe_levels(view, claim.queues, claim.now)
    suspects = _first_suspects(view, claim) if claim.suspects else []
    ahead = [level for level in levels if suspects and claim.limit <= 1 and level[1] > suspects[0].priority]
    taken = yield from _claim_levels(view, claim, ahead, claim.limit)
    if taken:
        return Applied(taken)
    if claim.suspects:
        taken = _claim_suspects(view, claim, suspects)
        yield _SUSPECTS
    taken += yield from _claim_levels(view, claim, levels[len(ahead) :], claim.limit - len(taken))
    return Applied(taken)


def _claim_levels(view: View, claim: ClaimRuns, levels: Sequence[tuple[str, int]], limit: int) -> Steps[list[str]]:
    taken: list[str] = []
    for place, (queue, priority) in enumerate(levels):
        alike = sum(other == priority for _, other in levels[place:])
        share = -(-(limit - len(taken)) // alike)
        if share <= 0:
            break
        if place:
            yield _LEVEL
        taken += _claim_level(view, claim, queue, priority, share)
    return taken


def _ripen(view: View, queue: str, now: int) -> None:
    """What is due takes its turn behind what was ripe before it."""
    places = view.tables.runs.places
    committed = view.tables.runs.ripe.get(queue, {}).values()
    rows = [view.runs.get(run_id) for level in committed for _, _, run_id in level if run_id not in view.runs.own]
    rows += _own_free(view, queue, suspects=False)
    due = [(row.wake_at, places[row.run_id], row) for row in rows if row is not None and 0 <= (row.wake_at or 0) <= now]
    view.next_statement()
    first = view.at_once(now)
    for place, (_, _, row) in enumerate(sorted(due, key=lambda each: each[:2])[:MOST_DUE], start=1):
        view.runs.put(row.run_id, replace(row, wake_at=first + place))


def _ripe_levels(view: View, queues: Sequence[str], now: int) -> list[tuple[str, int]]:
    """The queues and priorities that have free runs which are due."""
    own = view.runs.own
    levels = []
    for queue in queues:
        committed = view.tables.runs.ripe.get(queue, {})
        found = {
            priority
            for priority, level in committed.items()
            if any(at <= now and run_id not in own for at, _, run_id in level)
        }
        found |= {row.priority for row in _own_free(view, queue, suspects=False) if (row.wake_at or 0) <= now}
        levels += [(queue, priority) for priority in sorted(found)]
    return sorted(levels, key=lambda level: -level[1])


def _claim_level(view: View, claim: ClaimRuns, queue: str, priority: int, limit: int) -> list[str]:
    """Take the ripest of one queue and one priority, without those that others hold."""
    committed = view.tables.runs.ripe.get(queue, {}).get(priority, [])
    own = [row for row in _own_free(view, queue, suspects=False) if row.priority == priority]
    ripest = _ripest(view, claim, committed, own, limit)
    claimed = sorted(run_id for _, _, run_id in ripest)
    for run_id in claimed:
        _take(view, claim, run_id)
    return claimed


def _first_suspects(view: View, claim: ClaimRuns) -> list[RunRow]:
    """The suspects of the queue that has the first of all."""
    ripest = [(queue, list(_suspects(view, claim, queue))) for queue in claim.queues]
    firsts = [(-found[0].priority, found[0].wake_at, queue, found) for queue, found in ripest if found]
    return min(firsts, key=lambda first: first[:3])[3] if firsts else []


def _claim_suspects(view: View, claim: ClaimRuns, suspects: Sequence[RunRow]) -> list[str]:
    """The first suspect of all queues, and those like it."""
    if not suspects:
        return []
    losses = suspects[0].losses
    alike = [row.run_id for row in suspects if row.losses == losses]
    taken = alike[: suspects_at_once(claim.suspects, losses, claim.limit)]
    for run_id in taken:
        _take(view, claim, run_id)
    return taken


def _suspects(view: View, claim: ClaimRuns, queue: str) -> Iterator[RunRow]:
    """The suspects of one queue that are wanted and that nobody else holds, the ripest first."""
    committed = view.tables.runs.suspected.get(queue, {})
    own = list(_own_free(view, queue, suspects=True))
    for priority in sorted({*committed, *[row.priority for row in own]}, reverse=True):
        others, rows = committed.get(priority, []), [row for row in own if row.priority == priority]
        for _, _, run_id in _ripest(view, claim, others, rows, len(others) + len(rows)):
            row = view.runs.get(run_id)
            assert row is not None
            yield row


def _ripest(view: View, claim: ClaimRuns, committed: list[Ripe], own: list[RunRow], limit: int) -> list[Ripe]:
    """The first of those that are wanted and that nobody else holds, as many as there may be."""
    places = view.tables.runs.places
    found = [
        (row.wake_at, places[row.run_id], row.run_id)
        for row in own
        if row.wake_at is not None and row.wake_at <= claim.now and _is_wanted(row, claim)
    ]
    found += _others(view, claim, committed, limit)
    return sorted(found)[:limit]


def _others(view: View, claim: ClaimRuns, committed: list[Ripe], limit: int) -> Iterator[Ripe]:
    """Those that this transaction has not changed, in order."""
    rows = view.tables.runs.rows
    for entry in committed:
        wake_at, _, run_id = entry
        if wake_at > claim.now or limit <= 0:
            return
        is_free = run_id not in view.runs.own and not view.runs.is_taken(run_id)
        if is_free and _is_wanted(rows[run_id], claim):
            limit -= 1
            yield entry


def _is_wanted(row: RunRow, claim: ClaimRuns) -> bool:
    return row.held is None and row.namespace == claim.namespace and row.workflow in claim.workflows


def _own_free(view: View, queue: str, *, suspects: bool) -> Iterator[RunRow]:
    """Free runs with a time to wake at, as this transaction has changed them."""
    for row in view.runs.own.values():
        is_free = row is not None and row.owner is None and row.wake_at is not None
        if row is not None and is_free and row.queue == queue and is_suspect(row.losses) == suspects:
            yield row


def _take(view: View, claim: ClaimRuns, run_id: str) -> None:
    row = view.runs.get(run_id)
    assert row is not None
    begun_at = max(claim.now, row.created_at) if row.begun_at is None else row.begun_at
    view.runs.put(run_id, replace(row, owner=claim.worker_id, begun_at=begun_at, status="RUNNING", waiting=None))
