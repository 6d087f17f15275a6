"""`perdure sql`: one statement that only reads."""

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from perdure.cli.input.database import existing
from perdure.cli.input.options import DEFAULT_URL, AsJson, Url
from perdure.cli.output.errors import warn
from perdure.cli.output.tables import is_for_people, plain_table, print_json, print_lines, screen
from perdure.diagnostics.statement import StatementRows, rows_of
from perdure.views.words import visible

DEFAULT_LIMIT = 1000
EXAMPLES = {
    "sql": """\
perdure sql "select status, count(*) from v_runs group by status"
perdure sql "select id, step, updated_at from v_runs where held is not null" --json"""
}


def sql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One statement that only reads.")],
    *,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1_000_000, help="At most so many rows.")
    ] = DEFAULT_LIMIT,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Run one statement that only reads, over tables and views with readable times."""
    existing(url)
    found = rows_of(url, statement, limit)
    if is_for_people(as_json=as_json):
        _print(found)
    else:
        print_json([dict(zip(found.columns, map(_plain, row), strict=True)) for row in found.rows])
    if found.has_more:
        warn(f"there are more than {limit:,} rows; --limit shows more")


def _plain(value: object) -> object:
    """A value of a database as JSON takes it."""
    return msgspec.to_builtins(value, enc_hook=str)


def _print(found: StatementRows) -> None:
    table = plain_table(*found.columns)
    for row in found.rows:
        table.add_row(*(Text("" if value is None else visible(str(value))) for value in row))
    print_lines(screen(), table)
