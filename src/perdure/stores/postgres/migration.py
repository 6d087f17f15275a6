"""What `perdure migrate` does to a Postgres database.

In:   a URL.
Out:  the plan that was carried out, or the same as a script; the script that makes the roles.
"""

from importlib.resources import files

from perdure.stores.dialects import literal, quoted
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.checks.inspection import dialled, looking_at
from perdure.stores.postgres.schema import Plan, check_server, migrate, plan, script_of


async def migrated(url: str) -> Plan:
    """Bring the schema up to date; what was done."""
    address = address_of(url)
    async with dialled(address) as connection:
        await check_server(connection, address)
        return await migrate(connection, address)


async def planned(url: str) -> tuple[Plan, str]:
    """What there is to do, and the script that does it; empty when there is nothing."""
    address = address_of(url)
    async with looking_at(address) as connection:
        todo = await plan(connection, address)
    return todo, script_of(address, todo.statements) if todo.statements else ""


def roles(url: str) -> str:
    """The script that makes a role that owns, and one that works."""
    schema = address_of(url).schema
    text = files("perdure.stores.postgres").joinpath("sql", "roles.sql").read_text()
    # regnamespace reads a name as SQL does, quotes and all.
    return text.replace("{schema}", quoted(schema)).replace("{schema_name}", literal(quoted(schema)))
