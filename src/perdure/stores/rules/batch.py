"""How a batch's groups become statements, whatever the database.

In:   groups of operations, and a database that answers inside a transaction.
Out:  for each group that is not plainly applied, its answer.

What many runs do in every batch goes in bulk: one statement for all rows of a
kind. What can be refused is done one by one and looked at.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from perdure.kernel.quarantine import QUARANTINE_FROM, Death, pause_ms, quarantine_report, times_lost
from perdure.stores.answers import (
    APPLIED,
    Answer,
    Applied,
    Asked,
    Blamed,
    Closed,
    Freed,
    Full,
    Missing,
    Moved,
    Paused,
    Posted,
    Taken,
)
from perdure.stores.operations import (
    Annotate,
    AppendEvent,
    ClaimRuns,
    CloseFreeRun,
    DeleteWorker,
    EndRun,
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
    PostMessage,
    RaiseEpoch,
    RecordAttempt,
    RegisterWorker,
    ResumeRun,
    StopChildren,
    SupersedeRun,
    TakeMessage,
    TellRun,
)
from perdure.stores.rows import deaths_of
from perdure.stores.rules.claims import claim_runs
from perdure.stores.rules.last_seen import whereabouts
from perdure.stores.rules.questions import Bulk, Query, Steps
from perdure.stores.rules.reads import run_rows
from perdure.stores.rules.sorting import Answers, Sorted, answer_group, is_refused

# What is longer than this does not stay in its row.
LONGEST_IN_ROW = 1024
# No place comes after this one.
LAST_PLACE = chr(0x10FFFF)


def apply_groups(groups: Sequence[Sequence[Operation]]) -> Steps[Answers]:
    """Apply all groups."""
    return apply_sorted(Sorted(groups))


def apply_sorted(batch: Sorted) -> Steps[Answers]:
    """Starts first, ends last, so that a run may start and end in one batch."""
    answers: Answers = dict(batch.late)
    yield from _supersede_runs(batch.supersedes, answers)
    if batch.inserts:
        yield from _insert_runs(batch.inserts, answers)
    if batch.posts:
        yield from post_messages(batch.posts, answers)
    # Before any run hands its messages on: with a request to stop goes what its row says of it.
    for cancel in batch.cancels:
        yield Query("note_cancel", cancel._asdict())
    for kind, rows in batch.bulk.items():
        yield from BULK[kind](rows)
    for kind, updates in batch.updates.items():
        yield from _update_runs(UPDATES[kind], updates, answers)
    for index, operation in batch.single:
        yield from _apply_single(index, operation, answers)
    if batch.ends:
        yield from _end_runs(batch.ends)
    return answers


def _supersede_runs(supersedes: list[tuple[int, SupersedeRun]], answers: Answers) -> Steps[None]:
    for index, supersede in supersedes:
        if (yield Query("supersede_run", supersede._asdict())).count != 1:
            answers[index] = Moved()


def _apply_single(index: int, operation: Operation, answers: Answers) -> Steps[None]:
    """Nothing, when its group was refused: what else that wants must not wait for anybody's rows."""
    if is_refused(answers, index):
        return
    answer = yield from SINGLE[type(operation)](operation)
    if answer is not None:
        answer_group(answers, index, answer)


# Starts, messages, events and ends: in bulk


def _insert_runs(inserts: list[tuple[int, InsertRun | InsertRichRun]], answers: Answers) -> Steps[None]:
    plain, rich, payloads = rows_of_inserts([run for _, run in inserts])
    inserted = (yield Bulk("insert_runs", plain)).count if plain else 0
    if rich:
        inserted += (yield Bulk("insert_rich_runs", rich)).count
    owners: dict[tuple[str, str], Sequence[Any] | None] = {}
    if inserted < len(inserts):
        for _, run in inserts:
            found = yield Query("run_owner", {"run_id": run.run_id, "namespace": run.namespace})
            owners[run.run_id, run.namespace] = found.first
        payloads = [payload for payload in payloads if owners[str(payload[1]), str(payload[0])] is not None]
    # Before anybody is told of a run in this batch: whoever reads it must find it whole.
    if payloads:
        yield Bulk("put_payloads", payloads)
    if owners:
        for index, run in inserts:
            yield from _answer_insert(index, run, owners[run.run_id, run.namespace], answers)


def rows_of_inserts(
    runs: Sequence[InsertRun | InsertRichRun],
) -> tuple[list[Sequence[object]], list[Sequence[object]], list[Sequence[object]]]:
    """The rows of plain runs and of rich ones, and what is too large for them."""
    plain: list[Sequence[object]] = []
    rich: list[Sequence[object]] = []
    payloads: list[Sequence[object]] = []
    for run in runs:
        rows = plain if type(run) is InsertRun else rich
        if len(run.input) <= LONGEST_IN_ROW:
            rows.append(run)
        else:
            payloads.append((run.namespace, run.run_id, 1, run.input))
            rows.append(run._replace(input=None))  # type: ignore[arg-type]  # the column is empty, the payload has it
    return plain, rich, payloads


def _answer_insert(
    index: int, run: InsertRun | InsertRichRun, owner: Sequence[Any] | None, answers: Answers
) -> Steps[None]:
    """Who has the id that was taken; or the run itself, if it was there before."""
    if owner is None:
        (holder,) = yield from run_rows("latest_run", namespace=run.namespace, workflow_id=run.workflow_id)
        answers[index] = Taken(holder)
    elif run.owner is not None and owner[0] != run.owner:
        # Whoever inserts it as its own must not begin it once more.
        (found,) = yield from run_rows("run", namespace=run.namespace, run_id=run.run_id)
        answers[index] = Taken(found)


def _append_events(appends: list[AppendEvent]) -> Steps[None]:
    rows, payloads = rows_of_events(appends)
    if payloads:
        yield Bulk("put_payloads", payloads)
    yield Bulk("append_events", rows)


def rows_of_events(appends: list[AppendEvent]) -> tuple[list[AppendEvent], list[Sequence[object]]]:
    """The rows of events, and what is too large for them."""
    payloads: list[Sequence[object]] = [
        (event.namespace, event.run_id, event.seq, event.body) for event in appends if len(event.body) > LONGEST_IN_ROW
    ]
    if payloads:
        appends = [e._replace(body=None) if len(e.body) > LONGEST_IN_ROW else e for e in appends]  # type: ignore[arg-type]  # as above
    return appends, payloads


def _end_runs(ends: list[EndRun]) -> Steps[None]:
    rows, payloads = rows_of_ends(ends)
    if payloads:
        yield Bulk("put_payloads", payloads)
    if (yield Bulk("end_runs", rows)).count != len(rows):
        raise LookupError("a run to be closed is not owned by the worker that closes it")


def rows_of_ends(ends: list[EndRun]) -> tuple[list[Sequence[object]], list[Sequence[object]]]:
    """What the rows of runs become, and what is too large for them."""
    rows: list[Sequence[object]] = []
    payloads: list[Sequence[object]] = []
    for end in ends:
        outcome: str | None = end.outcome
        if len(end.outcome) > LONGEST_IN_ROW:
            payloads.append((end.namespace, end.run_id, end.last_seq, end.outcome))
            outcome = None
        rows.append((end.run_id, end.status, outcome, end.last_seq, end.closed_at, end.owner))
    return rows, payloads


def post_messages(posts: list[tuple[int, PostMessage | TellRun]], answers: Answers) -> Steps[None]:
    found = yield Bulk("post_messages", _with_room(posts))
    inserted = {(run_id, message_id): number for number, run_id, message_id, *_ in found.rows}
    # Whoever posts the same twice in one batch is answered by the first.
    new: dict[str, list[PostMessage | TellRun]] = {}
    posted: list[tuple[int, str, int, int]] = []
    unposted: list[tuple[int, PostMessage | TellRun]] = []
    for index, post in posts:
        number = inserted.pop((post.run_id, post.message_id), None)
        if number is None:
            unposted.append((index, post))
        else:
            to_run = new.setdefault(post.run_id, [])
            to_run.append(post)
            posted.append((index, post.run_id, number, len(to_run)))
    if new:
        counts = dict((yield Bulk("count_posted", _told(new))).rows)
        for index, run_id, number, nth in posted:
            before = counts[run_id] - len(new[run_id])
            answer_group(answers, index, Applied(Posted(number, before + nth)))
    if unposted:
        yield from _answer_unposted(unposted, answers)


def _with_room(posts: list[tuple[int, PostMessage | TellRun]]) -> list[Sequence[object]]:
    """The rows of messages, in order; of those that may be refused how many others may be unread, at most."""
    earlier: dict[str, int] = {}
    rows: list[Sequence[object]] = []
    for place, (_, post) in enumerate(posts):
        room = None
        if type(post) is PostMessage and post.most is not None:
            before = earlier.get(post.run_id, 0)
            earlier[post.run_id] = before + 1
            room = post.most - before
        rows.append((*post[:5], place, room))
    return rows


def _told(new: dict[str, list[PostMessage | TellRun]]) -> list[Sequence[object]]:
    """Of each run how many messages came, whether they are all signals, and when the first of them did."""
    return [
        (run_id, len(posts), all(post.kind == "SignalSent" for post in posts), min(post.at for post in posts))
        for run_id, posts in new.items()
    ]


def _answer_unposted(unposted: list[tuple[int, PostMessage | TellRun]], answers: Answers) -> Steps[None]:
    """Why messages were not put into inboxes; those whose run turns out to have room after all are put there now."""
    again: list[tuple[int, PostMessage | TellRun]] = []
    counted: dict[str, bool] = {}
    for index, post in unposted:
        answer = yield from _unposted(post)
        if isinstance(answer, Full):
            if post.run_id not in counted:
                counted[post.run_id] = yield from _is_full(post.run_id, answer.most)
            if not counted[post.run_id]:
                again.append((index, post))
                continue
        answer_group(answers, index, answer)
    if again:
        yield from post_messages(again, answers)


def _unposted(post: PostMessage | TellRun) -> Steps[Answer]:
    """Why a message was not put into an inbox: it is there already, nobody is there to read it, or it may be full."""
    found = (yield Query("find_message", {"run_id": post.run_id, "message_id": post.message_id})).first
    if found is not None:
        return Applied(Posted(found[0], None))
    if isinstance(post, TellRun):
        return APPLIED
    run = (yield Query("run_status", {"run_id": post.run_id})).first
    if run is None:
        return Missing()
    status, has_ended = run
    return Closed(status) if has_ended or post.most is None else Full(post.most)


def _is_full(run_id: str, most: int) -> Steps[bool]:
    """Whether a run has so many unread messages; they are counted, and what was counted is remembered in its row."""
    ((unread,),) = (yield Query("count_unread", {"run_id": run_id, "most": most})).rows
    yield Query("note_unread", {"run_id": run_id, "unread": unread})
    return bool(unread >= most)


def _update_runs(name: str, updates: list[tuple[int, Any]], answers: Answers) -> Steps[None]:
    """Conditional updates of a row each: applied when it was found as it was meant to be, else Moved.

    In the order of their ids, as messages lock them, so that nobody waits for each other.
    """
    rows = sorted((update for _, update in updates), key=_by_run)
    found = (yield Bulk(name, rows)).rows
    if len(found) < len(rows):
        applied = {run_id for (run_id,) in found}
        for index, update in updates:
            if update.run_id not in applied:
                answer_group(answers, index, Moved())


_by_run: Callable[[Any], str] = attrgetter("run_id")


# One at a time


def _update_run(update: Any) -> Steps[Answer | None]:
    answers: Answers = {}
    yield from _update_runs(UPDATES[type(update)], [(0, update)], answers)
    return answers.get(0)


def _move_messages(move: MoveMessages) -> Steps[None]:
    moved = 0
    for name in ("move_messages", "move_known"):
        moved += (yield Query(name, move._asdict())).count
    if moved:
        yield Query("count_messages", {"to_run_id": move.to_run_id})
    yield Query("carry_cancel", move._asdict())


def _stop_children(stop: StopChildren) -> Steps[Answer | None]:
    places = stop._asdict() | {"last_place": LAST_PLACE}
    yield Query("close_unbegun_children", places)
    asked = [Asked(*row) for row in (yield Query("stop_children", places)).rows]
    if not asked:
        return None
    run_ids = [child.run_id for child in asked]
    yield Query("wake_children", {"run_ids": run_ids, "at": stop.at, "reason": stop.reason})
    return Applied(asked)


def _update(name: str) -> Callable[[Any], Steps[Answer | None]]:
    """An operation that is one conditional update: applied when it found its row, else Moved."""

    def update(operation: Any) -> Steps[Answer | None]:
        return None if (yield Query(name, operation._asdict())).count == 1 else Moved()

    return update


def _raise_epoch(fence: RaiseEpoch) -> Steps[Answer | None]:
    """Whoever raises its own epoch waits for what it has under way; nobody waits for another one's."""
    name = "raise_own_epoch" if fence.lease_until is None else "raise_epoch"
    return None if (yield Query(name, fence._asdict())).count == 1 else Moved()


def _count(name: str) -> Callable[[Any], Steps[Answer]]:
    """An operation that is one update of many rows, answered with how many."""

    def update(operation: Any) -> Steps[Answer]:
        return Applied((yield Query(name, operation._asdict())).count)

    return update


def _register_worker(worker: RegisterWorker) -> Steps[None]:
    queues = msgspec.json.encode(worker.queues).decode()
    names = None if worker.workflows is None else msgspec.json.encode(worker.workflows).decode()
    yield Query("insert_worker", worker._asdict() | {"queues": queues, "names": names})


def _note_workflows(note: NoteWorkflows) -> Steps[Answer | None]:
    names = msgspec.json.encode(note.workflows).decode()
    found = yield Query("note_workflows", {"worker_id": note.worker_id, "names": names})
    return None if found.count == 1 else Moved()


def _free_runs(free: FreeRuns) -> Steps[Answer]:
    """Refused when somebody holds the row of the only suspect just now: then the next look judges, and frees."""
    blamed: Blamed | Paused | None = None
    for host, pid in (yield Query("judge_worker", free._asdict())).rows:
        suspects = (yield Query("suspects_of", {"worker_id": free.worker_id})).rows
        if len(suspects) == 1:
            if not (yield Query("reach_run", {"run_id": suspects[0][0]})).rows:
                return Moved()
            blamed = yield from _judge(free, Death(free.now, pid, _as_text(host)), *suspects[0])
    count = (yield Query("free_runs", free._asdict())).count
    # One that is held or rests was let go of apart from the others.
    return Applied(Freed(count + (isinstance(blamed, Paused) or (blamed is not None and blamed.is_held)), blamed))


def _judge(
    free: FreeRuns, death: Death, run_id: str, workflow_id: str, deaths: str | None, losses: int, outlived: int
) -> Steps[Blamed | Paused]:
    """Hold a worker's loss against its only suspect, unless that was alone and endangers nobody."""
    if (yield Query("company_of", {"run_id": run_id, "worker_id": free.worker_id})).rows:
        return (yield from _blame(free, death, run_id, workflow_id, deaths))
    until = free.now + pause_ms(losses)
    yield Query("pause_run", {"run_id": run_id, "worker_id": free.worker_id, "wake_at": until})
    return Paused(str(workflow_id), times_lost(losses, outlived) + 1, until)


def _as_text(host: bytes | str) -> str:
    """Where a worker ran, also if somebody has spoilt that."""
    return host.decode(errors="replace") if isinstance(host, bytes) else host


def _blame(free: FreeRuns, death: Death, run_id: str, workflow_id: str, before: str | None) -> Steps[Blamed]:
    """Hold a worker's loss against its only suspect.

    Before anything is freed, so that it is decided over all runs of the worker; and once, so that whoever has
    to go on with the rest does not see one that is left over as the only one.
    """
    deaths = (*deaths_of(before), death)
    yield Query("blame_run", {"run_id": run_id, "deaths": msgspec.json.encode(deaths).decode()})
    is_enough = len(deaths) >= QUARANTINE_FROM
    if is_enough:
        report = quarantine_report(workflow_id, deaths, (yield from whereabouts(run_id)))
        hold = HoldRun(run_id, free.worker_id, "quarantine", report, free.now)
        yield Bulk("hold_runs", [hold])
    return Blamed(str(workflow_id), len(deaths), is_enough)


def _bulk(name: str) -> Callable[[list[Any]], Steps[None]]:
    def apply(rows: list[Any]) -> Steps[None]:
        yield Bulk(name, rows)

    return apply


BULK: dict[type[Operation], Callable[[list[Any]], Steps[None]]] = {
    AppendEvent: _append_events,
    TakeMessage: _bulk("take_messages"),
    RecordAttempt: _bulk("record_attempts"),
}
UPDATES: dict[type[Operation], str] = {
    ParkRun: "park_runs",
    HoldRun: "hold_runs",
    NoteWaiting: "note_waiting",
    Annotate: "annotate_runs",
    NoteLosses: "note_losses",
}
SINGLE: dict[type[Operation], Callable[[Any], Steps[Answer | None]]] = {
    **dict.fromkeys(UPDATES, _update_run),
    MoveMessages: _move_messages,
    CloseFreeRun: _update("close_free_run"),
    StopChildren: _stop_children,
    RaiseEpoch: _raise_epoch,
    ClaimRuns: claim_runs,
    ResumeRun: _update("resume_run"),
    FreeMismatches: _count("free_mismatches"),
    RegisterWorker: _register_worker,
    NoteWorkflows: _note_workflows,
    FreeRuns: _free_runs,
    FreeOrphans: _count("free_orphans"),
    DeleteWorker: _update("delete_worker"),
}
