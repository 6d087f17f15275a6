"""`perdure namespace`: make, list, show and delete namespaces.

In:   what to do, and the name of a namespace.
Out:  the namespaces there are, or what is in one.
"""

import asyncio
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

import perdure
from perdure.cli.input.database import client, under
from perdure.cli.input.options import DEFAULT_URL, AsJson, Key, Url
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import grid, is_for_people, plain_table, print_json, print_lines, screen
from perdure.views.namespaces import MOST_COUNTED, NamespaceDetail, NamespaceInfo
from perdure.views.words import moment

EXAMPLES = {
    "namespace": """\
perdure namespace create shop
perdure namespace list
perdure namespace show shop
perdure namespace delete shop""",
}
# Always there; what is asked of namespaces is asked from here.
MAIN = "main"


class Action(StrEnum):
    """What can be done with namespaces."""

    CREATE = "create"
    LIST = "list"
    SHOW = "show"
    DELETE = "delete"


# Which options go with what.
TAKES = {Action.CREATE: ("key",), Action.LIST: (), Action.SHOW: (), Action.DELETE: ("key",)}


def namespace(
    action: Annotated[Action, typer.Argument(help="What to do.", metavar="create|list|show|delete")],
    name: Annotated[str | None, typer.Argument(help="The namespace; not for `list`.", show_default=False)] = None,
    *,
    key: Key = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Make, list, show or delete namespaces."""
    if (name is None) != (action is Action.LIST):
        raise Mistake(
            "`perdure namespace list` shows all of them; it takes no name"
            if name is not None
            else f"name the namespace: `perdure namespace {action} NAME`"
        )
    answer = asyncio.run(_asked(url, action, name or "", key))
    if not is_for_people(as_json=as_json):
        print_json(answer if answer is not None else {"name": name, "deleted": True})
    elif isinstance(answer, list):
        _print_list(answer)
    elif isinstance(answer, NamespaceDetail):
        _print_detail(answer)
    else:
        done = "is there now" if action is Action.CREATE else "is deleted"
        screen().print(Text.assemble((name or "", "bold"), f" {done}"), soft_wrap=True)


async def _asked(
    url: str, action: Action, name: str, key: str | None
) -> "NamespaceInfo | NamespaceDetail | list[NamespaceInfo] | None":
    async with client(url, MAIN) as app:
        return await _done(under(app, key).namespaces, action, name)


async def _done(
    namespaces: "perdure.Namespaces", action: Action, name: str
) -> "NamespaceInfo | NamespaceDetail | list[NamespaceInfo] | None":
    match action:
        case Action.CREATE:
            return await namespaces.create(name)
        case Action.LIST:
            return await namespaces.list()
        case Action.SHOW:
            return await namespaces.get(name)
        case Action.DELETE:
            await namespaces.delete(name)
            return None


def _print_list(found: list[NamespaceInfo]) -> None:
    shown = plain_table("namespace", "made")
    for each in found:
        shown.add_row(each.name, moment(each.created_at))
    print_lines(screen(), shown)


def _print_detail(found: NamespaceDetail) -> None:
    runs = [f"{min(n, MOST_COUNTED):,}{'+' if n > MOST_COUNTED else ''} {status}" for status, n in found.runs.items()]
    shown = grid()
    shown.add_row("namespace", Text(found.name, style="bold"))
    shown.add_row("made", moment(found.created_at))
    shown.add_row("runs", ", ".join(runs) or "none")
    shown.add_row("queues", ", ".join(found.queues) or "none")
    shown.add_row("workers", f"{found.workers:,}" if found.workers else "none")
    print_lines(screen(), shown)
