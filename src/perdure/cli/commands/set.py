"""`perdure set`: give a run attributes from outside.

In:   the name of a run, and attributes; null takes one away.
Out:  all attributes of the run, once that is on disk.
"""

import asyncio
from typing import Annotated

import typer
from rich.text import Text

from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Key, Namespace, RunName, Url
from perdure.cli.input.values import attributes
from perdure.cli.output.tables import is_for_people, print_json, screen
from perdure.views.words import compact

LONGEST_SHOWN = 1000
EXAMPLES = {"set": "perdure set o-17 tenant=acme priority_customer=true\nperdure set o-17 note=null"}


def set_attributes(
    name: RunName,
    words: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE…", help="The value is JSON, or else a text; null takes the attribute away."),
    ],
    *,
    key: Key = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Set attributes of a run, open or closed; runs are found by them."""
    patch = attributes(words, "tenant=acme, or tenant=null to take it away")

    async def request() -> "dict[str, object]":
        async with client(url, namespace) as app:
            run = await found(app, name, key)
            await run.set_attributes(**patch)
            return (await run.describe()).attributes

    now = asyncio.run(request())
    if is_for_people(as_json=as_json):
        screen().print(Text(f"attributes of {name}: {compact(now, LONGEST_SHOWN)}"), soft_wrap=True)
    else:
        print_json(now)
