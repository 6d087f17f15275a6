"""`perdure replay`: one run, replayed here line by line.

In:   a run, open or closed, and the module with its code.
Out:  each event beside the line that takes it; where every branch waits at the end. Nothing is changed, nothing runs.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from perdure.app.checking import trace_of
from perdure.cli.input.database import client, found, refuse_server
from perdure.cli.input.modules import load
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url
from perdure.cli.output.errors import FAILED, OK
from perdure.cli.output.tables import is_for_people, plain_table, print_json, print_lines, screen
from perdure.views.check import Trace
from perdure.views.timeline import line_of

EXAMPLES = {"replay": "perdure replay o-17 --module shop"}


def replay(
    name: RunName,
    *,
    module: Annotated[
        list[str], typer.Option("--module", metavar="MODULE", help="The code. May be given more than once.")
    ],
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Replay one run here, and show the line of code that takes each event."""
    refuse_server(url)
    for each in module:
        load(each)
    trace = asyncio.run(_traced(url, namespace, name))
    if is_for_people(as_json=as_json):
        _print(screen(), trace)
    else:
        print_json(trace.to_dict())
    raise typer.Exit(OK if trace.trouble is None else FAILED)


async def _traced(url: str, namespace: str, name: str) -> Trace:
    async with client(url, namespace) as app:
        return await trace_of(await found(app, name))


def _print(console: Console, trace: Trace) -> None:
    table = plain_table("#", "line", "event")
    for each in trace.events:
        line = line_of(each.event)
        table.add_row(str(each.event.seq), _near(each.line), Text(f"{line.mark} {line.title}  {line.detail}"))
    print_lines(console, table)
    console.print()
    if trace.trouble is not None:
        console.print(Text(f"does not fit: {trace.trouble}", style="bold red"), soft_wrap=True)
    if not trace.waits:
        console.print("the code has ended" if trace.has_ended else "the code waits for nothing", soft_wrap=True)
    for wait in trace.waits:
        print_lines(console, Text.assemble((_near(wait.line), "bold"), f"  waits for the {wait.kind} at {wait.place}"))


def _near(line: str | None) -> str:
    """A line seen from the current folder."""
    if line is None:
        return ""
    path, _, number = line.rpartition(":")
    folder = Path.cwd()
    return f"{Path(path).relative_to(folder) if Path(path).is_relative_to(folder) else path}:{number}"
