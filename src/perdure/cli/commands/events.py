"""`perdure events`: the history of a run.

In:   the name of a run.
Out:  its events in order, one line each for people; for programs a JSON array, or a line of JSON
      for each event as it comes when they are followed.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import date, datetime, timedelta
from typing import Annotated, cast

import typer
from rich.text import Text

from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url
from perdure.cli.output.errors import INTERRUPTED
from perdure.cli.output.reconnect import Reconnecting
from perdure.cli.output.tables import (
    errors,
    grid,
    is_for_people,
    plain_table,
    print_json,
    print_json_line,
    print_lines,
    screen,
)
from perdure.errors import RunUnreadable, StoreUnavailable
from perdure.views.run import RunEvent
from perdure.views.timeline import arguments_in, line_of, place_in
from perdure.views.words import span

# So much room the first columns get when rows are printed one by one: number, time, time passed.
ROOM = (3, 10, 7)

EXAMPLES = {
    "events": """\
perdure events o-17
perdure events o-17 --last 20
perdure events o-17 --follow"""
}


def events(
    name: RunName,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new events until the run has ended.")
    ] = False,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="Only events after this number.")] = 0,
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Only the last so many.")] = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show what a run has done so far, step by step."""
    if follow:
        after = after if last is None else asyncio.run(_before_last(name, after, last, url, namespace))
        _follow(name, after, url, namespace, is_shown=is_for_people(as_json=as_json))
        return
    history, trouble = asyncio.run(_history(name, after, last, url, namespace))
    if history or trouble is None:
        _print(history, after, is_shown=is_for_people(as_json=as_json))
    if trouble is not None:
        raise trouble


def _print(history: "list[RunEvent]", after: int, *, is_shown: bool) -> None:
    if not is_shown:
        print_json(history)
    elif history:
        table, rows = plain_table("#", "time", "after", "event"), Rows()
        for event in history:
            for row in rows.of(event):
                table.add_row(*row)
        print_lines(screen(), table)
    else:
        screen().print(Text(f"no event has a number above {after}", style="dim"), soft_wrap=True)


async def _before_last(name: str, after: int, last: int, url: str, namespace: str) -> int:
    """The number after which the last so many events begin."""
    async with client(url, namespace) as app:
        newest = [event.seq async for event in (await found(app, name)).events(newest_first=True, limit=1)]
        return max(after, newest[0] - last)


async def _history(
    name: str, after: int, last: int | None, url: str, namespace: str
) -> "tuple[list[RunEvent], RunUnreadable | None]":
    """The events, up to the one that cannot be read if there is one, and what is wrong with that."""
    history: list[RunEvent] = []
    async with client(url, namespace) as app:
        run = await found(app, name)
        try:
            async for event in run.events(after=after, newest_first=last is not None, limit=last):
                history.append(event)  # noqa: PERF401 - a comprehension would lose those before the error
        except RunUnreadable as error:
            return history if last is None else history[::-1], error
        return history if last is None else history[::-1], None


def _follow(name: str, after: int, url: str, namespace: str, *, is_shown: bool) -> None:
    try:
        asyncio.run(_show_each(_followed(name, after, url, namespace), is_shown=is_shown))
    except KeyboardInterrupt:
        # The user has seen enough.
        raise typer.Exit(INTERRUPTED) from None


async def _followed(name: str, after: int, url: str, namespace: str) -> "AsyncGenerator[RunEvent, None]":
    async with client(url, namespace) as app:
        run, patience = await found(app, name), Reconnecting(url, errors())
        while True:
            try:
                events = cast("AsyncGenerator[RunEvent, None]", run.events(after=after, follow=True))
                async with aclosing(events) as history:
                    async for event in history:
                        after = event.seq
                        yield event
                continued_to = (await run.describe()).continued_to
                if continued_to is None:
                    return
                run, after = await app.get(run_id=continued_to), 0
            except StoreUnavailable as error:
                patience.bear(error)
                await patience.until_answered(run.describe)


async def _show_each(followed: "AsyncGenerator[RunEvent, None]", *, is_shown: bool) -> None:
    """Print each event as it comes, until the reader closes the output; nothing is left half closed."""
    async with aclosing(followed) as history:
        await _print_each(history, is_shown=is_shown)


async def _print_each(history: "AsyncGenerator[RunEvent, None]", *, is_shown: bool) -> None:
    console, rows = screen(), Rows()
    async for event in history:
        if not is_shown:
            print_json_line(event)
            continue
        table = grid(4)
        for column, width in zip(table.columns, ROOM, strict=False):
            column.min_width = width
        for row in rows.of(event):
            table.add_row(*row)
        print_lines(console, table)


class Rows:
    """Events as rows, under their days; all that is long shares the last column, so that it wraps well."""

    def __init__(self) -> None:
        self._day: date | None = None
        self._before: datetime | None = None

    def of(self, event: RunEvent) -> "list[tuple[str | Text, ...]]":
        """The row of the next event, under its day when that is a new one."""
        at = event.at.astimezone()
        passed = timedelta(0) if self._before is None else event.at - self._before
        after = f"+{span(passed)}" if passed > timedelta(0) else ""
        row = (str(event.seq), f"{at:%H:%M:%S}", after, _told(event))
        is_new_day, self._day, self._before = at.date() != self._day, at.date(), event.at
        return [("", Text(f"{self._day}", style="dim"), "", ""), row] if is_new_day else [row]


def _told(event: RunEvent) -> Text:
    line, given, place = line_of(event), arguments_in(event), place_in(event)
    return Text.assemble(
        (f"{line.mark} {line.title}", line.style),
        f"  {given} {line.detail}" if given else f"  {line.detail}",
        (f"  at {place}" if place else "", "dim"),
    )
