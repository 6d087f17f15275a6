"""Postgres: many processes on many machines, every commit synced to disk.

In:   batches, on the loop's thread.
Out:  their outcomes, and reads from connections of their own.

Processes meet in the database: a batch holds its worker's row, so that nobody takes the worker over before it has
ended, and whatever somebody else holds just now is left for the next look.
Knows nothing of workflows, leases or retries.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from perdure.clock import elapsed
from perdure.errors import StoreUnavailable
from perdure.stores.answers import Outcome, Unknown
from perdure.stores.operations import Batch
from perdure.stores.postgres_address import address_of
from perdure.stores.postgres_life import Locks, Renewals
from perdure.stores.postgres_links import dial, is_about_database, unavailable
from perdure.stores.postgres_reads import PostgresReads
from perdure.stores.postgres_schema import check_server, migrate
from perdure.stores.postgres_writes import Writes

log = logging.getLogger("perdure.store")

# How often it is looked for what others have done, where nobody tells.
LOOK_SECONDS = 0.1


class PostgresStore(PostgresReads):
    """A schema in a Postgres database."""

    is_inline = False
    is_held_up = False

    def __init__(self, url: str) -> None:
        super().__init__(address_of(url))
        self._writes = Writes(self.address)
        self._locks = Locks(self.address)
        self._renewals: Renewals | None = None
        self._writing: asyncio.Task[None] | None = None
        self._looked_at = 0.0

    # Opening and closing

    async def open(self) -> None:
        try:
            connection = await dial(self.address, "opening")
            try:
                await check_server(connection, self.address)
                await migrate(connection, self.address)
            finally:
                await connection.close()
        except Exception as error:
            if not is_about_database(error):
                raise
            raise unavailable(self.url, error) from None

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing
        if self._renewals is not None:
            self._renewals.close()
            self._renewals = None
        await self._writes.close()
        await self._locks.close()
        await self._readers.close()

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        if self._writing is not None:
            self._writing.cancel()
        if self._renewals is not None:
            self._renewals.close()
            self._renewals = None
        self._writes.drop()
        self._locks.drop()
        self._readers.drop()

    # Writing

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        self._writing = asyncio.get_running_loop().create_task(self._commit(batch, done))

    async def _commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        try:
            outcome = await self._writes.write(batch)
        except Exception as error:
            log.exception("a batch could not be written", extra={"event": "batch_failed"})
            outcome = Unknown(StoreUnavailable(self.url, f"{type(error).__name__}: {error}"))
        done(outcome)

    # Being alive

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        renewals = self._renewals
        if renewals is None:
            renewals = self._renewals = Renewals(self.address)
        return renewals.renew(worker_id, epoch, lease_until)

    async def keep_alive(self, worker_id: str) -> None:
        await self._locks.hold(worker_id)

    async def let_die(self, worker_id: str) -> None:
        await self._locks.give_up(worker_id)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        await self._locks.keep()
        return await self._locks.dead_among(worker_ids)

    def forget(self, worker_id: str) -> None:
        """Nothing is left beside the database."""

    # Watching

    def has_changed(self) -> bool:
        now = elapsed()
        if now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        return True
