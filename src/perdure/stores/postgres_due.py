"""The runs in a Postgres database that a worker should have taken.

In:   a URL.
Out:  how many there are on each queue, and of which workflow.
"""

from perdure.stores.health import Due
from perdure.stores.postgres_address import address_of
from perdure.stores.postgres_look import looking_at
from perdure.stores.postgres_sql import NOW_MS, prepare
from perdure.stores.queries import named


async def due_of(url: str) -> tuple[Due, ...]:
    """What is due in a schema that has our tables, the most first."""
    address = address_of(url)
    async with looking_at(address) as connection:
        now = int(await connection.fetchval(f"select {NOW_MS}"))
        rows = await connection.fetch(prepare(named("health")["due_kinds"], address.schema).sql, now)
    return tuple(Due(*row) for row in rows)
