"""The Store port: what a database does for the engine.

In:   batches of operations. An operation is a value; the operations of a group
      stand or fall together; a batch is one transaction.
Out:  what became of the batch, and the answer to each group.

A refused group never harms its neighbours, and an outcome that cannot be known is
a value like the others: whoever gets it must ask the database before going on.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from perdure.errors import StoreUnavailable
from perdure.kernel.events import Event
from perdure.kernel.failure import Failure
from perdure.kernel.messages import Message

# Operations. Tuples, because a store binds them to its statements as they are.


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
    """Close a run this worker owns."""

    run_id: str
    status: str
    outcome: str
    last_seq: int
    closed_at: int
    owner: str
    namespace: str


class TakeMessage(NamedTuple):
    """A message has become the event of this number."""

    number: int
    taken_by: int


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


class PostMessage(NamedTuple):
    """A message for a run. Refused when the run is missing or closed; answered with Posted."""

    run_id: str
    message_id: str
    kind: str
    body: str
    at: int


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
    """Stop a run until somebody acts."""

    run_id: str
    worker_id: str
    reason: str
    report: str
    at: int


class NoteWaiting(NamedTuple):
    """Show what a live run waits for."""

    run_id: str
    worker_id: str
    waiting: str
    at: int


class ClaimRuns(NamedTuple):
    """Take ripe runs. Answered with the ids of those taken."""

    worker_id: str
    namespace: str
    queues: tuple[str, ...]
    workflows: tuple[str, ...]
    now: int
    limit: int


class FreeMismatches(NamedTuple):
    """Give runs held for a mismatch another try."""

    namespace: str
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


class RaiseEpoch(NamedTuple):
    """Fence out what this worker still has under way. Refused when its epoch moved since it was read."""

    worker_id: str
    epoch: int


class FreeRuns(NamedTuple):
    """Make the runs of a gone worker ripe, a bite at a time. Answered with how many."""

    worker_id: str
    now: int
    limit: int


class DeleteWorker(NamedTuple):
    """Forget a worker that owns nothing."""

    worker_id: str


Operation: TypeAlias = (
    InsertRun
    | AppendEvent
    | EndRun
    | TakeMessage
    | RecordAttempt
    | PostMessage
    | ParkRun
    | HoldRun
    | NoteWaiting
    | ClaimRuns
    | FreeMismatches
    | RegisterWorker
    | RaiseEpoch
    | FreeRuns
    | DeleteWorker
)


# Rows read back.


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


class Attempt(msgspec.Struct, frozen=True):
    """A failed attempt of an activity."""

    place: str
    attempt: int
    name: str
    failure: Failure
    at: int
    next_at: int | None


class LoadedRun(msgspec.Struct, frozen=True):
    """All it takes to bring a run back to life."""

    row: RunRow
    events: Sequence[Event]
    messages: Sequence[Message]
    attempts: Sequence[Attempt]


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


class RunFilter(msgspec.Struct, frozen=True):
    """Which runs to list, newest first, those before the cursor."""

    namespace: str
    status: tuple[str, ...] = ()
    workflow: str | None = None
    workflow_id: str | None = None
    entity_id: str | None = None
    correlation_id: str | None = None
    before: str | None = None
    limit: int = 100


# Answers to groups.


class Applied(msgspec.Struct, frozen=True):
    """The group is on disk; `value` is what its operation was asked to tell."""

    value: object = None


class Posted(msgspec.Struct, frozen=True):
    """A message's number, and how many messages its run has had with it; None when it was there before."""

    number: int
    count: int | None


class Taken(msgspec.Struct, frozen=True):
    """The workflow_id belongs to this run."""

    run: RunRow


class Missing(msgspec.Struct, frozen=True):
    """There is no such run."""


class Closed(msgspec.Struct, frozen=True):
    """The run has ended."""

    status: str


class Moved(msgspec.Struct, frozen=True):
    """The row is not any more what the operation expected to find."""


class Broken(msgspec.Struct, frozen=True):
    """The database refused the group for a reason of its own; its neighbours were applied."""

    trouble: str


Answer: TypeAlias = Applied | Taken | Missing | Closed | Moved | Broken
APPLIED = Applied()


# Outcomes of batches.


class Committed(msgspec.Struct, frozen=True):
    """The batch is on disk. `answers` holds, by group, what is more or less than plainly applied."""

    answers: Mapping[int, Answer]


class Fenced(msgspec.Struct, frozen=True):
    """The worker's epoch moved: nothing of the batch was written, and nothing of it ever will be."""


class Failed(msgspec.Struct, frozen=True):
    """The batch was not written; the database may take it later."""

    error: StoreUnavailable


class Unknown(msgspec.Struct, frozen=True):
    """The batch may or may not be on disk."""

    error: StoreUnavailable


Outcome: TypeAlias = Committed | Fenced | Failed | Unknown


class Batch(NamedTuple):
    """Groups of operations for one transaction, and the epoch it is good for."""

    groups: Sequence[Sequence[Operation]]
    worker_id: str | None
    epoch: int


class Store(Protocol):
    """A database under the engine."""

    url: str

    @property
    def is_inline(self) -> bool:
        """Whether the next commit is made on the caller's thread, before commit() returns."""

    async def open(self) -> None:
        """Connect, check and migrate; refuses files that are not ours before it writes to them."""

    async def close(self) -> None:
        """Let go of everything."""

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        """Write a batch; `done` is called on the loop's thread, perhaps before this returns."""

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        """Prolong a lease, from any thread; False when the epoch moved."""

    def keep_alive(self, worker_id: str) -> None:
        """Hold the lock that lets others see at once when this process dies."""

    def let_die(self, worker_id: str) -> None:
        """Give up that lock."""

    def is_dead(self, worker_id: str) -> bool | None:
        """Whether that lock is free; None when this cannot be told, and the lease must decide."""

    def forget(self, worker_id: str) -> None:
        """Remove what a dead worker left beside the database."""

    def has_changed(self) -> bool:
        """Whether anybody else may have written since the last call."""

    async def load_runs(self, run_ids: Sequence[str], worker_id: str) -> list[LoadedRun]:
        """Everything about those of the given runs that this worker owns."""

    async def owned_runs(self, worker_id: str) -> list[str]:
        """The ids of the open runs this worker owns."""

    async def new_messages(self, worker_id: str, after: int) -> tuple[list[tuple[str, Message]], int]:
        """Unread messages for this worker's runs above a number, in order, and the highest number looked at."""

    async def last_message(self) -> int:
        """The highest message number there is."""

    async def next_wake(self, namespace: str, queues: Sequence[str], workflows: Sequence[str]) -> int | None:
        """When the next free run becomes ripe."""

    async def run(self, namespace: str, run_id: str) -> RunRow | None:
        """One run."""

    async def latest_run(self, namespace: str, workflow_id: str) -> RunRow | None:
        """The newest run of a workflow_id."""

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        """Runs, newest first."""

    async def closed_among(self, run_ids: Sequence[str]) -> list[RunRow]:
        """Those of the given runs that have ended."""

    async def events(self, row: RunRow, after: int, limit: int) -> list[Event]:
        """A run's events after a number, the first and the last one included."""

    async def last_event_at(self, run_id: str) -> int | None:
        """When a run's last event was."""

    async def attempts(self, run_id: str) -> list[Attempt]:
        """A run's failed attempts."""

    async def unread(self, run_id: str) -> list[Message]:
        """The messages a run has not taken yet."""

    async def workers(self) -> list[WorkerRow]:
        """All workers."""
