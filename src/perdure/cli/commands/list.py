"""`perdure list`: runs as they stand.

In:   filters.
Out:  a table for people, JSON for programs; a line for each change when they are watched.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.cli.input.database import client, found
from perdure.cli.input.filters import warn_of_near_fields
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, Parameters, Url, Where
from perdure.cli.input.values import parameters
from perdure.cli.output.errors import INTERRUPTED, Mistake, warn
from perdure.cli.output.reconnect import PAUSE_SECONDS, Reconnecting
from perdure.cli.output.suggestions import did_you_mean, hint
from perdure.cli.output.tables import (
    errors,
    is_for_people,
    plain_table,
    print_json,
    print_json_line,
    print_lines,
    screen,
    status_text,
)
from perdure.errors import CursorExpired, StoreUnavailable
from perdure.kernel.status import HELD, HOLDS, Status
from perdure.views.changes import Change
from perdure.views.detail import listed
from perdure.views.held import note_of
from perdure.views.run import Page, RunInfo
from perdure.views.timeline import wait_texts
from perdure.views.words import distance, span, visible

DEFAULT_LIMIT = 20
# Below so many characters a table of runs cannot be read.
NARROW = 70
# Who waits for a list is told when so many runs were read besides those that are shown.
MANY_READ = 1000
STATUSES = tuple(each.lower() for each in Status)
# Any held run, or those held for one reason.
HELD_WORDS = (HELD, *HOLDS)
EXAMPLES = {
    "list": """\
perdure list --status failed --status timed_out
perdure list --status held
perdure list --watch --where "entity_id = 'npc-42'"
perdure list --where "status = 'failed' and tenant = :tenant and created_at > ago('2h')" --param tenant=acme
perdure list --stuck
perdure list --workflow checkout --limit 100 --json"""
}


def list_runs(
    *,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help=f"Only these: {', '.join(STATUSES)}; or {', '.join(HELD_WORDS)}. May be given more than once.",
            autocompletion=lambda: [*STATUSES, *HELD_WORDS],
        ),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="NAME", help="Only runs of this workflow.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Only runs with this id, old ones too.")] = None,
    entity: Annotated[str | None, typer.Option("--entity", metavar="ID", help="Only runs about this entity.")] = None,
    correlation: Annotated[
        str | None, typer.Option("--correlation", metavar="ID", help="Only runs with this correlation id.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="ID", help="Only runs that this run has started.")
    ] = None,
    where: Where = None,
    param: Parameters = None,
    stuck: Annotated[
        bool, typer.Option("--stuck", help="Only runs that should move and have not for a minute.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")
    ] = DEFAULT_LIMIT,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Go on after this run: the last one of a page.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on with each run that changes; open runs come first.")
    ] = False,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Show runs, newest first."""
    filters: dict[str, Any] = {
        "status": [_status(word) for words in status or () for word in words.split(",")],
        "workflow": workflow,
        "id": id,
        "entity_id": entity,
        "correlation_id": correlation,
        "parent_id": parent,
        "where": where,
        "params": parameters(param),
    }
    if stuck and any(filters.values()):
        raise Mistake("--stuck goes with --limit and --after alone; it finds what no filter can ask for")
    if watch:
        if stuck or after is not None:
            raise Mistake("--watch shows all runs that match; it does not go with --stuck or --after")
        _watch(url, namespace, filters, is_shown=is_for_people(as_json=as_json))
        return
    page = asyncio.run(_page(url, namespace, None if stuck else filters, limit, after))
    for error in page.unreadable:
        warn(f"run {error.id!r} ({error.run_id}) is not shown, it cannot be read: {error.trouble}; `{hint('audit')}`")
    if where is not None and not page:
        warn_of_near_fields(where, filters["params"])
    if not is_for_people(as_json=as_json):
        print_json([listed(info) for info in page])
        return
    words = ["--stuck"] if stuck else [*_words(filters), *(word for each in param or () for word in ("--param", each))]
    again = [*words, "--limit", str(limit)] if limit != DEFAULT_LIMIT else words
    _print_page(page, again, is_filtered=bool(words or after))


def _status(word: str) -> str:
    name = word.strip().lower().replace("-", "_")
    known = (*STATUSES, *HELD_WORDS)
    if name not in known:
        raise Mistake(f"no status is named {word!r}{did_you_mean(name, known)}; there are {', '.join(known)}")
    return name


def _words(filters: dict[str, Any]) -> list[str]:
    """The filters as they are typed."""
    words = [word for each in filters["status"] for word in ("--status", each)]
    for name, value in filters.items():
        if name not in {"status", "params"} and value is not None:
            words += [f"--{name.removesuffix('_id')}", value]
    return words


async def _page(url: str, namespace: str, filters: dict[str, Any] | None, limit: int, after: str | None) -> Page:
    """The runs that match; without filters those that are stuck."""
    async with client(url, namespace) as app:
        if filters is None:
            return await app.stuck(limit=limit, cursor=None if after is None else (await found(app, after)).run_id)
        wanted = filters | {"status": filters["status"] or None}
        if wanted["parent_id"] is not None:
            wanted["parent_id"] = (await found(app, wanted["parent_id"])).run_id
        cursor = None if after is None else (await found(app, after)).run_id
        return await app.list(**wanted, limit=limit, after=cursor)


# Watching


def _watch(url: str, namespace: str, filters: dict[str, Any], *, is_shown: bool) -> None:
    try:
        asyncio.run(_show_changes(url, namespace, filters, is_shown=is_shown))
    except KeyboardInterrupt:
        # The user has seen enough.
        raise typer.Exit(INTERRUPTED) from None


async def _show_changes(url: str, namespace: str, filters: dict[str, Any], *, is_shown: bool) -> None:
    """Print each change as it comes; after an outage go on where it began."""
    async with client(url, namespace) as app:
        if filters["parent_id"] is not None:
            filters |= {"parent_id": (await found(app, filters["parent_id"])).run_id}
        where, params = as_filter(filters)
        cursor, patience, shown = None, Reconnecting(url, errors()), dict[str, str]()
        while True:
            subscribed = cast("AsyncGenerator[Change, None]", app.subscribe(where=where, params=params, after=cursor))
            try:
                async with aclosing(subscribed) as changes:
                    async for change in changes:
                        patience.rest()
                        cursor = change.cursor
                        if not is_shown:
                            print_json_line({"run": listed(change.run), "left": change.left, "cursor": cursor})
                        elif is_news(change, shown):
                            print_lines(screen(), _line(change))
            except StoreUnavailable as error:
                patience.bear(error)
                await asyncio.sleep(PAUSE_SECONDS)
            except CursorExpired:
                # It was out of reach for so long: all that matches is shown once more.
                cursor = None


def as_filter(filters: dict[str, Any]) -> tuple[str, dict[str, object]]:
    """The filters as one text, and its parameters."""
    given = {name: filters[name] for name in ("workflow", "id", "entity_id", "correlation_id", "parent_id")}
    params = {f"of_{name}": value for name, value in given.items() if value is not None}
    parts = [f"{name} = :of_{name}" for name, value in given.items() if value is not None]
    states = [f"status = '{word}'" for word in filters["status"] if word in STATUSES]
    states += [
        "held is not null" if word == HELD else f"held = '{word}'" for word in filters["status"] if word in HELD_WORDS
    ]
    parts += [f"({' or '.join(states)})"] if states else []
    if filters["where"] is not None:
        # Alone it stands as it is: it may be as deep as a filter can be.
        parts.append(f"({filters['where']})" if parts else filters["where"])
    return " and ".join(parts) or "true", params | (filters["params"] or {})


def is_news(change: Change, shown: dict[str, str]) -> bool:
    """Whether a run has another line than the last one that was shown of it; its time aside."""
    run_id, line = change.run.run_id, _line(change).plain.partition("  ")[2]
    if shown.get(run_id) == line:
        return False
    shown.pop(run_id, None)
    if not change.left and change.run.closed_at is None:
        shown[run_id] = line
    return True


def _line(change: Change) -> Text:
    info = change.run
    left = Text("  no longer matches", style="dim") if change.left else Text()
    step = f"  at {visible(info.step)}" if info.step is not None else ""
    line = Text.assemble(
        (f"{info.updated_at.astimezone():%H:%M:%S}", "dim"), "  ", (info.id, "bold"), f"  {info.workflow}  "
    )
    return Text.assemble(line, status_text(info.status, info.held), step, "  ", _note(info), left)


# A page


def _print_page(page: Page, again: list[str], *, is_filtered: bool) -> None:
    console = screen()
    if page.read is not None and page.read > MANY_READ + 10 * len(page):
        console.print(Text(f"read {page.read:,} runs, since no index leads to these", style="dim"), soft_wrap=True)
    if not page:
        start = f"no runs yet; start one with `{hint('run', 'MODULE:WORKFLOW')}`"
        console.print(Text("no run matches" if is_filtered else start, style="dim"), soft_wrap=True)
        return
    if console.width < NARROW:
        _print_stacked(console, page)
    else:
        _print_table(console, page)
    if page.cursor is not None:
        more = hint("list", *again, "--after", page.cursor)
        console.print(Text(f"more: {more}", style="dim"), soft_wrap=True)


def _print_table(console: Console, page: Page) -> None:
    table = plain_table("id", "workflow", "status", "started", "took", "note")
    for info in page:
        table.add_row(
            Text(info.id, style="bold"),
            info.workflow,
            status_text(info.status, info.held),
            distance(info.created_at),
            span(info.closed_at - info.created_at) if info.closed_at is not None else "",
            _note(info),
        )
    print_lines(console, table)


def _print_stacked(console: Console, page: Page) -> None:
    """Each run in lines of its own, where columns would be too narrow to read."""
    for info in page:
        took = f", took {span(info.closed_at - info.created_at)}" if info.closed_at is not None else ""
        print_lines(console, Text.assemble((info.id, "bold"), "  ", status_text(info.status, info.held)))
        for text in (Text(f"{info.workflow}, {distance(info.created_at)}{took}"), _note(info)):
            if text:
                print_lines(console, Padding(text, (0, 0, 0, 2)))


def _note(info: RunInfo) -> Text:
    if info.error is not None:
        return Text(visible(info.error), style="red")
    if info.held is not None:
        return Text(visible(note_of(info)), style="red")
    return Text("; ".join(wait_texts(info.waiting_for)), style="dim")
