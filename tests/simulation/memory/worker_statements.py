"""Statements on workers: the fence, what moves an epoch, and what becomes of the runs of a worker that is lost."""

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.kernel.quarantine import is_suspect
from perdure.stores.operations import ExpectDeadline, Fence, ForgetDeadline, NoteDeadline
from perdure.stores.records import RunRow, WorkerRow
from perdure.stores.rules.questions import Found
from tests.simulation.memory.statements import changed, find_run, never_waiting, owned_by, rows_of, statement, untaken
from tests.simulation.memory.view import Refused, Steps, View


@statement
def fence(view: View, *, worker_id: str, epoch: int) -> Steps[Found]:
    """Whether the worker holds this epoch, for as long as the transaction is open."""
    if not _has_epoch(view, worker_id, epoch):
        return changed(0)
    if view.workers.is_taken(worker_id):
        yield from view.workers.wait(worker_id)
        if not _has_epoch(view, worker_id, epoch):
            return changed(0)
    view.share_worker(worker_id)
    return rows_of([(1,)])


# That of a group whose worker is not the one of the batch.
group_fence = fence


@statement
def check_fences(view: View, rows: Sequence[Fence]) -> Steps[Found]:
    held = []
    for worker_id, epoch in rows:
        if (yield from group_fence(view, worker_id=worker_id, epoch=epoch)).count:
            held.append((worker_id, epoch))
    return rows_of(held)


@statement
def renew_remote_worker(view: View, *, worker_id: str, epoch: int, lease_until: int) -> Steps[Found]:
    yield from view.workers.wait(worker_id)
    row = view.workers.get(worker_id)
    if row is None or row.epoch != epoch:
        return changed(0)
    view.workers.put(worker_id, replace(row, lease_until=max(row.lease_until + 1, lease_until)))
    return changed(1)


@statement
def shorten_lease(view: View, *, worker_id: str, epoch: int, lease_until: int, until: int) -> Steps[Found]:
    yield from view.workers.wait(worker_id)
    row = view.workers.get(worker_id)
    if row is None or (row.epoch, row.lease_until) != (epoch, lease_until):
        return changed(0)
    view.workers.put(worker_id, replace(row, lease_until=until))
    return changed(1)


@statement
def expect_deadlines(view: View, rows: Sequence[ExpectDeadline]) -> Steps[Found]:
    right = []
    for row in rows:
        yield from view.deadlines.wait(row.run_id)
        found = view.deadlines.get(row.run_id)
        if found is None or (found.worker_id, found.attempt) != (row.worker_id, row.attempt):
            continue
        if row.due_at is None or row.due_at == found.due_at:
            right.append(tuple(row))
    return rows_of(right)


@statement
def note_deadlines(view: View, rows: Sequence[NoteDeadline]) -> Steps[Found]:
    for row in rows:
        yield from view.deadlines.wait(row.run_id)
        view.deadlines.put(row.run_id, row)
    return changed(len(rows))


@statement
def forget_deadlines(view: View, rows: Sequence[ForgetDeadline]) -> Steps[Found]:
    for (run_id,) in rows:
        yield from view.deadlines.wait(run_id)
        if view.deadlines.get(run_id) is not None:
            view.deadlines.put(run_id, None)
    return changed(len(rows))


def _has_epoch(view: View, worker_id: str, epoch: int) -> bool:
    row = view.workers.get(worker_id)
    return row is not None and row.epoch == epoch


@statement
def insert_worker(
    view: View,
    *,
    worker_id: str,
    namespace: str,
    lease_until: int,
    lease_ms: int | None,
    queues: str,
    host: str,
    pid: int,
    now: int,
    names: str | None,
    remote: int,
    **_: object,
) -> Steps[Found]:
    yield from view.workers.wait(worker_id)
    if view.workers.get(worker_id) is not None:
        raise Refused(f"there is a worker {worker_id} already")
    row = WorkerRow(
        worker_id=worker_id,
        namespace=namespace,
        epoch=1,
        lease_until=lease_until,
        queues=queues,
        host=host,
        pid=pid,
        started_at=now,
        lease_ms=lease_ms,
        workflows=names,
        remote=remote,
    )
    view.workers.put(worker_id, row)
    return changed(1)


@statement
def note_workflows(view: View, *, worker_id: str, names: str) -> Steps[Found]:
    yield from view.workers.wait(worker_id)
    row = view.workers.get(worker_id)
    if row is None:
        return changed(0)
    view.workers.put(worker_id, replace(row, workflows=names))
    return changed(1)


@statement
def raise_own_epoch(view: View, *, worker_id: str, epoch: int, **_: object) -> Steps[Found]:
    """When all that the worker had under way has ended."""
    if not _has_epoch(view, worker_id, epoch):
        return changed(0)
    yield from view.lock_worker(worker_id)
    return _raised(view, worker_id, epoch)


@never_waiting
def raise_epoch(view: View, *, worker_id: str, epoch: int, lease_until: int) -> Found:
    """Nobody waits for the open batches of another worker."""
    row = view.workers.get(worker_id)
    if row is None or row.lease_until != lease_until or view.is_worker_locked(worker_id):
        return changed(0)
    return _raised(view, worker_id, epoch)


def _raised(view: View, worker_id: str, epoch: int) -> Found:
    row = view.workers.get(worker_id)
    if row is None or row.epoch != epoch:
        return changed(0)
    view.workers.put(worker_id, replace(row, epoch=row.epoch + 1))
    return changed(1)


@statement
def delete_worker(view: View, *, worker_id: str) -> Steps[Found]:
    yield from view.lock_worker(worker_id)
    if owned_by(view, worker_id) or view.workers.get(worker_id) is None:
        return changed(0)
    view.workers.put(worker_id, None)
    view.judged.put(worker_id, None)
    return changed(1)


# The runs of a worker that is lost


@statement
def judge_worker(view: View, *, worker_id: str, now: int, **_: object) -> Steps[Found]:
    if not _is_unjudged(view, worker_id):
        return rows_of([])
    yield from view.workers.wait(worker_id)
    yield from view.judged.wait(worker_id)
    worker = view.workers.get(worker_id)
    # Another process may have judged, or even forgotten it meanwhile.
    if worker is None or not _is_unjudged(view, worker_id):
        return rows_of([])
    view.judged.put(worker_id, now)
    return rows_of([(worker.host, worker.pid)])


def _is_unjudged(view: View, worker_id: str) -> bool:
    return view.workers.get(worker_id) is not None and view.judged.get(worker_id) is None


@never_waiting
def suspects_of(view: View, *, worker_id: str) -> Found:
    suspects = [row for row in owned_by(view, worker_id) if is_suspect(row.losses)]
    found = [(row.run_id, row.workflow_id, view.deaths.get(row.run_id), row.losses, row.outlived) for row in suspects]
    return rows_of(found[:2])


@never_waiting
def reach_run(view: View, *, run_id: str) -> Found:
    row = view.runs.get(run_id)
    return rows_of((1,) for _ in untaken(view, [] if row is None else [row]))


@never_waiting
def company_of(view: View, *, worker_id: str) -> Found:
    """Whether the worker owned runs of two families; a family is all there is under one root."""
    family: set[str] = set()
    roots: set[str] = set()
    for row in owned_by(view, worker_id):
        last: RunRow | None = row
        while last is not None and last.run_id not in family:
            family.add(last.run_id)
            parent_id = last.parent_id
            above = None if parent_id is None else view.runs.get(parent_id)
            if above is None:
                roots.add(parent_id or last.run_id)
            last = above
    return rows_of([(root,) for root in sorted(roots)[1:2]])


@statement
def pause_run(view: View, *, run_id: str, worker_id: str, wake_at: int) -> Steps[Found]:
    row = yield from find_run(view, run_id, lambda row: row.owner == worker_id)
    if row is not None:
        view.runs.put(run_id, replace(row, owner=None, status="PENDING", wake_at=wake_at, losses=row.losses + 1))
    return changed(row is not None)


@statement
def blame_run(view: View, *, run_id: str, deaths: str) -> Steps[Found]:
    row = yield from find_run(view, run_id, lambda _: True)
    if row is not None:
        view.deaths.put(run_id, deaths)
    return changed(row is not None)


@never_waiting
def free_runs(view: View, *, worker_id: str, now: int, limit: int) -> Found:
    """What another transaction holds is left for the next bite; that they were lost counts until they get on."""
    return _freed(view, owned_by(view, worker_id), now, limit, losses=1)


@never_waiting
def free_orphans(view: View, *, owner: object, now: int, limit: int) -> Found:
    rows = owned_by(view, owner) if view.workers.get(str(owner)) is None else []
    return _freed(view, rows, now, limit, losses=0)


def _freed(view: View, rows: Sequence[RunRow], now: int, limit: int, *, losses: int) -> Found:
    bite = untaken(view, [row for row in rows if not view.runs.is_taken(row.run_id)][:limit])
    for row in bite:
        freed = replace(row, owner=None, status="PENDING", wake_at=view.at_once(now), losses=row.losses + losses)
        view.runs.put(row.run_id, freed)
    return rows_of((row.run_id,) for row in bite)


# Where a run was when its worker was lost


@never_waiting
def noted_waiting(view: View, *, run_id: str) -> Found:
    row = view.runs.get(run_id)
    return rows_of([] if row is None else [(row.waiting,)])


@never_waiting
def tried(view: View, *, run_id: str) -> Found:
    seen = {**view.tables.attempts.rows, **view.attempts.own}
    found = sorted(key[1:] for key, row in seen.items() if row is not None and key[0] == run_id)
    # In the order of their keys the last attempt of a place comes last.
    last = {(place, seen[run_id, place, number].name): number for place, number in found}  # type: ignore[union-attr]  # those that are there
    return rows_of([(place, name, number) for (place, name), number in sorted(last.items())])


@never_waiting
def ended_places(view: View, *, run_id: str, places: Sequence[str]) -> Found:
    return rows_of([(event.place,) for event in view.events_of(run_id) if event.place in places])


@never_waiting
def last_recorded(view: View, *, run_id: str) -> Found:
    return rows_of([(event.seq, event.kind, event.place) for event in view.events_of(run_id)[-1:]])
