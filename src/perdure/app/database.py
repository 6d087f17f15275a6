"""The database behind a URL, before it is opened: where it is, whether it is there, whether it has our tables.

In:   a URL.
Out:  answers; nothing is made or changed.
"""

from perdure.stores.sqlite.files import strange_kind
from perdure.stores.sqlite.schema import foreign_file
from perdure.stores.sqlite.store import has_runs as file_has_runs
from perdure.stores.urls import FILE, MEMORY, file_of, is_postgres, location

__all__ = ["FILE", "MEMORY", "file_of", "foreign_file", "has_runs", "is_postgres", "location", "strange_kind"]


async def has_runs(url: str) -> bool:
    """Whether opening this database leaves it as it is: one without our tables would get them."""
    if is_postgres(url):
        # Its driver is an extra, and takes its time to load.
        from perdure.stores.postgres.checks.inspection import has_tables  # noqa: PLC0415 - as above

        return await has_tables(url)
    path = file_of(url)
    return path is None or file_has_runs(path)
