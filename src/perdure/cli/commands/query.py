"""`perdure query`: what a run shows of itself."""

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url
from perdure.cli.output.tables import grid, is_for_people, print_json, print_lines, screen
from perdure.views.outputs import Snapshot, value_in
from perdure.views.words import compact, moment

EXAMPLES = {
    "query": """\
perdure query o-17
perdure query o-17 progress"""
}
LONGEST_VALUE = 500


def query(
    name: RunName,
    what: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print this value alone.", show_default=False)
    ] = None,
    *,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show what a run exposes, or one value of it as JSON; no worker is needed."""
    id, snapshot = asyncio.run(_snapshot(url, namespace, name))
    if what is not None:
        print_json(value_in(snapshot, id, what))
    elif is_for_people(as_json=as_json):
        _print(id, snapshot)
    else:
        print_json({"id": id, **snapshot.to_dict()})


async def _snapshot(url: str, namespace: str, name: str) -> tuple[str, Snapshot]:
    async with client(url, namespace) as app:
        run = await found(app, name)
        return run.id, await run.snapshot()


def _print(id: str, snapshot: Snapshot) -> None:
    console = screen()
    if not snapshot.seq:
        console.print(f"run {id} has shown nothing so far; its code has to expose() it", style="dim", soft_wrap=True)
        return
    table = grid()
    for name, value in snapshot.values.items():
        table.add_row(name, Text(compact(value, LONGEST_VALUE)))
    for name, trouble in snapshot.errors.items():
        table.add_row(name, Text(trouble, style="red"))
    print_lines(console, table)
    console.print(f"as of event {snapshot.seq}, {moment(snapshot.at)}", style="dim", soft_wrap=True)
