"""Faults around the real Postgres store, in the one process of an environment."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeVar

from perdure.stores.answers import Committed, Outcome
from perdure.stores.operations import Batch
from perdure.stores.port import TransactionalCode
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.postgres.writing.activity_transactions import PostgresActivityTransactions, Session
from perdure.stores.postgres.writing.batches import Writes
from perdure.stores.rules.questions import Steps
from perdure.stores.rules.reads import Reads
from perdure.testing.faults import Faulty

T = TypeVar("T")


class FaultyPostgres(Faulty):
    """The real Postgres store. Who lives is known in the process: here time does not pass while one waits for it."""

    def __init__(self, url: str) -> None:
        # Nobody is told of anything: what a test sees must not depend on when a hint arrives.
        self.inner = inner = PostgresStore(f"{url}{'&' if '?' in url else '?'}notify=off")
        super().__init__(inner, self._die_with_transaction_open, self._transact_in_vain)
        inner.floors.learns = False
        self.reads = Reads(inner.url, self._ask, inner.reads.dialect)
        self.presence = self._living = Living(inner)
        self.changes = AlwaysChanged()

    def _die_with_transaction_open(self, batch: Batch, died: Callable[[], None]) -> None:
        async def die() -> None:
            writes = DyingWrites(self.inner.address, self.inner.floors)
            await writes.write(batch)
            writes.drop()
            died()

        self._dying = asyncio.get_running_loop().create_task(die())

    def _transact_in_vain(self, code: TransactionalCode, worker_id: str, epoch: int, done: Callable[[], None]) -> None:
        DyingActivityTransactions(self.inner.address).transact(code, worker_id, epoch, lambda _: done())

    async def open(self) -> None:
        with self._under_way():
            await super().open()

    async def close(self) -> None:
        with self._under_way():
            await super().close()

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        """Time stands still meanwhile: a busy server takes as long as it takes to greet and to say goodbye."""
        self.under_way += 1
        try:
            yield
        finally:
            self.answered()

    async def _ask(self, quickly: Callable[[], Steps[T]], slowly: Callable[[], Steps[T]] | None = None) -> T:
        with self._under_way():
            return await self.inner.reads.ask(quickly, slowly)

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        self._living.die()
        super().abandon()


class Living:
    """The workers that are alive in this process; leases are renewed as always."""

    all: ClassVar[set[str]] = set()

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._own: set[str] = set()

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        return self._store.presence.renew(worker_id, epoch, lease_until)

    async def keep_alive(self, worker_id: str) -> None:
        self._own.add(worker_id)
        self.all.add(worker_id)

    async def let_die(self, worker_id: str) -> None:
        self._own.discard(worker_id)
        self.all.discard(worker_id)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        return {*worker_ids} - self.all

    def forget(self, worker_id: str) -> None:
        """Nothing is left beside the database."""

    def die(self) -> None:
        """The process has died, and its workers with it."""
        self.all.difference_update(self._own)


class AlwaysChanged:
    """Others may have written at any time."""

    def has_changed(self) -> bool:
        return True

    async def mark(self) -> object:
        return object()

    def on_change(self, changed: Callable[[bool], None]) -> None:
        """Nobody tells."""


class DyingWrites(Writes):
    """A connection whose process dies with its transaction open."""

    async def commit(self, committed: Committed) -> Outcome:
        self.link.drop()
        return committed


class DyingActivityTransactions(PostgresActivityTransactions):
    """Connections whose process dies with its transaction open."""

    async def commit(self, session: Session, committed: Committed) -> Outcome:
        session.drop()
        return committed
