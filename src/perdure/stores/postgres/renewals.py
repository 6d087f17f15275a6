"""Leases on Postgres, renewed on a connection and a loop of their own, whatever the caller's loop does."""

import asyncio
import threading
from collections.abc import Callable

from perdure.clock import steady_ns
from perdure.stores.dialects import prepared
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import Link
from perdure.stores.postgres.errors import LOST, is_about_database, unavailable

PATIENCE_SECONDS = 10.0


class Renewals:
    """Renews in a thread; `told` hears with each renewal the server's time, in microseconds, and when it was asked."""

    def __init__(self, address: Address, told: Callable[[int, int], None]) -> None:
        self._address = address
        self._told = told
        self._loop = asyncio.new_event_loop()
        self._link = Link(address, "lease")
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure-renewals", daemon=True)
        self._thread.start()

    def renew(self, worker_id: str, epoch: int, lease_until: int) -> bool:
        """Prolong a lease, from any thread; False when the epoch moved."""
        work = self._renew({"worker_id": worker_id, "epoch": epoch, "lease_until": lease_until})
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    async def _renew(self, row: dict[str, object]) -> bool:
        try:
            try:
                return await self._update(row)
            except LOST:
                # It may have been lost while nobody needed it.
                self._link.drop()
                return await self._update(row)
        except Exception as error:
            if not is_about_database(error):
                raise
            self._link.drop()
            raise unavailable(self._address.shown, error) from None

    async def _update(self, row: dict[str, object]) -> bool:
        query = prepared("renew_worker", self._address.schema)
        connection = await self._link.connection()
        asked_ns = steady_ns()
        found = await connection.fetch(query.sql, *query.bound(row))
        if found:
            self._told(found[0][0], asked_ns)
        return bool(found)

    def close(self) -> None:
        """Let go of the connection and of the thread."""

        async def end() -> None:
            await self._link.close()
            self._loop.call_soon(self._loop.stop)

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(2.0)
        if not self._thread.is_alive():
            self._loop.close()
