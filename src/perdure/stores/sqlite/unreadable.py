"""Garbled rows of a SQLite file, and how all others are read around them.

In:   a question whose answer could not be read.
Out:  the answer to the same question, asked with more patience.

The quick way knows nothing of this. Only what could not be read that way is asked once more, with text
that is no text left as bytes: one such column makes Python refuse the whole answer otherwise.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeGuard, TypeVar

from perdure.stores.queries import queries
from perdure.stores.rows import Garbled, held_report
from perdure.stores.unreadable import is_text, name_of

T = TypeVar("T")

_UNCLAIMABLE = "its id, its priority or the time it wakes at cannot be read"

log = logging.getLogger("perdure.store")


def is_undecodable(error: BaseException) -> bool:
    """Whether a column holds text that is no text: Python's own finding, of which SQLite knows nothing."""
    return isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")


def is_about_file(error: Exception) -> TypeGuard[sqlite3.DatabaseError]:
    """Whether the file is to blame, and not a row or what was asked: it cannot be used now, or is damaged."""
    is_about_it = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
    return is_about_it and not is_undecodable(error)


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


def hold_unclaimable(db: sqlite3.Connection, now: int) -> None:
    """Hold the free runs that no claim can name, or put in order; who mends one by hand resumes it."""
    db.create_function("is_text", 1, is_text, deterministic=True)
    found = db.execute(queries("sqlite")["hold_unclaimable"], {"report": held_report(_UNCLAIMABLE, "ID"), "now": now})
    for run_id, id in found.fetchall():
        log.error(
            "run %s is held: %s (`perdure audit`)",
            name_of(id if isinstance(id, str) else run_id),
            _UNCLAIMABLE,
            extra={"event": "run_held", "run_id": name_of(run_id), "reason": "quarantine"},
        )
