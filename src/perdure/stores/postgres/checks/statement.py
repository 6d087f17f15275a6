"""One statement of a person on a Postgres database, which can do nothing but read.

In:   a URL, a statement, and how many rows are wanted.
Out:  columns and rows. What writes is refused by the server: the transaction is read-only, has a timeout, and what is
      prepared is a single statement. The server's plan of it names the tables that are read, through views as well:
      one that reads the table with the secret of tokens is refused, and so are functions that run text or read files,
      of which no plan tells what they read, and those that act on the server although they write no table.
"""

import json
import re
from collections.abc import Iterator

import asyncpg

from perdure.errors import BadOption
from perdure.stores.dialects import quoted
from perdure.stores.health import NO_ROWS, READABLE, StatementRows
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.checks.inspection import looking_at

# Tokens are made from a secret in this table; it is shown nowhere.
UNSHOWN = "perdure_schema"
# What reads without a word of it in the plan: functions that run a text or read a file.
HIDDEN = re.compile(
    r"\b(query_to_xml|table_to_xml|schema_to_xml|database_to_xml|cursor_to_xml|ts_stat|ts_rewrite|dblink|pg_read_|pg_ls_"
    r"|lo_|loread|lowrite|pg_stat_file)\w*\(",
    re.IGNORECASE,
)
# What acts though it writes no table, which a read-only transaction lets pass: on other sessions, or on the server.
ACTING = re.compile(
    r"\b(pg_terminate_backend|pg_cancel_backend|pg_notify|pg_advisory_|pg_try_advisory_|pg_logical_emit_message|pg_reload_"
    r"|pg_rotate_|pg_switch_|pg_promote|pg_create_|pg_drop_|pg_stat_reset|pg_wal_replay_)\w*\(",
    re.IGNORECASE,
)


async def rows_of(url: str, sql: str, limit: int, seconds: float) -> StatementRows:
    """What a statement finds; BadOption when the server refuses it, or it takes too long."""
    address = address_of(url)
    async with looking_at(address) as connection:
        await connection.execute(f"set local statement_timeout = {round(seconds * 1000)}")
        await connection.execute(f"set local search_path = {quoted(address.schema)}")
        try:
            statement = await connection.prepare(sql)
            columns = tuple(each.name for each in statement.get_attributes())
            if not columns:
                raise BadOption(NO_ROWS)
            _check(await _plan(connection, sql))
            found = await (await statement.cursor()).fetch(limit + 1)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise BadOption(f"the database refuses this statement: {error}; {READABLE}") from None
        except (asyncpg.InternalClientError, OverflowError, ValueError) as error:
            if connection.is_closed():
                raise
            # The server has answered, and what it found has no like here: an infinite time, a list of anything.
            raise BadOption(f"a value that was found cannot be read: {error}; have it as text (::text)") from None
        return StatementRows(columns, [tuple(row) for row in found[:limit]], has_more=len(found) > limit)


async def _plan(connection: "asyncpg.Connection[asyncpg.Record]", sql: str) -> str:
    """The server's plan of a statement; BadOption for one that has none, such as `explain` and `show`."""
    try:
        return str(await connection.fetchval(f"explain (verbose, format json) {sql}"))
    except asyncpg.PostgresSyntaxError:
        # It was prepared before, so it is one that cannot be explained.
        raise BadOption(f"only a select, or a with, table or values, is run here, not this one; {READABLE}") from None


def _check(plan: str) -> None:
    """BadOption for a plan that reads what is shown nowhere, or of which nobody can tell."""
    for key, value in _entries(json.loads(plan)):
        if key == "Relation Name" and value == UNSHOWN:
            raise BadOption(f"{UNSHOWN} holds the secret that tokens are made from, and is not shown")
        if (found := HIDDEN.search(value)) is not None:
            raise BadOption(
                f"{found.group()[:-1]} reads what the database does not tell beforehand; read tables and views"
            )
        if (found := ACTING.search(value)) is not None:
            raise BadOption(f"{found.group()[:-1]} does more than read; whoever means it has psql; {READABLE}")


def _entries(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """All texts of a plan, each with its key."""
    match value:
        case dict():
            for name, inner in value.items():
                yield from _entries(inner, name)
        case list():
            for inner in value:
                yield from _entries(inner, key)
        case str():
            yield key, value
        case _:
            return
