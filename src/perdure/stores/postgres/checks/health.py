"""The health of a Postgres database, seen without touching it.

In:   a URL.
Out:  the server and its settings, the schema, the workers and whether they live, how many runs wait, who is in the way.
"""

import asyncio
from typing import Any

import asyncpg
import msgspec

from perdure.clock import SystemClock
from perdure.stores.dialects import NOW_MS, migrations_for, prepare
from perdure.stores.health import Contents, DutySeen, schedule_seen
from perdure.stores.postgres.address import Address, address_of
from perdure.stores.postgres.checks.inspection import dialled, looking_at, workers_seen
from perdure.stores.postgres.checks.schema_diff import differences
from perdure.stores.postgres.connections import Connection
from perdure.stores.postgres.errors import LOST
from perdure.stores.postgres.names import channel_of
from perdure.stores.postgres.schema import UNSAFE, version_of
from perdure.stores.queries import named

# A transaction that is open for longer keeps dead rows from being cleaned away.
LONG_SECONDS = 60
HEARD_SECONDS = 2.0
# The tables whose rows change, not only grow in number.
CHANGING = ("runs", "events", "inbox", "workers")


class Open(msgspec.Struct, frozen=True):
    """A transaction that is open for long, and who holds it; those of other roles are seen by who may see them."""

    holder: str
    seconds: int
    state: str
    # The statement that ends it.
    ending: str = ""


class Hot(msgspec.Struct, frozen=True):
    """A table that changes all the time."""

    table: str
    live: int
    dead: int
    vacuumed_seconds_ago: int | None


class PostgresHealth(Contents, frozen=True):
    """How a database is doing; schema 0 means that it has no tables of ours."""

    server: str
    major: int
    # Those under which what was answered with success may be lost.
    unsafe: dict[str, str]
    synchronous_commit: str
    isolation: str
    is_standby: bool
    is_read_only: bool
    connections: int
    most_connections: int
    schema: int
    known_schema: int
    behind_ms: int
    is_pooled: bool
    # None where nobody listens.
    hears: bool | None
    differences: tuple[str, ...] = ()
    bytes: int = 0
    now: int = 0
    open_long: tuple[Open, ...] = ()
    hot: tuple[Hot, ...] = ()


SETTINGS = """
select version() as server,
       pg_backend_pid() as pid,
       current_setting('server_version_num')::int / 10000 as major,
       current_setting('synchronous_commit') as synchronous_commit,
       -- What holds for others; our connections pin theirs.
       coalesce((select reset_val from pg_settings where name = 'default_transaction_isolation'), '') as isolation,
       pg_is_in_recovery() as is_standby,
       pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on' as is_read_only,
       (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
       current_setting('max_connections')::int
       - current_setting('superuser_reserved_connections')::int
       - coalesce(current_setting('reserved_connections', true), '0')::int as most_connections
"""
# Whoever holds back the cleaning of dead rows.
OPEN_LONG = """
select 'process ' || pid || coalesce(' (' || nullif(application_name, '') || ')', '')
       || coalesce(' of ' || usename, '') || coalesce(' from ' || host(client_addr), '') as holder,
       extract(epoch from clock_timestamp() - xact_start)::bigint as seconds,
       coalesce(state, 'not known') as state,
       'select pg_terminate_backend(' || pid || ')' as ending
  from pg_stat_activity
 where datname = current_database()
   and pid <> pg_backend_pid()
   and backend_type = 'client backend'
   and clock_timestamp() - xact_start > make_interval(secs => $1)
 union all
select 'the prepared transaction ' || gid || ' of ' || owner,
       extract(epoch from clock_timestamp() - prepared)::bigint,
       'prepared',
       'rollback prepared ' || quote_literal(gid)
  from pg_prepared_xacts
 where database = current_database()
   and clock_timestamp() - prepared > make_interval(secs => $1)
 order by seconds desc
 limit 5
"""
HOT = """
select relname as table,
       n_live_tup as live,
       n_dead_tup as dead,
       extract(epoch from clock_timestamp() - greatest(last_vacuum, last_autovacuum))::bigint as vacuumed_seconds_ago
  from pg_stat_user_tables
 where schemaname = $1
   and relname = any($2::text[])
 order by relname
"""
BYTES = """
select coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint
  from pg_class
  join pg_namespace on pg_namespace.oid = relnamespace
 where nspname = $1
   and relkind = 'r'
"""


async def health_of(url: str, long_seconds: float = LONG_SECONDS) -> PostgresHealth:
    """A look at the database, and at who has a transaction open for long; StoreError when it cannot be read as ours."""
    address = address_of(url)
    async with looking_at(address) as connection:
        # Before anything else: where the round trip has nothing to wait for.
        behind_ms = await _behind_ms(connection)
        seen: dict[str, Any] = dict(await connection.fetchrow(SETTINGS) or {})
        # What a pooler says of itself is not what the server behind it says.
        seen["is_pooled"] = is_pooled = connection.get_server_pid() != seen.pop("pid")
        seen |= {"unsafe": await _unsafe(connection), "behind_ms": behind_ms}
        seen["schema"] = schema = await version_of(connection, address)
        known = seen["known_schema"] = len(migrations_for(address.schema))
        if schema == known:
            seen |= await _contents(connection, address)
        seen["open_long"] = await _rows(connection, Open, OPEN_LONG, float(long_seconds))
    listens = address.notifies and not is_pooled
    return PostgresHealth(**seen, hears=await _hears(address) if listens else None)


async def _behind_ms(connection: Connection) -> int:
    """How far this machine's clock is behind the server's; the quickest of a few looks is the truest."""
    clock, looks = SystemClock(), []
    for _ in range(3):
        began = clock.now()
        there = int(await connection.fetchval(f"select {NOW_MS}"))
        ended = clock.now()
        looks.append((ended - began, there - (began + ended) // 2))
    return min(looks)[1]


async def _unsafe(connection: Connection) -> dict[str, str]:
    found = {name: str(await connection.fetchval("select current_setting($1)", name)) for name in UNSAFE}
    return {name: value for name, value in found.items() if value == UNSAFE[name]}


async def _contents(connection: Connection, address: Address) -> dict[str, Any]:
    apart = await differences(connection, address)
    now = int(await connection.fetchval(f"select {NOW_MS}"))
    found: dict[str, Any] = {"differences": tuple(each.found for each in apart), "now": now}
    found["hot"] = await _rows(connection, Hot, HOT, address.schema, CHANGING)
    found["bytes"] = int(await connection.fetchval(BYTES, address.schema))
    if any(each.hinders for each in apart):
        return found
    asked = {name: prepare(sql, address.schema) for name, sql in named("health").items()}
    open_runs, held_runs = await connection.fetchrow(asked["open_runs"].sql) or (0, 0)
    due_runs, due_since = await connection.fetchrow(asked["due_runs"].sql, now) or (0, None)
    ahead = await connection.fetch(asked["written_ahead"].sql, now)
    return found | {
        "is_read": True,
        "workers": await workers_seen(connection, address),
        "open_runs": open_runs,
        "held_runs": held_runs,
        "due_runs": due_runs,
        "due_since": due_since,
        "duties": await _rows(connection, DutySeen, asked["duties"].sql),
        "schedules": tuple(
            filter(None, (schedule_seen(*row) for row in await connection.fetch(asked["schedules"].sql)))
        ),
        "last_written_at": int(await connection.fetchval(asked["last_written"].sql)),
        "written_ahead": tuple(id for id, _ in ahead),
        "written_ahead_runs": ahead[0][1] if ahead else 0,
    }


async def _rows(connection: Connection, kind: Any, sql: str, *parameters: object) -> tuple[Any, ...]:
    return tuple(kind(**dict(row)) for row in await connection.fetch(sql, *parameters))


async def _hears(address: Address) -> bool:
    """Whether what one connection says is heard by another."""
    heard = asyncio.Event()
    # A channel that nobody else listens on.
    channel = f"{channel_of(address.schema)}_doctor"
    async with dialled(address) as listening, dialled(address) as saying:
        try:
            await listening.add_listener(channel, lambda *_: heard.set())
            await saying.execute(f"select pg_notify('{channel}', '')")
            await asyncio.wait_for(heard.wait(), HEARD_SECONDS)
        except (*LOST, asyncpg.PostgresError):
            return False
    return True
