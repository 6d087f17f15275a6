"""The databases under a simulation: shared by all its processes, written one transaction or one statement at a time.

In:   batches of a simulated process.
Out:  writes under way, to be moved on step by step; stores to read through.
Knows nothing of faults; who breaks things does that around it.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from perdure.clock import Clock, SystemClock
from perdure.errors import BadOption
from perdure.stores.answers import Answer, Outcome, Undone
from perdure.stores.listing import SQLITE
from perdure.stores.operations import Batch, Operation
from perdure.stores.port import Store
from perdure.stores.queries import VERSION, queries, tables
from perdure.stores.rules.reads import Reads
from perdure.stores.sqlite.activity_transactions import SqliteActivityTransactions
from perdure.stores.sqlite.connection import SqliteFile
from perdure.stores.sqlite.reads import SqliteReader
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.transactions import Transactions
from tests.simulation.memory import Done, MemoryStore, Tables, Transaction

TABLES = (*(table for table in tables("sqlite") if table != VERSION), "sqlite_sequence")

T = TypeVar("T")


# A table of the users', which transactional activities write to; nothing in it forbids the same row twice.
ENTRIES = "sim_entries"


class Write(Protocol):
    """A batch being written; `step` does a part of it and answers the outcome with the last one."""

    @property
    def is_blocked(self) -> bool:
        """Whether it has to wait for another write."""

    def step(self) -> Outcome | Undone | None: ...

    def abandon(self) -> None:
        """Whoever wrote is gone; nothing of it was written."""


class Database(Protocol):
    """What the processes of a simulation share; `holders` are those who hold the locks of workers.

    With `has_locks` a dead process is seen at once; where it `is_quick` commits may be made on the loop's own thread.
    """

    holders: dict[str, object]
    has_locks: bool
    is_quick: bool

    def store(self, holder: object) -> Store:
        """The store of one process; locks on workers are held by the holder."""

    def write(self, store: Store, batch: Batch) -> Write:
        """Begin to write."""


class SqliteDatabase:
    """SQLite in memory, with the real store over it; a transaction is one step."""

    is_quick = True

    def __init__(self) -> None:
        self.db = _first().transactions.db
        if self.db.in_transaction:
            self.db.execute("rollback")
        self.db.execute(f"create table if not exists {ENTRIES} (key text, number int)")
        for table in (*TABLES, ENTRIES):
            self.db.execute(f"delete from {table}")
        self.holders: dict[str, object] = {}
        self.writes = 0
        self.has_locks = True

    def store(self, holder: object) -> "ProcessStore":
        return ProcessStore(self, holder)

    def write(self, store: Store, batch: Batch) -> "WholeWrite":
        assert isinstance(store, ProcessStore)
        return WholeWrite(store, batch)


class WholeWrite:
    """A transaction of SQLite: nobody else writes meanwhile."""

    is_blocked = False

    def __init__(self, store: "ProcessStore", batch: Batch) -> None:
        self._store = store
        self._batch = batch

    def step(self) -> Outcome | None:
        found: list[Outcome] = []
        self._store.commit(self._batch, found.append)
        self._store.has_written()
        return found[0]

    def abandon(self) -> None:
        """SQLite leaves nothing of a transaction that was not committed."""


class ProcessStore:
    """The real parts of the SQLite store, as one of several processes on the same database in memory."""

    url = "sqlite://"
    is_inline = True
    is_held_up = False

    def __init__(self, database: SqliteDatabase, holder: object) -> None:
        file, reader = SqliteFile(None), SqliteReader(SqliteFile(None))
        reader.db = database.db
        self.activity_transactions = SqliteActivityTransactions(file)
        self.transactions = self.activity_transactions.transactions = Transactions(file, database.db)
        self.reads = Reads(self.url, reader.ask, SQLITE)
        self.changes = ProcessChanges(database)
        self.presence = ProcessPresence(database, holder, self._renew)

    async def open(self) -> None:
        """It is open as long as the simulation runs."""

    async def close(self) -> None:
        """As above."""

    def clock(self) -> Clock:
        return SystemClock()

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        done(self.transactions.write(batch))

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        raise BadOption("runs are started and signalled inside a transaction of your own on Postgres only")

    def has_written(self) -> None:
        """Others may notice."""
        self.changes.note_own()

    def _renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        fence = {"worker_id": worker_id, "epoch": epoch, "lease_until": lease_until}
        self.has_written()
        return self.transactions.db.execute(queries("sqlite")["renew_worker"], fence).rowcount == 1


class ProcessChanges:
    """Which of the writes to a database are not this process's own."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._own_writes = 0
        self._seen_writes = -1

    def note_own(self) -> None:
        self._database.writes += 1
        self._own_writes += 1

    def has_changed(self) -> bool:
        seen, self._seen_writes = self._seen_writes, self._database.writes - self._own_writes
        return seen != self._seen_writes

    async def mark(self) -> object:
        return self._database.writes

    def on_change(self, changed: Callable[[bool], None]) -> None:
        """Nobody tells."""


class ProcessPresence:
    """Who holds the locks of workers, as the simulation says."""

    def __init__(self, database: "Database", holder: object, renew: Callable[[str, int, int], bool]) -> None:
        self._database = database
        self._holder = holder
        self._renew = renew

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        return self._renew(worker_id, epoch, lease_until)

    async def keep_alive(self, worker_id: str) -> None:
        self._database.holders[worker_id] = self._holder

    async def let_die(self, worker_id: str) -> None:
        self._database.holders.pop(worker_id, None)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        return {*worker_ids} - self._database.holders.keys() if self._database.has_locks else set()

    def forget(self, worker_id: str) -> None:
        self._database.holders.pop(worker_id, None)


class MemoryDatabase:
    """Tables in memory under a store that behaves like Postgres; every statement is a step."""

    is_quick = False

    def __init__(self) -> None:
        self.tables = Tables()
        self.holders: dict[str, object] = {}
        self.has_locks = True

    def store(self, holder: object) -> "OverlappingStore":
        return OverlappingStore(self, holder)

    def write(self, store: Store, batch: Batch) -> "StatementWrite":
        assert isinstance(store, OverlappingStore)
        return StatementWrite(store.transaction(batch))


class StatementWrite:
    """A transaction that others overlap with."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    @property
    def is_blocked(self) -> bool:
        waits_for = self._transaction.waits_for
        return waits_for is not None and waits_for in self._transaction.tables.open

    def step(self) -> Outcome | Undone | None:
        said = self._transaction.step()
        return said.outcome if isinstance(said, Done) else None

    def abandon(self) -> None:
        self._transaction.abandon()


class OverlappingStore(MemoryStore):
    """The store in memory, as one of several processes."""

    def __init__(self, database: MemoryDatabase, holder: object) -> None:
        super().__init__(database.tables)
        self.presence = ProcessPresence(database, holder, self.presence.renew)


@cache
def _first() -> SqliteStore:
    """One database for all simulations of this process, one after the other: its statements stay prepared."""
    store = SqliteStore(None)
    answered(store.open())
    return store


def answered(read: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits."""
    try:
        read.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what it returns
    raise RuntimeError("a read waited")
