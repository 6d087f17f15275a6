"""The table of operations: of each at which stage of a batch it is done, how, and who is told of it.

A new operation is a value in `operations.py`, a row here, and its statement in the SQL of each database. Whatever
sorts, applies and announces a batch reads this table, and so does the text of the function that writes a batch to
Postgres in a single call.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, Flag, IntEnum, auto
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from perdure.stores import operations
from perdure.stores.answers import Answer, Answers, Applied, Moved, answer_group
from perdure.stores.operations import Operation
from perdure.stores.rules.access_keys import insert_access_key, revoke_access_key
from perdure.stores.rules.attributes import annotate_runs, set_attributes
from perdure.stores.rules.changes import forget_changes, listen, log_changes
from perdure.stores.rules.children import stop_children
from perdure.stores.rules.claims import claim_runs
from perdure.stores.rules.forks import fork_run
from perdure.stores.rules.idempotency_keys import forget_keys, take_keys
from perdure.stores.rules.inbox import move_messages, post_delayed, post_messages
from perdure.stores.rules.namespaces import delete_namespace
from perdure.stores.rules.outbox import (
    Ended,
    delete_sink,
    end_gap,
    insert_sink,
    move_sink,
    note_deliveries,
    replay_dead_letters,
    resend_events,
)
from perdure.stores.rules.outputs import move_streams, publish_values, write_snapshots
from perdure.stores.rules.pausing import hold_tasks_of_one, pause_runs, resume_runs
from perdure.stores.rules.progress import begin_attempts, record_beats
from perdure.stores.rules.questions import ManyRows, Query, Steps
from perdure.stores.rules.runs import append_events, end_runs, insert_runs, note_cancels, supersede_runs
from perdure.stores.rules.schedules import delete_schedule, move_schedules, note_decisions
from perdure.stores.rules.workers import check_fences, free_runs, note_workflows, raise_epoch, register_worker


class Stage(IntEnum):
    """When in a batch an operation is done: starts first, ends last, so that a run may start and end in one batch.

    But before any start comes what a start is conditional on.
    """

    # What one worker may not write, others of the same batch may.
    FENCES = 0
    KEYS = auto()
    SCHEDULES = auto()
    SUPERSEDES = auto()
    STARTS = auto()
    MESSAGES = auto()
    # Before any run hands its messages on: with a request to stop goes what its row says of it.
    CANCELS = auto()
    BULK = auto()
    UPDATES = auto()
    SINGLE = auto()
    ENDS = auto()


class News(Flag):
    """What other processes may want to know of a batch."""

    NOTHING = 0
    WORK = auto()  # messages, or runs to take
    ENDS = auto()  # runs that ended, or are held


class Part(Enum):
    """How a statement stands in the function of Postgres that writes a batch in a single call."""

    PLAIN = "whatever it changes is right"
    COUNTED = "it must change as many rows as it is given"
    RETURNING = "it must return as many rows as it is given, by their first column"
    POSTING = "it puts messages into inboxes, and the runs are told how many came"


class Rule(NamedTuple):
    """A row of the table.

    `apply` is given the operations of its stage with the numbers of their groups, and the answers so far; at the
    stage of bulk the operations alone; at the stage of single ones one operation, whose answer it returns. What is
    `told_if_free` is news only while the run has no owner: nobody else can take one that has. What `is_shown` changes
    what people see of the run it names. An operation without `parts` cannot go in the single call; the rows of those
    that are shown begin with the run's id.
    """

    stage: Stage
    apply: Callable[..., Steps[Any]]
    news: News = News.NOTHING
    told_if_free: bool = False
    is_shown: bool = False
    parts: dict[str, Part] = {}  # noqa: RUF012 - nobody changes it


def bulk(statement: str, news: News = News.NOTHING) -> Rule:
    """An operation of which any number goes in one statement, and none is refused."""

    def apply(rows: list[Any], _: Answers) -> Steps[None]:
        yield ManyRows(statement, rows)

    return Rule(Stage.BULK, apply, news, parts={statement: Part.PLAIN})


def update(statement: str, news: News = News.NOTHING) -> Rule:
    """A conditional update of one run's row; any number goes in one statement, which returns the runs it found."""

    def apply(updates: list[tuple[int, Any]], answers: Answers) -> Steps[None]:
        # In the order of their ids, as messages lock them, so that nobody waits for each other.
        rows = sorted((update for _, update in updates), key=_by_run)
        found = (yield ManyRows(statement, rows)).rows
        if len(found) < len(rows):
            applied = {run_id for (run_id,) in found}
            for index, update in updates:
                if update.run_id not in applied:
                    answer_group(answers, index, Moved())

    return Rule(Stage.UPDATES, apply, news, is_shown=True, parts={statement: Part.RETURNING})


def expecting(statement: str, width: int) -> Callable[..., Steps[None]]:
    """Refuse the groups of runs that are not what they were; the rows of the others are kept as they are.

    The statement answers with the first so many columns of the rows that are right.
    """

    def apply(expected: list[tuple[int, Any]], answers: Answers) -> Steps[None]:
        found = yield ManyRows(statement, sorted((run for _, run in expected), key=_by_run))
        same = {tuple(row) for row in found.rows}
        for index, run in expected:
            if run[:width] not in same:
                answer_group(answers, index, Moved())

    return apply


_by_run: Callable[[Any], str] = attrgetter("run_id")


def single(
    apply: Callable[[Any], Steps[Answer | Ended | None]], news: News = News.NOTHING, *, is_shown: bool = False
) -> Rule:
    """An operation that is done by itself; one that changes runs which it does not name logs them itself."""
    return Rule(Stage.SINGLE, apply, news, is_shown=is_shown)


def one_row(statement: str) -> Callable[[Any], Steps[Answer | None]]:
    """A conditional update of one row: applied when it found its row, else Moved."""

    def apply(operation: Any) -> Steps[Answer | None]:
        return None if (yield Query(statement, operation._asdict())).count == 1 else Moved()

    return apply


def many_rows(statement: str) -> Callable[[Any], Steps[Answer]]:
    """An update of many rows, answered with how many."""

    def apply(operation: Any) -> Steps[Answer]:
        return Applied((yield Query(statement, operation._asdict())).count)

    return apply


def many_runs(statement: str) -> Callable[[Any], Steps[Answer]]:
    """An update of many runs, which returns them and is answered with how many."""

    def apply(operation: Any) -> Steps[Answer]:
        found = yield Query(statement, operation._asdict())
        yield from log_changes([run_id for (run_id,) in found.rows], operation.now)
        return Applied(found.count)

    return apply


INSERTS = {"insert_runs": Part.COUNTED, "insert_rich_runs": Part.COUNTED, "put_payloads": Part.PLAIN}
INSERTS |= {"put_plain_attributes": Part.PLAIN, "put_attributes": Part.PLAIN}
ANNOTATES = {"annotate_runs": Part.RETURNING, "drop_attributes": Part.PLAIN, "renew_attributes": Part.PLAIN}
PUBLISHES = {"open_runs": Part.RETURNING, "move_heads": Part.PLAIN, "append_values": Part.PLAIN}
POSTS = {"post_messages": Part.POSTING}

TABLE: dict[type[Operation], Rule] = {
    operations.Fence: Rule(Stage.FENCES, check_fences, parts={"check_fences": Part.RETURNING}),
    # Before everything that may be refused: who has done a command learns what it was answered.
    operations.TakeKey: Rule(Stage.KEYS, take_keys, parts={"take_keys": Part.RETURNING}),
    operations.MoveSchedule: Rule(Stage.SCHEDULES, move_schedules, News.WORK, parts={"move_schedules": Part.RETURNING}),
    operations.SupersedeRun: Rule(Stage.SUPERSEDES, supersede_runs),
    # Before anything of its group can change the run.
    operations.ExpectRun: Rule(Stage.SUPERSEDES, expecting("expect_runs", 1)),
    operations.ExpectOwner: Rule(
        Stage.SUPERSEDES, expecting("expect_owners", 3), parts={"expect_owners": Part.RETURNING}
    ),
    # After the runs are held: whoever changes an attempt holds its run.
    operations.ExpectDeadline: Rule(Stage.SUPERSEDES, expecting("expect_deadlines", 4)),
    operations.InsertRun: Rule(Stage.STARTS, insert_runs, News.WORK, told_if_free=True, is_shown=True, parts=INSERTS),
    operations.InsertRichRun: Rule(
        Stage.STARTS, insert_runs, News.WORK, told_if_free=True, is_shown=True, parts=INSERTS
    ),
    operations.PostMessage: Rule(Stage.MESSAGES, post_messages, News.WORK, parts=POSTS),
    operations.TellRun: Rule(Stage.MESSAGES, post_messages, News.WORK, parts=POSTS),
    operations.PostDelayed: Rule(Stage.MESSAGES, post_delayed, News.WORK),
    # Its owner is told, or those who wait for it.
    operations.PauseRun: Rule(Stage.MESSAGES, pause_runs, News.WORK | News.ENDS, is_shown=True),
    operations.ResumeRun: Rule(Stage.MESSAGES, resume_runs, News.WORK, is_shown=True),
    operations.NoteCancel: Rule(Stage.CANCELS, note_cancels, is_shown=True),
    operations.AppendEvent: Rule(Stage.BULK, append_events, parts={"append_events": Part.PLAIN}),
    operations.TakeMessage: bulk("take_messages"),
    # Callers in other processes wait for it, as they wait for ends.
    operations.AnswerRequest: bulk("answer_requests", News.ENDS),
    operations.RecordAttempt: bulk("record_attempts"),
    operations.BeginAttempt: Rule(Stage.BULK, begin_attempts, parts={"begin_attempts": Part.PLAIN}),
    operations.RecordBeat: Rule(Stage.BULK, record_beats, parts={"record_beats": Part.PLAIN}),
    operations.WriteSnapshot: Rule(Stage.BULK, write_snapshots, parts={"write_snapshots": Part.PLAIN}),
    operations.PublishValues: Rule(Stage.BULK, publish_values, parts=PUBLISHES),
    operations.NoteDecision: Rule(Stage.BULK, note_decisions, parts={"note_decisions": Part.PLAIN}),
    operations.ParkRun: update("park_runs", News.WORK),
    operations.HoldRun: update("hold_runs", News.ENDS),
    operations.NoteWaiting: update("note_waiting"),
    operations.Annotate: Rule(Stage.UPDATES, annotate_runs, is_shown=True, parts=ANNOTATES),
    operations.SetAttributes: single(set_attributes, is_shown=True),
    operations.NoteUndo: update("note_undos"),
    operations.NoteLosses: update("note_losses"),
    operations.MoveMessages: single(move_messages, News.WORK),
    operations.MoveStreams: single(move_streams),
    operations.ForkRun: single(fork_run),
    operations.CloseFreeRun: single(one_row("close_free_run"), News.ENDS, is_shown=True),
    operations.StopChildren: single(stop_children, News.WORK | News.ENDS),
    operations.HoldTasks: single(hold_tasks_of_one),
    operations.FreeMismatches: single(many_runs("free_mismatches"), News.WORK),
    # A claim is nobody's news: workers that told each other of theirs would never come to rest.
    operations.ClaimRuns: single(claim_runs),
    operations.ClaimOne: single(one_row("claim_one"), is_shown=True),
    operations.RegisterWorker: single(register_worker),
    operations.NoteWorkflows: single(note_workflows),
    operations.RenewWorker: single(one_row("renew_remote_worker")),
    operations.ShortenLease: single(one_row("shorten_lease")),
    operations.NoteDeadline: bulk("note_deadlines"),
    operations.ForgetDeadline: bulk("forget_deadlines"),
    operations.RaiseEpoch: single(raise_epoch),
    # One of the runs may be held instead.
    operations.FreeRuns: single(free_runs, News.WORK | News.ENDS),
    operations.FreeOrphans: single(many_runs("free_orphans"), News.WORK),
    operations.DeleteWorker: single(one_row("delete_worker")),
    operations.CreateNamespace: single(one_row("insert_namespace")),
    operations.DeleteNamespace: single(delete_namespace),
    operations.InsertAccessKey: single(insert_access_key),
    operations.RevokeAccessKey: single(revoke_access_key),
    operations.NoteKeyUse: single(many_rows("note_key_use")),
    operations.Listen: single(listen),
    operations.MoveLog: single(one_row("move_log")),
    operations.ForgetChanges: single(forget_changes),
    operations.FinishKey: single(one_row("finish_key")),
    operations.NoteReply: bulk("note_replies"),
    operations.ReleaseKey: single(one_row("release_key")),
    operations.ForgetKeys: single(forget_keys),
    operations.AnnounceWorkflow: single(one_row("announce_workflow")),
    operations.InsertSchedule: single(one_row("insert_schedule"), News.WORK),
    operations.DeleteSchedule: single(delete_schedule),
    operations.TakeDuty: single(one_row("take_duty")),
    operations.NoteDuty: single(one_row("note_duty")),
    # Workers that have a sink's code take it up.
    operations.InsertSink: single(insert_sink, News.WORK),
    operations.MoveSink: single(move_sink, News.WORK),
    operations.DeleteSink: single(delete_sink),
    operations.NoteDeliveries: single(note_deliveries),
    operations.EndGap: single(end_gap),
    operations.ReplayDeadLetters: single(replay_dead_letters, News.WORK),
    operations.ResendEvents: single(resend_events, News.WORK),
    operations.EndRun: Rule(Stage.ENDS, end_runs, News.ENDS, is_shown=True, parts={"end_runs": Part.COUNTED}),
}


@cache
def parts_of_single_call() -> dict[str, Part]:
    """The statements of the single call, in the order in which a batch is done."""
    rules = sorted(TABLE.values(), key=attrgetter("stage"))
    return {statement: part for rule in rules for statement, part in rule.parts.items()}


def shown_parts() -> tuple[str, ...]:
    """Those of the statements of the single call that change what people see of the runs in their rows."""
    found = ((name, part) for rule in TABLE.values() if rule.is_shown for name, part in rule.parts.items())
    # What belongs to a run besides is written with it.
    return tuple(dict.fromkeys(name for name, part in found if part is not Part.PLAIN))


def news_of(groups: Iterable[Sequence[Operation]]) -> News:
    """What others may want to know of a batch."""
    news = News.NOTHING
    for group in groups:
        for operation in group:
            rule = TABLE[type(operation)]
            if not (rule.told_if_free and getattr(operation, "owner", None) is not None):
                news |= rule.news
    return news
