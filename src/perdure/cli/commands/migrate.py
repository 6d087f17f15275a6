"""`perdure migrate`: bring the tables of a database up to date, before any worker does.

In:   the URL of a database.
Out:  what was done, or the SQL that does it; JSON for programs.
Workers do the same when they open a database; where their role may not, an owner of the tables must.
"""

import asyncio
import sys
from typing import Annotated, TypeAlias

import typer

import perdure
from perdure.app.database import file_of, is_postgres, location
from perdure.app.migration import migrated, planned, roles
from perdure.cli.input.database import existing, refuse_memory, refuse_server
from perdure.cli.input.options import DEFAULT_URL, AsJson, Url
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import is_for_people, print_json, screen

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
    refuse_server(url)
    perdure.Perdure(url, worker=False)  # refuses a URL that names no database
    if print_roles:
        _print(_roles(url))
    elif print_sql:
        _print(_script(url))
    else:
        _refuse_strange(url)
        _tell(url, *asyncio.run(migrated(url)), as_json=as_json)


def _roles(url: str) -> str:
    if not is_postgres(url):
        raise Mistake("a SQLite file has no roles, whoever may write the file may do everything; name a Postgres URL")
    return roles(url)


def _script(url: str) -> str:
    _refuse_strange(url)
    todo = asyncio.run(planned(url))
    nothing = f"-- Nothing is to be done: the schema is {todo.found}, and this Perdure knows up to {todo.wanted}."
    return todo.script or nothing


def _refuse_strange(url: str) -> None:
    """Trouble when the URL names what can be no file of ours; one that is not there will be made."""
    path = file_of(url)
    if path is not None and path.exists():
        existing(url)


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
