"""`perdure show`: one run, with all there is to say about it.

In:   the name of a run.
Out:  a page for people, JSON for programs.
"""

import asyncio

from rich.console import Console
from rich.text import Text

from perdure.app.run import detail_of
from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url
from perdure.cli.output.errors import warn
from perdure.cli.output.held import print_hold
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import grid, is_for_people, print_json, print_lines, screen, status_text
from perdure.diagnostics.unworked import unworked
from perdure.kernel.quarantine import is_suspect
from perdure.kernel.snapshots import LARGE, MUCH
from perdure.views.detail import MOST_UNREAD, RunDetail, fields_of
from perdure.views.run import RunEvent, RunInfo, UndoInfo, UnreadMessage
from perdure.views.timeline import error_in, line_of, traceback_in, wait_texts
from perdure.views.words import compact, counted, distance, moment, span, visible

# Of an inbox so many messages are shown to people; programs get more.
MOST_SHOWN = 20

EXAMPLES = {"show": "perdure show o-17"}
LONGEST_VALUE = 500
UNREADABLE = Text("cannot be read", style="red")
Fact = tuple[str, str | Text]


def show(
    name: RunName, *, url: Url = DEFAULT_URL, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False
) -> None:
    """Show one run: where it stands, what it waits for, what went wrong."""
    is_shown = is_for_people(as_json=as_json)
    detail = asyncio.run(_detail(url, namespace, name, MOST_SHOWN if is_shown else MOST_UNREAD))
    if detail.trouble is not None:
        warn(str(detail.trouble))
    if is_shown:
        _print(screen(), detail, asyncio.run(_warnings(url, detail.info)))
    else:
        print_json(fields_of(detail))


async def _detail(url: str, namespace: str, name: str, most_unread: int) -> RunDetail:
    async with client(url, namespace) as app:
        return await detail_of(await found(app, name), most_unread)


async def _warnings(url: str, info: RunInfo) -> list[str]:
    """What keeps the run from going on: that nobody works a queue it waits for now."""
    is_ripe = info.status == "PENDING" and info.delayed_until is None
    found = await unworked(url, info, own=frozenset(() if is_ripe else (info.queue,)), hint=hint)
    # What it waits for is shown with the reason already.
    shown = [wait.reason for wait in info.waiting_for if wait.reason is not None]
    return [text for text in found.values() if not text.endswith(tuple(shown))]


def _print(console: Console, detail: RunDetail, warnings: list[str]) -> None:
    table, info = grid(), detail.info
    for label, value in [*_identity(detail), *_times(detail), *_outcome(detail, warnings), *_inbox(detail)]:
        table.add_row(label, value)
    print_lines(console, table)
    if info.held is not None:
        console.print()
        print_hold(console, info)
    if info.status == "FAILED":
        _print_tracebacks(console, detail)
    console.print()
    console.print(f"every step: {hint('events', info.id)}", style="dim", soft_wrap=True)


def _identity(detail: RunDetail) -> list[Fact]:
    """Which run it is, and what it belongs to."""
    info = detail.info
    told: list[tuple[str, str | Text | None]] = [
        ("id", Text(info.id, style="bold")),
        ("run_id", info.run_id),
        ("workflow", info.workflow),
        ("namespace", info.namespace if info.namespace != DEFAULT_NAMESPACE else None),
        ("queue", info.queue if info.queue != "default" else None),
        ("priority", str(info.priority) if info.priority else None),
        ("entity", info.entity_id),
        ("correlation", info.correlation_id),
        ("attributes", Text(compact(info.attributes, LONGEST_VALUE)) if info.attributes else None),
        ("parent", info.parent_id and f"{detail.parent or 'a run that is gone'} ({info.parent_id})"),
        ("continues", info.continued_from),
        ("goes on as", info.continued_to),
        ("made from", None if info.forked_from is None else _made_from(info)),
        ("made anew as", info.forked_to),
        ("input", UNREADABLE if detail.first is None else Text(compact(detail.input, LONGEST_VALUE))),
    ]
    return _those_there(told)


def _times(detail: RunDetail) -> list[Fact]:
    """Where it stands, and since and until when."""
    info, last = detail.info, detail.last
    told: list[tuple[str, str | Text | None]] = [
        ("status", status_text(info.status, info.held)),
        ("step", Text(visible(info.step)) if info.step else None),
        ("started", moment(info.created_at)),
    ]
    if info.closed_at is not None:
        told.append(("ended", f"{moment(info.closed_at)}, took {span(info.closed_at - info.created_at)}"))
        return _those_there(told)
    asked = info.cancel_requested_at
    reason = f": {visible(info.cancel_reason)}" if info.cancel_reason else ""
    told += [
        ("begins", moment(info.delayed_until) if info.delayed_until else None),
        ("last moved", moment(info.updated_at)),
        ("last event", None if last is None else _event(last)),
        ("lost", Text(_lost(info.losses), style="yellow") if is_suspect(info.losses) and not info.held else None),
        ("to stop", Text(f"asked {moment(asked)}{reason}", style="yellow") if asked else None),
        ("must end", moment(info.deadline_at) if info.deadline_at else None),
    ]
    return _those_there(told)


def _made_from(info: RunInfo) -> Text:
    reason = f": {visible(info.fork_reason)}" if info.fork_reason else ""
    return Text(f"{info.forked_from}, up to event {info.forked_at}{reason}")


def _lost(losses: int) -> str:
    return f"its workers died {losses} times in a row while it was in the same calls; it may be what they die of"


def _event(event: RunEvent) -> Text:
    line = line_of(event)
    return Text(f"{event.seq}: {line.title}  {line.detail}")


def _outcome(detail: RunDetail, warnings: list[str]) -> list[Fact]:
    """How it ended, or what it waits for."""
    info, facts = detail.info, list[Fact]()
    if info.status == "COMPLETED":
        result = Text(compact(detail.result, LONGEST_VALUE), style="green")
        facts.append(("result", result if detail.has_result else UNREADABLE))
    if info.error is not None:
        facts.append(("error" if info.status == "FAILED" else "reason", Text(visible(info.error), style="red")))
    facts += _labelled("waits for", [Text(text) for text in wait_texts(info.waiting_for, moment)])
    facts += _labelled("undo", [_undo(each) for each in info.undo])
    facts += _labelled("warning", [Text(text, style="yellow") for text in warnings])
    facts += _labelled(
        "failed attempts",
        [
            Text(f"{each.name}, attempt {each.attempt}, {distance(each.at)}: {visible(each.error)}", style="yellow")
            for each in detail.attempts
        ],
    )
    return facts


def _undo(undo: UndoInfo) -> Text:
    """A call that undoes something, and what became of it."""
    name = "something, not known what" if undo.name is None else visible(undo.name)
    error = "" if undo.error is None else f": {visible(undo.error)}"
    return Text(f"{name}, {undo.state}{error}", style={"failed": "red", "left": "yellow"}.get(undo.state, ""))


def _inbox(detail: RunDetail) -> list[Fact]:
    """What has come for it, what it has started, and how much it has done."""
    unread = [Text(_message(each)) for each in detail.unread]
    if (more := detail.unread_count - len(detail.unread)) > 0:
        unread.append(Text(f"and {more:,} more", style="dim"))
    aside = [Text(f"{_message(each)}: not what the code waits for", style="yellow") for each in detail.set_aside]
    children = [
        Text.assemble((child.id, "bold"), f"  {child.workflow}  ", status_text(child.status, child.held))
        for child in detail.children
    ]
    if detail.has_more_children:
        children.append(Text(f"more: {hint('list', '--parent', detail.info.run_id)}", style="dim"))
    return [
        *_labelled("unread", unread),
        *_labelled("set aside", aside),
        *_labelled("children", children),
        *_labelled("shows", _shown(detail)),
        *_labelled("streams", [Text(f"{name}, {counted(n, 'value')}") for name, n in detail.streams.items()]),
        ("history", counted(detail.events, "event") + ("" if detail.trouble is None else ", as far as it can be read")),
    ]


def _shown(detail: RunDetail) -> list[Text]:
    """How much the run shows of itself, if that is much."""
    size = f"{detail.shown_bytes / 1024:,.0f} KiB"
    if detail.shown_bytes > LARGE:
        advice = f"{size}, written again whenever it changes; expose less: {hint('query', detail.info.id)}"
        return [Text(advice, style="yellow")]
    return [Text(f"{size}, which is much: {hint('query', detail.info.id)}")] if detail.shown_bytes > MUCH else []


def _message(message: UnreadMessage) -> str:
    due = "" if message.due_at is None else f", due {distance(message.due_at)}"
    return f"{_spoken(message.kind)} {message.name or ''} {compact(message.payload)}, {distance(message.at)}{due}"


SPOKEN = {
    "SignalSent": "signal",
    "DeferredResult": "deferred",
    "DeferredFailure": "failed deferred",
    "RequestSent": "request",
    "CancelRequest": "request to stop",
    "TerminateRequest": "request to end",
}


def _spoken(kind: str) -> str:
    """`SignalSent` as `signal`: the kind of a message in a word."""
    return SPOKEN.get(kind, "child")


def _labelled(label: str, texts: list[Text]) -> list[Fact]:
    """Several lines under one label."""
    return [("" if number else label, text) for number, text in enumerate(texts)]


def _those_there(told: list[tuple[str, str | Text | None]]) -> list[Fact]:
    return [(label, value) for label, value in told if value]


def _print_tracebacks(console: Console, detail: RunDetail) -> None:
    """Where the workflow raised; and, when it was an activity's error, where that did."""
    console.print()
    if detail.last is not None and detail.last.kind == "RunFailed":
        console.print(Text(traceback_in(detail.last.body).rstrip(), style="red"), soft_wrap=True)
    for event in detail.causes:
        name = f"the activity {event.body['name']}" if "name" in event.body else f"the child {event.body['child_id']}"
        console.print(f"\nin {name}:", soft_wrap=True)
        console.print(Text(traceback_in(event.body).rstrip() or error_in(event.body), style="red"), soft_wrap=True)
