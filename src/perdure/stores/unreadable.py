"""Garbled rows: what can be read of them, and how it is told what cannot.

In:   rows by column.
Out:  records; of each row that cannot be one, which run it is and what is wrong with it.
"""

import msgspec

from perdure.errors import RunUnreadable
from perdure.stores.records import RunRow, WorkerRow

_NOTHING: dict[object, object] = {str: "", int: 0}


def name_of(value: object) -> str:
    """An id, also one that is no text."""
    return value if isinstance(value, str) else repr(value)


def run_row(url: str, columns: dict[str, object]) -> RunRow | RunUnreadable:
    """A run's row; RunUnreadable, as a value, when it cannot be one."""
    try:
        return msgspec.convert(columns, RunRow)
    except msgspec.ValidationError as error:
        run_id, id = columns["run_id"], columns["workflow_id"]
        found = RunUnreadable(url, name_of(run_id), name_of(id if isinstance(id, str) else run_id), misfit(error))
        if isinstance(run_id, str) and isinstance(id, str):
            found.rest = rest_of(columns)
        return found


def rest_of(columns: dict[str, object]) -> RunRow:
    """What can be read of a run's row; where something else stands, nothing does."""
    fitting: dict[str, object] = {}
    for field in msgspec.structs.fields(RunRow):
        try:
            fitting[field.name] = msgspec.convert(columns[field.name], field.type)
        except msgspec.ValidationError:
            fitting[field.name] = _NOTHING.get(field.type)
    return msgspec.convert(fitting, RunRow)


def misfit(error: msgspec.ValidationError) -> str:
    """What is wrong with which column."""
    trouble, _, path = str(error).replace("`", "").partition(" - at ")
    column, trouble = path.rpartition(".")[2], trouble.replace("got bytes", "got bytes that are no text")
    return f"the {column} in its row cannot be read: {trouble[:1].lower()}{trouble[1:]}"


def worker_row(columns: dict[str, object]) -> WorkerRow | None:
    """A worker's row; what only people read of it may be wrong, what its lease needs may not."""
    told = {
        "namespace": "",
        "queues": "[]",
        "host": "?",
        "pid": 0,
        "started_at": 0,
        "lease_ms": None,
        "workflows": None,
        "remote": 0,
    }
    may_be_empty = {"lease_ms": int, "workflows": str}
    for name, instead in told.items():
        if type(columns[name]) not in (type(instead), may_be_empty.get(name)):
            columns[name] = instead
    try:
        return msgspec.convert(columns, WorkerRow)
    except msgspec.ValidationError:
        return None


def is_text(data: object) -> bool:
    """Whether these bytes are text."""
    try:
        return isinstance(data, bytes) and data.decode() is not None
    except UnicodeDecodeError:
        return False
