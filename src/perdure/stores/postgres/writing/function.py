"""The function in the database that writes a batch in a single call; its text is made from the table of operations."""

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from perdure.kernel.outbox import BITS, TASK_BODY, TASK_STEPS
from perdure.stores.dialects import COMMENT, literal, qualified, quoted
from perdure.stores.queries import queries
from perdure.stores.rules.inbox import SENT
from perdure.stores.rules.outbox import EMITTED, OUTBOX_STEPS, STATUS_OF, Emitted
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
        schema=quoted(schema),
        function="{function}",
        parts=parts,
        shown=shown,
        log_changes=log_changes.strip(),
        told_events=told_events(schema),
        queue_events=_with_rows("queue_events", "told_events", schema).strip(),
        mark_behind=_with_rows("mark_behind", "", schema)
        .strip()
        .replace(":now::bigint", "(given ->> 'now')::bigint")
        .replace(":count::bigint", "changed"),
    )
    name = f"write_batch_{hashlib.blake2b(anonymous.encode(), digest_size=6).hexdigest()}"
    return Function(f"{quoted(schema)}.{name}", anonymous.replace("{function}", name))


def told_events(schema: str) -> str:
    """The events that the rows of a batch are, as the table has them: starts first, then steps, then all others."""
    emitted = [(kind, each) for kind, each in EMITTED.items() if each.statement in parts_of_single_call()]
    return " union all ".join(_told(part, kind, each, schema) for part, (kind, each) in enumerate(emitted))


def _told(part: int, kind: Any, emitted: Emitted, schema: str) -> str:
    fields = kind._fields

    def field(name: str, cast: str = "") -> str:
        return f"(r ->> {fields.index(name)}){cast}"

    def by_type(found: Mapping[str, object]) -> str:
        chosen = [f"when {literal(key)} then {found[type]}" for key, type in emitted.types.items() if type in found]
        of = "''" if emitted.by is None else field(emitted.by)
        return f"case {of} {' '.join(chosen)} end" if chosen else "null"

    number = field(emitted.number, "::bigint") if isinstance(emitted.number, str) else emitted.number or "null::bigint"
    names = {type: literal(type) for type in BITS}
    statuses = {type: literal(status) for type, status in STATUS_OF.items()}
    at = "null::bigint" if emitted.at is None else field(emitted.at, "::bigint")
    step = "null" if emitted.step is None else field(emitted.step)
    wished = _wished_steps(field, schema) if emitted.statement == "append_events" else ""
    return (
        f"select {part} as part, place, {field('run_id')} as run_id, {by_type(BITS)} as bit, {by_type(names)} as type, "  # noqa: S608 - ours
        f"{number} as number, {at} as at, {step} as step, {by_type(statuses)} as status "
        f"from jsonb_array_elements(given -> {literal(emitted.statement)}) with ordinality as rows (r, place){wished}"
    )


def _wished_steps(field: Callable[[str], str], schema: str) -> str:
    """Steps, if a sink wants any; of the ends of children only those of activities on queues."""
    at_event = f"run_id = {field('run_id')} and seq = {field('seq')}::bigint"
    own = f"(select body from {quoted(schema)}.payloads where {at_event})"  # noqa: S608 - ours
    children = ", ".join(map(literal, TASK_STEPS))
    return (
        f" where {literal(OUTBOX_STEPS)} = any(listeners) and ({field('kind')} not in ({children}) "
        f"or starts_with(coalesce({field('body')}, {own}), {literal(TASK_BODY)}))"
    )


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
