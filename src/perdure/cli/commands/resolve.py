"""`perdure resolve`: give a deferred of a run its value, or an error."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.text import Text

import perdure
from perdure.cli.input.database import client, found, under
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Key, Namespace, Url
from perdure.cli.input.values import json_given
from perdure.cli.output.errors import Mistake, Trouble, warn
from perdure.cli.output.tables import is_for_people, print_json, screen
from perdure.codec.schemas import misfit
from perdure.errors import RunNotFound
from perdure.tokens import meant_by
from perdure.views.run import DeferredInfo
from perdure.views.words import compact

EXAMPLES = {
    "resolve": """\
perdure resolve o-17 approval '{"ok": true}'
perdure resolve o-17 approval --error "card declined"
perdure resolve --token TOKEN true"""
}


class Wanted(NamedTuple):
    """What is to be resolved, by a run and a name or by a token, and the JSON to resolve it with, if no error is."""

    id: str
    name: str
    token: str | None
    value: str | None
    error: str | None


def resolve(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID NAME] [VALUE]", help="The run, the deferred, and JSON: literal, @file, or -."),
    ] = None,
    *,
    token: Annotated[
        str | None, typer.Option("--token", metavar="TOKEN", help="A token stands for a run and a name.")
    ] = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="The workflow gets this error instead of a value.")
    ] = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    force: Annotated[
        bool, typer.Option("--force", help="Resolve it even if it is not what the run waits for.", show_default=False)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give a deferred of a run its value, or an error."""
    wanted = _wanted(words or [], token, error)
    example = """true, 42, '"text"' or '{"by": "ann"}'"""
    value = None if wanted.value is None else msgspec.json.decode(json_given(wanted.value, "VALUE", example))
    asyncio.run(_resolve(url, namespace, wanted, value, key, force=force))
    what = "the token's deferred" if token is not None else f"{wanted.name} of {wanted.id}"
    if is_for_people(as_json=as_json):
        given = compact(value) if error is None else f"the error {compact(error)}"
        screen().print(Text.assemble(("✉ ", "magenta"), f"resolved {what} with {given}"), soft_wrap=True)
    else:
        by = {} if token is not None else {"id": wanted.id, "deferred": wanted.name}
        print_json({**by, **({"value": value} if error is None else {"error": error})})


def _wanted(words: list[str], token: str | None, error: str | None) -> Wanted:
    """The words in their places; Mistake when there are too many, or too few."""
    named, given = (0 if token is not None else 2), (0 if error is not None else 1)
    if len(words) != named + given:
        usage = " ".join(["--token TOKEN"] * (not named) + ["ID NAME"] * bool(named) + ["VALUE"] * given)
        hint = " --error TEXT" if not given else ""
        raise Mistake(f"resolve takes {usage}{hint}; {_counted(words)} given")
    id, name = words[:2] if named else ("", "")
    return Wanted(id, name, token, words[-1] if given else None, error)


def _counted(words: list[str]) -> str:
    return "1 word was" if len(words) == 1 else f"{len(words)} words were"


async def _resolve(url: str, namespace: str, wanted: Wanted, value: object, key: str | None, *, force: bool) -> None:
    given: dict[str, Any] = {"error": wanted.error} if wanted.error is not None else {"value": value}
    async with client(url, namespace) as app:
        if wanted.token is not None:
            if wanted.error is None and not force:
                await _refuse_misfit_by_token(app, wanted.token, value)
            await under(app, key).resolve(wanted.token, **given)
            return
        run = await found(app, wanted.id, key)
        deferreds = await run.deferreds()
        if wanted.error is None and not force:
            _refuse_misfit(run.id, wanted.name, value, deferreds)
        await run.resolve(wanted.name, **given)
        _warn_of_other_names(wanted.name, deferreds)


async def _refuse_misfit_by_token(app: "perdure.Perdure", token: str, value: object) -> None:
    """The same for the run that a token speaks of; whether the token is right is seen when it is used."""
    run_id, name = meant_by(token)
    try:
        run = await app.get(run_id=run_id)
        if (await run.describe()).status.is_closed:
            run = await app.get(run.id)
    except RunNotFound:
        return
    _refuse_misfit(run.id, name, value, await run.deferreds())


def _warn_of_other_names(name: str, deferreds: Sequence[DeferredInfo]) -> None:
    """A name may be misspelt: then the run waits on."""
    awaited = [each.name for each in deferreds if not each.is_resolved]
    if awaited and name not in {each.name for each in deferreds}:
        warn(f'the run waits for: {", ".join(awaited)}; "{name}" is kept until it is waited for')


def _refuse_misfit(id: str, name: str, value: object, deferreds: Sequence[DeferredInfo]) -> None:
    """Trouble when the run waits for this deferred with another type: what is written once cannot be mended."""
    for each in deferreds:
        trouble = misfit(value, each.type or {}) if each.name == name else None
        if trouble is not None:
            raise Trouble(
                f"run {id!r} waits for {name!r} with another value: {trouble}; "
                "nothing was resolved, --force does so all the same"
            )
