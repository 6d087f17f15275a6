"""Being alive on Postgres: locks that the server frees when a process dies, and leases renewed from a thread.

In:   worker ids.
Out:  who is dead, and whether a lease still holds.

A lock belongs to a connection that does nothing else; the server frees it a few milliseconds after its process has
died. It frees it as well when the connection alone is lost, so that somebody is dead only when the lock stays free.
"""

import asyncio
import hashlib
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from perdure.clock import elapsed
from perdure.stores.postgres_address import Address
from perdure.stores.postgres_links import LOST, Link, is_about_database, unavailable
from perdure.stores.postgres_sql import prepared

# Whose connection was lost gets it back within this time, or is dead.
GONE_SECONDS = 1.0
RENEWAL_SECONDS = 10.0
LOCKS = """
select (classid::bigint << 32) | objid::bigint
  from pg_locks
 where locktype = 'advisory'
   and objsubid = 1
   and granted
   and database = (select oid from pg_database where datname = current_database())
"""

T = TypeVar("T")


def key_of(schema: str, worker_id: str) -> int:
    """The number of a worker's lock."""
    digest = hashlib.blake2b(f"perdure {schema} {worker_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class Locks:
    """The locks of this process's workers, on a connection of their own, which is kept."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._link = Link(address, "life")
        self._held: set[str] = set()
        self._gone_since: dict[str, float] = {}

    async def hold(self, worker_id: str) -> None:
        """Take the lock of a worker of ours."""
        self._held.add(worker_id)
        await self._lock([worker_id])

    async def give_up(self, worker_id: str) -> None:
        """Let a lock go."""
        self._held.discard(worker_id)
        try:
            connection = await self._link.connection()
            await connection.execute(f"select pg_advisory_unlock({key_of(self._address.schema, worker_id)})")
        except Exception as error:
            if not is_about_database(error):
                raise
            # With its connection the lock is gone as well.
            self._link.drop()

    async def keep(self) -> None:
        """Take the locks again, if their connection was lost."""
        if self._held and self._link.is_lost:
            await self._lock(sorted(self._held))

    async def _lock(self, worker_ids: Sequence[str]) -> None:
        keys = [key_of(self._address.schema, worker_id) for worker_id in worker_ids]
        taken = "; ".join(f"select pg_try_advisory_lock({key})" for key in keys)
        try:
            await (await self._link.connection()).execute(taken)
        except Exception as error:
            if not is_about_database(error):
                raise
            self._link.drop()
            raise unavailable(self._address.shown, error) from None

    async def dead_among(self, worker_ids: Sequence[str]) -> set[str]:
        """Those whose locks have been free for a while."""
        try:
            rows = await (await self._link.connection()).fetch(LOCKS)
        except Exception as error:
            if not is_about_database(error):
                raise
            self._link.drop()
            raise unavailable(self._address.shown, error) from None
        held = {number for (number,) in rows}
        free = [worker_id for worker_id in worker_ids if key_of(self._address.schema, worker_id) not in held]
        now = elapsed()
        self._gone_since = {worker_id: self._gone_since.get(worker_id, now) for worker_id in free}
        return {worker_id for worker_id, since in self._gone_since.items() if now - since >= GONE_SECONDS}

    async def close(self) -> None:
        await self._link.close()

    def drop(self) -> None:
        self._link.drop()


class Renewals:
    """Renews leases on a connection and a loop of their own, whatever the loop of the caller does."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._link = Link(address, "lease")
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure-renewals", daemon=True)
        self._thread.start()

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        """Prolong a lease; False when the epoch moved."""
        return self._wait_for(self._renew(worker_id, epoch, lease_until))

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(RENEWAL_SECONDS)

    async def _renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        query = prepared("renew_worker", self._address.schema)
        row = query.bound({"worker_id": worker_id, "epoch": epoch, "lease_until": lease_until})
        try:
            try:
                return bool(await (await self._link.connection()).fetch(query.sql, *row))
            except LOST:
                self._link.drop()
                return bool(await (await self._link.connection()).fetch(query.sql, *row))
        except Exception as error:
            if not is_about_database(error):
                raise
            self._link.drop()
            raise unavailable(self._address.shown, error) from None

    def close(self) -> None:
        """Let go of the connection; its thread ends by itself."""

        async def end() -> None:
            await self._link.close()
            self._loop.call_soon(self._loop.stop)

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(2.0)
        if not self._thread.is_alive():
            self._loop.close()
