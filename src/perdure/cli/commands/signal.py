"""`perdure signal`: send a message to a run."""

import asyncio
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

import perdure
from perdure.cli.input.database import client, found
from perdure.cli.input.many import Many
from perdure.cli.input.options import (
    DEFAULT_NAMESPACE,
    DEFAULT_URL,
    AsJson,
    Key,
    Namespace,
    Parameters,
    Url,
    Where,
    Yes,
)
from perdure.cli.input.values import duration, json_given, parameters
from perdure.cli.output.errors import Mistake, Trouble, warn
from perdure.cli.output.tables import is_for_people, print_json, screen
from perdure.views.run import signal_misfit
from perdure.views.words import compact, span

EXAMPLES = {
    "signal": """\
perdure signal o-17 approved true
perdure signal o-17 address @address.json
perdure signal o-17 remind '"pay"' --delay 2h
perdure signal approved true --where "tenant = 'acme'" --id friday"""
}


def send(
    name: Annotated[
        str,
        typer.Argument(metavar="[ID]", help="A run's id, or its run_id; not with --where.", show_default=False),
    ],
    signal: Annotated[str | None, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)] = None,
    payload: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD", help="JSON: literal, @file, or - for standard input.", show_default="null"),
    ] = None,
    *,
    where: Where = None,
    parameter: Parameters = None,
    yes: Yes = False,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Your own key: a signal sent twice under it counts once.")
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option("--delay", metavar="DURATION", parser=duration, help="Have the run receive it so much later."),
    ] = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    force: Annotated[
        bool, typer.Option("--force", help="Send it even if it is not what the run waits for.", show_default=False)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send a signal to a run; it is on disk when this returns."""
    if where is not None:
        # Nobody is named: the words are those of the signal.
        if payload is not None:
            raise Mistake("--where says which runs; give the signal's name and its payload, and no run")
        value = _value(signal)
        many = Many(url, namespace, where, parameters(parameter), yes=yes, as_json=as_json, key=key)
        many.ask("signal", lambda app, **how: app.broadcast(name, value, id=id, delay=delay or 0, **how))
        return
    if signal is None:
        raise Mistake("name the run and the signal: `perdure signal ID NAME PAYLOAD`; or --where for many runs")
    value = _value(payload)
    run, awaited = asyncio.run(_send(url, namespace, name, signal, value, id, delay or 0, key, force=force))
    if is_for_people(as_json=as_json):
        later = f", received in {span(timedelta(seconds=delay))}" if delay else ""
        text = Text.assemble(("✉ ", "magenta"), f"sent {signal} {compact(value)} to ", (run.id, "bold"), later)
        screen().print(text, soft_wrap=True)
    else:
        print_json({"id": run.id, "run_id": run.run_id, "signal": signal, "payload": value})
    if awaited and signal not in awaited:
        warn(f'the run waits for: {", ".join(awaited)}; "{signal}" is kept until it is received')


def _value(payload: str | None) -> object:
    data = json_given(payload or "null", "PAYLOAD", """true, 42, '"text"' or '{"by": "ann"}'""")
    return msgspec.json.decode(data)


async def _send(
    url: str,
    namespace: str,
    name: str,
    signal: str,
    value: object,
    id: str | None,
    delay: float,
    key: str | None,
    *,
    force: bool,
) -> "tuple[perdure.Run[Any], list[str]]":
    """The run, and the signals it waited for when this one was sent."""
    async with client(url, namespace) as app:
        run = await found(app, name, key)
        waits = (await run.describe()).waiting_for
        if not force and (trouble := signal_misfit(signal, value, waits)) is not None:
            raise Trouble(
                f"run {run.id!r} waits for {signal!r} with another payload: {trouble}; "
                "nothing was sent, --force sends it all the same"
            )
        await run.signal(signal, value, id=id, delay=delay)
        return run, [wait.name for wait in waits if wait.kind == "signal" and wait.name is not None]
