"""The ids of runs, for a shell that completes a word.

In:   the word as far as it is typed, and the options before it.
Out:  what the word may become.
"""

import asyncio

import typer

import perdure
from perdure.cli.input.database import client
from perdure.cli.output.errors import TOLD

MOST_OFFERED = 50


def run_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The ids of the newest runs; none when the database cannot be read, for a shell has no place for errors."""
    url, namespace = context.params.get("url"), context.params.get("namespace")
    if not isinstance(url, str) or not isinstance(namespace, str):
        return []
    try:
        page = asyncio.run(_newest(url, namespace))
    except TOLD:
        return []
    return [info.id for info in page if info.id.startswith(incomplete)][:MOST_OFFERED]


async def _newest(url: str, namespace: str) -> "perdure.Page":
    async with client(url, namespace) as app:
        return await app.list(limit=1000)
