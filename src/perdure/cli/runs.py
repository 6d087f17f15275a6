"""`perdure list` and `perdure show`: runs as they stand.

In:   filters; or the name of a run.
Out:  a table or a page about one run for people, JSON for programs.
"""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import perdure
from perdure.cli.hints import hint
from perdure.cli.history import error_in, line_of, traceback_in, wait_texts
from perdure.cli.holds import MEANINGS, print_hold, report_of
from perdure.cli.opening import client, found
from perdure.cli.options import DEFAULT_URL, AsJson, RunName, Url
from perdure.cli.output import (
    compact,
    counted,
    distance,
    is_for_people,
    moment,
    plain_table,
    print_json,
    print_lines,
    screen,
    span,
    status_text,
)
from perdure.kernel.status import Status

if TYPE_CHECKING:
    from perdure import FailedAttempt
    from perdure.app import Page, RunEvent, RunInfo

DEFAULT_LIMIT = 20


def list_runs(
    *,
    status: Annotated[
        list[Status] | None,
        typer.Option("--status", case_sensitive=False, help="Only these; may be given more than once."),
    ] = None,
    workflow: Annotated[str | None, typer.Option("--workflow", help="Only runs of this workflow.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = DEFAULT_LIMIT,
    after: Annotated[
        str | None, typer.Option("--after", metavar="RUN_ID", help="Go on after this run: the last one of a page.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show runs, newest first."""
    page = asyncio.run(_page(url, status or None, workflow, limit, after))
    if not is_for_people(as_json=as_json):
        print_json([_listed(info) for info in page])
        return
    filters = [word for each in status or () for word in ("--status", each.lower())]
    filters += ["--workflow", workflow] if workflow is not None else []
    again = [*filters, "--limit", str(limit)] if limit != DEFAULT_LIMIT else filters
    _print_page(page, again, is_filtered=bool(filters or after))


async def _page(url: str, status: list[Status] | None, workflow: str | None, limit: int, after: str | None) -> "Page":
    async with client(url) as app:
        return await app.list(status=status, workflow=workflow, limit=limit, after=after)


def _listed(info: "RunInfo") -> dict[str, object]:
    """A run for programs; its report as JSON, not as a text with JSON in it."""
    fields: dict[str, object] = {name: getattr(info, name) for name in info.__struct_fields__}
    return fields | {"held_report": report_of(info)}


def _print_page(page: "Page", again: list[str], *, is_filtered: bool) -> None:
    console = screen()
    if not page:
        start = f"no runs yet; start one with `{hint('run', 'MODULE:WORKFLOW')}`"
        console.print(Text("no run matches" if is_filtered else start, style="dim"), soft_wrap=True)
        return
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
    if page.cursor is not None:
        more = hint("list", *again, "--after", page.cursor)
        console.print(Text(f"more: {more}", style="dim"), soft_wrap=True)


def _note(info: "RunInfo") -> Text:
    if info.error is not None:
        return Text(info.error, style="red")
    if info.held is not None:
        return Text(MEANINGS.get(info.held, ""), style="red")
    return Text("; ".join(wait_texts(info.waiting_for)), style="dim")


def show(name: RunName, *, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show one run: where it stands, what it waits for, what went wrong."""
    info, history, attempts = asyncio.run(_run_with_history(url, name))
    if is_for_people(as_json=as_json):
        _print_run(screen(), info, history, attempts)
        return
    last = history[-1].body
    print_json(
        _listed(info)
        | {"input": history[0].body["input"], "result": last.get("result") if info.status == "COMPLETED" else None}
        | {"events": len(history), "failed_attempts": [_failed(attempt) for attempt in attempts]}
    )


async def _run_with_history(url: str, name: str) -> "tuple[RunInfo, list[RunEvent], list[FailedAttempt]]":
    async with client(url) as app:
        run: perdure.Run[Any] = await found(app, name)
        return await run.describe(), [event async for event in run.events()], list(await run.attempts())


def _failed(attempt: "FailedAttempt") -> dict[str, object]:
    return {"activity": attempt.name, "attempt": attempt.attempt, "error": attempt.error, "at": attempt.at}


def _print_run(console: Console, info: "RunInfo", history: "list[RunEvent]", attempts: "list[FailedAttempt]") -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in _facts(info, history):
        grid.add_row(label, value)
    for number, text in enumerate(wait_texts(info.waiting_for, moment)):
        grid.add_row("" if number else "waits for", Text(text))
    open_attempts = [attempt for attempt in attempts if info.closed_at is None]
    if open_attempts:
        last = open_attempts[-1]
        grid.add_row("last failure", Text(f"{last.name}, attempt {last.attempt}: {last.error}", style="yellow"))
    print_lines(console, grid)
    if info.held is not None:
        console.print()
        print_hold(console, info)
    if info.error is not None:
        console.print()
        _print_tracebacks(console, info.error, history)
    console.print()
    console.print(f"every step: {hint('events', info.id)}", style="dim", markup=False, soft_wrap=True)


def _print_tracebacks(console: Console, error: str, history: "list[RunEvent]") -> None:
    """Where the workflow raised; and, when it was an activity's error, where that did."""
    console.print(Text(traceback_in(history[-1].body).rstrip(), style="red"), soft_wrap=True)
    for event in _causes(error, history):
        console.print(f"\nin the activity {event.body['name']}:", markup=False)
        console.print(Text(traceback_in(event.body).rstrip(), style="red"), soft_wrap=True)


def _causes(error: str, history: "list[RunEvent]") -> "list[RunEvent]":
    """The activities whose errors ended the run: the last that failed so, or all those in a group."""
    failed = [event for event in history if event.kind == "ActivityFailed"]
    if error.startswith("ExceptionGroup: "):
        # A group names its errors by their types without modules.
        return [event for event in failed if _without_module(error_in(event.body)) in error]
    return [event for event in failed if error_in(event.body) == error][-1:]


def _without_module(error: str) -> str:
    kind, colon, message = error.partition(":")
    return f"{kind.rpartition('.')[2]}{colon}{message}"


def _facts(info: "RunInfo", history: "list[RunEvent]") -> "list[tuple[str, str | Text]]":
    facts: list[tuple[str, str | Text]] = [
        ("id", Text(info.id, style="bold")),
        ("run_id", info.run_id),
        ("workflow", info.workflow),
        ("status", status_text(info.status, info.held)),
        ("input", Text(compact(history[0].body["input"], 500))),
        ("started", moment(info.created_at)),
        ("last moved", moment(info.updated_at)),
        ("last event", Text(_last(history[-1]))),
    ]
    if info.closed_at is not None:
        facts[-2:] = [("ended", f"{moment(info.closed_at)}, took {span(info.closed_at - info.created_at)}")]
    if info.status == "COMPLETED":
        facts.append(("result", Text(compact(history[-1].body["result"], 500), style="green")))
    if info.error is not None:
        facts.append(("error", Text(info.error, style="red")))
    return [*facts, ("history", counted(len(history), "event"))]


def _last(event: "RunEvent") -> str:
    line = line_of(event)
    return f"{event.seq}: {line.title}  {line.detail}"
