"""Statements on workers: the fence, and what moves an epoch."""

import msgspec
from msgspec.structs import replace

from perdure.stores.answers import Moved
from perdure.stores.operations import DeleteWorker, NoteWorkflows, RaiseEpoch, RegisterWorker
from perdure.stores.records import WorkerRow
from tests.simulation.memory.loss_statements import owned_by
from tests.simulation.memory.view import Progress, Refused, Steps, View

_LOCK = Progress("lock_worker")


def fence(view: View, worker_id: str, epoch: int) -> Steps[bool]:
    """Whether the worker holds this epoch, for as long as the transaction is open."""
    if not _has_epoch(view, worker_id, epoch):
        return False
    if view.workers.is_taken(worker_id):
        yield from view.workers.wait(worker_id)
        if not _has_epoch(view, worker_id, epoch):
            return False
    view.share_worker(worker_id)
    return True


def _has_epoch(view: View, worker_id: str, epoch: int) -> bool:
    row = view.workers.get(worker_id)
    return row is not None and row.epoch == epoch


def register_worker(view: View, worker: RegisterWorker) -> Steps[None]:
    yield from view.workers.wait(worker.worker_id)
    if view.workers.get(worker.worker_id) is not None:
        raise Refused(f"there is a worker {worker.worker_id} already")
    row = WorkerRow(
        worker_id=worker.worker_id,
        namespace=worker.namespace,
        epoch=1,
        lease_until=worker.lease_until,
        queues=msgspec.json.encode(worker.queues).decode(),
        host=worker.host,
        pid=worker.pid,
        started_at=worker.now,
        lease_ms=worker.lease_ms,
        workflows=None if worker.workflows is None else msgspec.json.encode(worker.workflows).decode(),
    )
    view.workers.put(worker.worker_id, row)


def note_workflows(view: View, note: NoteWorkflows) -> Steps[Moved | None]:
    yield from view.workers.wait(note.worker_id)
    row = view.workers.get(note.worker_id)
    if row is None:
        return Moved()
    view.workers.put(note.worker_id, replace(row, workflows=msgspec.json.encode(note.workflows).decode()))
    return None


def raise_epoch(view: View, raised: RaiseEpoch) -> Steps[Moved | None]:
    """Its own epoch a worker raises when all it had under way has ended; nobody waits for another one's batches."""
    if raised.lease_until is not None and view.is_worker_locked(raised.worker_id):
        return Moved()
    yield from view.lock_worker(raised.worker_id)
    yield _LOCK
    row = view.workers.get(raised.worker_id)
    if row is None or row.epoch != raised.epoch or raised.lease_until not in {None, row.lease_until}:
        return Moved()
    view.workers.put(raised.worker_id, replace(row, epoch=row.epoch + 1))
    return None


def delete_worker(view: View, worker: DeleteWorker) -> Steps[Moved | None]:
    yield from view.lock_worker(worker.worker_id)
    yield _LOCK
    if owned_by(view, worker.worker_id) or view.workers.get(worker.worker_id) is None:
        return Moved()
    view.workers.put(worker.worker_id, None)
    view.judged.put(worker.worker_id, None)
    return None
