"""The function in the database that writes a batch in a single call; its text is made from the table of operations."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from perdure.stores.dialects import COMMENT, literal, qualified, quoted
from perdure.stores.queries import queries
from perdure.stores.rules.inbox import SENT
from perdure.stores.rules.table import Part, parts_of_single_call, shown_parts

_PLAIN = """
        {statement};
"""
_COUNTED = """
        {statement};
        get diagnostics changed = row_count;
        perform {schema}.{function}_check(changed, given -> '{name}');
"""
_RETURNING = """
        with of_runs as ({statement})
        select count(*) into changed from of_runs;
        perform {schema}.{function}_check(changed, given -> '{name}');
"""
_POSTING = """
        with of_messages as ({statement})
        select coalesce(jsonb_agg(jsonb_build_array(number, run_id, message_id, kind, at)), '[]'), count(*)
          into posted, changed
          from of_messages;
        perform {schema}.{function}_check(changed, given -> '{name}');
        select jsonb_agg(jsonb_build_array(run_id, how_many, are_signals, first_at))
          into told
          from (
                 select m ->> 1 as run_id,
                        count(*) as how_many,
                        bool_and(m ->> 3 in ({sent})) as are_signals,
                        min((m ->> 4)::bigint) as first_at
                   from jsonb_array_elements(posted) as m
                  group by m ->> 1
                  order by m ->> 1
               ) as by_run;
        with of_runs as ({count_posted})
        select jsonb_agg(jsonb_build_array(run_id, messages)) into counts from of_runs;
"""
_TEMPLATES = {Part.PLAIN: _PLAIN, Part.COUNTED: _COUNTED, Part.RETURNING: _RETURNING, Part.POSTING: _POSTING}


class Function(NamedTuple):
    """A function of ours in the database; its name says which text it has, so that versions do not meet."""

    name: str
    sql: str


@cache
def write_batch(schema: str) -> Function:
    """The function that writes a batch in one round trip."""
    text = files("perdure.stores.postgres").joinpath("sql", "function.sql").read_text()
    parts = "".join(_part(name, part, schema) for name, part in parts_of_single_call().items())
    shown, log_changes = ", ".join(map(literal, shown_parts())), _with_rows("log_changes", "changes", schema)
    anonymous = text.format(
        schema=quoted(schema), function="{function}", parts=parts, shown=shown, log_changes=log_changes.strip()
    )
    name = f"write_batch_{hashlib.blake2b(anonymous.encode(), digest_size=6).hexdigest()}"
    return Function(f"{quoted(schema)}.{name}", anonymous.replace("{function}", name))


def _part(name: str, part: Part, schema: str) -> str:
    body = _TEMPLATES[part].format(
        name=name,
        statement=_with_rows(name, f"(given -> '{name}')", schema),
        sent=", ".join(map(literal, sorted(SENT))),
        count_posted=_with_rows("count_posted", "told", schema),
        schema=quoted(schema),
        function="{function}",
    )
    return f"    if given ? '{name}' then{body}    end if;\n"


def _with_rows(name: str, rows: str, schema: str) -> str:
    return qualified(COMMENT.sub("", queries("postgres")[name]), schema).replace(":rows::jsonb", rows)
