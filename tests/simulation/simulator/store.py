"""The store as a simulated process sees it: every write and read is a job that the world does when it likes.

In:   the calls of the engine.
Out:  jobs in the process's list; their answers when the world delivers them.

A process on a quick disk writes and reads at once, as the engine does where commits are quick.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from perdure.clock import Clock
from perdure.errors import StoreUnavailable
from perdure.stores.answers import Answer, Outcome, Undone
from perdure.stores.operations import Batch, Operation
from perdure.stores.port import Store, StoreChanges, StorePresence, StoreReads, TransactionalCode
from tests.simulation.memory import CodeTransaction, MemoryActivityTransactions
from tests.simulation.simulator.database import Database, ProcessStore, StatementWrite, Write
from tests.simulation.simulator.loop import NodeLoop

URL = "sqlite://"


class WriteJob:
    """A batch to be written, and who wants to know what became of it."""

    __slots__ = ("batch", "done", "outcome", "write")

    # Whether the rows of an activity are in it.
    has_code = False

    def __init__(self, batch: Batch, done: Callable[[Any], None]) -> None:
        self.batch = batch
        self.done = done
        self.write: Write | None = None
        self.outcome: Outcome | Undone | None = None

    def begin(self, database: Database, store: Store) -> None:
        """Begin to write."""
        self.write = database.write(store, self.batch)

    def abandon(self) -> None:
        """Whoever wrote is gone, or it cannot be written."""
        if self.write is not None:
            self.write.abandon()

    @property
    def is_ready(self) -> bool:
        """Whether its answer can be given."""
        return self.outcome is not None

    @property
    def is_blocked(self) -> bool:
        """Whether it waits for another write."""
        return self.write is not None and self.write.is_blocked


class CodeJob(WriteJob):
    """The rows of an activity and what records its outcome, to be committed together; the code has returned."""

    __slots__ = ("_transaction",)

    has_code = True

    def __init__(self, transaction: CodeTransaction, done: Callable[[Any], None]) -> None:
        super().__init__(transaction.batch, done)
        self._transaction = transaction

    def begin(self, database: Database, store: Store) -> None:
        self.write = StatementWrite(self._transaction)

    def abandon(self) -> None:
        self._transaction.abandon()


class TurnJob(WriteJob):
    """An activity that has the database for itself: its code, and what records its outcome, are one step."""

    __slots__ = ("_code", "_process")

    has_code = True

    def __init__(
        self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[Any], None], process: "Process"
    ) -> None:
        super().__init__(Batch([], worker_id, epoch), done)
        self._code = code
        self._process = process

    @property
    def is_blocked(self) -> bool:
        """Its outcome is taken on the loop's thread."""
        return not self._process.is_hearing

    def begin(self, database: Database, store: Store) -> None:
        assert isinstance(store, ProcessStore)
        self.write = TurnWrite(store, self._take)

    def _take(self, store: ProcessStore, told: Callable[[Outcome | Undone], None]) -> None:
        worker_id, epoch = self.batch.worker_id, self.batch.epoch
        assert worker_id is not None
        transact = store.activity_transactions.transact
        self._process.loop.call_now(lambda: transact(SeenCode(self._code, self._saw), worker_id, epoch, told))

    def _saw(self, groups: Sequence[Sequence[Operation]]) -> None:
        self.batch = Batch(groups, self.batch.worker_id, self.batch.epoch)


class TurnWrite:
    """A transaction of SQLite with code in it."""

    is_blocked = False

    def __init__(
        self, store: ProcessStore, take: Callable[[ProcessStore, Callable[[Outcome | Undone], None]], None]
    ) -> None:
        self._store = store
        self._take = take

    def step(self) -> Outcome | Undone | None:
        found: list[Outcome | Undone] = []
        self._take(self._store, found.append)
        self._store.has_written()
        return found[0]

    def abandon(self) -> None:
        """SQLite leaves nothing of a transaction that was not committed."""


class SeenCode:
    """The code of an activity; `saw` is told what is to be written with its rows."""

    def __init__(self, code: TransactionalCode, saw: Callable[[Sequence[Sequence[Operation]]], None]) -> None:
        self._code = code
        self._saw = saw
        self.activity = code.activity
        self.is_async = code.is_async
        self.run = code.run
        self.unwanted = code.unwanted
        self.ready = code.ready
        self.accept = code.accept
        self.settled = code.settled

    def groups(self) -> Sequence[Sequence[Operation]] | None:
        groups = self._code.groups()
        if groups is not None:
            self._saw(groups)
        return groups


class ReadJob:
    """A question, and the future that waits for its answer."""

    is_blocked = False

    __slots__ = ("answer", "error", "future", "is_ready", "name", "read")

    def __init__(self, name: str, read: Callable[[], Coroutine[Any, Any, Any]], future: "asyncio.Future[Any]") -> None:
        self.name = name
        self.read = read
        self.future = future
        self.is_ready = False
        self.answer: Any = None
        self.error: StoreUnavailable | None = None


class Process(Protocol):
    """Who has a store."""

    is_alive: bool
    is_quick: bool
    misses_hints: bool

    @property
    def loop(self) -> NodeLoop: ...

    @property
    def is_hearing(self) -> bool:
        """Whether anything can reach its event loop."""

    def put(self, job: WriteJob | ReadJob) -> None:
        """Let the world do this."""

    def write_now(self, job: WriteJob) -> None:
        """Do it at once."""

    def reads(self) -> None:
        """A read is made; StoreUnavailable when it cannot be."""

    def renews(self) -> None:
        """A lease is about to be renewed; StoreUnavailable when it cannot be."""


def _question(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A method of the port that reads."""

    async def ask(self: "SimulatedQuestions", *args: Any, **options: Any) -> Any:
        return await self._ask(partial(getattr(self._inner, name), *args, **options), name)

    return ask


class SimulatedQuestions:
    """Reads of one simulated process: each is a job, but on a quick disk."""

    def __init__(self, process: Process, inner: object) -> None:
        self._process = process
        self._inner = inner

    async def _ask(self, read: Callable[[], Coroutine[Any, Any, Any]], name: str) -> Any:
        process = self._process
        if process.is_quick and process.is_alive:
            process.reads()
            return await read()
        future = process.loop.create_future()
        process.put(ReadJob(name, read, future))
        return await future


class SimulatedChannels(SimulatedQuestions):
    """Reads of channels."""

    deferreds = _question("deferreds")
    answers = _question("answers")
    secret = _question("secret")
    snapshot = _question("snapshot")
    stream_page = _question("stream_page")
    stream_begin = _question("stream_begin")
    open_histories = _question("open_histories")
    heads = _question("heads")


class SimulatedInspection(SimulatedQuestions):
    """Reads of what is in the way of runs."""

    last_attempt = _question("last_attempt")
    count_ahead = _question("count_ahead")
    row_holders = _question("row_holders")
    due_kinds = _question("due_kinds")
    stuck = _question("stuck")


class SimulatedNamespaces(SimulatedQuestions):
    """Reads of namespaces."""

    all = _question("all")
    census = _question("census")


class SimulatedMatching(SimulatedQuestions):
    """Reads by a filter."""

    page = _question("page")
    keys = _question("keys")
    among = _question("among")
    count = _question("count")


class SimulatedChangelog(SimulatedQuestions):
    """Reads of the log of changes."""

    listener = _question("listener")
    position = _question("position")
    changed = _question("changed")
    named = _question("named")
    runs = _question("runs")


class SimulatedOutbox(SimulatedQuestions):
    """What is asked of sinks and the events that wait for them."""

    sink = _question("sink")
    sinks = _question("sinks")
    next_at = _question("next_at")
    due = _question("due")
    values = _question("values")
    backlog = _question("backlog")
    dead_letters = _question("dead_letters")


class SimulatedSchedules(SimulatedQuestions):
    """What is asked of schedules and duties."""

    get = _question("get")
    page = _question("page")
    declared = _question("declared")
    due = _question("due")
    waiting = _question("waiting")
    next = _question("next")
    decisions = _question("decisions")
    runs_of_ids = _question("runs_of_ids")
    duties = _question("duties")


class SimulatedKeys(SimulatedQuestions):
    """What is asked of idempotency keys."""

    kept = _question("kept")
    oldest = _question("oldest")


class SimulatedAnnouncements(SimulatedQuestions):
    """What is asked of announced workflows."""

    digests = _question("digests")
    body = _question("body")


class SimulatedReads(SimulatedQuestions):
    """All other reads, beside those."""

    def __init__(self, process: Process, inner: StoreReads) -> None:
        super().__init__(process, inner)
        self.channels = SimulatedChannels(process, inner.channels)
        self.inspection = SimulatedInspection(process, inner.inspection)
        self.namespaces = SimulatedNamespaces(process, inner.namespaces)
        self.matching = SimulatedMatching(process, inner.matching)
        self.access_keys = inner.access_keys
        self.keys = SimulatedKeys(process, inner.keys)
        self.announcements = SimulatedAnnouncements(process, inner.announcements)
        self.changelog = SimulatedChangelog(process, inner.changelog)
        self.schedules = SimulatedSchedules(process, inner.schedules)
        self.outbox = SimulatedOutbox(process, inner.outbox)
        self.remote = inner.remote

    load_runs = _question("load_runs")
    owned_runs = _question("owned_runs")
    held_counts = _question("held_counts")
    new_messages = _question("new_messages")
    last_message = _question("last_message")
    next_wake = _question("next_wake")
    run = _question("run")
    latest_run = _question("latest_run")
    list_runs = _question("list_runs")
    overdue = _question("overdue")
    next_close = _question("next_close")
    ended_or_held = _question("ended_or_held")
    events = _question("events")
    last_event = _question("last_event")
    attempts = _question("attempts")
    progress = _question("progress")
    unread = _question("unread")
    unread_page = _question("unread_page")
    count_unread = _question("count_unread")
    set_aside = _question("set_aside")
    waking_workflows = _question("waking_workflows")
    owners = _question("owners")
    workers = _question("workers")


class SimulatedPresence:
    """Leases of one simulated process, which the world may keep it from renewing."""

    def __init__(self, process: Process, inner: StorePresence) -> None:
        self._process = process
        self._inner = inner
        self.keep_alive = inner.keep_alive
        self.let_die = inner.let_die
        self.dead_among = inner.dead_among
        self.forget = inner.forget

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        self._process.renews()
        return self._inner.renew(worker_id, epoch, lease_until)


class SimulatedChanges:
    """Hints to one simulated process, which may miss them."""

    def __init__(self, process: Process, inner: StoreChanges) -> None:
        self._process = process
        self._inner = inner

    def on_change(self, changed: Callable[[bool], None]) -> None:
        """Nobody tells."""

    async def mark(self) -> object:
        return await self._inner.mark()

    def has_changed(self) -> bool:
        return self._inner.has_changed() and not self._process.misses_hints


class SimulatedTransactions:
    """Transactional activities of one simulated process: their commits are jobs as those of batches are."""

    def __init__(self, process: Process, inner: Store) -> None:
        self._process = process
        self._inner = inner.activity_transactions
        self.is_alone = self._inner.is_alone
        self.connection_type = self._inner.connection_type
        if isinstance(self._inner, MemoryActivityTransactions):
            self._inner.submit = self._put

    def transact(
        self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[Outcome | Undone], None]
    ) -> None:
        process = self._process
        if not process.is_alive:
            return
        if not self.is_alone:
            self._inner.transact(code, worker_id, epoch, done)
            return
        job = TurnJob(code, worker_id, epoch, done, process)
        if process.is_quick:
            process.write_now(job)
        else:
            process.put(job)

    def _put(self, transaction: CodeTransaction, done: Callable[[Outcome | Undone], None]) -> None:
        if self._process.is_alive:
            self._process.put(CodeJob(transaction, done))
        else:
            transaction.abandon()


class SimulatedStore:
    """Implements Store for one simulated process, over its store on the shared database."""

    url = URL

    def __init__(self, process: Process, inner: Store) -> None:
        self._process = process
        self.inner = inner
        self.reads = SimulatedReads(process, inner.reads)
        self.presence = SimulatedPresence(process, inner.presence)
        self.changes = SimulatedChanges(process, inner.changes)
        self.activity_transactions = SimulatedTransactions(process, inner)

    @property
    def is_inline(self) -> bool:
        return self._process.is_quick

    @property
    def is_held_up(self) -> bool:
        return self.inner.is_held_up

    def clock(self) -> Clock:
        return self.inner.clock()

    async def open(self) -> None:
        self._process.reads()

    async def close(self) -> None:
        """The database outlives its processes."""

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        if not self._process.is_alive:
            return
        job = WriteJob(batch, done)
        if self._process.is_quick:
            self._process.write_now(job)
        else:
            self._process.put(job)

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        return await self.inner.write_within(connection, group)
