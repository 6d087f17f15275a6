"""`perdure completion`: a script that lets a shell complete commands, options and the ids of runs.

In:   the name of a shell; later, from that shell, a word that is not finished yet.
Out:  the script; what the word may become.
"""

import asyncio
from enum import StrEnum
from importlib import import_module
from typing import Annotated

import typer

import perdure
from perdure.cli.input.database import client
from perdure.cli.output.errors import TOLD

MOST_OFFERED = 50


class Shell(StrEnum):
    """The shells there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


EXAMPLES = {
    "completion": """\
perdure completion bash > ~/.local/share/bash-completion/completions/perdure
perdure completion zsh > ~/.zfunc/_perdure
perdure completion fish > ~/.config/fish/completions/perdure.fish"""
}


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="Your shell.", show_default=False)],
) -> None:
    """Print the script that lets a shell complete commands."""
    scripts = import_module("typer.completion")
    print(scripts.get_completion_script(prog_name="perdure", complete_var="_PERDURE_COMPLETE", shell=shell.value))


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
