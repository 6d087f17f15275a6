"""Holders: who keeps dead rows from being cleaned away, told in the log of a worker.

In:   a look at the server, once a minute.
Out:  a line for whoever holds the oldest of what it sees, once, and one when that is over.

A report that was left open over night keeps every row that has changed since; everything becomes slow, and nothing says
why. How long somebody has held it is what this process has seen of it: since when is told only of transactions of the
own role, and one that is old may have begun to look a moment ago.
"""

import asyncio
import logging
from typing import Any

from perdure.clock import elapsed
from perdure.stores.postgres.connections import Connection, Links
from perdure.stores.postgres.errors import is_about_database

log = logging.getLogger("perdure.store")

LOOK_SECONDS = 60.0
LONG_SECONDS = 60.0
# Transactions of this database, standbys that tell what they still need, transactions that were prepared, and slots;
# the number shows whether it is still the same.
HOLDERS = """
select 'process ' || pid || coalesce(' (' || nullif(application_name, '') || ')', '')
       || coalesce(' of ' || usename, '') || coalesce(' from ' || host(client_addr), '')
       || coalesce(', which is ' || state || ',', '') as holder,
       coalesce(backend_xid, backend_xmin)::text as number,
       'select pg_terminate_backend(' || pid || ')' as ending
  from pg_stat_activity
 where (datname = current_database() or datname is null)
   and usesysid is not null
   -- Of other roles' sessions nothing is told of what kind they are; autovacuum has no role.
   and (backend_type is null or backend_type in ('client backend', 'walsender'))
   and pid <> pg_backend_pid()
   and coalesce(backend_xid, backend_xmin) is not null
 union all
select 'the prepared transaction ' || gid || ' of ' || owner,
       transaction::text,
       'rollback prepared ' || quote_literal(gid)
  from pg_prepared_xacts
 where database = current_database()
 union all
select 'the replication slot ' || slot_name,
       xmin::text,
       'select pg_drop_replication_slot(' || quote_literal(slot_name) || ')'
  from pg_replication_slots
 where xmin is not null
"""


class Holders:
    """Those that were seen at the last looks, and since when."""

    def __init__(self, readers: Links) -> None:
        self._readers = readers
        self._since: dict[tuple[str, str], float] = {}
        self._told: dict[tuple[str, str], str] = {}
        self._looked_at = elapsed()
        self._look: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Look, if it is time; nobody waits for it."""
        if self._look is None and elapsed() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = elapsed()
            self._look = asyncio.get_running_loop().create_task(self._safely_look())

    def stop(self) -> None:
        if self._look is not None:
            self._look.cancel()

    async def _safely_look(self) -> None:
        try:
            async with self._readers.one() as link:
                await self.look(await link.connection())
        except Exception as error:
            if not is_about_database(error):
                raise
            log.debug("it could not be seen who holds a snapshot: %s", error)
        finally:
            self._look = None

    async def look(self, connection: Connection) -> None:
        """See who is there, tell of the one that has been there for longest, and of those that are gone."""
        rows = await connection.fetch(HOLDERS)
        seen: dict[tuple[str, str], Any] = {(row["ending"], row["number"]): row for row in rows}
        now = elapsed()
        self._since = {key: self._since.get(key, now) for key in seen}
        for key in self._told.keys() - seen.keys():
            log.warning("%s has ended", self._told.pop(key), extra={"event": "snapshot_held_over"})
        oldest = min(self._since, key=lambda key: self._since[key], default=None)
        if oldest is not None and oldest not in self._told and now - self._since[oldest] >= LONG_SECONDS:
            self._tell(oldest, seen[oldest], now - self._since[oldest])

    def _tell(self, key: tuple[str, str], row: Any, seconds: float) -> None:
        holder = self._told[key] = f"the snapshot of {row['holder']}"
        log.warning(
            "%s is open for %.0f s or longer; dead rows are kept until it ends, and make everything slow; let it "
            "commit, or end it with `%s`",
            holder,
            seconds,
            row["ending"],
            extra={"event": "snapshot_held"},
        )
