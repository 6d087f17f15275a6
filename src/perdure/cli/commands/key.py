"""`perdure key`: make, list and revoke the keys that callers of a server show.

In:   what to do; what a key may do, and for how long.
Out:  a key, shown this once; the keys there are, without themselves.
"""

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from perdure.cli.input.database import client
from perdure.cli.input.options import DEFAULT_URL, AsJson, Url
from perdure.cli.input.values import duration
from perdure.cli.output.errors import Mistake
from perdure.cli.output.tables import is_for_people, plain_table, print_json, print_lines, screen
from perdure.views.access_keys import KeyInfo
from perdure.views.words import moment

if TYPE_CHECKING:
    import perdure
    from perdure.engine.ports import MadeKey

EXAMPLES = {
    "key": """\
perdure key create --label ci --role operator
perdure key create --label game --role operator --entity npc-42 --expires 30d
perdure key list
perdure key revoke 4f1c09aa12bd""",
}
# Keys are those of a database, whatever their namespaces.
MAIN = "main"


class KeyAction(StrEnum):
    """What can be done with keys."""

    CREATE = "create"
    LIST = "list"
    REVOKE = "revoke"


# Which options go with what; those that are not here would be lost.
TAKES = {
    KeyAction.CREATE: ("label", "role", "scope", "namespace", "queue", "entity", "expires"),
    KeyAction.LIST: (),
    KeyAction.REVOKE: (),
}


def key(
    action: Annotated[KeyAction, typer.Argument(help="What to do.", metavar="create|list|revoke")],
    key_id: Annotated[str | None, typer.Argument(help="The key to revoke.", show_default=False)] = None,
    *,
    label: Annotated[str | None, typer.Option("--label", metavar="TEXT", help="What the key is for.")] = None,
    role: Annotated[
        str | None, typer.Option("--role", metavar="ROLE", help="reader, operator, worker or admin.")
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", metavar="SCOPE", help="Instead of a role: read, start, steer …")
    ] = None,
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", metavar="NAME", help="For this one alone; else for all.")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option("--queue", metavar="NAME", help="For workers of this queue alone.")
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", metavar="ID", help="For the runs of this entity alone.")
    ] = None,
    expires: Annotated[
        float | None, typer.Option("--expires", metavar="DURATION", parser=duration, help="Good for so long: 30d.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Make, list or revoke the keys that callers of a server show."""
    if (key_id is not None) != (action is KeyAction.REVOKE):
        raise Mistake("only `perdure key revoke KEY_ID` takes the id of a key; `perdure key list` shows them")
    if (label is not None) != (action is KeyAction.CREATE):
        raise Mistake("`perdure key create --label TEXT` makes a key, and a label is only for that")
    rights = {"role": role, "scopes": scope or (), "namespaces": namespace or (), "queues": queue or ()}
    answer = asyncio.run(_asked(url, action, key_id or label or "", rights | {"entity_id": entity, "expires": expires}))
    if not is_for_people(as_json=as_json):
        print_json(answer if answer is not None else {"key_id": key_id, "revoked": True})
    elif isinstance(answer, list):
        _print_list(answer)
    elif answer is not None:
        screen().print(Text(answer.key, style="bold"), soft_wrap=True)
        screen().print(f"  shown this once; its id is {answer.key_id}", soft_wrap=True)
    else:
        screen().print(f"{key_id} is revoked; within a second it is refused everywhere", soft_wrap=True)


async def _asked(url: str, action: KeyAction, name: str, rights: dict[str, object]) -> "MadeKey | list[KeyInfo] | None":
    async with client(url, MAIN) as app:
        return await _done(app.keys, action, name, rights)


async def _done(
    keys: "perdure.Keys", action: KeyAction, name: str, rights: dict[str, object]
) -> "MadeKey | list[KeyInfo] | None":
    match action:
        case KeyAction.CREATE:
            return await keys.create(name, **rights)  # type: ignore[arg-type]  # as the options say
        case KeyAction.LIST:
            return await keys.list()
        case KeyAction.REVOKE:
            await keys.revoke(name)
            return None


def _print_list(found: list[KeyInfo]) -> None:
    shown = plain_table("key", "label", "scopes", "for", "state")
    for each in found:
        for_whom = [*each.namespaces, *each.queues, *([each.entity_id] if each.entity_id else [])]
        shown.add_row(each.key_id, each.label, " ".join(each.scopes), ", ".join(for_whom) or "all", _state(each))
    print_lines(screen(), shown)


def _state(each: KeyInfo) -> str:
    if each.revoked_at is not None:
        return f"revoked {moment(each.revoked_at)}"
    used = "never used" if each.last_used_at is None else f"used {moment(each.last_used_at)}"
    return used if each.expires_at is None else f"{used}, until {moment(each.expires_at)}"
