"""Hints that another process has written to Postgres: told by NOTIFY, or by a look now and then.

In:   what others say.
Out:  whether there may be something new, and at once to who asked to be called.
Each look also sees to what is due now and then: the server's time, the floors of scans, and who blocks vacuum.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from perdure.clock import elapsed
from perdure.stores.postgres.address import Address
from perdure.stores.postgres.checks.vacuum_blockers import Holders
from perdure.stores.postgres.connections import Links
from perdure.stores.postgres.errors import is_about_database
from perdure.stores.postgres.executor import ask_named
from perdure.stores.postgres.notify import read
from perdure.stores.postgres.scan_floor import Floors
from perdure.stores.postgres.server_time import ServerTime
from perdure.stores.rules.table import News

# How often it is looked for what others have done, where nobody tells; where others do, the look that is taken once a
# second anyway is enough for what was not told.
LOOK_SECONDS = 0.1

log = logging.getLogger("perdure.store")


class PostgresChanges:
    """What is known of the changes of others."""

    def __init__(self, address: Address, links: Links, floors: Floors, time: ServerTime) -> None:
        self._floors = floors
        self._time = time
        self._watches_blockers = False
        self._looking: asyncio.Task[None] | None = None
        self._changed: Callable[[bool], None] = lambda _: None
        self._has_news = True
        self._looked_at = 0.0
        self.equip(address, links)

    def equip(self, address: Address, links: Links) -> None:
        """Look there from now on."""
        self._schema = address.schema
        # Behind a pooler nobody is there to listen.
        self.listens = address.notifies and not address.is_pooled
        self._links = links
        self._blockers = Holders(links)

    def on_change(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed

    def hear(self, text: str) -> None:
        """Another process has told this."""
        news = read(text)
        self._has_news = self._has_news or bool(news & News.WORK)
        if news:
            self._changed(bool(news & News.WORK))

    def watch_blockers(self) -> None:
        """Tell from now on who keeps dead rows from being cleaned away: a worker suffers from them."""
        self._watches_blockers = True

    def has_changed(self) -> bool:
        now = elapsed()
        self._time.ask_when_old(self._links)
        if self._floors.is_look_due and self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_from_start())
        if self._watches_blockers:
            self._blockers.watch()
        if not self._has_news and (self.listens or now - self._looked_at < LOOK_SECONDS):
            return False
        self._has_news = False
        self._looked_at = now
        return True

    async def mark(self) -> object:
        """Always the same: writers do not wait for each other here."""
        return None

    async def _look_from_start(self) -> None:
        """Look for ripe runs before the floors that claims go by; none of them waits for it."""
        try:
            async with self._links.one() as link:
                connection = await link.connection()
                await self._floors.look(partial(ask_named, connection, self._schema))
        except Exception as error:
            if not is_about_database(error):
                raise
            log.debug("it could not be looked for ripe runs from the start: %s", error)
        finally:
            self._looking = None

    def stop(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
        self._blockers.stop()
