"""How a batch's groups become statements on a SQLite connection.

In:   a connection inside a transaction, and groups of operations.
Out:  for each group that is not plainly applied, its answer.

What many runs do in every batch goes in bulk: one statement for all rows of a
kind. What can be refused is done one by one and looked at.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec

from perdure.kernel.poison import QUARANTINE_FROM, Death, quarantine_report, suspects_at_once
from perdure.stores.answers import (
    APPLIED,
    Answer,
    Applied,
    Asked,
    Blamed,
    Broken,
    Closed,
    Freed,
    Missing,
    Moved,
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
    NoteCancel,
    NoteLosses,
    NoteWaiting,
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
from perdure.stores.queries import Bulk, queries
from perdure.stores.rows import Garbled, deaths_of
from perdure.stores.sqlite_garbled import ask, hold_unclaimable
from perdure.stores.sqlite_reads import is_about_file, ripe_levels, run_rows
from perdure.stores.sqlite_whereabouts import whereabouts

# What is longer than this does not stay in its row.
LONGEST_IN_ROW = 1024
# So many times as many ripe runs as are wanted are looked at, before each workflow is looked for by itself.
WINDOWS = 4

Answers = dict[int, Answer]


class Sorted:
    """The operations of a batch by what is done with them; numbers are those of their groups."""

    def __init__(self, groups: Sequence[Sequence[Operation]]) -> None:
        self.supersedes: list[tuple[int, SupersedeRun]] = []
        self.inserts: list[tuple[int, InsertRun | InsertRichRun]] = []
        self.posts: list[tuple[int, PostMessage | TellRun]] = []
        self.cancels: list[NoteCancel] = []
        self.bulk: dict[type[Operation], list[Operation]] = {}
        self.single: list[tuple[int, Operation]] = []
        self.ends: list[EndRun] = []
        bulk = self.bulk
        for index, group in enumerate(groups):
            for operation in group:
                kind = type(operation)
                if kind in _BULK:
                    rows = bulk.get(kind)
                    if rows is None:
                        rows = bulk[kind] = []
                    rows.append(operation)
                else:
                    self._add(index, operation)

    def _add(self, index: int, operation: Operation) -> None:
        match operation:
            case InsertRun() | InsertRichRun():
                self.inserts.append((index, operation))
            case SupersedeRun():
                self.supersedes.append((index, operation))
            case PostMessage() | TellRun():
                self.posts.append((index, operation))
            case NoteCancel():
                self.cancels.append(operation)
            case EndRun():
                self.ends.append(operation)
            case _:
                self.single.append((index, operation))


def apply_groups(db: sqlite3.Connection, groups: Sequence[Sequence[Operation]]) -> Answers:
    """Apply all groups; starts first, ends last, so that a run may start and end in one batch."""
    batch = Sorted(groups)
    answers: Answers = {}
    for index, supersede in batch.supersedes:
        if (moved := _supersede_run(db, supersede)) is not None:
            answers[index] = moved
    if batch.inserts:
        _insert_runs(db, batch.inserts, answers)
    if batch.posts:
        _post_messages(db, batch.posts, answers)
    # Before any run hands its messages on: with a request to stop goes what its row says of it.
    for cancel in batch.cancels:
        db.execute(_sql("note_cancel"), cancel._asdict())
    for kind, rows in batch.bulk.items():
        _BULK[kind](db, rows)
    for index, operation in batch.single:
        answer = _SINGLE[type(operation)](db, operation)
        # A refusal is the answer of its group, whatever the other operations say.
        if answer is not None and (index not in answers or not isinstance(answer, Applied)):
            answers[index] = answer
    if batch.ends:
        _end_runs(db, batch.ends)
    return answers


def apply_groups_singly(db: sqlite3.Connection, groups: Sequence[Sequence[Operation]]) -> Answers:
    """Each group in a savepoint of its own; one that the database refuses is Broken, the others go on."""
    answers: Answers = {}
    broken: set[str] = set()
    for index, group in enumerate(groups):
        touched = {getattr(operation, "run_id", "") for operation in group} - {""}
        if touched & broken:
            answers[index] = Broken("an earlier change of the same run was refused")
            continue
        db.execute("savepoint one_group")
        try:
            answer = apply_groups(db, [group]).get(0)
            if is_torn([group], {0: answer} if answer else {}):
                db.execute("rollback to one_group")
        except Exception as error:
            if is_about_file(error):
                raise
            # Whatever it was, it is this group's and not its neighbours'.
            db.execute("rollback to one_group")
            answer = Broken(str(error) if isinstance(error, Garbled) else f"{type(error).__name__}: {error}")
            broken |= touched
        db.execute("release one_group")
        if answer is not None:
            answers[index] = answer
    return answers


def is_torn(groups: Sequence[Sequence[Operation]], answers: Answers) -> bool:
    """Whether one operation of a group was refused while others of that group were applied."""
    return any(len(groups[index]) > 1 and not isinstance(answer, Applied) for index, answer in answers.items())


@cache
def _sql(name: str) -> str:
    return queries("writes")[name]


@cache
def _bulk(name: str, columns: int) -> Bulk:
    return Bulk(_sql(name), columns)


def _run_bulk(db: sqlite3.Connection, bulk: tuple[str, int], rows: list[Any]) -> int:
    return sum(db.execute(sql, parameters).rowcount for sql, parameters in _bulk(*bulk).pieces(rows))


def _insert_runs(
    db: sqlite3.Connection, inserts: list[tuple[int, InsertRun | InsertRichRun]], answers: Answers
) -> None:
    plain: list[tuple[object, ...]] = []
    rich: list[tuple[object, ...]] = []
    payloads = []
    for _, run in inserts:
        rows = plain if type(run) is InsertRun else rich
        if len(run.input) <= LONGEST_IN_ROW:
            rows.append(run)
        else:
            payloads.append((run.namespace, run.run_id, 1, run.input))
            rows.append(run._replace(input=None))  # type: ignore[arg-type]  # the column is empty, the payload has it
    inserted = _run_bulk(db, ("insert_runs", 12), plain) if plain else 0
    if rich:
        inserted += _run_bulk(db, ("insert_rich_runs", 22), rich)
    owners: dict[tuple[str, str], Any] = {}
    if inserted < len(inserts):
        ids = [(run.run_id, run.namespace) for _, run in inserts]
        owners = {id: db.execute(_sql("run_owner"), id).fetchone() for id in ids}
        payloads = [payload for payload in payloads if owners[payload[1], payload[0]] is not None]
    # Before anybody is told of a run in this batch: whoever reads it must find it whole.
    if payloads:
        _run_bulk(db, ("put_payloads", 4), payloads)
    if owners:
        for index, run in inserts:
            _answer_insert(db, index, run, owners[run.run_id, run.namespace], answers)


def _answer_insert(
    db: sqlite3.Connection,
    index: int,
    run: InsertRun | InsertRichRun,
    owner: tuple[str | None] | None,
    answers: Answers,
) -> None:
    """Who has the id that was taken; or the run itself, if it was there before."""
    if owner is None:
        (holder,) = run_rows(db, "latest_run", namespace=run.namespace, workflow_id=run.workflow_id)
        answers[index] = Taken(holder)
    elif run.owner is not None and owner != (run.owner,):
        # Whoever inserts it as its own must not begin it once more.
        (found,) = run_rows(db, "run", namespace=run.namespace, run_id=run.run_id)
        answers[index] = Taken(found)


def _append_events(db: sqlite3.Connection, appends: list[AppendEvent]) -> None:
    large = [event for event in appends if len(event.body) > LONGEST_IN_ROW]
    if large:
        _run_bulk(db, ("put_payloads", 4), [(e.namespace, e.run_id, e.seq, e.body) for e in large])
        appends = [e._replace(body=None) if len(e.body) > LONGEST_IN_ROW else e for e in appends]  # type: ignore[arg-type]  # as above
    _run_bulk(db, ("append_events", 7), appends)


def _end_runs(db: sqlite3.Connection, ends: list[EndRun]) -> None:
    rows = []
    payloads = []
    for end in ends:
        outcome: str | None = end.outcome
        if len(end.outcome) > LONGEST_IN_ROW:
            payloads.append((end.namespace, end.run_id, end.last_seq, end.outcome))
            outcome = None
        rows.append((end.run_id, end.status, outcome, end.last_seq, end.closed_at, end.owner))
    if payloads:
        _run_bulk(db, ("put_payloads", 4), payloads)
    if _run_bulk(db, ("end_runs", 6), rows) != len(rows):
        raise LookupError("a run to be closed is not owned by the worker that closes it")


def _post_messages(db: sqlite3.Connection, posts: list[tuple[int, PostMessage | TellRun]], answers: Answers) -> None:
    rows = [(*post, place) for place, (_, post) in enumerate(posts)]
    inserted: dict[tuple[str, str], int] = {}
    for sql, parameters in _bulk("post_messages", 6).pieces(rows):
        inserted |= {(run_id, message_id): number for number, run_id, message_id in db.execute(sql, parameters)}
    # Whoever posts the same twice in one batch is answered by the first.
    new: dict[str, list[PostMessage | TellRun]] = {}
    posted: list[tuple[int, str, int, int]] = []
    for index, post in posts:
        number = inserted.pop((post.run_id, post.message_id), None)
        if number is None:
            answer_group(answers, index, _unposted(db, post))
        else:
            to_run = new.setdefault(post.run_id, [])
            to_run.append(post)
            posted.append((index, post.run_id, number, len(to_run)))
    if new:
        counts = _count_posted(db, new)
        for index, run_id, number, nth in posted:
            before = counts[run_id] - len(new[run_id])
            answer_group(answers, index, Applied(Posted(number, before + nth)))


def answer_group(answers: Answers, index: int, answer: Answer) -> None:
    """A refusal is the answer of its group, whatever its other operations say."""
    if isinstance(answers.get(index, APPLIED), Applied):
        answers[index] = answer


def _count_posted(db: sqlite3.Connection, new: dict[str, list[PostMessage | TellRun]]) -> dict[str, int]:
    """How many messages each of these runs has had by now."""
    told: list[tuple[object, ...]] = [
        (run_id, len(posts), all(post.kind == "SignalSent" for post in posts), min(post.at for post in posts))
        for run_id, posts in new.items()
    ]
    counts: dict[str, int] = {}
    for sql, parameters in _bulk("count_posted", 4).pieces(told):
        counts |= dict(db.execute(sql, parameters).fetchall())
    return counts


def _unposted(db: sqlite3.Connection, post: PostMessage | TellRun) -> Answer:
    """Why a message was not put into an inbox: it is there already, or nobody is there to read it."""
    found = db.execute(_sql("find_message"), {"run_id": post.run_id, "message_id": post.message_id}).fetchone()
    if found is not None:
        return Applied(Posted(found[0], None))
    if isinstance(post, TellRun):
        return APPLIED
    run = db.execute(_sql("run_status"), {"run_id": post.run_id}).fetchone()
    return Missing() if run is None else Closed(run[0])


def _supersede_run(db: sqlite3.Connection, supersede: SupersedeRun) -> Answer | None:
    return None if db.execute(_sql("supersede_run"), supersede._asdict()).rowcount == 1 else Moved()


def _move_messages(db: sqlite3.Connection, move: MoveMessages) -> None:
    moved = sum(db.execute(_sql(name), move._asdict()).rowcount for name in ("move_messages", "move_known"))
    if moved:
        db.execute(_sql("count_messages"), {"to_run_id": move.to_run_id})
    db.execute(_sql("carry_cancel"), move._asdict())


def _close_free_run(db: sqlite3.Connection, close: CloseFreeRun) -> Answer | None:
    return None if db.execute(_sql("close_free_run"), close._asdict()).fetchall() else Moved()


def _stop_children(db: sqlite3.Connection, stop: StopChildren) -> Answer | None:
    db.execute(_sql("close_unbegun_children"), stop._asdict())
    asked = [Asked(*row) for row in db.execute(_sql("stop_children"), stop._asdict()).fetchall()]
    if not asked:
        return None
    run_ids = _json([child.run_id for child in asked])
    db.execute(_sql("wake_children"), {"run_ids": run_ids, "at": stop.at, "reason": stop.reason})
    return Applied(asked)


def _update(name: str) -> Callable[[sqlite3.Connection, Any], Answer | None]:
    """An operation that is one conditional update: applied when it found its row, else Moved."""

    def update(db: sqlite3.Connection, operation: Any) -> Answer | None:
        return None if db.execute(_sql(name), operation._asdict()).rowcount == 1 else Moved()

    return update


def _claim_runs(db: sqlite3.Connection, claim: ClaimRuns) -> Answer:
    """Take ripe runs; should some have no id or priority that can be read, hold those first, or none could be taken."""

    def claim_once_more(db: sqlite3.Connection) -> Answer:
        hold_unclaimable(db, claim.now)
        return _claim(db, claim)

    return ask(db, lambda db: _claim(db, claim), claim_once_more)


def _claim(db: sqlite3.Connection, claim: ClaimRuns) -> Answer:
    """Level by level: the highest priority first, and within one the queues share alike."""
    levels = sorted(ripe_levels(db, claim.queues), key=lambda level: -_orderable(level[1]))
    known = {
        "worker_id": claim.worker_id,
        "namespace": claim.namespace,
        "workflows": _json(claim.workflows),
        "now": claim.now,
    }
    taken = _claim_suspects(db, claim, known, above=levels[0][1] if levels else None) if claim.suspects else []
    for place, (queue, priority) in enumerate(levels):
        alike = sum(other == priority for _, other in levels[place:])
        share = -(-(claim.limit - len(taken)) // alike)
        if share <= 0:
            break
        level = known | {"queue": queue, "priority": priority, "limit": share}
        if ripest := _ripest(db, claim.workflows, level, share):
            db.execute(_sql("claim_runs"), known | {"run_ids": _json(ripest)})
            taken += sorted(ripest)
    return Applied(taken)


def _ripest(db: sqlite3.Connection, workflows: Sequence[str], level: dict[str, object], limit: int) -> list[str]:
    """The ripest runs of a level that this worker has code for, without a walk over a backlog of others."""
    window = WINDOWS * limit
    found = db.execute(_sql("ripest"), level | {"window": window}).fetchall()
    wanted = [_claimable(run_id) for run_id, is_wanted in found if is_wanted]
    if len(wanted) >= limit or len(found) < window:
        return wanted[:limit]
    each = [row for name in workflows for row in db.execute(_sql("ripest_of"), level | {"workflow": name})]
    return [_claimable(run_id) for _, _, run_id in sorted(each)[:limit]]


def _orderable(priority: int) -> int:
    """A priority that runs can be put in order by; Garbled."""
    if type(priority) is not int:
        raise Garbled(f"a free run has the priority {priority!r}, which is no number")
    return priority


def _claimable(run_id: str) -> str:
    """An id that a claim can name; Garbled."""
    if type(run_id) is not str:
        raise Garbled(f"a ripe run has the id {run_id!r}, which is no text")
    return run_id


def _claim_suspects(db: sqlite3.Connection, claim: ClaimRuns, known: dict[str, object], above: int | None) -> list[str]:
    """The first suspect of all queues, and those like it; the only place there is goes to runs of higher priority."""
    found = [
        (-_orderable(priority), wake_at, queue, losses)
        for queue in claim.queues
        for priority, wake_at, losses in db.execute(_sql("first_suspect"), known | {"queue": queue})
    ]
    if not found:
        return []
    priority, _, queue, losses = min(found)
    if claim.limit <= 1 and above is not None and above > -priority:
        return []
    sought = known | {"queue": queue, "losses": losses, "limit": suspects_at_once(claim.suspects, losses, claim.limit)}
    taken = [_claimable(run_id) for (run_id,) in db.execute(_sql("suspects_like_it"), sought).fetchall()]
    db.execute(_sql("claim_runs"), known | {"run_ids": _json(taken)})
    return taken


def _free_mismatches(db: sqlite3.Connection, free: FreeMismatches) -> Answer:
    return Applied(db.execute(_sql("free_mismatches"), free._asdict() | {"workflows": _json(free.workflows)}).rowcount)


def _register_worker(db: sqlite3.Connection, worker: RegisterWorker) -> None:
    db.execute(_sql("insert_worker"), worker._asdict() | {"queues": _json(worker.queues)})


def _free_runs(db: sqlite3.Connection, free: FreeRuns) -> Answer:
    blamed = None
    for host, pid in db.execute(_sql("judge_worker"), free._asdict()).fetchall():
        blamed = _judge(db, free, Death(free.now, pid, host.decode(errors="replace")))
    count = db.execute(_sql("free_runs"), free._asdict()).rowcount
    return Applied(Freed(count + (blamed is not None and blamed.is_held), blamed))


def _judge(db: sqlite3.Connection, free: FreeRuns, death: Death) -> Blamed | None:
    """Hold a worker's loss against its only suspect, if it has just one.

    Before anything is freed, so that it is decided over all runs of the worker; and once, so that whoever has
    to go on with the rest does not see one that is left over as the only one.
    """
    suspects = db.execute(_sql("suspects_of"), {"worker_id": free.worker_id}).fetchall()
    if len(suspects) != 1:
        return None
    run_id, workflow_id, before = suspects[0]
    deaths = (*deaths_of(before), death)
    db.execute(_sql("blame_run"), {"run_id": run_id, "deaths": msgspec.json.encode(deaths).decode()})
    is_enough = len(deaths) >= QUARANTINE_FROM
    if is_enough:
        report = quarantine_report(workflow_id, deaths, whereabouts(db, run_id))
        hold = HoldRun(run_id, free.worker_id, "quarantine", report, free.now)
        db.execute(_sql("hold_run"), hold._asdict())
    return Blamed(str(workflow_id), len(deaths), is_enough)


_BULK: dict[type[Operation], Callable[[sqlite3.Connection, list[Any]], object]] = {
    AppendEvent: _append_events,
    TakeMessage: lambda db, rows: _run_bulk(db, ("take_messages", 2), rows),
    RecordAttempt: lambda db, rows: _run_bulk(db, ("record_attempts", 8), rows),
}
_SINGLE: dict[type[Operation], Callable[[sqlite3.Connection, Any], Answer | None]] = {
    ParkRun: _update("park_run"),
    HoldRun: _update("hold_run"),
    NoteWaiting: _update("note_waiting"),
    Annotate: _update("annotate"),
    MoveMessages: _move_messages,
    CloseFreeRun: _close_free_run,
    StopChildren: _stop_children,
    RaiseEpoch: _update("raise_epoch"),
    ClaimRuns: _claim_runs,
    NoteLosses: _update("note_losses"),
    ResumeRun: _update("resume_run"),
    FreeMismatches: _free_mismatches,
    RegisterWorker: _register_worker,
    FreeRuns: _free_runs,
    FreeOrphans: lambda db, free: Applied(db.execute(_sql("free_orphans"), free._asdict()).rowcount),
    DeleteWorker: _update("delete_worker"),
}


def _json(values: Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()
