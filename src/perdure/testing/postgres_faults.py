"""Faults around the real Postgres store, in the one process of an environment."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeVar

from perdure.stores.answers import Committed, Outcome
from perdure.stores.operations import Batch
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.postgres.writing.batches import Writes
from perdure.stores.rules.questions import Steps
from perdure.testing.faults import Faulty

T = TypeVar("T")


class FaultyPostgres(Faulty, PostgresStore):
    """The real Postgres store. Who lives is known in the process: here time does not pass while one waits for it."""

    living: ClassVar[set[str]] = set()

    def __init__(self, url: str) -> None:
        # Nobody is told of anything: what a test sees must not depend on when a hint arrives.
        super().__init__(f"{url}{'&' if '?' in url else '?'}notify=off")
        self._own: set[str] = set()
        self._floors.learns = False

    def really_commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        PostgresStore.commit(self, batch, done)

    def die_in(self, batch: Batch, died: Callable[[], None]) -> None:
        async def die() -> None:
            writes = DyingWrites(self.address, self._floors)
            await writes.write(batch)
            writes.drop()
            died()

        self._dying = asyncio.get_running_loop().create_task(die())

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
            return await super()._ask(quickly, slowly)

    async def keep_alive(self, worker_id: str) -> None:
        self._own.add(worker_id)
        self.living.add(worker_id)

    async def let_die(self, worker_id: str) -> None:
        self._own.discard(worker_id)
        self.living.discard(worker_id)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        return {*worker_ids} - self.living

    def has_changed(self) -> bool:
        return True

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        self.living.difference_update(self._own)
        super().abandon()


class DyingWrites(Writes):
    """A connection whose process dies with its transaction open."""

    async def _commit(self, committed: Committed) -> Outcome:
        self._link.drop()
        return committed
