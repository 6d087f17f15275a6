"""How a command ends: exit codes, and mistakes told in one line.

In:   whatever a command raised.
Out:  an exit code and, on standard error, what happened and what to do.
"""

import os
import re
import shlex
import sys
from typing import Any

import typer

from perdure.cli.output.console import is_coloured
from perdure.cli.output.suggestions import hint
from perdure.errors import (
    BadFilter,
    BadInput,
    IdConflict,
    NamespaceNotFound,
    NotAuthenticated,
    PerdureError,
    RunFailed,
    RunTimedOut,
    StoreUnavailable,
)

OK = 0
FAILED = 1
TIMED_OUT = 2
USAGE = 64
INTERRUPTED = 130
# Many commands take these; people who come from other tools type them before the command.
OF_COMMANDS = ("--url", "--namespace", "--json")
# What the engine's errors tell people to write in Python, and what they type here.
TYPED = {
    "; add it to params": "; give it with --param NAME=VALUE",
    "params are the values in a filter; give where=, too": "--param is a value in a filter; give --where, too",
    "change it with update(), replace it with put()": "change it with `perdure schedule update`",
    "fork(at=..., id=...)": "`perdure fork ID --at PLACE --id NEW`",
    "fork(at=...)": "`perdure fork ID --at PLACE`",
}


class Mistake(Exception):  # noqa: N818 - errors name the trouble
    """A command was called in a way that cannot work; the text says what to do instead."""


class Trouble(Exception):  # noqa: N818 - as above
    """A command was called well and cannot do its work; the text says why."""


TOLD = (PerdureError, Mistake, Trouble)


def code_of(error: Exception) -> int:
    """The exit code an error stands for."""
    match error:
        case Mistake() | BadInput():
            return USAGE
        case RunTimedOut():
            return TIMED_OUT
        case _:
            return FAILED


def tell(error: Exception) -> int:
    """Print the error as one line, a filter with the place below it; answers its exit code."""
    # The engine's errors know the commands, but not the database that was typed.
    text = str(error).replace("`perdure list`", f"`{hint('list')}`")
    for written, typed in TYPED.items():
        text = text.replace(written, typed)
    match error:
        case BadFilter():
            text, *drawing = text.split("\n")
            say(text)
            for line in drawing:
                print(_visible(line), file=sys.stderr, flush=True)
            return USAGE
        case IdConflict():
            taken, why, ways = text.rpartition(error.why)
            ways = re.sub(r"on_conflict='(\w+)'", r"--on-conflict \1", ways.replace("another id", "another --id"))
            text = f"{taken}{why.replace('on_conflict', '--on-conflict')}{ways}"
        case NamespaceNotFound(name=name):
            text = text.replace(f"perdure namespace create {shlex.quote(name)}", hint("namespace", "create", name))
        case NotAuthenticated(why=why):
            told = why or "the server asks for a key, and there is none that is good there"
            text = f"{told}; put one into PERDURE_KEY, or into a file of your own that PERDURE_KEY_FILE names"
        case RunFailed(id=id):
            text += f"; `{hint('show', id)}` tells where"
        case StoreUnavailable(url=url):
            is_server = url.startswith(("http://", "https://"))
            text += "; does `perdure serve` run there?" if is_server else f"; `{hint('doctor')}` looks closer"
    say(text)
    return code_of(error)


def say_usage(error: Any) -> int:
    """Print what Typer has to say about the words that were typed, and the command that helps."""
    text = error.format_message().replace("Value error, ", "").rstrip(".")
    if text.startswith("Got unexpected extra argument"):
        text = f"{text}; JSON is one word, put it in single quotes"
    if (option := getattr(error, "option_name", None)) in OF_COMMANDS and error.ctx.parent is None:
        text = f"{option} goes after the command: `perdure COMMAND {option}`"
    command = error.ctx.command_path if error.ctx is not None else "perdure"
    say(f"{text} See `{command} --help`" if text.endswith("?") else f"{text}; see `{command} --help`")
    return USAGE


def say(text: str) -> None:
    """Print one line of trouble on standard error."""
    _print("error:", "red", text)


def warn(text: str) -> None:
    """Print one line on standard error about something that went well, but perhaps not as meant."""
    _print("warning:", "yellow", text)


def _print(label: str, colour: str, text: str) -> None:
    # One line, of characters that a terminal shows; the rest may come from anywhere.
    line = _visible(" ".join(text.split()))
    shown = typer.style(label, fg=colour, bold=True) if is_coloured(sys.stderr) else label
    print(f"{shown} {line}", file=sys.stderr, flush=True)


def _visible(line: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in line)


def leave(code: int) -> None:
    """End the process, even when an activity that nobody waits for still runs in a thread."""
    threading = sys.modules.get("threading")
    if threading and any(each.name.startswith("perdure-activity") for each in threading.enumerate()):
        # Python would wait for that thread; what it does has no effect on its run any more.
        os._exit(code)
    sys.exit(code)
