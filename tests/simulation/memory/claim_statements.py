"""Statements of claims: which runs are ripe in a queue, and taking them.

Where runs that are ripe at once take turns, as on SQLite, ripe is what has one; else what is due by its time.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from perdure.kernel.quarantine import LONGEST_PAUSE_MS, is_suspect
from perdure.stores.records import RunRow
from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, find_run, never_waiting, rows_of, statement, untaken
from tests.simulation.memory.view import Steps, View


def _free(view: View, queue: str, *, suspects: bool = False) -> list[RunRow]:
    """The free runs of a queue that have a time to wake at or a turn, the first to wake first."""
    index = view.tables.runs.suspected if suspects else view.tables.runs.ripe
    own, places = view.runs.own, view.tables.runs.places
    committed = (run_id for level in index.get(queue, {}).values() for _, _, run_id in level if run_id not in own)
    rows = [view.tables.runs.rows[run_id] for run_id in committed]
    rows += [row for row in own.values() if row is not None and _is_free(row, queue, suspects=suspects)]
    return sorted(rows, key=lambda row: (row.wake_at, places[row.run_id], row.run_id))


def _is_free(row: RunRow, queue: str, *, suspects: bool) -> bool:
    is_there = row.queue == queue and row.owner is None and row.wake_at is not None
    return is_there and is_suspect(row.losses) == suspects


def _is_ripe(view: View, row: RunRow, now: int) -> bool:
    assert row.wake_at is not None
    return row.wake_at < 0 if view.tables.has_turns else row.wake_at <= now


def _is_wanted(row: RunRow, namespace: str, workflows: Sequence[str]) -> bool:
    return row.held is None and row.namespace == namespace and row.workflow in workflows


@never_waiting
def ripen(view: View, *, queue: str, now: int, most_due: int) -> Found:
    """What is due takes its turn behind what was ripe before it."""
    due = [row for row in _free(view, queue) if 0 <= (row.wake_at or 0) <= now][:most_due]
    first = view.at_once(now)
    for place, row in enumerate(due, start=1):
        view.runs.put(row.run_id, replace(row, wake_at=first + place))
    return changed(len(due))


@never_waiting
def ripe_levels(view: View, *, queue: str, now: int, most_levels: int, **_: object) -> Found:
    levels: dict[int, bool] = {}
    for row in _free(view, queue):
        is_ripe = _is_ripe(view, row, now)
        if is_ripe or not view.tables.has_turns:
            levels[row.priority] = levels.get(row.priority, False) or is_ripe
    return rows_of(sorted(levels.items(), reverse=True)[:most_levels])


@never_waiting
def ripest(
    view: View,
    *,
    queue: str,
    priority: int,
    namespace: str,
    workflows: Sequence[str],
    now: int,
    window: int,
    **_: object,
) -> Found:
    found = (row for row in _free(view, queue) if row.priority == priority and _is_ripe(view, row, now))
    return rows_of([(row.run_id, _is_wanted(row, namespace, workflows)) for row in found][:window])


@never_waiting
def ripest_of(
    view: View, *, queue: str, priority: int, namespace: str, workflow: str, now: int, limit: int, **_: object
) -> Found:
    free = [row for row in _free(view, queue) if row.priority == priority]
    found = [row for row in free if _is_wanted(row, namespace, (workflow,)) and _is_ripe(view, row, now)]
    return rows_of([(row.wake_at, view.tables.runs.places[row.run_id], row.run_id) for row in found][:limit])


@never_waiting
def ripest_below(
    view: View,
    *,
    queue: str,
    priority: int,
    namespace: str,
    workflow: str,
    now: int,
    limit: int,
    window: int,
    **_: object,
) -> Found:
    """With turns the highest priority first; by time the oldest, of which more are looked at."""
    free = [row for row in _free(view, queue) if row.priority < priority]
    found = [row for row in free if _is_wanted(row, namespace, (workflow,)) and _is_ripe(view, row, now)]
    if view.tables.has_turns:
        found = sorted(found, key=lambda row: -row.priority)
    places = view.tables.runs.places
    rows = [(row.priority, row.wake_at, places[row.run_id], row.run_id) for row in found]
    return rows_of(rows[: limit if view.tables.has_turns else window])


# Taking them


@never_waiting
def claim_ripest(
    view: View,
    *,
    queue: str,
    priority: int,
    namespace: str,
    workflows: Sequence[str],
    run_ids: Sequence[str],
    limit: int,
    now: int,
    worker_id: str,
    **_: object,
) -> Found:
    """On Postgres they are looked for anew: of those that were seen a moment ago, others may be taking every one."""
    found: Iterable[RunRow] = (row for row in _free(view, queue) if row.priority == priority)
    if view.tables.has_turns:
        found = _by_id(view, run_ids[:limit])
    else:
        found = (row for row in found if _is_wanted(row, namespace, workflows) and _is_ripe(view, row, now))
    return _claimed(view, found, limit, worker_id, now)


@never_waiting
def claim_runs(view: View, *, run_ids: Sequence[str], limit: int, now: int, worker_id: str, **_: object) -> Found:
    if view.tables.has_turns:
        return _claimed(view, _by_id(view, run_ids[:limit]), limit, worker_id, now)
    free = (row for row in _by_id(view, run_ids) if row.owner is None and row.wake_at is not None)
    open_ones = (row for row in free if row.held is None and row.closed_at is None)
    return _claimed(view, open_ones, limit, worker_id, now)


def _by_id(view: View, run_ids: Sequence[str]) -> Iterator[RunRow]:
    return (row for run_id in run_ids if (row := view.runs.get(run_id)) is not None)


def _claimed(view: View, rows: Iterable[RunRow], limit: int, worker_id: str, now: int) -> Found:
    """Take the first of these that no other transaction holds."""
    claimed = untaken(view, _first_untaken(view, rows, limit))
    for row in claimed:
        begun_at = max(now, row.created_at) if row.begun_at is None else row.begun_at
        taken = replace(row, owner=worker_id, begun_at=begun_at, status="RUNNING", waiting=None)
        view.runs.put(row.run_id, taken)
    return rows_of((row.run_id,) for row in claimed)


def _first_untaken(view: View, rows: Iterable[RunRow], limit: int) -> list[RunRow]:
    return [row for row in rows if not view.runs.is_taken(row.run_id)][:limit]


# Suspects


def _suspects(view: View, queue: str, now: int, namespace: str, workflows: Sequence[str]) -> list[RunRow]:
    """The suspects of a queue that are due and wanted, the highest priority first."""
    due = [row for row in _free(view, queue, suspects=True) if _has_rested(view, row.wake_at or 0, now)]
    return sorted((row for row in due if _is_wanted(row, namespace, workflows)), key=lambda row: -row.priority)


def _has_rested(view: View, wake_at: int, now: int) -> bool:
    """SQLite has the times of many clocks: a rest that is longer than any was set by one that is ahead."""
    return wake_at <= now or (view.tables.has_turns and wake_at > now + LONGEST_PAUSE_MS)


@never_waiting
def first_suspect(view: View, *, queue: str, now: int, namespace: str, workflows: Sequence[str], **_: object) -> Found:
    """One that nobody holds: those behind it must not wait for it."""
    found = _first_untaken(view, _suspects(view, queue, now, namespace, workflows), 1)
    return rows_of((row.priority, row.wake_at, row.losses) for row in untaken(view, found))


@never_waiting
def suspects_like_it(
    view: View, *, queue: str, now: int, namespace: str, workflows: Sequence[str], losses: int, limit: int, **_: object
) -> Found:
    alike = [row for row in _suspects(view, queue, now, namespace, workflows) if row.losses == losses]
    return rows_of((row.run_id,) for row in untaken(view, _first_untaken(view, alike, limit)))


@statement
def claim_one(
    view: View, *, run_id: str, worker_id: str, namespace: str, workflows: Sequence[str], now: int
) -> Steps[Found]:
    def is_right(row: RunRow) -> bool:
        is_free = row.owner is None and row.closed_at is None and row.held is None
        is_due = row.wake_at is not None and row.wake_at <= now
        return is_free and is_due and row.namespace == namespace and row.workflow in workflows

    row = yield from find_run(view, run_id, is_right)
    if row is not None:
        begun_at = max(now, row.created_at) if row.begun_at is None else row.begun_at
        view.runs.put(run_id, replace(row, owner=worker_id, begun_at=begun_at, status="RUNNING", waiting=None))
    return changed(row is not None)
