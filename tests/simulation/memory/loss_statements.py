"""Statements on runs whose worker was lost: they are freed, and what it may have died of is suspected and held."""

import msgspec
from msgspec.structs import replace

from perdure.kernel.quarantine import QUARANTINE_FROM, Death, is_suspect, pause_ms, quarantine_report, times_lost
from perdure.kernel.whereabouts import LastEvent, Tried, where_it_was
from perdure.stores.answers import Applied, Blamed, Freed, Moved, Paused
from perdure.stores.operations import FreeOrphans, FreeRuns, HoldRun, NoteLosses, ResumeRun
from perdure.stores.records import RunRow
from perdure.stores.rows import deaths_of
from tests.simulation.memory.run_statements import find_run, find_runs, hold_run
from tests.simulation.memory.view import Progress, Steps, View

_JUDGE = Progress("judge_worker")


def free_runs(view: View, free: FreeRuns) -> Steps[Applied | Moved]:
    """Make the runs of a gone worker ripe, a bite at a time; that they were lost counts until they get on."""
    blamed: Blamed | Paused | None = None
    worker = view.workers.get(free.worker_id)
    if worker is not None and view.judged.get(free.worker_id) is None:
        yield from view.lock_worker(free.worker_id)
        # Whoever was quicker has judged, or even forgotten it.
        if view.workers.get(free.worker_id) is not None and view.judged.get(free.worker_id) is None:
            view.judged.put(free.worker_id, free.now)
            if _is_only_suspect_taken(view, free.worker_id):
                return Moved()
            blamed = yield from _judge(view, free, Death(free.now, worker.pid, worker.host))
        yield _JUDGE

    def is_right(row: RunRow) -> bool:
        return row.owner == free.worker_id and row.closed_at is None

    # What somebody holds just now is left for the next bite.
    free_ones = [run_id for run_id in owned_by(view, free.worker_id) if not view.runs.is_taken(run_id)]
    found = yield from find_runs(view, free_ones[: free.limit], is_right)
    for row in found:
        freed = replace(row, owner=None, status="PENDING", wake_at=view.at_once(free.now), losses=row.losses + 1)
        view.runs.put(row.run_id, freed)
    is_apart = isinstance(blamed, Paused) or (blamed is not None and blamed.is_held)
    return Applied(Freed(len(found) + is_apart, blamed))


def _is_only_suspect_taken(view: View, worker_id: str) -> bool:
    rows = [(run_id, view.runs.get(run_id)) for run_id in owned_by(view, worker_id)]
    suspects = [run_id for run_id, row in rows if row is not None and is_suspect(row.losses)]
    return len(suspects) == 1 and view.runs.is_taken(suspects[0])


def _judge(view: View, free: FreeRuns, death: Death) -> Steps[Blamed | Paused | None]:
    """Hold a worker's loss against its only suspect, if it has just one; one that was alone rests for a while."""

    def is_right(row: RunRow) -> bool:
        is_owned = row.owner == free.worker_id and row.closed_at is None
        return is_owned and is_suspect(row.losses)

    suspects = yield from find_runs(view, owned_by(view, free.worker_id), is_right)
    if len(suspects) != 1:
        return None
    row = suspects[0]
    if not _has_company(view, free.worker_id, row):
        until = free.now + pause_ms(row.losses)
        rests = replace(row, owner=None, status="PENDING", wake_at=until, losses=row.losses + 1)
        view.runs.put(row.run_id, rests)
        return Paused(row.workflow_id, times_lost(row.losses, row.outlived) + 1, until)
    deaths = (*deaths_of(view.deaths.get(row.run_id)), death)
    view.deaths.put(row.run_id, msgspec.json.encode(deaths).decode())
    is_enough = len(deaths) >= QUARANTINE_FROM
    if is_enough:
        report = quarantine_report(row.workflow_id, deaths, _whereabouts(view, row))
        yield from hold_run(view, HoldRun(row.run_id, free.worker_id, "quarantine", report, free.now))
    return Blamed(row.workflow_id, len(deaths), is_enough)


def _has_company(view: View, worker_id: str, row: RunRow) -> bool:
    """Whether the worker owned a run beside this one and those that wait for it, their children's end."""
    family: set[str] = set()
    last: RunRow | None = row
    while last is not None and last.run_id not in family:
        family.add(last.run_id)
        last = None if last.parent_id is None else view.runs.get(last.parent_id)
    return any(run_id not in family for run_id in owned_by(view, worker_id))


def _whereabouts(view: View, row: RunRow) -> str:
    """What the run was doing, in words."""
    attempts = view.tables.attempts.by_run.get(row.run_id, {})
    # In the order of their keys the last attempt of a place comes last.
    tried = {place: Tried(place, attempts[place, number].name, number) for place, number in sorted(attempts)}
    events = view.tables.events.by_run.get(row.run_id, {})
    ended = {event.place for event in events.values()}
    last = events[max(events)] if events else None
    where = None if last is None else LastEvent(last.seq, last.kind, last.place)
    return where_it_was(row.waiting, list(tried.values()), ended, where)


def free_orphans(view: View, free: FreeOrphans) -> Steps[Applied]:
    """Make runs ripe whose owner has no row."""
    if view.workers.get(str(free.owner)) is not None:
        return Applied(0)

    def is_right(row: RunRow) -> bool:
        return row.owner == free.owner and row.closed_at is None

    found = yield from find_runs(view, owned_by(view, str(free.owner))[: free.limit], is_right)
    for row in found:
        view.runs.put(row.run_id, replace(row, owner=None, status="PENDING", wake_at=view.at_once(free.now)))
    return Applied(len(found))


def owned_by(view: View, worker_id: str) -> list[str]:
    """The open runs this worker owns, by id."""
    own = view.runs.own
    found = [run_id for run_id in view.tables.runs.owned.get(worker_id, ()) if run_id not in own]
    found += [run_id for run_id, row in own.items() if row and row.owner == worker_id and row.closed_at is None]
    return sorted(found)


def note_losses(view: View, note: NoteLosses) -> Steps[Moved | None]:
    row = yield from find_run(view, note.run_id, lambda row: row.owner == note.worker_id)
    if row is None:
        return Moved()
    view.runs.put(row.run_id, replace(row, losses=note.losses, outlived=note.outlived))
    view.deaths.put(row.run_id, None)
    return None


def resume_run(view: View, resume: ResumeRun) -> Steps[Moved | None]:
    def is_right(row: RunRow) -> bool:
        return row.held is not None and row.owner is None and row.closed_at is None

    row = yield from find_run(view, resume.run_id, is_right)
    if row is None:
        return Moved()
    resumed = replace(
        row,
        held=None,
        held_report=None,
        status="PENDING",
        wake_at=view.at_once(resume.now),
        losses=0,
        outlived=0,
        updated_at=resume.now,
    )
    view.runs.put(row.run_id, resumed)
    view.deaths.put(row.run_id, None)
    return None
