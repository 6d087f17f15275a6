"""One statement of a person that only reads, on any database.

In:   the URL of a database, the statement, and how many rows are wanted.
Out:  columns and rows. What would change anything is refused by the database itself.
"""

import asyncio

from perdure.errors import BadOption
from perdure.stores.health import StatementRows
from perdure.stores.sqlite.checks import statement
from perdure.stores.urls import file_of, is_postgres

__all__ = ["StatementRows", "rows_of"]

# So long a statement may take.
SECONDS = 30.0


def rows_of(url: str, sql: str, limit: int, seconds: float = SECONDS) -> StatementRows:
    """What a statement finds; BadOption when the database refuses it."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise BadOption("the statement holds bytes that are no text") from None
    if is_postgres(url):
        from perdure.stores.postgres.checks import statement as on_postgres  # noqa: PLC0415 - its driver is an extra

        return asyncio.run(on_postgres.rows_of(url, sql, limit, seconds))
    path = file_of(url)
    assert path is not None
    return statement.rows_of(path.absolute(), sql, limit, seconds)
