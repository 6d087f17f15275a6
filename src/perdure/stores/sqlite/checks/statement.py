"""One statement of a person on a SQLite file, which can do nothing but read.

In:   a path, a statement, and how many rows are wanted.
Out:  columns and rows. What writes, changes a setting or opens another file is refused by SQLite itself: the file is
      opened for reading, and an authorizer lets reads through and nothing else.
"""

import sqlite3
from pathlib import Path

from perdure.clock import elapsed
from perdure.errors import BadOption
from perdure.stores.health import NO_ROWS, READABLE, StatementRows
from perdure.stores.sqlite.checks.health import log_of, looking_at

# What a statement may do; and the settings that can be looked at.
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
LOOKS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "data_version"}
# What lets code in from outside.
DANGEROUS = {"load_extension"}
# So many steps of SQLite lie between two looks at the clock.
STEPS = 10_000


def rows_of(path: Path, sql: str, limit: int, seconds: float) -> StatementRows:
    """What a statement finds; BadOption when SQLite refuses it, or it takes too long."""
    with looking_at(path, is_at_rest=not log_of(path).exists()) as db:
        until = elapsed() + seconds
        db.set_authorizer(_decide)
        db.set_progress_handler(lambda: elapsed() > until, STEPS)
        try:
            cursor = db.execute(sql)
            found = cursor.fetchmany(limit + 1)
        except (sqlite3.Error, sqlite3.Warning) as error:
            told = f"it took longer than {seconds:.0f} s" if "interrupted" in str(error) else str(error).rstrip(".")
            raise BadOption(f"the database refuses this statement: {told}; {READABLE}") from None
        if cursor.description is None:
            raise BadOption(NO_ROWS)
        columns = tuple(column[0] for column in cursor.description)
        return StatementRows(columns, [tuple(row) for row in found[:limit]], has_more=len(found) > limit)


def _decide(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """What SQLite asks before it runs a part of a statement."""
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in LOOKS else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and second in DANGEROUS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_READ and (first, second) == ("perdure_schema", "secret"):
        # Tokens are made from it; it is shown nowhere.
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY
