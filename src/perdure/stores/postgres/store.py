"""Postgres: many processes on many machines, every commit synced to disk.

In:   batches, on the loop's thread.
Out:  their outcomes, and reads from connections of their own.

Processes meet in the database: a batch holds its worker's row, so that nobody takes the worker over before it has
ended, and a row that another transaction holds is left for the next look.
Knows nothing of workflows, leases or retries.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from perdure.clock import Clock
from perdure.errors import StoreUnavailable
from perdure.ids import RandomIds
from perdure.stores.answers import Answer, Committed, Outcome, Unknown
from perdure.stores.listing import POSTGRES
from perdure.stores.operations import Batch, Operation
from perdure.stores.postgres.address import Address, address_of
from perdure.stores.postgres.changes import PostgresChanges
from perdure.stores.postgres.connections import dial_first
from perdure.stores.postgres.errors import is_about_database, unavailable
from perdure.stores.postgres.notify import Notices
from perdure.stores.postgres.presence import PostgresPresence
from perdure.stores.postgres.reads import Readers
from perdure.stores.postgres.scan_floor import Floors
from perdure.stores.postgres.schema import check_server, migrate
from perdure.stores.postgres.server_time import ServerTime
from perdure.stores.postgres.writing.activity_transactions import PostgresActivityTransactions
from perdure.stores.postgres.writing.batches import Writes
from perdure.stores.postgres.writing.caller_transaction import write_within
from perdure.stores.rules.reads import Reads

log = logging.getLogger("perdure.store")


class PostgresStore:
    """A schema in a Postgres database; when it is opened it learns whether a pooler stands in between."""

    is_inline = False
    is_held_up = False

    def __init__(self, url: str) -> None:
        address = address_of(url)
        self.url = address.shown
        self.floors = Floors()
        self.time = ServerTime()
        self._name = RandomIds().token()
        self._writing: asyncio.Task[None] | None = None
        self.readers = Readers(address, self.floors)
        self.reads = Reads(address.shown, self.readers.ask, POSTGRES)
        self.changes = PostgresChanges(address, self.readers.links, self.floors, self.time)
        self.presence = PostgresPresence(address, self._name, self.time, self.changes)
        self.activity_transactions = PostgresActivityTransactions(address)
        self._equip(address)

    def _equip(self, address: Address) -> None:
        self.address = address
        self.readers.equip(address)
        self.changes.equip(address, self.readers.links)
        self.presence.equip(address)
        self._writes = Writes(address, self.floors)
        self._notices = Notices(address, self._name)
        self.activity_transactions.address = address

    # Opening and closing

    async def open(self) -> None:
        try:
            connection, address = await dial_first(self.address)
            try:
                self._equip(address)
                await check_server(connection, self.address)
                await migrate(connection, self.address)
                await self.time.ask(connection)
            finally:
                await connection.close()
        except Exception as error:
            if not is_about_database(error):
                raise
            raise unavailable(self.url, error) from None
        if self.changes.listens:
            await self.presence.listen()

    async def close(self) -> None:
        try:
            if self._writing is not None:
                await self._writing
            self.time.stop()
            self.changes.stop()
            for opened in (self._notices, self._writes, self.activity_transactions, self.presence, self.readers.links):
                await opened.close()
        except asyncio.CancelledError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        if self._writing is not None:
            self._writing.cancel()
        self.time.stop()
        self.changes.stop()
        for opened in (self._notices, self._writes, self.activity_transactions, self.presence, self.readers.links):
            opened.drop()

    # Writing

    def commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        self._writing = asyncio.get_running_loop().create_task(self._commit(batch, done))

    async def _commit(self, batch: Batch, done: Callable[[Outcome], None]) -> None:
        try:
            outcome = await self._writes.write(batch)
        except Exception as error:
            log.exception("a batch could not be written", extra={"event": "batch_failed"})
            outcome = Unknown(StoreUnavailable(self.url, f"{type(error).__name__}: {error}"))
        if isinstance(outcome, Committed) and self.address.notifies and self.presence.life.has_listeners:
            self._notices.tell(self._writes.news)
        done(outcome)

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        return await write_within(connection, self.address, group)

    def clock(self) -> Clock:
        return self.time.clock()
