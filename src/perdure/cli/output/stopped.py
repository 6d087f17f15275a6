"""A run that was told to stop: how it stands now, for people and for programs.

In:   the run.
Out:  a line or JSON on standard output, and the exit code.
"""

import typer
from rich.text import Text

from perdure.cli.output.errors import FAILED, OK, TIMED_OUT
from perdure.cli.output.tables import is_for_people, print_json, screen, status_text
from perdure.views.held import is_stuck
from perdure.views.run import RunInfo
from perdure.views.words import moment

FIELDS = ("run_id", "status", "held", "cancel_requested_at", "cancel_reason", "deadline_at", "closed_at", "error")


def print_stopped(info: RunInfo, *, is_awaited: bool, as_json: bool) -> None:
    """Print the run as it stands now, and end the command."""
    if is_for_people(as_json=as_json):
        _print(info)
    else:
        print_json({"id": info.id} | {name: getattr(info, name) for name in FIELDS})
    if not is_awaited or info.closed_at is not None:
        raise typer.Exit(OK)
    raise typer.Exit(FAILED if is_stuck(info) else TIMED_OUT)


def _print(info: RunInfo) -> None:
    if info.closed_at is not None:
        text = Text.assemble((info.id, "bold"), " has ended: ", status_text(info.status))
    elif info.cancel_requested_at is None:
        text = Text.assemble((info.id, "bold"), " is to end; the worker that has it does not answer yet")
    elif is_stuck(info):
        text = Text.assemble((info.id, "bold"), " is to stop, but is held")
    elif info.deadline_at is not None:
        text = Text.assemble((info.id, "bold"), f" is to stop; it may clean up until {moment(info.deadline_at)}")
    else:
        text = Text.assemble((info.id, "bold"), " is to stop; it may clean up first")
    screen().print(text, soft_wrap=True)
