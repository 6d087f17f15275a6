"""Faults: a wrapper around a real store that crashes or lies at a chosen commit.

The commits of a store are numbered from 1. At the chosen one the process dies before,
in or after it; or the commit happens, or does not, and its answer is lost.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from perdure.clock import Clock
from perdure.errors import StoreUnavailable
from perdure.stores.answers import Answer, Committed, Failed, Outcome, Undone, Unknown
from perdure.stores.operations import Batch, Operation
from perdure.stores.port import Store, StoreChanges, StorePresence, StoreTransactions, TransactionalCode
from perdure.stores.rules.reads import Reads
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.transactions import Transactions


class Fault(Enum):
    """What happens at the chosen commit."""

    CRASH_BEFORE = "the process dies before the commit"
    CRASH_IN = "the process dies with the transaction open"
    CRASH_AFTER = "the process dies after the commit, before its answer"
    LOST_ANSWER = "the commit happens, its answer is lost"
    LOST_COMMIT = "the commit does not happen, its answer is lost"
    REFUSED = "the database refuses the commit and says so"


# What is not answered by then is left alone; the caller that waits for it says so.
LONGEST_ANSWER_SECONDS = 0.05


Hook: TypeAlias = Callable[[Batch], Awaitable[None] | None]


class Crash(Exception):  # noqa: N818 - it is what it says
    """The simulated process died; the environment starts another one."""


_CRASHES = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_IN, Fault.CRASH_AFTER})


class Inner(Store, Protocol):
    """A real store, which can also be let go of as if its process had died."""

    reads: Reads

    def abandon(self) -> None:
        """Let go of everything at once."""


class Faulty:
    """A store with one fault to come, around a real one; `die_in` does everything of a batch but commit it.

    `transact_in_vain` does the same with the code of an activity.
    """

    def __init__(
        self,
        inner: Inner,
        die_in: Callable[[Batch, Callable[[], None]], None],
        transact_in_vain: "Callable[[TransactionalCode, str, int, Callable[[], None]], None]",
    ) -> None:
        self._inner = inner
        self._die_in = die_in
        self.activity_transactions = FaultyTransactions(self, inner.activity_transactions, transact_in_vain)
        self.url = inner.url
        self.reads: Reads = inner.reads
        self.presence: StorePresence = inner.presence
        self.changes: StoreChanges = inner.changes
        self.commits = 0
        # Questions and batches that were given in and are not answered yet.
        self.under_way = 0
        self._answered = asyncio.Event()
        self.has_crashed = False
        self.crashed: Callable[[], None] = lambda: None
        # Called around every commit; what they may give to be awaited is done before anything goes on.
        self.before_commit: Hook = lambda _: None
        self.after_commit: Hook = lambda _: None
        self._fault: tuple[int, Fault] | None = None
        # While this is so, nobody knows what becomes of a commit, and nothing does.
        self.is_broken = False

    # What the real store does

    @property
    def is_inline(self) -> bool:
        return self._inner.is_inline

    @property
    def is_held_up(self) -> bool:
        return self._inner.is_held_up

    def clock(self) -> Clock:
        return self._inner.clock()

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        self._inner.abandon()

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        return await self._inner.write_within(connection, group)

    # Faults

    def answered(self) -> None:
        """Something that was under way is not any more."""
        self.under_way -= 1
        self._answered.set()

    async def next_answer(self) -> None:
        """Until something that is under way is answered; at once where nothing takes any time."""
        self._answered.clear()
        await asyncio.wait([asyncio.ensure_future(self._answered.wait())], timeout=LONGEST_ANSWER_SECONDS)

    def fail_at(self, number: int, fault: Fault) -> None:
        """Do this at the commit of that number, counted from now on."""
        self._fault = (self.commits + number, fault)

    @property
    def is_spent(self) -> bool:
        """Whether the fault has happened."""
        return self._fault is None

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        if not self.has_crashed:
            self._first(self.before_commit(batch), lambda: self._write(batch, done))

    def next_fault(self) -> Fault | None:
        """A commit is about to be made; what is to happen to it, if anything."""
        self.commits += 1
        if self._fault is None or self.commits < self._fault[0]:
            return None
        fault, self._fault = self._fault[1], None
        return fault

    def _first(self, wait: Awaitable[None] | None, then: Callable[[], None]) -> None:
        """Go on when this is done."""
        if wait is None:
            then()
        else:
            self.under_way += 1
            self._waiting = asyncio.get_running_loop().create_task(self._go_on(wait, then))

    async def _go_on(self, wait: Awaitable[None], then: Callable[[], None]) -> None:
        await wait
        self.answered()
        then()

    def _write(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        if self.is_broken:
            self.commits += 1
            done(Unknown(StoreUnavailable(self.url, "injected: the disk is broken")))
            return
        fault = self.next_fault()
        self.under_way += 1
        if fault is None:
            self._inner.commit(batch, lambda outcome: self._told(batch, outcome, done))
        elif fault in _CRASHES:
            self._crash(batch, fault)
        else:
            self._lie(batch, fault, done)

    def _told(self, batch: Batch, outcome: Outcome, done: Callable[[Outcome], None]) -> None:
        self.answered()
        if self.has_crashed:
            return
        self._first(self.after_commit(batch), lambda: done(outcome))

    def _crash(self, batch: Batch, fault: Fault) -> None:
        if fault is Fault.CRASH_AFTER:
            self._inner.commit(batch, lambda _: self.die())
        elif fault is Fault.CRASH_IN:
            self._die_in(batch, self.die)
        else:
            self.die()

    def die(self) -> None:
        """The process dies."""
        self.answered()
        self.has_crashed = True
        self.crashed()

    def _lie(self, batch: Batch, fault: Fault, done: Callable[[Outcome], None]) -> None:
        error = StoreUnavailable(self.url, f"injected: {fault.value}")
        told = Failed(error) if fault is Fault.REFUSED else Unknown(error)

        def tell(_: Outcome) -> None:
            self.answered()
            done(told)

        if fault is Fault.LOST_ANSWER:
            self._inner.commit(batch, tell)
        else:
            tell(told)


class FaultyTransactions:
    """Transactions of activities, the commits of which are numbered with all others."""

    def __init__(
        self,
        store: Faulty,
        inner: StoreTransactions,
        transact_in_vain: Callable[[TransactionalCode, str, int, Callable[[], None]], None],
    ) -> None:
        self._store = store
        self._inner = inner
        self._transact_in_vain = transact_in_vain
        self.is_alone = inner.is_alone
        self.connection_type = inner.connection_type

    def transact(
        self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[Outcome | Undone], None]
    ) -> None:
        store = self._store
        if store.has_crashed:
            return
        fault = store.next_fault()
        store.under_way += 1
        if fault is Fault.CRASH_BEFORE:
            store.die()
        elif fault is None or fault in {Fault.CRASH_AFTER, Fault.LOST_ANSWER}:
            self._inner.transact(code, worker_id, epoch, lambda outcome: self._told(fault, outcome, done))
        else:
            error = StoreUnavailable(store.url, f"injected: {fault.value}")
            lie = Failed(error) if fault is Fault.REFUSED else Unknown(error)
            self._transact_in_vain(code, worker_id, epoch, lambda: self._told(fault, lie, done))

    def _told(self, fault: Fault | None, outcome: Outcome | Undone, done: Callable[[Outcome | Undone], None]) -> None:
        store = self._store
        if fault in _CRASHES:
            store.die()
            return
        store.answered()
        if not store.has_crashed:
            is_lost = fault is Fault.LOST_ANSWER and isinstance(outcome, Committed)
            done(Unknown(StoreUnavailable(store.url, f"injected: {fault}")) if is_lost else outcome)


class FaultyStore(Faulty):
    """The real SQLite store, on the loop's thread."""

    def __init__(self, path: str | None) -> None:
        self.inner = SqliteStore(path, threads=False)
        super().__init__(self.inner, self._die_with_transaction_open, self._transact_in_vain)

    def _die_with_transaction_open(self, batch: Batch, died: Callable[[], None]) -> None:
        with contextlib.suppress(_DiedInCommit):
            DyingTransactions(self.inner.file, self.inner.transactions.db).write(batch)
        died()

    def _transact_in_vain(self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[], None]) -> None:
        inner = self.inner.activity_transactions
        real, inner.transactions = inner.transactions, DyingTransactions(self.inner.file, self.inner.transactions.db)
        try:
            with contextlib.suppress(_DiedInCommit):
                inner.transact(code, worker_id, epoch, lambda _: None)
        finally:
            inner.transactions = real
        done()


class DyingTransactions(Transactions):
    """The connection of a process that dies when it is about to commit."""

    def finish(self, committed: Committed) -> Outcome:
        self.roll_back()
        raise _DiedInCommit(committed)


class _DiedInCommit(Exception):  # noqa: N818 - never leaves this module
    """The transaction was open when the process died."""
