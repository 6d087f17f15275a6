"""Notices: hints to other processes that there is something to do, a few milliseconds apart at most.

In:   what the batches of this process have changed.
Out:  one NOTIFY for many of them, on a connection of its own: whoever notifies waits for all others who do,
      and no batch is to wait for that.
Everything works without them, only later.
"""

import asyncio
import logging
from collections.abc import Sequence
from enum import Flag, auto

from perdure.stores.operations import (
    CloseFreeRun,
    EndRun,
    FreeMismatches,
    FreeOrphans,
    FreeRuns,
    HoldRun,
    InsertRichRun,
    InsertRun,
    MoveMessages,
    Operation,
    ParkRun,
    PostMessage,
    ResumeRun,
    StopChildren,
    TellRun,
)
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.connections import Link
from perdure.stores.postgres.presence import LISTENS, channel_of, saying

GAP_SECONDS = 0.01

log = logging.getLogger("perdure.store")


class News(Flag):
    """What others may want to know."""

    NOTHING = 0
    WORK = auto()  # messages, or runs to take
    ENDS = auto()  # runs that ended, or are held

    @classmethod
    def of(cls, text: str) -> "News":
        """What was told; anything, if that cannot be read."""
        known = {"w": cls.WORK, "e": cls.ENDS, LISTENS: cls.NOTHING}
        found = cls.NOTHING
        for letter in text:
            found |= known.get(letter, cls.WORK | cls.ENDS)
        return found if text else cls.WORK | cls.ENDS

    def __str__(self) -> str:
        return ("w" if self & News.WORK else "") + ("e" if self & News.ENDS else "")


# What others may want to know of an operation; of those that are not here, nothing. A claim is nobody's news: workers
# that told each other of theirs would never come to rest.
_NEWS: dict[type[Operation], News] = {
    PostMessage: News.WORK,
    TellRun: News.WORK,
    MoveMessages: News.WORK,
    ParkRun: News.WORK,
    ResumeRun: News.WORK,
    FreeMismatches: News.WORK,
    FreeOrphans: News.WORK,
    # One may be held instead.
    FreeRuns: News.WORK | News.ENDS,
    StopChildren: News.WORK | News.ENDS,
    EndRun: News.ENDS,
    CloseFreeRun: News.ENDS,
    HoldRun: News.ENDS,
}


def news_of(groups: Sequence[Sequence[Operation]]) -> News:
    """What others may want to know of a batch."""
    news = News.NOTHING
    for group in groups:
        for operation in group:
            if isinstance(operation, InsertRun | InsertRichRun):
                # Nobody else can take one that has an owner.
                news |= News.WORK if operation.owner is None else News.NOTHING
            else:
                news |= _NEWS.get(type(operation), News.NOTHING)
    return news


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
                await connection.execute(saying(self._channel, f"{self._sender}:{news}"))
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
