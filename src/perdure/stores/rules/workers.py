"""Workers: how they begin, how their epochs are raised, and what becomes of the runs of one that is gone.

In:   operations on workers.
Out:  questions to the database; how many runs were freed, and which one the worker's loss is held against.
"""

import msgspec

from perdure.kernel.outbox import HELD
from perdure.kernel.quarantine import QUARANTINE_FROM, Death, pause_ms, quarantine_report, times_lost
from perdure.stores.answers import Answer, Answers, Applied, Blamed, Freed, Moved, Paused, Stale, answer_group
from perdure.stores.operations import Fence, FreeRuns, HoldRun, NoteWorkflows, RaiseEpoch, RegisterWorker
from perdure.stores.rows import deaths_of
from perdure.stores.rules.changes import log_changes
from perdure.stores.rules.last_seen import whereabouts
from perdure.stores.rules.outbox import event_row, queue_unnamed
from perdure.stores.rules.questions import ManyRows, Query, Steps


def register_worker(worker: RegisterWorker) -> Steps[None]:
    """Begin a worker; a namespace that is not there yet begins with it."""
    yield Query("ensure_namespace", {"namespace": worker.namespace, "at": worker.now})
    queues = msgspec.json.encode(worker.queues).decode()
    names = None if worker.workflows is None else msgspec.json.encode(worker.workflows).decode()
    yield Query("insert_worker", worker._asdict() | {"queues": queues, "names": names, "remote": int(worker.is_remote)})


def check_fences(fences: list[tuple[int, Fence]], answers: Answers) -> Steps[None]:
    """Refuse the groups of workers whose epochs have moved; all others are locked in the order of their ids."""
    found = yield ManyRows("check_fences", sorted({fence for _, fence in fences}))
    held = {(worker_id, epoch) for worker_id, epoch in found.rows}
    for index, fence in fences:
        if fence not in held:
            answer_group(answers, index, Stale())


def note_workflows(note: NoteWorkflows) -> Steps[Answer | None]:
    """Write what a worker has code for; Moved when there is no such worker."""
    names = msgspec.json.encode(note.workflows).decode()
    found = yield Query("note_workflows", {"worker_id": note.worker_id, "names": names})
    return None if found.count == 1 else Moved()


def raise_epoch(fence: RaiseEpoch) -> Steps[Answer | None]:
    """Raise an epoch; a worker waits for what it has under way itself, and nobody waits for another one's."""
    name = "raise_own_epoch" if fence.lease_until is None else "raise_epoch"
    return None if (yield Query(name, fence._asdict())).count == 1 else Moved()


# The runs of a worker that is gone


def free_runs(free: FreeRuns) -> Steps[Answer]:
    """Free the runs of a gone worker, and judge which of them it died of.

    Refused when another transaction holds the row of the only suspect now: then the next look judges, and frees.
    """
    blamed: Blamed | Paused | None = None
    for host, pid in (yield Query("judge_worker", free._asdict())).rows:
        suspects = (yield Query("suspects_of", {"worker_id": free.worker_id})).rows
        if len(suspects) == 1:
            if not (yield Query("reach_run", {"run_id": suspects[0][0]})).rows:
                return Moved()
            blamed = yield from _judge(free, Death(free.now, pid, _as_text(host)), *suspects[0])
            yield from log_changes([suspects[0][0]], free.now)
    freed = yield Query("free_runs", free._asdict())
    yield from log_changes([run_id for (run_id,) in freed.rows], free.now)
    # One that is held or rests was let go of apart from the others.
    return Applied(Freed(freed.count + (isinstance(blamed, Paused) or (blamed is not None and blamed.is_held)), blamed))


def _judge(
    free: FreeRuns, death: Death, run_id: str, workflow_id: str, deaths: str | None, losses: int, outlived: int
) -> Steps[Blamed | Paused]:
    """Hold a worker's loss against its only suspect, unless that was alone with its family and endangers nobody."""
    if (yield Query("company_of", {"worker_id": free.worker_id})).rows:
        return (yield from _blame(free, death, run_id, workflow_id, deaths))
    until = free.now + pause_ms(losses)
    yield Query("pause_run", {"run_id": run_id, "worker_id": free.worker_id, "wake_at": until})
    return Paused(str(workflow_id), times_lost(losses, outlived) + 1, until)


def _as_text(host: bytes | str) -> str:
    """Where a worker ran, also if that is spoilt."""
    return host.decode(errors="replace") if isinstance(host, bytes) else host


def _blame(free: FreeRuns, death: Death, run_id: str, workflow_id: str, before: str | None) -> Steps[Blamed]:
    """Hold a worker's loss against its only suspect.

    Before anything is freed, so that it is decided over all runs of the worker; and once, so that the process that
    goes on with the rest does not see one that is left over as the only one.
    """
    deaths = (*deaths_of(before), death)
    yield Query("blame_run", {"run_id": run_id, "deaths": msgspec.json.encode(deaths).decode()})
    is_enough = len(deaths) >= QUARANTINE_FROM
    if is_enough:
        report = quarantine_report(workflow_id, deaths, (yield from whereabouts(run_id)))
        hold = HoldRun(run_id, free.worker_id, "quarantine", report, free.now)
        yield ManyRows("hold_runs", [hold])
        yield from queue_unnamed([event_row(HELD, run_id, None, free.now)], free.now)
    return Blamed(str(workflow_id), len(deaths), is_enough)
