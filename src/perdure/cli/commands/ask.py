"""`perdure ask`: ask a running workflow, and print its answer."""

import asyncio
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url, Waiting
from perdure.cli.input.values import json_given
from perdure.cli.output.errors import TIMED_OUT, Trouble, say, warn
from perdure.cli.output.tables import is_for_people, print_json, screen
from perdure.cli.output.unworked import warn_if_nobody_works
from perdure.codec.schemas import misfit
from perdure.views.words import compact

if TYPE_CHECKING:
    from perdure.app import Wait

EXAMPLES = {
    "ask": """\
perdure ask o-17 add '{"name": "book", "quantity": 2}'
perdure ask o-17 add @item.json --id web-81 --timeout 30s"""
}


def ask(
    name: RunName,
    request: Annotated[str, typer.Argument(metavar="NAME", help="The request's name.", show_default=False)],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="JSON: literal, @file, or - for standard input.")
    ] = "null",
    *,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Your own key: asked again under it, the answer is the same."),
    ] = None,
    timeout: Waiting = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Ask a running workflow, and print its answer."""
    given = msgspec.json.decode(json_given(value, "VALUE", """true, 42, '"text"' or '{"by": "ann"}'"""))
    try:
        answer = asyncio.run(_ask(url, namespace, name, request, given, id, timeout))
    except TimeoutError as error:
        say(f"{error}; the request stays, {_how_to_ask_again(id)}")
        raise typer.Exit(TIMED_OUT) from None
    if is_for_people(as_json=as_json):
        screen().print(
            Text.assemble(("✉ ", "magenta"), f"{request} {compact(given)} → {compact(answer)}"), soft_wrap=True
        )
    else:
        print_json(answer)


async def _ask(
    url: str, namespace: str, name: str, request: str, given: object, id: str | None, limit: float | None
) -> object:
    async with client(url, namespace) as app:
        run = await found(app, name)
        info = await run.describe()
        _refuse_misfit(run.id, request, given, info.waiting_for)
        _warn_of_other_names(request, info.waiting_for)
        await warn_if_nobody_works(url, info)
        return await run.ask(request, given, id=id, timeout=limit)


def _how_to_ask_again(id: str | None) -> str:
    if id is None:
        return "but its answer can be asked for again only if it has an --id"
    return f"the same command with --id {shlex.quote(id)} asks for its answer again"


def _warn_of_other_names(request: str, waits: "Sequence[Wait]") -> None:
    """A name may be misspelt: then nobody answers."""
    awaited = list(dict.fromkeys(wait.name for wait in waits if wait.kind == "request" and wait.name is not None))
    if awaited and request not in awaited:
        warn(f'the run waits for: {", ".join(awaited)}; "{request}" is kept until it is received')


def _refuse_misfit(id: str, request: str, given: object, waits: "Sequence[Wait]") -> None:
    """Trouble when the run waits for this request with another value: it would be refused."""
    for wait in waits:
        trouble = misfit(given, wait.accepts or {}) if (wait.kind, wait.name) == ("request", request) else None
        if trouble is not None:
            raise Trouble(f"run {id!r} waits for {request!r} with another value: {trouble}; nothing was asked")
