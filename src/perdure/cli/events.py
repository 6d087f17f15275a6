"""`perdure events`: the history of a run.

In:   the name of a run.
Out:  its events in order, one line each for people, a JSON array for programs.
"""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from perdure.cli.history import arguments_in, line_of, place_in
from perdure.cli.opening import client, found
from perdure.cli.options import DEFAULT_URL, AsJson, RunName, Url
from perdure.cli.output import is_for_people, plain_table, print_json, print_lines, screen, span

if TYPE_CHECKING:
    from perdure.app import RunEvent


def events(name: RunName, *, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show what a run has done so far, step by step."""
    history = asyncio.run(_history(url, name))
    if is_for_people(as_json=as_json):
        _print(history)
    else:
        print_json(history)


async def _history(url: str, name: str) -> "list[RunEvent]":
    async with client(url) as app:
        run = await found(app, name)
        return [event async for event in run.events()]


def _print(history: "list[RunEvent]") -> None:
    """A row for each event, under its day; all that is long shares the last column, so that it wraps well."""
    table = plain_table("#", "time", "after", "event")
    before, day = history[0].at, None
    for event in history:
        at = event.at.astimezone()
        if at.date() != day:
            day = at.date()
            table.add_row("", Text(f"{day}", style="dim"), "", "")
        after = f"+{span(event.at - before)}" if event.at - before > timedelta(0) else ""
        table.add_row(str(event.seq), f"{at:%H:%M:%S}", after, _told(event))
        before = event.at
    print_lines(screen(), table)


def _told(event: "RunEvent") -> Text:
    line, given, place = line_of(event), arguments_in(event), place_in(event)
    return Text.assemble(
        (f"{line.mark} {line.title}", line.style),
        f"  {given} {line.detail}" if given else f"  {line.detail}",
        (f"  at {place}" if place else "", "dim"),
    )
