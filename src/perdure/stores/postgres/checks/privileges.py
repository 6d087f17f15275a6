"""What a role may not do that a worker must.

In:   a URL.
Out:  the rights its role lacks, on tables and functions of ours.
"""

from perdure.stores.dialects import TABLES
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.checks.inspection import looking_at
from perdure.stores.postgres.writing.function import write_batch
from perdure.stores.queries import VERSION

# Who works with the tables never writes which version they have.
WORKED = tuple(name for name in TABLES if name != VERSION)
LACKING = """
select right_name || ' on ' || string_agg(relname, ', ' order by relname) as lacking
  from pg_class
  join pg_namespace on pg_namespace.oid = relnamespace
 cross join unnest(array['select', 'insert', 'update', 'delete']) with ordinality as rights (right_name, number)
 where nspname = $1
   and relname = any($2::text[])
   and relkind in ('r', 'p')
   and not has_table_privilege(pg_class.oid, right_name)
 group by right_name, number
 order by number
"""
LACKING_FUNCTIONS = """
select 'execute on ' || proname as lacking
  from pg_proc
  join pg_namespace on pg_namespace.oid = pronamespace
 where nspname = $1
   and proname = any($2::text[])
   and not has_function_privilege(pg_proc.oid, 'execute')
 order by proname
"""


async def lacking_rights(url: str) -> tuple[str, ...]:
    """What the role of this URL would have to be granted before it can work; empty when it has all."""
    address = address_of(url)
    function = write_batch(address.schema).name.rpartition(".")[2]
    async with looking_at(address) as connection:
        rows = await connection.fetch(LACKING, address.schema, WORKED)
        rows += await connection.fetch(LACKING_FUNCTIONS, address.schema, (function, f"{function}_check"))
    return tuple(row["lacking"] for row in rows)
