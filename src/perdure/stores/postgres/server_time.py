"""The time of the server, which all processes on a database share; asked for now and then."""

import asyncio
import logging

from perdure.clock import Clock, SharedClock, ToldTime, elapsed, steady_ns
from perdure.stores.dialects import NOW_US
from perdure.stores.postgres.connections import Connection, Links

# How old the server's time may become before it is asked for again.
TIME_SECONDS = 10.0

log = logging.getLogger("perdure.store")


class ServerTime:
    """The server's time as it was told last."""

    def __init__(self) -> None:
        self._time = ToldTime()
        self._told_at = 0.0
        self._asking: asyncio.Task[None] | None = None

    def clock(self) -> Clock:
        return SharedClock(self._time)

    def told(self, us: int, asked_ns: int) -> None:
        """The server told its time, in microseconds, when it was asked at the other."""
        self._told_at = elapsed()
        self._time.tell(us * 1000, asked_ns)

    async def ask(self, connection: Connection) -> None:
        """Ask for it now."""
        asked_ns = steady_ns()
        self.told(int(await connection.fetchval(f"select {NOW_US}")), asked_ns)

    def ask_when_old(self, links: Links) -> None:
        """Ask for it again if it is old; nobody waits for that."""
        if elapsed() - self._told_at > TIME_SECONDS and self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self.ask_again(links))

    async def ask_again(self, links: Links) -> None:
        """Ask for it once more; what was told before still holds when that fails."""
        try:
            async with links.one() as link:
                await self.ask(await link.connection())
        except Exception as error:  # noqa: BLE001 - what was told before still holds
            self._told_at = elapsed()
            log.debug("the server's time could not be read: %s", error)
        finally:
            self._asking = None

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
