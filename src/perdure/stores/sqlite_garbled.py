"""Garbled rows of a SQLite file, and how all others are read around them.

In:   a question whose answer could not be read; rows, column by column.
Out:  the rows that can be read; of each other one, which run it is and what is wrong with it.

The quick way knows nothing of this. Only what could not be read that way is asked once more, with text
that is no text left as bytes: one such column makes Python refuse the whole answer otherwise.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from perdure.errors import RunUnreadable
from perdure.stores.queries import queries
from perdure.stores.records import RunRow, WorkerRow
from perdure.stores.rows import Garbled, held_report

T = TypeVar("T")

_NOTHING: dict[object, object] = {str: "", int: 0}
_UNCLAIMABLE = "its id, its priority or the time it wakes at cannot be read"

log = logging.getLogger("perdure.store")


def is_undecodable(error: BaseException) -> bool:
    """Whether a column holds text that is no text: Python's own finding, of which SQLite knows nothing."""
    return isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")


def ask(
    db: sqlite3.Connection, quickly: Callable[[sqlite3.Connection], T], slowly: Callable[[sqlite3.Connection], T]
) -> T:
    """The answer to a question; when that cannot be read, to the one that takes rows one by one."""
    try:
        return quickly(db)
    except (Garbled, sqlite3.OperationalError) as error:
        if not isinstance(error, Garbled) and not is_undecodable(error):
            raise
    with bytes_for_garbage(db):
        return slowly(db)


@contextmanager
def bytes_for_garbage(db: sqlite3.Connection) -> Iterator[None]:
    """What is no text is read as bytes meanwhile."""
    db.text_factory = _text_or_bytes
    try:
        yield
    finally:
        db.text_factory = str


def _text_or_bytes(data: bytes) -> str | bytes:
    return data if not is_text(data) else data.decode()


def is_text(data: object) -> bool:
    """Whether these bytes are text."""
    try:
        return isinstance(data, bytes) and data.decode() is not None
    except UnicodeDecodeError:
        return False


def name_of(value: object) -> str:
    """An id, also one that is no text."""
    return value if isinstance(value, str) else repr(value)


def hold_unclaimable(db: sqlite3.Connection, now: int) -> None:
    """Hold the free runs that no claim can name, or put in order; who mends one by hand resumes it."""
    db.create_function("is_text", 1, is_text, deterministic=True)
    found = db.execute(queries("writes")["hold_unclaimable"], {"report": held_report(_UNCLAIMABLE, "ID"), "now": now})
    for run_id, id in found.fetchall():
        log.error(
            "run %s is held: %s (`perdure audit`)",
            name_of(id if isinstance(id, str) else run_id),
            _UNCLAIMABLE,
            extra={"event": "run_held", "run_id": name_of(run_id), "reason": "quarantine"},
        )


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
    told = {"namespace": "", "queues": "[]", "host": "?", "pid": 0, "started_at": 0, "lease_ms": None}
    for name, instead in told.items():
        if type(columns[name]) is not type(instead) and not (name == "lease_ms" and type(columns[name]) is int):
            columns[name] = instead
    try:
        return msgspec.convert(columns, WorkerRow)
    except msgspec.ValidationError:
        return None
