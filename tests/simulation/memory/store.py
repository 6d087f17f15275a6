"""The memory store: the Store port of one simulated process, over tables it shares with others.

In:   batches; each becomes a transaction, which runs to its end at once, or is handed to
      whoever lets the transactions of several processes overlap.
Out:  their outcomes, and reads of what is committed.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from perdure.clock import Clock, SystemClock
from perdure.errors import BadOption, StoreUnavailable
from perdure.stores.answers import Answer, Failed, Outcome
from perdure.stores.operations import Batch, Operation
from perdure.stores.port import StorePresence
from tests.simulation.memory.activity_transactions import MemoryActivityTransactions
from tests.simulation.memory.reads import MemoryReads
from tests.simulation.memory.tables import Tables
from tests.simulation.memory.transaction import Transaction
from tests.simulation.memory.view import Blocked

Submit: TypeAlias = Callable[[Transaction, Callable[[Outcome], None]], None]

_UNDER_WAY = "another transaction is under way; nothing was changed, try again"


class MemoryStore:
    """A process's way to the tables; with `submit`, somebody else takes the steps of its transactions."""

    def __init__(self, tables: Tables | None = None, *, submit: Submit | None = None) -> None:
        self.url = "memory://"
        self.tables = Tables() if tables is None else tables
        self._submit = submit
        self.reads = MemoryReads(self.tables, self.url)
        self.presence: StorePresence = MemoryPresence(self.tables, self.url)
        self.changes = MemoryChanges(self.tables)
        self.activity_transactions = MemoryActivityTransactions(self.tables, self.url, self._take)

    async def open(self) -> None:
        self.changes.has_changed()

    async def close(self) -> None:
        pass

    # Writing

    @property
    def is_inline(self) -> bool:
        return self._submit is None

    @property
    def is_held_up(self) -> bool:
        return False

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        raise BadOption("runs are started and signalled inside a transaction of your own on Postgres only")

    def transaction(self, batch: Batch) -> Transaction:
        """The batch as a transaction, for whoever takes its steps; abandon it, or step until it is done."""
        return Transaction(self.tables, batch, self.url)

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        self._take(self.transaction(batch), done)

    def _take(self, transaction: Transaction, done: Callable[[Any], None]) -> None:
        if self._submit is not None:
            self._submit(transaction, done)
            return
        outcome = transaction.run()
        if isinstance(outcome, Blocked):
            # Nobody else goes on while this waits, so it would wait for ever.
            transaction.abandon()
            outcome = Failed(StoreUnavailable(self.url, _UNDER_WAY))
        done(outcome)

    def clock(self) -> Clock:
        return SystemClock()


class MemoryPresence:
    """Who is alive: those that the tables say are, as long as nobody simulates their processes."""

    def __init__(self, tables: Tables, url: str) -> None:
        self.tables = tables
        self.url = url

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        workers = self.tables.workers
        if worker_id in workers.held:
            # Whether the epoch moved is known when the takeover ends, and nobody can wait for that here.
            raise StoreUnavailable(self.url, _UNDER_WAY)
        row = workers.rows.get(worker_id)
        if row is None or row.epoch != epoch:
            return False
        workers.rows[worker_id] = replace(row, lease_until=lease_until)
        self.tables.version += 1
        return True

    async def keep_alive(self, worker_id: str) -> None:
        if self.tables.living is not None:
            self.tables.living.add(worker_id)

    async def let_die(self, worker_id: str) -> None:
        if self.tables.living is not None:
            self.tables.living.discard(worker_id)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        return set() if self.tables.living is None else {*worker_ids} - self.tables.living

    def forget(self, worker_id: str) -> None:
        pass


class MemoryChanges:
    """Whether the tables were written since the last look."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._seen_version = tables.version

    def on_change(self, changed: Callable[[bool], None]) -> None:
        """Nobody tells."""

    async def mark(self) -> object:
        return self.tables.version

    def has_changed(self) -> bool:
        changed = self.tables.version != self._seen_version
        self._seen_version = self.tables.version
        return changed
