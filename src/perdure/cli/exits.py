"""How a command ends: exit codes, and mistakes told in one line.

In:   whatever a command raised.
Out:  an exit code and, on standard error, what happened and what to do.
"""

import os
import sys
import threading

from perdure.cli.hints import hint
from perdure.cli.output import errors
from perdure.errors import BadInput, PerdureError, RunFailed, RunTimedOut

OK = 0
FAILED = 1
TIMED_OUT = 2
USAGE = 64
INTERRUPTED = 130


class Mistake(Exception):  # noqa: N818 - errors name the trouble
    """A command was called in a way that cannot work; the text says what to do instead."""


class Trouble(Exception):  # noqa: N818 - as above
    """A command was called well and cannot do its work; the text says why."""


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
    """Print the error as one line; answers its exit code."""
    # The engine's errors know the commands, but not the database that was typed.
    text = str(error).replace("`perdure list`", f"`{hint('list')}`")
    more = f"; `{hint('show', error.id)}` tells where" if isinstance(error, RunFailed) else ""
    say(f"{text}{more}")
    return code_of(error)


def say(text: str) -> None:
    """Print one line of trouble on standard error."""
    line = " ".join(part.strip() for part in text.splitlines())
    errors().print("[bold red]error:[/] ", end="")
    errors().print(line, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print one line on standard error about something that went well, but perhaps not as meant."""
    errors().print("[bold yellow]warning:[/] ", end="")
    errors().print(text, markup=False, soft_wrap=True)


def leave(code: int) -> None:
    """End the process, even when an activity that nobody waits for still runs in a thread."""
    sys.stdout.flush()
    if any(thread.name.startswith("perdure-activity") for thread in threading.enumerate()):
        # Python would wait for that thread; what it does has no effect on its run any more.
        os._exit(code)
    sys.exit(code)


TOLD = (PerdureError, Mistake, Trouble)
