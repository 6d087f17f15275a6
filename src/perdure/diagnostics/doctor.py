"""The doctor: whether Perdure can work well here.

In:   the URL of a database.
Out:  a finding for each check. Nothing in the database is changed.
"""

from collections.abc import Iterator

from perdure.diagnostics.findings import Finding, Hint, command
from perdure.diagnostics.machine import check_disk, check_python, check_sqlite, is_full
from perdure.diagnostics.sqlite import check_database
from perdure.stores.urls import file_of, is_postgres


def check_all(url: str, hint: Hint = command) -> Iterator[Finding]:
    """All that can be said about this machine and the database."""
    yield check_python()
    if is_postgres(url):
        from perdure.diagnostics.postgres import check_postgres  # noqa: PLC0415 - its driver is an extra

        yield from check_postgres(url, hint)
        return
    yield check_sqlite()
    path = file_of(url)
    if path is not None:
        path = path.absolute()
        yield from check_disk(path.parent, path.stat().st_size if path.is_file() else 0)
        yield from check_database(path, is_full=is_full(path.parent), hint=hint)
