"""`perdure outbox`: make, look at, change and remove sinks; what they did not take, and what is sent anew.

In:   what to do, the name of a sink, and where its events go.
Out:  sinks as they stand, dead letters, counts; JSON for programs.
"""

import asyncio
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import typer

import perdure
from perdure.cli.commands.schedule import point_in_time
from perdure.cli.input import options as given
from perdure.cli.input.database import client, under
from perdure.cli.output.errors import Mistake
from perdure.cli.output.flags import in_flags
from perdure.cli.output.tables import is_for_people, plain_table, print_json, print_lines, screen
from perdure.views.outbox import DeadLetter, SinkInfo
from perdure.views.words import moment

EXAMPLES = {
    "outbox": """\
perdure outbox add crm --webhook https://crm.example/hook --secret env:CRM_SECRET --event 'run.*'
perdure outbox add audit --log --event run.failed --workflow checkout
perdure outbox list
perdure outbox update crm --event run.failed --max-attempts 5
perdure outbox pause crm --reason 'they move house'
perdure outbox resume crm
perdure outbox test crm
perdure outbox dead-letters crm
perdure outbox replay crm
perdure outbox resend crm --from 2026-10-01T00:00Z
perdure outbox remove crm""",
}
# What errors of sinks speak of, as it is typed here.
FLAGS = {
    "allow_private=True": "--allow-private",
    'events=("run.*",)': "--event 'run.*'",
    "`$.max_attempts`": "--max-attempts",
    "`$.concurrency`": "--concurrency",
    "`$.max_backlog`": "--max-backlog",
}
DEFAULT_EVENTS = ["run.*"]


class OutboxAction(StrEnum):
    """What can be done with sinks."""

    LIST = "list"
    ADD = "add"
    UPDATE = "update"
    PAUSE = "pause"
    RESUME = "resume"
    TEST = "test"
    DEAD_LETTERS = "dead-letters"
    REPLAY = "replay"
    RESEND = "resend"
    REMOVE = "remove"


# Which options go with what; those that are not here would be lost.
_SINK = (
    *("webhook", "secret", "allow_private", "to_log", "events", "workflows", "include_values", "max_attempts"),
    *("concurrency", "max_backlog", "key", "namespace"),
)
TAKES = {
    OutboxAction.LIST: ("namespace",),
    OutboxAction.ADD: _SINK,
    OutboxAction.UPDATE: _SINK,
    OutboxAction.PAUSE: ("reason", "key", "namespace"),
    OutboxAction.RESUME: ("key", "namespace"),
    OutboxAction.TEST: ("namespace",),
    OutboxAction.DEAD_LETTERS: ("namespace",),
    OutboxAction.REPLAY: ("ids", "key", "namespace"),
    OutboxAction.RESEND: ("since", "until", "key", "namespace"),
    OutboxAction.REMOVE: ("key", "namespace"),
}


class TypedSink(NamedTuple):
    """What was typed besides action and name."""

    target: "perdure.Webhook | perdure.Log | None"
    fields: dict[str, Any]
    reason: str | None
    ids: list[str] | None
    since: datetime | None
    until: datetime | None
    key: str | None = None


def outbox(
    action: Annotated[
        OutboxAction, typer.Argument(help="What to do.", metavar="|".join(action.value for action in OutboxAction))
    ],
    name: Annotated[str | None, typer.Argument(help="The sink; not for `list`.", show_default=False)] = None,
    *,
    webhook: Annotated[str | None, typer.Option("--webhook", metavar="URL", help="Where events are posted to.")] = None,
    secret: Annotated[
        list[str] | None, typer.Option("--secret", help="The secret of the webhook, or env:NAME; two to rotate it.")
    ] = None,
    allow_private: Annotated[bool, typer.Option("--allow-private", help="Allow private addresses.")] = False,
    to_log: Annotated[bool, typer.Option("--log", help="Events go to the log of the workers.")] = False,
    events: Annotated[
        list[str] | None, typer.Option("--event", metavar="TYPE", help="Which events, such as 'run.*'; repeat it.")
    ] = None,
    workflows: Annotated[
        list[str] | None, typer.Option("--workflow", metavar="NAME", help="Of which workflows; repeat it.")
    ] = None,
    include_values: Annotated[
        bool | None, typer.Option("--include-values/--no-values", help="Send inputs and results, too.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(metavar="N", help="How often an event is tried.")] = None,
    concurrency: Annotated[int | None, typer.Option(metavar="N", help="How many runs beside each other.")] = None,
    max_backlog: Annotated[int | None, typer.Option(metavar="N", help="How many events may wait.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why it is paused.")] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="Which dead letters; repeat it.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--from", metavar="TIME", help="Send events anew from here on.", parser=point_in_time),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--to", metavar="TIME", help="Up to here.", parser=point_in_time)
    ] = None,
    key: given.Key = None,
    url: given.Url = given.DEFAULT_URL,
    namespace: given.Namespace = given.DEFAULT_NAMESPACE,
    as_json: given.AsJson = False,
) -> None:
    """Make, show, change, test or remove sinks; deliver dead letters, send events anew."""
    if (name is None) != (action is OutboxAction.LIST):
        takes_none = "`perdure outbox list` shows all of them; it takes no name"
        raise Mistake(takes_none if name is not None else f"name the sink: `perdure outbox {action} NAME`")
    if action is OutboxAction.RESEND and since is None:
        raise Mistake(f"say from when: `perdure outbox resend {name} --from TIME`")
    fields = {
        "events": events,
        "workflows": workflows,
        "include_values": include_values,
        "max_attempts": max_attempts,
        "concurrency": concurrency,
        "max_backlog": max_backlog,
    }
    typed = {field: value for field, value in fields.items() if value is not None}
    with in_flags(FLAGS):
        target = _target(webhook, secret or [], allow_private=allow_private, to_log=to_log)
    if action is OutboxAction.UPDATE and target is None and not typed:
        raise Mistake(f"say what to change: `perdure outbox update {name} --event 'run.*'`; its help shows the options")
    if action is OutboxAction.ADD and target is None:
        raise Mistake("say where events go: --webhook URL --secret env:NAME, or --log; functions come with @sink")
    asked = TypedSink(target, typed, reason, ids, since, until, key)
    with in_flags(FLAGS):
        answer = asyncio.run(_asked(url, namespace, action, name or "", asked))
    if not is_for_people(as_json=as_json):
        print_json(answer)
    else:
        _print(action, name or "", answer)


def _target(
    webhook: str | None, secrets: list[str], *, allow_private: bool, to_log: bool
) -> "perdure.Webhook | perdure.Log | None":
    """Where events go, as it was typed; None when nothing is said of it."""
    if to_log:
        return perdure.Log()
    if webhook is None:
        return None
    if len(secrets) not in {1, 2}:
        raise Mistake("a webhook has a secret: --secret env:NAME; two of them while they are rotated")
    secret = secrets[0] if len(secrets) == 1 else (secrets[0], secrets[1])
    target = perdure.Webhook(webhook, secret, allow_private)
    target.refuse_private()
    return target


async def _asked(url: str, namespace: str, action: OutboxAction, name: str, asked: TypedSink) -> Any:
    async with client(url, namespace) as app:
        return await _done(under(app, asked.key).outbox, action, name, asked)


async def _done(outbox: "perdure.Outbox", action: OutboxAction, name: str, asked: TypedSink) -> Any:  # noqa: C901, PLR0911 - one for each action
    match action:
        case OutboxAction.LIST:
            return await outbox.list()
        case OutboxAction.ADD if asked.target is not None:
            return await outbox.add(name, asked.target, **({"events": DEFAULT_EVENTS} | asked.fields))
        case OutboxAction.UPDATE:
            changes = asked.fields if asked.target is None else asked.fields | {"target": asked.target}
            return await outbox.update(name, **changes)
        case OutboxAction.PAUSE:
            await outbox.pause(name, asked.reason)
        case OutboxAction.RESUME:
            await outbox.resume(name)
        case OutboxAction.TEST:
            await outbox.test(name)
        case OutboxAction.DEAD_LETTERS:
            return await outbox.dead_letters(name)
        case OutboxAction.REPLAY:
            return {"name": name, "events": await outbox.replay(name, asked.ids)}
        case OutboxAction.RESEND if asked.since is not None:
            return {"name": name, "events": await outbox.resend(name, asked.since, asked.until)}
        case OutboxAction.REMOVE:
            return {"name": name, "removed": await outbox.remove(name)}
        case _:
            pass
    return await outbox.get(name)


def _print(action: OutboxAction, name: str, answer: Any) -> None:
    console = screen()
    if action is OutboxAction.DEAD_LETTERS:
        _print_letters(answer)
    elif isinstance(answer, list):
        _print_list(answer)
    elif action in {OutboxAction.ADD, OutboxAction.UPDATE}:
        _print_list([answer])
    elif action is OutboxAction.TEST:
        console.print(f"{name} took the event", soft_wrap=True)
    elif action in {OutboxAction.REPLAY, OutboxAction.RESEND}:
        console.print(f"{answer['events']:,} events are sent to {name} again", soft_wrap=True)
    elif action is OutboxAction.REMOVE:
        console.print(f"{name} {'is removed' if answer['removed'] else 'was not there'}", soft_wrap=True)
    else:
        console.print(f"{name} {'is paused' if answer.state == 'paused' else 'goes on'}", soft_wrap=True)


def _print_list(found: list[SinkInfo]) -> None:
    shown = plain_table("sink", "to", "events", "state", "waiting", "delivered", "dead")
    for each in found:
        state = each.state if each.error is None else f"{each.state}: {each.error}"
        counts = (f"{each.backlog:,}", f"{each.delivered:,}", f"{each.dead:,}")
        shown.add_row(each.name, str(each.target), " ".join(each.events), state, *counts)
    print_lines(screen(), shown)


def _print_letters(found: list[DeadLetter]) -> None:
    shown = plain_table("event", "type", "given up", "tries", "error")
    for each in found:
        shown.add_row(each.id, each.event.type, moment(each.died_at), str(each.attempts), each.error or "")
    print_lines(screen(), shown)
