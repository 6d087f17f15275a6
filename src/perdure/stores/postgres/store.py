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
from functools import partial

from perdure.clock import Clock, SharedClock, ToldTime, elapsed, steady_ns
from perdure.errors import StoreUnavailable
from perdure.ids import RandomIds
from perdure.stores.answers import Answer, Committed, Outcome, Unknown
from perdure.stores.dialects import NOW_US
from perdure.stores.operations import Batch, Operation
from perdure.stores.postgres.address import Address, address_of
from perdure.stores.postgres.checks.vacuum_blockers import Holders
from perdure.stores.postgres.connections import Connection, dial_first, is_about_database, unavailable
from perdure.stores.postgres.executor import ask_named
from perdure.stores.postgres.notify import Notices, read
from perdure.stores.postgres.presence import Life
from perdure.stores.postgres.reads import PostgresReads
from perdure.stores.postgres.renewals import Renewals
from perdure.stores.postgres.schema import check_server, migrate
from perdure.stores.postgres.writing.batches import Writes
from perdure.stores.postgres.writing.caller_transaction import write_within
from perdure.stores.rules.table import News

log = logging.getLogger("perdure.store")

# How often it is looked for what others have done, where nobody tells; where somebody does, the look that everybody
# takes once a second anyway is enough for what was not told.
LOOK_SECONDS = 0.1
# How old the server's time may become before it is asked for again.
TIME_SECONDS = 10.0


class PostgresStore(PostgresReads):
    """A schema in a Postgres database."""

    is_inline = False
    is_held_up = False

    def __init__(self, url: str) -> None:
        self._time = ToldTime()
        self._name = RandomIds().token()
        super().__init__(address_of(url))
        self._renewals: Renewals | None = None
        self._writing: asyncio.Task[None] | None = None
        self._asking_time: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._changed: Callable[[bool], None] = lambda _: None
        self._has_news = True
        self._is_worker = False
        self._looked_at = self._time_at = 0.0

    def _equip(self, address: Address) -> None:
        super()._equip(address)
        self._writes = Writes(address, self._floors)
        self._life = Life(address, self._hear)
        self._notices = Notices(address, self._name)
        self._holders = Holders(self._readers)

    # Opening and closing

    async def open(self) -> None:
        try:
            connection, address = await dial_first(self.address)
            try:
                self._equip(address)
                await check_server(connection, self.address)
                await migrate(connection, self.address)
                await self._ask_time(connection)
            finally:
                await connection.close()
        except Exception as error:
            if not is_about_database(error):
                raise
            raise unavailable(self.url, error) from None
        if self._listens:
            await self._life.begin()

    @property
    def _listens(self) -> bool:
        """Whether others tell us that they have written; behind a pooler nobody is there to listen."""
        return self.address.notifies and not self.address.is_pooled

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing
        for task in (self._asking_time, self._looking):
            if task is not None:
                task.cancel()
        if self._renewals is not None:
            self._renewals.close()
            self._renewals = None
        self._holders.stop()
        for opened in (self._notices, self._writes, self._life, self._readers):
            await opened.close()

    def abandon(self) -> None:
        """Let go of everything at once, as if the process had died."""
        for task in (self._writing, self._asking_time, self._looking):
            if task is not None:
                task.cancel()
        if self._renewals is not None:
            self._renewals.close()
            self._renewals = None
        self._holders.stop()
        for opened in (self._notices, self._writes, self._life, self._readers):
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
        if isinstance(outcome, Committed) and self.address.notifies and self._life.has_listeners:
            self._notices.tell(self._writes.news)
        done(outcome)

    async def write_within(self, connection: object, group: Sequence[Operation]) -> Answer:
        return await write_within(connection, self.address, group)

    # Being alive

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        renewals = self._renewals
        if renewals is None:
            renewals = self._renewals = Renewals(self.address, self._time_told)
        return renewals.renew(worker_id, epoch, lease_until)

    async def keep_alive(self, worker_id: str) -> None:
        self._is_worker = True
        # Behind a pooler a lock would belong to whoever has the connection next: there the lease decides.
        if not self.address.is_pooled:
            await self._life.hold(worker_id)

    async def let_die(self, worker_id: str) -> None:
        if not self.address.is_pooled:
            await self._life.give_up(worker_id)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        return set() if self.address.is_pooled else await self._life.dead_among(worker_ids)

    def forget(self, worker_id: str) -> None:
        """Nothing is left beside the database."""

    # Watching

    def on_change(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed

    def _hear(self, said: str) -> None:
        sender, _, text = said.partition(":")
        if sender == self._name:
            return
        # Whoever speaks may listen too; once a second it is looked whether anybody does.
        self._life.has_listeners = True
        news = read(text)
        self._has_news = self._has_news or bool(news & News.WORK)
        if news:
            self._changed(bool(news & News.WORK))

    def has_changed(self) -> bool:
        now = elapsed()
        if now - self._time_at > TIME_SECONDS and self._asking_time is None:
            self._asking_time = asyncio.get_running_loop().create_task(self._ask_time_again())
        if self._floors.is_look_due and self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_from_start())
        if self._is_worker:
            self._holders.watch()
        if not self._has_news and (self._listens or now - self._looked_at < LOOK_SECONDS):
            return False
        self._has_news = False
        self._looked_at = now
        return True

    async def _look_from_start(self) -> None:
        """Look for ripe runs before the floors that claims go by; none of them waits for it."""
        try:
            async with self._readers.one() as link:
                connection = await link.connection()
                await self._floors.look(partial(ask_named, connection, self.address.schema))
        except Exception as error:
            if not is_about_database(error):
                raise
            log.debug("it could not be looked for ripe runs from the start: %s", error)
        finally:
            self._looking = None

    # Time

    def clock(self) -> Clock:
        return SharedClock(self._time)

    def _time_told(self, us: int, asked_ns: int) -> None:
        self._time_at = elapsed()
        self._time.tell(us * 1000, asked_ns)

    async def _ask_time(self, connection: Connection) -> None:
        asked_ns = steady_ns()
        self._time_told(int(await connection.fetchval(f"select {NOW_US}")), asked_ns)

    async def _ask_time_again(self) -> None:
        try:
            async with self._readers.one() as link:
                await self._ask_time(await link.connection())
        except Exception as error:  # noqa: BLE001 - what was told before still holds
            self._time_at = elapsed()
            log.debug("the server's time could not be read: %s", error)
        finally:
            self._asking_time = None
