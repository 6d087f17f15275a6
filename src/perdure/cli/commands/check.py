"""`perdure check`: whether the open runs would go on with this code.

In:   modules with workflows, as they are to be deployed.
Out:  per workflow how many runs fit, and of those that do not what is wrong. Nothing is changed.
"""

import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.cli.input.database import client, refuse_server
from perdure.cli.input.modules import load
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, Parameters, Url, Where
from perdure.cli.input.values import parameters
from perdure.cli.output.errors import FAILED, OK
from perdure.cli.output.tables import is_for_people, plain_table, print_json, print_lines, screen
from perdure.views.check import Check, RunMisfit
from perdure.views.words import counted

EXAMPLES = {
    "check": """\
perdure check shop
perdure check shop --where "workflow = 'checkout'" --limit 1000 --json"""
}


def check(
    modules: Annotated[list[str], typer.Argument(metavar="MODULE...", help="Modules with the code to be deployed.")],
    *,
    where: Where = None,
    param: Parameters = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many runs of each workflow.")
    ] = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Check whether the open runs fit this code, before it is deployed; changes nothing."""
    refuse_server(url)
    for module in modules:
        load(module)
    found = asyncio.run(_checked(url, namespace, where, parameters(param), limit))
    if is_for_people(as_json=as_json):
        _print(screen(), found)
    else:
        print_json({"ok": found.is_fit, **found.to_dict()})
    raise typer.Exit(OK if found.is_fit else FAILED)


async def _checked(
    url: str, namespace: str, where: str | None, params: dict[str, object] | None, limit: int | None
) -> Check:
    async with client(url, namespace) as app:
        return await app.check(where=where, params=params, limit=limit)


def _print(console: Console, found: Check) -> None:
    if not found.workflows:
        console.print("no run is open that could be checked", style="dim", soft_wrap=True)
        return
    table = plain_table("workflow", "checked", "fit", "held", "arguments", "no code", "unreadable")
    for each in found.workflows:
        counts = (each.checked, each.fit, each.held, each.arguments, each.no_code, each.unreadable)
        table.add_row(Text(each.workflow, style="green" if each.is_fit else "bold red"), *map(str, counts))
    print_lines(console, table)
    for each in found.workflows:
        for misfit in each.misfits:
            _print_misfit(console, each.workflow, misfit)


def _print_misfit(console: Console, workflow: str, misfit: RunMisfit) -> None:
    console.print()
    print_lines(console, Text(f"{counted(misfit.runs, 'run')} of {workflow}: {misfit.trouble}", style="red"))
    told = [f"such as {', '.join(misfit.ids)}"]
    if misfit.event is not None:
        told.append(f"the code waits at {', '.join(misfit.code_waits_at) or 'nothing; it has ended'}")
    for text in told:
        print_lines(console, Padding(Text(text), (0, 0, 0, 2)))
