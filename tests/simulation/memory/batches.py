"""Batches: the order in which a batch's groups become statements, and the answers to them.

In:   a view and a batch.
Out:  one statement after another, and at the end its outcome if it is committed.

The order is that of `stores/rules/batch.py`: starts first, ends last; when a group is refused
half-way, all is undone and each group is applied for itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from perdure.stores.answers import Answer, Broken, Committed, Fenced, Moved, Taken
from perdure.stores.operations import (
    Annotate,
    AppendEvent,
    Batch,
    ClaimRuns,
    CloseFreeRun,
    DeleteWorker,
    FreeMismatches,
    FreeOrphans,
    FreeRuns,
    HoldRun,
    InsertRichRun,
    InsertRun,
    MoveMessages,
    NoteLosses,
    NoteWaiting,
    NoteWorkflows,
    Operation,
    ParkRun,
    RaiseEpoch,
    RecordAttempt,
    RegisterWorker,
    ResumeRun,
    StopChildren,
    TakeMessage,
)
from perdure.stores.records import RunRow
from perdure.stores.rules.sorting import Answers, Sorted, answer_group, is_refused, is_torn
from tests.simulation.memory import claim_statements as claims
from tests.simulation.memory import end_statements as ends
from tests.simulation.memory import loss_statements as losses
from tests.simulation.memory import message_statements as messages
from tests.simulation.memory import run_statements as runs
from tests.simulation.memory import worker_statements as workers
from tests.simulation.memory.view import Progress, Refused, Steps, View

Groups = Sequence[Sequence[Operation]]

_FENCE = Progress("fence")
_SUPERSEDE = Progress("supersede_run")
_INSERT = Progress("insert_runs")
_INSERT_RICH = Progress("insert_rich_runs")
_REFUSED = Progress("refused_inserts")
_CANCEL = Progress("note_cancel")
_END = Progress("end_runs")


def apply_batch(view: View, batch: Batch) -> Steps[Committed | Fenced]:
    """All statements of a batch; what is answered is so once the transaction is committed."""
    if batch.worker_id is not None:
        if not (yield from workers.fence(view, batch.worker_id, batch.epoch)):
            return Fenced()
        yield _FENCE
    begin = view.savepoint()
    try:
        answers = yield from _apply_groups(view, batch.groups)
    except Refused:
        pass
    else:
        if not is_torn(batch.groups, answers):
            return Committed(answers)
    view.roll_back_to(begin)
    return Committed((yield from _apply_groups_singly(view, batch.groups)))


def _apply_groups(view: View, groups: Groups) -> Steps[Answers]:
    batch = Sorted(groups)
    answers: Answers = dict(batch.late)
    for index, supersede in batch.supersedes:
        if not (yield from runs.supersede_run(view, supersede)):
            answers[index] = Moved()
        yield _SUPERSEDE
    if batch.inserts:
        yield from _insert_runs(view, batch.inserts, answers)
    if batch.posts:
        view.next_statement()
        yield from messages.post_messages(view, batch.posts, answers)
    for cancel in batch.cancels:
        yield from runs.note_cancel(view, cancel)
        yield _CANCEL
    for kind, rows in batch.bulk.items():
        progress, apply = _BULK[kind]
        yield from apply(view, rows)
        yield progress
    for alike in (*batch.updates.values(), *([each] for each in batch.single)):
        view.next_statement()
        for index, operation in alike:
            yield from _apply_single(view, index, operation, answers)
    if batch.ends:
        yield from ends.end_runs(view, batch.ends)
        yield _END
    return answers


def _apply_single(view: View, index: int, operation: Operation, answers: Answers) -> Steps[None]:
    if is_refused(answers, index):
        return
    progress, act = _SINGLE[type(operation)]
    answer = yield from act(view, operation)
    if answer is not None:
        answer_group(answers, index, answer)
    yield progress


def _apply_groups_singly(view: View, groups: Groups) -> Steps[Answers]:
    """Each group for itself, so that one that is refused, or breaks a rule, harms no other."""
    answers: Answers = {}
    broken: set[str] = set()
    for index, group in enumerate(groups):
        touched = {getattr(operation, "run_id", "") for operation in group} - {""}
        if touched & broken:
            answers[index] = Broken("an earlier change of the same run was refused")
            continue
        begin = view.savepoint()
        answer: Answer | None
        try:
            answer = (yield from _apply_groups(view, [group])).get(0)
            if answer is not None and is_torn([group], {0: answer}):
                view.roll_back_to(begin)
        except Refused as refused:
            view.roll_back_to(begin)
            answer = Broken(str(refused))
            broken |= touched
        if answer is not None:
            answers[index] = answer
    return answers


def _insert_runs(view: View, inserts: list[tuple[int, InsertRun | InsertRichRun]], answers: Answers) -> Steps[None]:
    plain = [run for _, run in inserts if type(run) is InsertRun]
    rich = [run for _, run in inserts if type(run) is not InsertRun]
    inserted = 0
    for progress, rows in ((_INSERT, plain), (_INSERT_RICH, rich)):
        if rows:
            view.next_statement()
            for run in rows:
                inserted += yield from runs.insert_run(view, run)
            yield progress
    if inserted < len(inserts):
        for index, run in inserts:
            holder = _holder(view, run)
            if holder is not None:
                answers[index] = Taken(holder)
        yield _REFUSED


def _holder(view: View, run: InsertRun | InsertRichRun) -> RunRow | None:
    """The run that has the id of one that was to be inserted; None when that is the very same."""
    found = view.runs.get(run.run_id)
    if found is not None and found.namespace == run.namespace:
        # It was there before: whoever inserts it as its own must not begin it once more.
        return found if run.owner is not None and found.owner != run.owner else None
    latest = view.latest.get((run.namespace, run.workflow_id))
    if latest is None:
        raise Refused(f"run {run.run_id} belongs to another namespace")
    return view.runs.get(latest)


_BULK: dict[type[Operation], tuple[Progress, Callable[[View, list[Any]], Steps[None]]]] = {
    AppendEvent: (Progress("append_events"), runs.append_events),
    TakeMessage: (Progress("take_messages"), messages.take_messages),
    RecordAttempt: (Progress("record_attempts"), runs.record_attempts),
}
_SINGLE: dict[type[Operation], tuple[Progress, Callable[[View, Any], Steps[Any]]]] = {
    ParkRun: (Progress("park_run"), runs.park_run),
    HoldRun: (Progress("hold_run"), runs.hold_run),
    NoteWaiting: (Progress("note_waiting"), runs.note_waiting),
    Annotate: (Progress("annotate"), runs.annotate),
    MoveMessages: (Progress("carry_cancel"), messages.move_messages),
    CloseFreeRun: (Progress("close_free_run"), ends.close_free_run),
    StopChildren: (Progress("wake_children"), ends.stop_children),
    RaiseEpoch: (Progress("raise_epoch"), workers.raise_epoch),
    ClaimRuns: (Progress("claim_runs"), claims.claim_runs),
    FreeMismatches: (Progress("free_mismatches"), runs.free_mismatches),
    RegisterWorker: (Progress("insert_worker"), workers.register_worker),
    NoteWorkflows: (Progress("note_workflows"), workers.note_workflows),
    FreeRuns: (Progress("free_runs"), losses.free_runs),
    FreeOrphans: (Progress("free_orphans"), losses.free_orphans),
    NoteLosses: (Progress("note_losses"), losses.note_losses),
    ResumeRun: (Progress("resume_run"), losses.resume_run),
    DeleteWorker: (Progress("delete_worker"), workers.delete_worker),
}
