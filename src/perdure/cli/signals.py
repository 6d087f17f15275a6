"""`perdure signal`: send a message to a run."""

import asyncio
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from perdure.cli.exits import warn
from perdure.cli.inputs import json_given
from perdure.cli.opening import client, found
from perdure.cli.options import DEFAULT_URL, AsJson, RunName, Url
from perdure.cli.output import compact, is_for_people, print_json, screen


def send(
    name: RunName,
    signal: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON: literal, @file, or - for standard input.")
    ] = "null",
    *,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send a signal to a run; it is on disk when this returns."""
    data = json_given(payload, "PAYLOAD", """true, 42, '"text"' or '{"by": "ann"}'""")
    value = msgspec.json.decode(data)
    run_id, id, awaited = asyncio.run(_send(url, name, signal, value))
    if is_for_people(as_json=as_json):
        screen().print(Text.assemble(("✉ ", "magenta"), f"sent {signal} ", compact(value), " to ", (id, "bold")))
    else:
        print_json({"id": id, "run_id": run_id, "signal": signal, "payload": value})
    if awaited and signal not in awaited:
        warn(f'the run waits for: {", ".join(awaited)}; "{signal}" is kept until it is received')


async def _send(url: str, name: str, signal: str, value: object) -> tuple[str, str, list[str]]:
    """The run's run_id and id, and the signals it waited for when this one was sent."""
    async with client(url) as app:
        run = await found(app, name)
        waits = (await run.describe()).waiting_for
        await run.signal(signal, value)
        return run.run_id, run.id, [wait.name for wait in waits if wait.kind == "signal" and wait.name is not None]
