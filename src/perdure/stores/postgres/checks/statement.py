"""One statement of a person on a Postgres database, which can do nothing but read.

In:   a URL, a statement, and how many rows are wanted.
Out:  columns and rows. What writes is refused by the server: the transaction is read-only, has a timeout, and what is
      prepared is a single statement.
"""

import asyncpg

from perdure.errors import BadOption
from perdure.stores.dialects import quoted
from perdure.stores.health import NO_ROWS, StatementRows
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.checks.inspection import looking_at


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
            found = await (await statement.cursor()).fetch(limit + 1)
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise BadOption(f"the database refuses this statement: {error}; only one that reads is taken") from None
        return StatementRows(columns, [tuple(row) for row in found[:limit]], has_more=len(found) > limit)
