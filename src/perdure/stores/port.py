"""The Store port: what a database does for the engine.

In:   batches of operations. An operation is a value; the operations of a group
      stand or fall together; a batch is one transaction.
Out:  what became of the batch, and the answer to each group.

A refused group never harms its neighbours, and an outcome that cannot be known is
a value like the others: the caller must ask the database before going on.
So is a run among others that cannot be read; asked for by itself, it is raised.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from perdure.clock import Clock
from perdure.errors import RunUnreadable
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.kernel.position import Position
from perdure.stores.answers import Answer, Outcome, Undone
from perdure.stores.operations import Batch, Operation
from perdure.stores.records import (
    AccessKeyRow,
    AttemptRow,
    BacklogRow,
    CallProgress,
    Census,
    DeadLetterRow,
    DeadlineRow,
    DecisionRow,
    DutyRow,
    FoundRuns,
    KeyRow,
    ListenerRow,
    LoadedRun,
    NamespaceRow,
    NewMessage,
    OutboxRow,
    RequestRow,
    RowHolder,
    RunFilter,
    RunQuery,
    RunRow,
    ScheduleRow,
    SinkRow,
    SnapshotRow,
    Standing,
    StreamHead,
    StreamValue,
    StuckFilter,
    UnreadPage,
    WakingWorkflow,
    WorkerRow,
)


class StoreChannels(Protocol):
    """What can be read of the channels between runs and the world outside."""

    async def deferreds(self, run_id: str) -> list[Message]:
        """What the deferreds of a run were resolved with, taken or not."""

    async def answers(self, numbers: Sequence[int]) -> list[RequestRow]:
        """What became of requests, by the numbers of their messages."""

    async def secret(self) -> bytes | None:
        """What tokens are made from; None when the database has lost it."""

    async def snapshot(self, run_id: str) -> SnapshotRow | None:
        """What a run shows of itself."""

    async def stream_page(self, run_id: str, name: str, after: int, limit: int) -> list[StreamValue]:
        """The first values of a run's stream after a number."""

    async def stream_begin(self, run_id: str, name: str) -> int:
        """The number after which the values of a stream begin in a run; earlier ones are in those it continues."""

    async def open_histories(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Those of the given runs that are open, and the number of the last event of each."""

    async def heads(self, run_ids: Sequence[str]) -> dict[str, list[StreamHead]]:
        """How far the streams of these runs are, by run."""


class StoreInspection(Protocol):
    """What is read to find out why a run does not move."""

    async def last_attempt(self, run_id: str, place: str) -> AttemptRow | None:
        """The last failed attempt of a call."""

    async def count_ahead(self, row: RunRow, workflows: Sequence[str], now: int, most: int) -> int:
        """How many runs of these workflows are ripe and will be claimed before this one, counted up to a number."""

    async def due_kinds(self, namespace: str, now: int) -> list[tuple[str, str]]:
        """The queues and workflows of which free runs are due, suspects among them."""

    async def stuck(self, wanted: StuckFilter) -> list[RunRow | RunUnreadable]:
        """Free runs that are due of these queues and workflows, and runs of these owners, newest first."""

    async def row_holders(self, run_id: str) -> list[RowHolder]:
        """Who holds the run's row in a transaction just now; nobody on a database that has no locks of rows."""


class StoreNamespaces(Protocol):
    """What can be read of namespaces."""

    async def all(self) -> list[NamespaceRow]:
        """All of them, by name."""

    async def census(self, namespace: str, most: int) -> Census:
        """What there is in one of them; runs are counted up to a number."""


class StoreMatching(Protocol):
    """The runs that match a filter."""

    async def page(self, wanted: RunQuery) -> FoundRuns:
        """The newest of them; those that cannot be read are in their places."""

    async def keys(self, wanted: RunQuery) -> list[object]:
        """What all of them are found again by, newest first, whatever the limit."""

    async def among(self, wanted: RunQuery, keys: Sequence[object]) -> list[RunRow | RunUnreadable]:
        """Those that match among a few."""

    async def count(self, wanted: RunQuery, by: str | None = None) -> dict[object, int]:
        """How many there are, by the values of a field; without one there is one number."""


class StoredAccessKeys(Protocol):
    """What can be read of the keys of callers."""

    async def key(self, key_id: str) -> AccessKeyRow | None:
        """The key with this id."""

    async def all(self) -> list[AccessKeyRow]:
        """All keys, those that are revoked as well, the oldest first."""


class StoredAnnouncements(Protocol):
    """What can be read of the workflows that workers announced."""

    async def digests(self, namespace: str) -> dict[str, str]:
        """What each of them was when it was written last, by name."""

    async def body(self, namespace: str, name: str) -> str | None:
        """One of them, as JSON."""


class StoreChangelog(Protocol):
    """The log of changes, which is written while somebody listens."""

    async def listener(self, name: str) -> ListenerRow | None:
        """Who listens for something, if anybody ever did."""

    async def position(self) -> Position:
        """What is seen by now."""

    async def changed(self, since: Position) -> tuple[Position, list[str]]:
        """What is seen by now, and the runs that were changed by what had not been seen then."""

    async def named(self, position: Position) -> list[str]:
        """Who the transactions are that are still open there, for people."""

    async def runs(self, run_ids: Sequence[str]) -> list[RunRow | RunUnreadable]:
        """These runs, as they stand."""


class StoreScheduleReads(Protocol):
    """What can be read of schedules and duties."""

    async def get(self, namespace: str, name: str) -> ScheduleRow | None:
        """One of them."""

    async def page(self, namespace: str, after: str, limit: int) -> list[ScheduleRow]:
        """The first after a name, by name."""

    async def declared(self, namespace: str) -> list[ScheduleRow]:
        """Those that come with code."""

    async def due(self, namespace: str, now: int, limit: int) -> list[ScheduleRow]:
        """Those that are to be looked at by now, the longest due first."""

    async def waiting(self, namespace: str, after: str, limit: int, *, all: bool) -> list[ScheduleRow]:
        """Those of which something waits, after a name: all of them, or those without an open run."""

    async def next(self, namespace: str) -> tuple[int | None, bool]:
        """When the next one is to be looked at, and whether something waits for the end of runs."""

    async def decisions(self, schedule_id: str) -> list[DecisionRow]:
        """The newest decisions of one, the newest first."""

    async def runs_of_ids(self, namespace: str, workflow_ids: Sequence[str]) -> dict[str, str]:
        """The newest runs of these workflow_ids, by workflow_id, as far as there are some."""

    async def duties(self, namespace: str) -> list[DutyRow]:
        """The duties of a namespace that somebody has or had."""


class StoreRemoteReads(Protocol):
    """What can be read of workers that work over a server."""

    async def worker(self, worker_id: str) -> WorkerRow | None:
        """One worker, remote or not."""

    async def owned(self, worker_id: str) -> dict[str, str]:
        """The runs that a worker has, and of which workflow each is."""

    async def stops(self, worker_id: str) -> list[tuple[str, Message]]:
        """What asks runs of a worker to stop, and is not heeded yet, in its order."""

    async def due(self, now: int, limit: int) -> list[DeadlineRow]:
        """The attempts of remote workers whose time is over by now, the longest first."""

    async def deadline(self, run_id: str) -> DeadlineRow | None:
        """That of one task."""

    async def next_due(self) -> int | None:
        """When the time of the next one is over."""

    async def standings(self, run_ids: Sequence[str]) -> dict[str, Standing]:
        """How far each of these runs has come."""

    async def children_at(self, run_ids: Sequence[str], places: Sequence[str]) -> dict[str, dict[str, tuple[str, str]]]:
        """What these runs have started at these places: its run_id and workflow; of successors the first."""


class StoredKeys(Protocol):
    """What commands were answered under idempotency keys."""

    async def kept(self, namespace: str, command: str, key: str) -> KeyRow | None:
        """What is known of a command under a key."""

    async def oldest(self) -> int | None:
        """Until when the first that will be forgotten is kept."""


class StoreOutboxReads(Protocol):
    """What can be read of sinks and the events that wait for them."""

    async def sink(self, namespace: str, name: str) -> SinkRow | None:
        """One of them."""

    async def sinks(self, namespace: str) -> list[SinkRow]:
        """Those of a namespace, by name."""

    async def next_at(self, sink_id: str) -> int | None:
        """When the next event is due, 0 for at once; None when none waits."""

    async def due(self, sink_id: str, now: int, limit: int) -> list[OutboxRow]:
        """Events that are to be delivered: those to be tried again, then those that were not tried."""

    async def values(self, numbers: Sequence[int]) -> dict[int, str]:
        """What histories hold of these events, as JSON."""

    async def backlog(self, sink_id: str) -> BacklogRow:
        """How much waits."""

    async def dead_letters(self, sink_id: str, after: int, limit: int) -> list[DeadLetterRow]:
        """What it did not take, the oldest first."""


class StoreReads(Protocol):
    """What can be read of a database; no read waits for a write."""

    @property
    def changelog(self) -> StoreChangelog:
        """Which runs have changed."""

    @property
    def schedules(self) -> StoreScheduleReads:
        """What starts runs at times, and who sees to it."""

    @property
    def outbox(self) -> StoreOutboxReads:
        """Who is told of changes, and of what."""

    @property
    def channels(self) -> StoreChannels:
        """What came for runs, and what they said."""

    @property
    def inspection(self) -> StoreInspection:
        """What may be in the way of runs."""

    @property
    def namespaces(self) -> StoreNamespaces:
        """Which namespaces there are, and what is in them."""

    @property
    def matching(self) -> StoreMatching:
        """Runs by a filter."""

    @property
    def access_keys(self) -> StoredAccessKeys:
        """The keys of callers."""

    @property
    def announcements(self) -> StoredAnnouncements:
        """The workflows that workers announced."""

    @property
    def remote(self) -> StoreRemoteReads:
        """Workers that work over a server."""

    @property
    def keys(self) -> StoredKeys:
        """What commands were answered under idempotency keys."""

    async def load_runs(self, run_ids: Sequence[str], worker_id: str) -> list[LoadedRun | RunUnreadable]:
        """Everything about those of the given runs that this worker owns."""

    async def owned_runs(self, worker_id: str) -> list[str]:
        """The ids of the open runs this worker owns."""

    async def new_messages(self, worker_id: str, after: int) -> tuple[list[NewMessage], int]:
        """Unread messages for this worker's runs since a look, in order, and where the next look begins.

        One may be seen twice. A lower number may become visible later; what a run has had by now tells whether one
        is missing.
        """

    async def last_message(self) -> int:
        """Where a first look at new messages begins."""

    async def next_wake(
        self, namespace: str, queues: Sequence[str], workflows: Sequence[str], *, suspects: bool = False
    ) -> int | None:
        """When the next free run becomes ripe, suspects among them or not; below zero when one is at any time."""

    async def run(self, namespace: str, run_id: str) -> RunRow | None:
        """One run."""

    async def latest_run(self, namespace: str, workflow_id: str) -> RunRow | None:
        """The newest run of a workflow_id."""

    async def list_runs(self, wanted: RunFilter) -> list[RunRow | RunUnreadable]:
        """Runs, newest first."""

    async def held_counts(self, namespace: str) -> dict[str, int]:
        """How many runs are held, by reason."""

    async def overdue(self, namespace: str, now: int, limit: int) -> list[RunRow]:
        """Runs whose end by the clock has come, as far as they can be read."""

    async def next_close(self, namespace: str, now: int) -> int | None:
        """When the next open run ends by the clock, after now."""

    async def ended_or_held(self, run_ids: Sequence[str]) -> list[RunRow | RunUnreadable]:
        """Those of the given runs that have ended, or are held."""

    async def events(self, row: RunRow, after: int, limit: int) -> list[Event]:
        """A run's events after a number, the first and the last one included."""

    async def last_event(self, run_id: str) -> tuple[int, int] | None:
        """The number of a run's last event, and when it was; those that stand in its row do not count."""

    async def attempts(self, run_id: str) -> list[AttemptRow]:
        """A run's failed attempts."""

    async def progress(self, run_ids: Sequence[str]) -> dict[str, list[CallProgress]]:
        """What is known of the calls of these runs, by run."""

    async def unread(self, run_id: str) -> list[Message]:
        """The messages a run has not taken yet."""

    async def unread_page(self, run_id: str, after: int, limit: int) -> UnreadPage:
        """The first of these after a number."""

    async def count_unread(self, run_id: str, most: int) -> int:
        """How many of these there are, counted up to a number."""

    async def set_aside(self, run_id: str) -> list[Message]:
        """The signals that are not what a run's code waits for."""

    async def waking_workflows(self, namespace: str, queue: str, most: int) -> list[WakingWorkflow]:
        """The workflows that free runs of a queue wait to be woken for, by priority; at most so many."""

    async def owners(self) -> list[object]:
        """Who owns open runs, whatever stands there."""

    async def workers(self) -> list[WorkerRow]:
        """All workers, but for those of whose lease nothing can be read."""


class StorePresence(Protocol):
    """Which workers are alive: leases, and locks that vanish with their process."""

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        """Prolong a lease, from any thread; False when the epoch moved."""

    async def keep_alive(self, worker_id: str) -> None:
        """Hold the lock that lets others see at once when this process dies."""

    async def let_die(self, worker_id: str) -> None:
        """Give up that lock."""

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        """Those of these workers whose lock is free; of any other the lease must decide."""

    def forget(self, worker_id: str) -> None:
        """Remove what a dead worker left beside the database."""


class StoreChanges(Protocol):
    """Hints that another process has written."""

    def has_changed(self) -> bool:
        """Whether another process may have written since the last call."""

    async def mark(self) -> object:
        """A value that is another one when others have written since; the same always where writers need not wait."""

    def on_change(self, changed: Callable[[bool], None]) -> None:
        """Call this on the loop's thread when another process has written, and whether there is work in it; a hint."""


class TransactionalCode(Protocol):
    """The code of an activity, to be run inside a transaction, and what is to be written in the same one."""

    activity: str
    is_async: bool

    def run(self, connection: object) -> Any:
        """Call the function: what it returns, or its coroutine. Any thread may call."""

    def unwanted(self) -> BaseException | None:
        """Why nobody wants it any more, its time being over for one; None while it is wanted. Any thread may call."""

    async def ready(self) -> None:
        """Until nothing else of its run is being committed; only where others can write meanwhile."""

    def accept(self, value: object) -> bool:
        """Take what the function returned; False when that is not to be written. On the loop's thread.

        From here on nothing else happens to its run until it is known what became of the transaction.
        """

    async def settled(self) -> None:
        """Until everything that its run did before is on disk; only where others can write meanwhile."""

    def groups(self) -> Sequence[Sequence[Operation]] | None:
        """What is to be written in the same transaction; None when it is not wanted after all. On the loop's thread."""


class StoreTransactions(Protocol):
    """Runs code of activities inside transactions; `is_alone` says that nobody else can write meanwhile."""

    is_alone: bool

    def connection_type(self, *, is_async: bool) -> str | None:
        """The type of connection that such code gets, as people import it; None when there is none for it."""

    def transact(
        self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[Outcome | Undone], None]
    ) -> None:
        """Run the code, and commit what it did together with its groups, under the epoch of its worker.

        `done` is called on the loop's thread, perhaps before this returns. Where `is_alone` is so, no batch is given
        to the store before that.
        """


class Store(Protocol):
    """A database under the engine."""

    url: str

    @property
    def reads(self) -> StoreReads:
        """What can be read of it."""

    @property
    def presence(self) -> StorePresence:
        """Who is alive on it."""

    @property
    def changes(self) -> StoreChanges:
        """What others have changed in it."""

    @property
    def activity_transactions(self) -> StoreTransactions:
        """Code of activities inside transactions of it."""

    def clock(self) -> Clock:
        """The clock that all processes on the database share."""

    @property
    def is_inline(self) -> bool:
        """Whether the next commit is made on the caller's thread, before commit() returns."""

    @property
    def is_held_up(self) -> bool:
        """Whether another process has kept all others from writing for long."""

    async def open(self) -> None:
        """Connect, check and migrate; refuses files that are not ours before it writes to them."""

    async def close(self) -> None:
        """Let go of everything."""

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        """Write a batch; `done` is called on the loop's thread, perhaps before this returns."""

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        """Apply a group inside the transaction that a connection of the caller's is in; BadOption where none can be."""
