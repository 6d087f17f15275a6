"""`perdure events`: the history of a run.

In:   the name of a run.
Out:  its events in order, one line each for people, a JSON array for programs.
"""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.text import Text

from perdure.cli.history import line_of
from perdure.cli.opening import client, found
from perdure.cli.options import DEFAULT_URL, AsJson, RunName, Url
from perdure.cli.output import is_for_people, plain_table, print_json, screen, span

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
    table = plain_table("#", "at", "after", "event", "", "place")
    before = history[0].at
    for event in history:
        line = line_of(event)
        table.add_row(
            str(event.seq),
            f"{event.at.astimezone():%Y-%m-%d %H:%M:%S}",
            f"+{span(event.at - before)}" if event.at - before > timedelta(0) else "",
            Text(f"{line.mark} {line.title}", style=line.style),
            Text(line.detail),
            Text(event.place, style="dim"),
        )
        before = event.at
    screen().print(table)
