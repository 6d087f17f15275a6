"""Records: rows as they are read back."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from perdure.errors import RunUnreadable
from perdure.kernel.events import Event
from perdure.kernel.failure import Failure
from perdure.kernel.filters import Filter
from perdure.kernel.messages import Message


class RunRow(msgspec.Struct, frozen=True):
    """A run as it stands in its row; `input` and `outcome` are JSON."""

    run_id: str
    namespace: str
    workflow_id: str
    workflow: str
    queue: str
    status: str
    held: str | None
    held_report: str | None
    owner: str | None
    wake_at: int | None
    waiting: str | None
    messages: int
    priority: int
    entity_id: str | None
    correlation_id: str | None
    attributes: str | None
    step: str | None
    input: str
    outcome: str | None
    seed: int
    last_seq: int | None
    created_at: int
    updated_at: int
    closed_at: int | None
    parent_id: str | None = None
    parent_place: str | None = None
    on_parent_close: str | None = None
    initial_attributes: str | None = None
    # What the code has made of the attributes, when some were set from outside.
    own_attributes: str | None = None
    begun_at: int | None = None
    timeout_ms: int | None = None
    delayed_until: int | None = None
    close_at: int | None = None
    close_as: str | None = None
    cancel_requested_at: int | None = None
    cancel_reason: str | None = None
    continued_from: str | None = None
    losses: int = 0
    outlived: int = 0
    undo: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    forked_to: str | None = None
    fork_kind: str | None = None
    fork_reason: str | None = None
    first_at: int | None = None
    schedule: str | None = None
    scheduled_for: int | None = None


class AttemptRow(msgspec.Struct, frozen=True):
    """A failed attempt of an activity."""

    place: str
    attempt: int
    name: str
    failure: Failure
    at: int
    next_at: int | None


class CallProgress(msgspec.Struct, frozen=True, gc=False):
    """What is known of a call: when its only attempt began, and the newest details of its heartbeats, as JSON."""

    place: str
    begun_at: int | None = None
    details: str | None = None
    beat_at: int | None = None


class SnapshotRow(msgspec.Struct, frozen=True):
    """What a run shows of itself, as JSON, as of an event."""

    seq: int
    at: int
    body: str


class StreamHead(msgspec.Struct, frozen=True):
    """How far a stream is: its last number, and how many values are of the workflow itself.

    With a source, the place of an activity: the attempt in which that has published last.
    """

    name: str
    source: str
    n: int
    own: int
    attempt: int


class StreamValue(msgspec.Struct, frozen=True):
    """A value of a stream, as JSON."""

    n: int
    attempt: int
    at: int
    body: str


# So many messages, or events, of one run are read at once.
UNREAD_PAGE = EVENTS_PAGE = 500


class LoadedRun(msgspec.Struct, frozen=True):
    """All it takes to bring a run back to life; of one that may have many unread messages, all but these."""

    row: RunRow
    events: Sequence[Event]
    messages: Sequence[Message] | None
    attempts: Sequence[AttemptRow]
    children: frozenset[str] = frozenset()
    progress: Sequence[CallProgress] = ()
    # The requests that it took and that have no answer on disk.
    unanswered: frozenset[str] = frozenset()
    heads: Sequence[StreamHead] = ()


class UnreadPage(NamedTuple):
    """Messages that a run has not taken, in order, and how many it has had by then."""

    messages: list[Message]
    had: int


class RequestRow(NamedTuple):
    """What became of a request: its answer, and whether its run has ended, so that there will be none."""

    number: int
    answer: str | None
    has_ended: bool


class NewMessage(NamedTuple):
    """A message that has come, and how many its run has had by now."""

    run_id: str
    message: Message | RunUnreadable
    had: int


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker as it stands in its row."""

    worker_id: str
    namespace: str
    epoch: int
    lease_until: int
    queues: str
    host: str
    pid: int
    started_at: int
    lease_ms: int | None = None
    workflows: str | None = None
    # Whether it works over a server: it has no lock, and its lease alone tells whether it lives.
    remote: int = 0


class DeadlineRow(NamedTuple):
    """An attempt that a remote worker makes, and when it is over whatever the worker says."""

    run_id: str
    namespace: str
    worker_id: str
    attempt: int
    begun_at: int
    ends_at: int
    heartbeat_ms: int | None
    due_at: int


class Standing(NamedTuple):
    """How far a run has come: its last event, if one is not in its row, how many messages it has had, and read."""

    last: tuple[int, int] | None
    had: int
    has_unread: bool


class RowHolder(NamedTuple):
    """A transaction that holds a run's row, and for how many seconds it is open; None where that is not told."""

    name: str
    seconds: int | None


class NamespaceRow(NamedTuple):
    """A namespace as it stands in its row."""

    name: str
    created_at: int


class Census(NamedTuple):
    """What there is in a namespace: its runs by status, each counted up to a number, and the queues of open ones."""

    runs: dict[str, int]
    queues: list[str]


class AccessKeyRow(msgspec.Struct, frozen=True):
    """A key of callers as it stands in its row; no namespaces and no queues mean every one."""

    key_id: str
    hash: str
    label: str
    scopes: tuple[str, ...]
    namespaces: tuple[str, ...]
    queues: tuple[str, ...]
    entity_id: str | None
    created_at: int
    expires_at: int | None
    last_used_at: int | None
    revoked_at: int | None


class KeyRow(NamedTuple):
    """What is kept of a command under an idempotency key; no answer while it is under way."""

    digest: str
    holder: str
    answer: str | None
    taken_at: int
    keep_until: int
    # What a server has answered.
    reply: str | None = None


class ScheduleRow(msgspec.Struct, frozen=True):
    """A schedule as it stands in its row, and whether runs of it are open; `body` is JSON."""

    schedule_id: str
    namespace: str
    name: str
    revision: int
    source: str
    next_at: int | None
    waits: int
    body: str
    open_runs: int = 0


class DecisionRow(NamedTuple):
    """A decision of a schedule as it stands in its row."""

    number: int
    time: int
    kind: str
    times: int
    run_id: str | None


class DutyRow(NamedTuple):
    """A duty as it stands in its row, and whether its holder has one."""

    name: str
    holder: str | None
    since: int
    last_ok_at: int
    last_error: str | None
    is_held: bool


class SinkRow(NamedTuple):
    """A sink as it stands in its row; what it is and how it does is in `body`, as JSON."""

    sink_id: str
    namespace: str
    name: str
    revision: int
    types: int
    workflows: str | None
    max_backlog: int
    behind_at: int | None
    delivered: int
    body: str


class OutboxRow(NamedTuple):
    """An event that waits for a sink; `previous` is the one before it of the same run, if that waits, too."""

    n: int
    run_id: str
    workflow_id: str | None
    workflow: str | None
    type: str
    number: int
    at: int
    step: str | None
    held: str | None
    attributes: str | None
    attempts: int
    next_at: int | None = None
    entity_id: str | None = None
    correlation_id: str | None = None
    parent_id: str | None = None
    previous: int | None = None


class DeadLetterRow(NamedTuple):
    """An event that a sink did not take, with the last error."""

    event: OutboxRow
    error: str | None
    died_at: int


class BacklogRow(NamedTuple):
    """How many events wait for a sink, since when, and how many it did not take."""

    waiting: int
    oldest: int | None
    dead: int


class WakingWorkflow(NamedTuple):
    """A workflow that free runs wait to be woken for; of the first of them, when, and when it moved."""

    workflow: str
    wake_at: int
    updated_at: int


class StuckFilter(msgspec.Struct, frozen=True):
    """Which runs are stuck: due ones of these kinds, and those of these owners, that have not moved since a time.

    A kind is a queue and a workflow that no living worker has code for; an owner is one that is gone.
    """

    namespace: str
    kinds: tuple[tuple[str, str], ...]
    owners: tuple[str, ...]
    now: int
    until: int
    before: str | None = None
    limit: int = 100


class ListenerRow(NamedTuple):
    """Somebody listens until a time; since when the log is whole, empty while nobody has said so, and where next."""

    until: int
    since: str
    later: str
    later_at: int


class RunFilter(msgspec.Struct, frozen=True):
    """Which runs to list, newest first, those before the cursor.

    With both statuses and holds, runs that have one of either.
    """

    namespace: str
    status: tuple[str, ...] = ()
    workflow: str | None = None
    workflow_id: str | None = None
    entity_id: str | None = None
    correlation_id: str | None = None
    parent_id: str | None = None
    schedule: str | None = None
    before: str | None = None
    limit: int = 100
    held: tuple[str, ...] = ()
    # Of these workflows none, names that begin so; but for runs that are held as `held` asks.
    without: str | None = None
    # None with an id below this one.
    since: str | None = None


class RunQuery(msgspec.Struct, frozen=True):
    """Which runs are meant by a filter, newest first, those before the cursor."""

    namespace: str
    where: Filter
    before: str | None = None
    limit: int = 100


class FoundRuns(NamedTuple):
    """Runs that match, newest first, and how many runs were read to find them."""

    rows: list[RunRow | RunUnreadable]
    read: int
