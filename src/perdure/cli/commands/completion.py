"""`perdure completion`: a script that lets a shell complete commands, options and the ids of runs.

In:   the name of a shell.
Out:  the script.
"""

from enum import StrEnum
from importlib import import_module
from typing import Annotated

import typer


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
