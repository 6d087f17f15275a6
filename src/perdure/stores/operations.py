"""Operations: what a batch can do to the database, as values.

Tuples, because a store binds them to its statements as they are.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from perdure.stores.records import KeyRow


class InsertRun(NamedTuple):
    """A new run. Refused with the run that has its workflow_id already."""

    run_id: str
    namespace: str
    workflow_id: str
    workflow: str
    queue: str
    status: str
    owner: str | None
    wake_at: int | None
    priority: int
    input: str
    seed: int
    created_at: int


class InsertRichRun(NamedTuple):
    """A new run that has traits."""

    run_id: str
    namespace: str
    workflow_id: str
    workflow: str
    queue: str
    status: str
    owner: str | None
    wake_at: int | None
    priority: int
    input: str
    seed: int
    created_at: int
    parent_id: str | None
    parent_place: str | None
    on_parent_close: str
    entity_id: str | None
    correlation_id: str | None
    attributes: str | None
    timeout_ms: int | None
    delayed_until: int | None
    close_at: int | None
    continued_from: str | None
    schedule: str | None = None
    scheduled_for: int | None = None


class SupersedeRun(NamedTuple):
    """Give up the workflow_id for the run inserted beside this.

    Refused unless the run is closed, or the given worker owns it and closes it in the same group.
    """

    run_id: str
    owner: str | None


class MoveMessages(NamedTuple):
    """What a run has not read goes to the run that continues it."""

    run_id: str
    to_run_id: str


class ForkRun(NamedTuple):
    """Give the run inserted beside this, which is a retry or a fork of another one, the past it has from that.

    `kept` are ranges of events: the first and the last number, and by how much their numbers fall. `given` are events
    that come after those. Messages that are none of these events are unread in the new run. Written twice it is
    written once. Missing, when there is no such run any more, or it has gone on as another one, with its messages.
    """

    run_id: str
    namespace: str
    from_run_id: str
    kind: str
    forked_at: int
    reason: str | None
    initial_attributes: str | None
    begun_at: int | None
    first_at: int | None
    cancel_requested_at: int | None
    cancel_reason: str | None
    kept: tuple[tuple[int, int, int], ...]
    given: "tuple[AppendEvent, ...]"


class AppendEvent(NamedTuple):
    """One fact of a run this worker owns."""

    namespace: str
    run_id: str
    seq: int
    kind: str
    place: str
    at: int
    body: str


class EndRun(NamedTuple):
    """Close a run this worker owns; what its row says of its undos stays, unless it is given."""

    run_id: str
    status: str
    outcome: str
    last_seq: int
    closed_at: int
    owner: str
    namespace: str
    undo: str | None = None


class CloseFreeRun(NamedTuple):
    """Close a run nobody owns. Refused when it is owned or closed by now, or, if so asked, when its code has begun."""

    run_id: str
    namespace: str
    status: str
    outcome: str
    at: int
    only_unbegun: bool


class StopChildren(NamedTuple):
    """Ask the open children of a run to stop, each as it was started to. Answered with each StoppedChild.

    With a place, only the one that was started there.

    `cancel` and `terminate` are the two messages; with `all_terminate` only the second is sent.
    """

    run_id: str
    message_id: str
    cancel: str
    terminate: str
    all_terminate: bool
    reason: str | None
    at: int
    place: str | None = None


class TellRun(NamedTuple):
    """A message for a run, which nobody minds when it has ended. Answered with Posted."""

    run_id: str
    message_id: str
    kind: str
    body: str
    at: int


class NoteCancel(NamedTuple):
    """Show in the row that the run was asked to stop; by `close_at` it is closed whatever its code does."""

    run_id: str
    reason: str | None
    close_at: int | None
    at: int


class Annotate(NamedTuple):
    """What the workflow says of itself: its attributes, None when they are as before, and its current step.

    `attributes` is what those in the row become, if they are still `before`; where somebody outside has changed them
    meanwhile, `patch` is what the code has changed. `own` is what the code itself has made of them.
    """

    run_id: str
    worker_id: str
    attributes: str | None
    step: str | None
    at: int
    namespace: str
    before: str | None = None
    own: str | None = None
    patch: str | None = None


class SetAttributes(NamedTuple):
    """Attributes that are set from outside. Refused unless the row still has those from which they were made."""

    run_id: str
    namespace: str
    before: str | None
    attributes: str
    at: int


class NoteUndo(NamedTuple):
    """What a run would have to undo, and what it has undone, as JSON; None when there is nothing."""

    run_id: str
    worker_id: str
    undo: str | None


class TakeMessage(NamedTuple):
    """A message has become the event of this number; 0 for none, since the code could not take it."""

    number: int
    taken_by: int


class AnswerRequest(NamedTuple):
    """What a workflow says to the caller of a request that it took; the first answer stays."""

    run_id: str
    message_id: str
    answer: str


class RecordAttempt(NamedTuple):
    """An attempt of an activity failed; the next one comes at `next_at`."""

    namespace: str
    run_id: str
    place: str
    attempt: int
    name: str
    failure: str
    at: int
    next_at: int


class BeginAttempt(NamedTuple):
    """An attempt begins that is the only one its call will ever have."""

    namespace: str
    run_id: str
    place: str
    begun_at: int


class RecordBeat(NamedTuple):
    """The newest details that the code of an activity gave with its heartbeats, as JSON; None when it gave none."""

    namespace: str
    run_id: str
    place: str
    details: str | None
    beat_at: int


class WriteSnapshot(NamedTuple):
    """What a run of this worker shows of itself, as of an event; of one that it does not own, nothing is written."""

    run_id: str
    worker_id: str
    namespace: str
    seq: int
    at: int
    body: str


class PublishValues(NamedTuple):
    """Values for a stream of a run, in their order: of its own code, or of an activity at the place `source`.

    `source_run_id` is the run that the activity runs in: the run itself, or a task of it. What a task publishes after
    its caller has ended is dropped.
    """

    run_id: str
    namespace: str
    name: str
    source_run_id: str
    source: str
    attempt: int
    at: int
    bodies: tuple[str, ...]


class MoveStreams(NamedTuple):
    """The streams of a run go on in the run that continues it."""

    run_id: str
    to_run_id: str


class PostMessage(NamedTuple):
    """A message for a run. Refused when the run is missing or closed; answered with Posted.

    Refused as well when the run has not read `most` messages it has, if that is given.
    """

    run_id: str
    message_id: str
    kind: str
    body: str
    at: int
    most: int | None = None


class PostDelayed(NamedTuple):
    """The same for a message that its run receives later: it is in the inbox at once, and wakes the run when due."""

    run_id: str
    message_id: str
    kind: str
    body: str
    at: int
    most: int | None
    due_at: int


class ParkRun(NamedTuple):
    """Let go of a run. Refused when it has another number of messages than the owner knows of, if it says one."""

    run_id: str
    worker_id: str
    status: str
    wake_at: int | None
    waiting: str | None
    messages: int | None
    at: int


class HoldRun(NamedTuple):
    """Stop a run until somebody acts. Refused when it has another number of messages than said, if one is."""

    run_id: str
    worker_id: str
    reason: str
    report: str
    at: int
    messages: int | None = None


class HoldTasks(NamedTuple):
    """Hold the activities on queues that a run has called and no worker has begun, with it."""

    run_id: str
    report: str
    at: int


class PauseRun(NamedTuple):
    """Hold a run that nobody owns, and its activities that have not begun; one that is owned gets a message for that.

    Refused when the run is missing or closed; answered with Posted when it was a message. `tasks` is the report of
    its activities.
    """

    run_id: str
    report: str
    tasks: str
    message_id: str
    body: str
    at: int


class ExpectRun(NamedTuple):
    """What a run is expected to be; the group is refused when it is something else by now."""

    run_id: str
    status: str
    held: str | None
    step: str | None
    attributes: str | None
    updated_at: int


class NoteWaiting(NamedTuple):
    """Show what a live run waits for."""

    run_id: str
    worker_id: str
    waiting: str
    at: int


class ClaimRuns(NamedTuple):
    """Take ripe runs, and at most so many suspects, all of them lost as often. Answered with the ids of those taken."""

    worker_id: str
    namespace: str
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    now: int
    limit: int
    suspects: int = 0


class ClaimOne(NamedTuple):
    """Take this run. Refused unless it is due, nobody has it or holds it, and it is one of these workflows."""

    run_id: str
    worker_id: str
    namespace: str
    workflows: tuple[str, ...]
    now: int


class NoteLosses(NamedTuple):
    """What is held against a run of this worker from now on, and how often it outlived its watch."""

    run_id: str
    worker_id: str
    losses: int
    outlived: int


class ResumeRun(NamedTuple):
    """Let a held run go on, and its activities that were held with it. Refused when it is not held, or closed.

    One that is still asked to pause gets a message instead, if that has an id; answered with Posted then.
    """

    run_id: str
    now: int
    tasks: str = ""
    message_id: str = ""


class FreeMismatches(NamedTuple):
    """Give runs of these queues that are held for a mismatch another try."""

    namespace: str
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    now: int


class RegisterWorker(NamedTuple):
    """A worker begins, with epoch 1."""

    worker_id: str
    namespace: str
    lease_until: int
    queues: tuple[str, ...]
    host: str
    pid: int
    now: int
    lease_ms: int | None = None
    # What it has code for; None when that is not known.
    workflows: tuple[str, ...] | None = None
    # Whether it works over a server, and has no lock of its own.
    is_remote: bool = False


class Fence(NamedTuple):
    """The worker that a group is of, where that is not the one of the batch. Refused when its epoch moved."""

    worker_id: str
    epoch: int


class ExpectOwner(NamedTuple):
    """A run that its group expects to be of this worker, open, and without an event after a number, if one is given."""

    run_id: str
    worker_id: str
    last_seq: int | None = None


class RenewWorker(NamedTuple):
    """Prolong the lease of a remote worker. Refused when its epoch moved."""

    worker_id: str
    epoch: int
    lease_until: int


class ShortenLease(NamedTuple):
    """Doubt that a remote worker lives: whatever it does next prolongs its lease. Refused when it has stirred."""

    worker_id: str
    epoch: int
    lease_until: int
    until: int


class ExpectDeadline(NamedTuple):
    """An attempt that its group expects to be under way, with `due_at` without a sign of life since that was read."""

    run_id: str
    worker_id: str
    attempt: int
    due_at: int | None


class NoteDeadline(NamedTuple):
    """An attempt that a remote worker makes, and when it is over whatever the worker says; `due_at` is looked at."""

    run_id: str
    namespace: str
    worker_id: str
    attempt: int
    begun_at: int
    ends_at: int
    heartbeat_ms: int | None
    due_at: int


class ForgetDeadline(NamedTuple):
    """An attempt that a remote worker made is over."""

    run_id: str


class NoteWorkflows(NamedTuple):
    """What a worker has code for by now."""

    worker_id: str
    workflows: tuple[str, ...]


class RaiseEpoch(NamedTuple):
    """Fence out what this worker still has under way. Refused when its epoch, or its lease, moved since it was read."""

    worker_id: str
    epoch: int
    lease_until: int | None = None


class FreeRuns(NamedTuple):
    """Make the runs of a gone worker ripe, a bite at a time. Answered with Freed.

    The first bite judges the worker's loss: a run that was its only suspect once too often is held instead, one that
    was alone with it rests for a while.
    """

    worker_id: str
    now: int
    limit: int


class FreeOrphans(NamedTuple):
    """Make runs ripe whose owner has no row that anybody could take it over by. Answered with how many."""

    owner: object
    now: int
    limit: int


class DeleteWorker(NamedTuple):
    """Forget a worker that owns nothing. Refused when it still does, or is forgotten already."""

    worker_id: str


class CreateNamespace(NamedTuple):
    """A new namespace. Refused when there is one of this name."""

    namespace: str
    at: int


class DeleteNamespace(NamedTuple):
    """Forget a namespace, if nothing is left in it. Answered with what there is; refused when it is not there."""

    namespace: str


class InsertAccessKey(NamedTuple):
    """A key for callers of a server; of the key itself only its hash."""

    key_id: str
    hash: str
    label: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...]
    queues: tuple[str, ...]
    entity_id: str | None
    created_at: int
    expires_at: int | None


class RevokeAccessKey(NamedTuple):
    """End a key. Refused when it is not there, or the last one that can make others."""

    key_id: str
    at: int


class NoteKeyUse(NamedTuple):
    """When a key was used last."""

    key_id: str
    at: int


class Listen(NamedTuple):
    """Somebody wants to hear of what is written, until a time.

    What had been wanted until `now`, or before, has lapsed: what is kept for it begins anew.
    """

    name: str
    until: int
    now: int


class MoveLog(NamedTuple):
    """The log of a listener is whole since a position. Refused when it is said to be whole since another one by now.

    `later` is where it will be said to begin next, as of a time.
    """

    name: str
    was: str
    since: str
    later: str
    later_at: int


class ForgetChanges(NamedTuple):
    """Delete changes of transactions before a number, but for some, a bite at a time.

    Answered with whether there may be more.
    """

    before: int
    but: tuple[int, ...]
    limit: int


class TakeKey(NamedTuple):
    """Keep the answer of a command under a key, with what else its group does; no answer while it is under way.

    Refused with what is kept under it, unless that is not kept any more, or its holder takes too long.
    """

    holder: str
    namespace: str
    command: str
    key: str
    digest: str
    answer: str | None
    at: int
    stale_at: int
    keep_until: int

    @property
    def identity(self) -> tuple[str, str, str]:
        """What there is one of."""
        return self.namespace, self.command, self.key

    @property
    def row(self) -> KeyRow:
        """What is kept once it is taken."""
        return KeyRow(self.digest, self.holder, self.answer, self.at, self.keep_until)


class FinishKey(NamedTuple):
    """The answer of a command that was under way. Refused when another caller has taken it over."""

    namespace: str
    command: str
    key: str
    holder: str
    answer: str
    keep_until: int


class NoteReply(NamedTuple):
    """What a server has answered, to be answered again, unless another caller has the key by now."""

    namespace: str
    command: str
    key: str
    holder: str
    reply: str


class ReleaseKey(NamedTuple):
    """A command failed, and leaves no key. Refused when another caller has taken it over."""

    namespace: str
    command: str
    key: str
    holder: str


class ForgetKeys(NamedTuple):
    """Delete keys that are not kept any more, a bite at a time. Answered with whether there may be more."""

    now: int
    limit: int


class AnnounceWorkflow(NamedTuple):
    """A workflow that a worker has, as it is now; `body` is JSON."""

    namespace: str
    name: str
    body: str
    digest: str
    at: int


class InsertSchedule(NamedTuple):
    """A new schedule. Refused when its name is taken."""

    schedule_id: str
    namespace: str
    name: str
    source: str
    next_at: int | None
    waits: int
    body: str


class MoveSchedule(NamedTuple):
    """A schedule as it is from now on. Refused unless it is as it was read: of this revision."""

    schedule_id: str
    revision: int
    next_at: int | None
    waits: int
    body: str


class NoteDecision(NamedTuple):
    """A decision of a schedule, in its slot; `starts` is the run that it started."""

    schedule_id: str
    slot: int
    number: int
    time: int
    kind: str
    times: int
    starts: str | None


class DeleteSchedule(NamedTuple):
    """Forget a schedule and its decisions; its runs go on. Refused unless it is as it was read."""

    schedule_id: str
    revision: int


class TakeDuty(NamedTuple):
    """Take a duty. Refused while its holder has a row, unless that has not done well since `stale_before`."""

    namespace: str
    name: str
    worker_id: str
    now: int
    stale_before: int | None


class NoteDuty(NamedTuple):
    """How a duty went, for people to see. Refused when this worker does not have it any more."""

    namespace: str
    name: str
    worker_id: str
    ok_at: int | None
    error: str | None


class InsertSink(NamedTuple):
    """A new sink, which is told of all that changes from now on. Refused when its name is taken.

    `types` has a bit for each type of event it wants; `workflows` is JSON, None for all of them.
    """

    sink_id: str
    namespace: str
    name: str
    types: int
    workflows: str | None
    max_backlog: int
    body: str


class MoveSink(NamedTuple):
    """A sink as it is from now on. Refused unless it is as it was read: of this revision."""

    sink_id: str
    revision: int
    types: int
    workflows: str | None
    max_backlog: int
    body: str


class DeleteSink(NamedTuple):
    """Forget a sink; what waits for it is deleted with it, a bite at a time. Answered with whether there is more."""

    sink_id: str
    limit: int


class FailedDelivery(NamedTuple):
    """An event that could not be delivered; without `next_at` it is a dead letter."""

    n: int
    attempts: int
    next_at: int | None
    error: str


class NoteDeliveries(NamedTuple):
    """What became of events that a sink was sent. Refused when this worker does not have the sink's duty any more.

    `behind` are events that wait for an earlier one of their run; `runs` are those of which one is done.
    """

    sink_id: str
    namespace: str
    duty: str
    worker_id: str
    delivered: tuple[int, ...]
    failed: tuple[FailedDelivery, ...]
    behind: tuple[int, ...]
    runs: tuple[str, ...]
    at: int


class EndGap(NamedTuple):
    """A sink that was behind is told events again; with `id`, `type` and `body` goes an event that tells of the gap."""

    sink_id: str
    type: str
    body: str
    at: int


class ReplayDeadLetters(NamedTuple):
    """Dead letters are to be delivered after all, all or these; a bite at a time. Answered with how many."""

    sink_id: str
    numbers: tuple[int, ...] | None
    limit: int


class ResendEvents(NamedTuple):
    """Make the events of runs anew, from their histories: of the next `limit` runs after one, in a time.

    Answered with the last run that was looked at, None when there are no more, and how many events.
    """

    sink_id: str
    after: str
    since: int
    until: int
    limit: int


Operation: TypeAlias = (
    InsertRun
    | InsertRichRun
    | SupersedeRun
    | MoveMessages
    | ForkRun
    | AppendEvent
    | EndRun
    | CloseFreeRun
    | StopChildren
    | TellRun
    | NoteCancel
    | Annotate
    | SetAttributes
    | NoteUndo
    | TakeMessage
    | AnswerRequest
    | RecordAttempt
    | BeginAttempt
    | RecordBeat
    | WriteSnapshot
    | PublishValues
    | MoveStreams
    | PostMessage
    | PostDelayed
    | ParkRun
    | ExpectRun
    | HoldRun
    | HoldTasks
    | PauseRun
    | NoteWaiting
    | ClaimRuns
    | ClaimOne
    | NoteLosses
    | ResumeRun
    | FreeMismatches
    | RegisterWorker
    | Fence
    | ExpectOwner
    | RenewWorker
    | ShortenLease
    | ExpectDeadline
    | NoteDeadline
    | ForgetDeadline
    | NoteWorkflows
    | RaiseEpoch
    | FreeRuns
    | FreeOrphans
    | DeleteWorker
    | CreateNamespace
    | DeleteNamespace
    | InsertAccessKey
    | RevokeAccessKey
    | NoteKeyUse
    | Listen
    | MoveLog
    | ForgetChanges
    | TakeKey
    | FinishKey
    | NoteReply
    | ReleaseKey
    | ForgetKeys
    | AnnounceWorkflow
    | InsertSchedule
    | MoveSchedule
    | NoteDecision
    | DeleteSchedule
    | TakeDuty
    | NoteDuty
    | InsertSink
    | MoveSink
    | DeleteSink
    | NoteDeliveries
    | EndGap
    | ReplayDeadLetters
    | ResendEvents
)


class Batch(NamedTuple):
    """Groups of operations for one transaction, and the epoch it is good for."""

    groups: Sequence[Sequence[Operation]]
    worker_id: str | None
    epoch: int
