"""`perdure count`: how many runs match.

In:   a filter, and perhaps a field.
Out:  a number; by a field a table for people, JSON for programs.
"""

import asyncio
from typing import Annotated

import typer

from perdure.cli.input.database import client
from perdure.cli.input.filters import warn_of_near_fields
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, Parameters, Url, Where
from perdure.cli.input.values import parameters
from perdure.cli.output.tables import is_for_people, plain_table, print_json, print_lines, screen
from perdure.views.finding import COUNTED_BY

EXAMPLES = {
    "count": """\
perdure count --where "workflow = 'checkout' and status = 'running'"
perdure count --by status"""
}


def count(
    *,
    where: Where = None,
    param: Parameters = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="FIELD",
            help=f"A number for each value of {', '.join(COUNTED_BY)}.",
            autocompletion=lambda: list(COUNTED_BY),
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Count runs."""
    found = asyncio.run(_counted(url, namespace, where or "true", parameters(param), by))
    if where is not None and not found:
        warn_of_near_fields(where, parameters(param))
    if isinstance(found, int):
        screen().print(found)
        return
    ordered = sorted(found.items(), key=lambda each: (-each[1], str(each[0])))
    if not is_for_people(as_json=as_json):
        print_json({"" if value is None else str(value): number for value, number in ordered})
        return
    table = plain_table(str(by), "runs")
    for value, number in ordered:
        table.add_row("" if value is None else str(value), f"{number:,}")
    print_lines(screen(), table)


async def _counted(
    url: str, namespace: str, where: str, params: dict[str, object] | None, by: str | None
) -> int | dict[object, int]:
    async with client(url, namespace) as app:
        if by is None:
            return await app.count(where=where, params=params)
        return await app.count(where=where, params=params, by=by)
