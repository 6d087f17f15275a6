"""Columns: whether each of every row holds what it is for, which SQLite itself does not see to.

In:   a connection to a SQLite file with our tables.
Out:  the rows with a number that is none, or text that is no text.
"""

import sqlite3
from collections.abc import Iterator

from perdure.stores.queries import VERSION, tables
from perdure.stores.unreadable import is_text

# What a row of a table is called; of others the table tells.
_NAMES = {
    "runs": "''",
    "events": "'event ' || seq || ': '",
    "inbox": "'message ' || number || ': '",
    "payloads": "'payload ' || seq || ': '",
    "attempts": "'attempt ' || attempt || ': '",
    "progress": "'progress at ' || place || ': '",
    "snapshots": "'snapshot: '",
    "streams": "'value ' || n || ' of the stream ' || name || ': '",
    "stream_heads": "'stream ' || name || ': '",
    "workers": "'worker ' || worker_id || ': '",
    "schedules": "'schedule ' || name || ': '",
    "schedule_decisions": "'decision of a schedule: '",
    "duties": "'duty ' || name || ': '",
}


def misfits(db: sqlite3.Connection) -> Iterator[tuple[str | None, str | None, str]]:
    """Rows with a column that holds what does not belong there: run_id, workflow_id, and which column."""
    db.create_function("is_text", 1, is_text, deterministic=True)
    for table in dict.fromkeys([*_NAMES, *(table for table in tables("sqlite") if table != VERSION)]):
        yield from db.execute(_question(db, table))


def _question(db: sqlite3.Connection, table: str) -> str:
    columns = {name: kind.lower() for _, name, kind, *_ in db.execute(f"pragma table_info({table})")}
    texts = [name for name, kind in columns.items() if kind == "text"]
    # All texts of a row at once; what is between two of them keeps halves of characters apart.
    together = " || char(10) || ".join(f"coalesce({name}, '')" for name in texts)
    kinds = [f"typeof({name}) not in ('{kind}', 'null')" for name, kind in columns.items()]
    broken = " or ".join([*kinds, f"not is_text(cast({together} as blob))"])
    if table == "runs":
        broken += " or run_id is null"
    which = " ".join(f"when {_is_misfit(name, kind)} then '{name}'" for name, kind in columns.items())
    of_its_run = f"run_id, (select workflow_id from runs where runs.run_id = {table}.run_id)"  # noqa: S608 - as below
    whose = of_its_run if "run_id" in columns else "null, null"
    if table == "runs":
        whose = "run_id, workflow_id"
    name = _NAMES.get(table, f"'{table}: '")
    told = f"{name} || 'its ' || case {which} else 'run_id' end || ' holds what does not belong there'"
    return f"select {whose}, {told} from {table} where {broken}"  # noqa: S608 - names of the schema only


def _is_misfit(name: str, kind: str) -> str:
    if kind != "text":
        return f"typeof({name}) not in ('{kind}', 'null')"
    return f"typeof({name}) not in ('text', 'null') or not is_text(cast(coalesce({name}, '') as blob))"
