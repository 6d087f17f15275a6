"""Migration: brings the tables of a database up to date, before any worker does.

In:   the URL of a database.
Out:  the versions before and after; the SQL that is still to be run; the SQL that makes roles.
"""

from typing import NamedTuple

from perdure.app.perdure import Perdure
from perdure.stores.sqlite.schema import script_from, version_in
from perdure.stores.urls import file_of, is_postgres


class Migrated(NamedTuple):
    """The version of the schema before, and after."""

    found: int
    made: int


class Planned(NamedTuple):
    """The version of the schema, the one this Perdure wants, and the script that leads there; empty when it is that."""

    found: int
    wanted: int
    script: str


async def migrated(url: str) -> Migrated:
    """Bring the tables up to date."""
    if is_postgres(url):
        from perdure.stores.postgres import migration  # noqa: PLC0415 - its driver is an extra

        done = await migration.migrated(url)
        return Migrated(done.found, done.wanted)
    found = _version(url)
    # To open a file is to bring it up to date.
    async with Perdure(url, worker=False):
        pass
    return Migrated(found, _version(url))


async def planned(url: str) -> Planned:
    """What there is to do."""
    if is_postgres(url):
        from perdure.stores.postgres import migration  # noqa: PLC0415 - its driver is an extra

        todo, script = await migration.planned(url)
        return Planned(todo.found, todo.wanted, script)
    return Planned(*script_from(_version(url)))


def roles(url: str) -> str:
    """The SQL that makes a role that owns the tables, and one that works."""
    from perdure.stores.postgres import migration  # noqa: PLC0415 - its driver is an extra

    return migration.roles(url)


def _version(url: str) -> int:
    path = file_of(url)
    return 0 if path is None or not path.exists() else version_in(path)
