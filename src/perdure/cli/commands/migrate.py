"""`perdure migrate`: bring the tables of a database up to date, before any worker does.

In:   the URL of a database.
Out:  what was done, or the SQL that does it; JSON for programs.
Workers do the same when they open a database; where their role may not, somebody else must.
"""

import asyncio
import sys
from typing import Annotated, TypeAlias

import typer

import perdure
from perdure.cli.input.database import existing, file_of, is_postgres, location, refuse_memory
from perdure.cli.input.options import DEFAULT_URL, AsJson, Url
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import is_for_people, print_json, screen
from perdure.stores.sqlite.schema import script_from, version_in

EXAMPLES = {
    "migrate": """\
perdure migrate --url postgresql://perdure_owner@db/shop
perdure migrate --print-sql | less
perdure migrate --print-roles | psql shop"""
}

PrintSql: TypeAlias = Annotated[
    bool, typer.Option("--print-sql", help="Print the SQL that is still to be run, and run nothing.")
]
PrintRoles: TypeAlias = Annotated[
    bool,
    typer.Option("--print-roles", help="Print the SQL that makes a role that owns the tables, and one that works."),
]


def migrate(
    *, print_sql: PrintSql = False, print_roles: PrintRoles = False, url: Url = DEFAULT_URL, as_json: AsJson = False
) -> None:
    """Bring the tables of a database up to date."""
    refuse_memory(url)
    app = perdure.Perdure(url, worker=False)  # refuses a URL that names no database
    if print_roles:
        _print(_roles(url))
    elif print_sql:
        _print(_script(url))
    else:
        _tell(url, *_migrated(app, url), as_json=as_json)


def _roles(url: str) -> str:
    if not is_postgres(url):
        raise Mistake("a SQLite file has no roles, whoever may write the file may do everything; name a Postgres URL")
    from perdure.stores.postgres.migration import roles  # noqa: PLC0415 - its driver is an extra

    return roles(url)


def _script(url: str) -> str:
    if is_postgres(url):
        from perdure.stores.postgres.migration import planned  # noqa: PLC0415 - its driver is an extra

        todo, script = asyncio.run(planned(url))
        found, wanted = todo.found, todo.wanted
    else:
        found, wanted, script = script_from(_version(url))
    return script or f"-- Nothing is to be done: the schema is {found}, and this Perdure knows up to {wanted}."


def _version(url: str) -> int:
    path = file_of(url)
    return 0 if path is None or not path.exists() else version_in(existing(url) or path)


def _migrated(app: "perdure.Perdure", url: str) -> tuple[int, int]:
    """The versions before and after."""
    if is_postgres(url):
        from perdure.stores.postgres.migration import migrated  # noqa: PLC0415 - its driver is an extra

        done = asyncio.run(migrated(url))
        return done.found, done.wanted
    found = _version(url)
    asyncio.run(_opened(app))
    return found, _version(url)


async def _opened(app: "perdure.Perdure") -> None:
    """To open a file is to bring it up to date."""
    async with app:
        pass


def _print(text: str) -> None:
    print(text.rstrip())
    sys.stdout.flush()


def _tell(url: str, found: int, made: int, *, as_json: bool) -> None:
    if not is_for_people(as_json=as_json):
        print_json({"from": found, "to": made})
        return
    if found == made:
        text = f"schema {made}, nothing was to be done"
    else:
        text = f"schema {made}, made from {found}" if found else f"schema {made}, made anew"
    screen().print(f"{location(url)}: {text}", soft_wrap=True)
