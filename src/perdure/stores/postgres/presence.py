"""Which workers are alive on Postgres: one connection is kept, for locks that vanish with its process and for hints.

In:   worker ids; what others say.
Out:  who is dead, and that another process has written.

The connection does nothing else, so that the server sees within milliseconds when its process has died. It frees
locks as well when the connection alone is lost: dead is whose lock stays free for a while.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from perdure.clock import elapsed
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.changes import PostgresChanges
from perdure.stores.postgres.connections import Connection, Link
from perdure.stores.postgres.errors import is_about_database, unavailable
from perdure.stores.postgres.names import LISTENS, channel_of, key_of, saying
from perdure.stores.postgres.renewals import Renewals
from perdure.stores.postgres.server_time import ServerTime

# Whose connection was lost gets it back within this time, or is dead. It is tried more often than that: after a
# crash of the server all have lost theirs, and who is back first must not take the others for dead.
GONE_SECONDS = 0.6
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.05, 0.2
LOCKS = """
select (classid::bigint << 32) | objid::bigint
  from pg_locks
 where locktype = 'advisory'
   and objsubid = 1
   and granted
   and database = (select oid from pg_database where datname = current_database())
"""
# A process that stopped after it had told the server of a statement, and before it let it run, is not idle for the
# server, which would end idle ones by itself; its transaction would keep its worker from being taken over for ever.
END_HUNG = """
select pg_terminate_backend(pid)
  from pg_stat_activity
 where datname = current_database()
   and usename = current_user
   and application_name = 'perdure writes'
   and state = 'active'
   and wait_event = 'ClientRead'
   and state_change < clock_timestamp() - $1::bigint * interval '1 ms'
"""
# How often it is looked for them, and how long what is sent may be on its way over a slow network.
HUNG_SECONDS, HUNG_MS = 5.0, 10_000

log = logging.getLogger("perdure.store")


class PostgresPresence:
    """The locks of this process's workers, and the renewals of their leases."""

    def __init__(self, address: Address, name: str, time: ServerTime, changes: PostgresChanges) -> None:
        self._name = name
        self._time = time
        self._changes = changes
        self._renewals: Renewals | None = None
        self.equip(address)

    def equip(self, address: Address) -> None:
        """Be alive there from now on."""
        self._address = address
        self.life = Life(address, self._hear)

    async def listen(self) -> None:
        """Hear from now on what others say."""
        await self.life.begin()

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        renewals = self._renewals
        if renewals is None:
            renewals = self._renewals = Renewals(self._address, self._time.told)
        return renewals.renew(worker_id, epoch, lease_until)

    async def keep_alive(self, worker_id: str) -> None:
        self._changes.watch_blockers()
        # Behind a pooler a lock would belong to the next user of the connection: there the lease decides.
        if not self._address.is_pooled:
            await self.life.hold(worker_id)

    async def let_die(self, worker_id: str) -> None:
        if not self._address.is_pooled:
            await self.life.give_up(worker_id)

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        return set() if self._address.is_pooled else await self.life.dead_among(worker_ids)

    def forget(self, worker_id: str) -> None:
        """Nothing is left beside the database."""

    def _hear(self, said: str) -> None:
        sender, _, text = said.partition(":")
        if sender != self._name:
            # A process that speaks may listen too; once a second it is looked whether any does.
            self.life.has_listeners = True
            self._changes.hear(text)

    async def close(self) -> None:
        self._end_renewals()
        await self.life.close()

    def drop(self) -> None:
        self._end_renewals()
        self.life.drop()

    def _end_renewals(self) -> None:
        if self._renewals is not None:
            self._renewals.close()
            self._renewals = None


class Life:
    """The connection that shows that this process is alive; got back when it is lost."""

    def __init__(self, address: Address, heard: Callable[[str], None]) -> None:
        self._address = address
        self._heard = heard
        self._link = Link(address, "life")
        self._listening = key_of(address.schema, "listening")
        self._held: set[str] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._ended_hung_at = 0.0
        self.has_listeners = True

    async def begin(self) -> None:
        """Connect, and stay connected."""
        await self._ask(self._settle_in)
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def hold(self, worker_id: str) -> None:
        """Take the lock of a worker of ours."""
        self._held.add(worker_id)
        await self.begin()

    async def give_up(self, worker_id: str) -> None:
        """Let a lock go."""
        self._held.discard(worker_id)
        if not self._link.is_lost:
            key = key_of(self._address.schema, worker_id)
            await self._ask(lambda connection: connection.execute(f"select pg_advisory_unlock({key})"))

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        """Those whose locks are free, and still are after a while."""
        if elapsed() - self._ended_hung_at > HUNG_SECONDS:
            self._ended_hung_at = elapsed()
            await self._ask(lambda connection: connection.fetch(END_HUNG, HUNG_MS))
        free = await self._free_among(worker_ids)
        if free:
            # Waited for here and not until the next look, which comes too late for who waits for these runs.
            await asyncio.sleep(GONE_SECONDS)
            free = await self._free_among(free)
        return {*free}

    async def _free_among(self, worker_ids: Sequence[str]) -> list[str]:
        rows = await self._ask(lambda connection: connection.fetch(LOCKS))
        held = [number for (number,) in rows]
        self.has_listeners = held.count(self._listening) > 1
        taken = {*held}
        return [worker_id for worker_id in worker_ids if key_of(self._address.schema, worker_id) not in taken]

    async def close(self) -> None:
        self._stop_keeping()
        await self._link.close()

    def drop(self) -> None:
        self._stop_keeping()
        self._link.drop()

    def _stop_keeping(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None

    async def _ask(self, question: Callable[[Connection], Any]) -> Any:
        async with self._turn:
            try:
                return await question(await self._link.connection())
            except Exception as error:
                if not is_about_database(error):
                    raise
                self._link.drop()
                raise unavailable(self._address.shown, error) from None

    async def _settle_in(self, connection: Connection) -> None:
        """Take all locks and listen, on a connection that may be new."""
        keys = [key_of(self._address.schema, worker_id) for worker_id in sorted(self._held)]
        # Taken twice it would have to be given up twice.
        wanted = "; ".join(f"select pg_try_advisory_lock({key}) where not exists ({_own_lock(key)})" for key in keys)
        if wanted:
            await connection.execute(wanted)
        if self._address.notifies:
            await self._listen(connection)

    async def _listen(self, connection: Connection) -> None:
        key = self._listening
        await connection.execute(f"select pg_advisory_lock_shared({key}) where not exists ({_own_lock(key)})")
        channel = channel_of(self._address.schema)
        # Once for each callback, however often it is added.
        await connection.add_listener(channel, self._hear)
        # Who was alone until now has told nobody of anything.
        await connection.execute(saying(channel, f":{LISTENS}"))

    def _hear(self, *said: object) -> None:
        self._heard(str(said[3]))

    async def _keep(self) -> None:
        """Get the connection back whenever it is lost."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._ask(self._settle_in)
                pause = FIRST_PAUSE_SECONDS
                await self._lost()
                # What was said meanwhile was not heard.
                self._heard("")
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may find it over
                log.debug("no connection to show that this process is alive: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE_SECONDS)

    async def _lost(self) -> None:
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection = await self._link.connection()

        def note(_: object) -> None:
            if not lost.done():
                lost.set_result(None)

        connection.add_termination_listener(note)
        await lost


def _own_lock(key: int) -> str:
    high, low = (key >> 32) & 0xFFFFFFFF, key & 0xFFFFFFFF
    this_one = f"classid = {high} and objid = {low} and objsubid = 1"
    return f"select 1 from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and {this_one}"  # noqa: S608 - numbers
