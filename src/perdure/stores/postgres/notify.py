"""Tells other processes by NOTIFY that there is something to do, once in a few milliseconds at most.

In:   what the batches of this process have changed.
Out:  one NOTIFY for many of them, on a connection of its own: a process that notifies waits for all others that
      do, and no batch is to wait for that.
Everything works without them, only later.
"""

import asyncio
import logging

from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import Link
from perdure.stores.postgres.names import LISTENS, channel_of, saying
from perdure.stores.rules.table import News

GAP_SECONDS = 0.01

log = logging.getLogger("perdure.store")


LETTERS = {"w": News.WORK, "e": News.ENDS, LISTENS: News.NOTHING}
ANYTHING = News.WORK | News.ENDS


def written(news: News) -> str:
    """News as they are told."""
    return ("w" if news & News.WORK else "") + ("e" if news & News.ENDS else "")


def read(text: str) -> News:
    """What was told; anything, if that cannot be read."""
    found = News.NOTHING
    for letter in text:
        found |= LETTERS.get(letter, ANYTHING)
    return found if text else ANYTHING


class Notices:
    """What is to be told, and has not been yet."""

    def __init__(self, address: Address, sender: str) -> None:
        self._link = Link(address, "notices")
        self._channel = channel_of(address.schema)
        self._sender = sender
        self._news = News.NOTHING
        self._telling: asyncio.Task[None] | None = None

    def tell(self, news: News) -> None:
        """Tell others soon."""
        self._news |= news
        if self._news and self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._news:
                news, self._news = self._news, News.NOTHING
                connection = await self._link.connection()
                # A hint that is lost with the server's power was for nobody.
                await connection.execute(saying(self._channel, f"{self._sender}:{written(news)}"))
                await asyncio.sleep(GAP_SECONDS)
        except Exception as error:  # noqa: BLE001 - others look by themselves
            self._link.drop()
            log.debug("others were not told that something has changed: %s", error)
        finally:
            self._telling = None

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        await self._link.close()

    def drop(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._link.drop()
