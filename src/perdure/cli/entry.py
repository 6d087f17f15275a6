"""The entry point: one command, and what it raises turned into an exit code."""

import errno
import os
import shutil
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main

import perdure
from perdure.cli.command_table import HELP, Commands, UsageError
from perdure.cli.output import console, errors

WIDEST_HELP = 100
COMPLETING = "_PERDURE_COMPLETE"

app = typer.Typer(
    name="perdure",
    cls=Commands,
    help="Durable workflows: every step is remembered on disk, so a crash loses nothing.",
    epilog="Exit codes: 0 ok, 1 failed, 2 timed out, 64 wrong usage.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"perdure {perdure.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def perdure_command(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - its callback has seen to it
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line of this process, and end the process."""
    errors.leave(outcome(sys.argv[1:]))


def outcome(arguments: list[str]) -> int:
    """Run one command; answers its exit code."""
    console.prepare()
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except UsageError as error:
        return errors.say_usage(error)
    except errors.TOLD as error:
        return errors.tell(error)
    except (KeyboardInterrupt, typer.Abort):
        # At a question, too, which may end with Ctrl-D as well.
        return errors.INTERRUPTED
    except OSError as error:
        if error.errno == errno.EPIPE:
            console.stop_writing()
            return errors.OK
        errors.say(f"{error.strerror or error}: {error.filename}" if error.filename else f"{error.strerror or error}")
        console.stop_writing()
        return errors.FAILED
    return code


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if COMPLETING in os.environ:
        return _complete(command)
    try:
        width = min(shutil.get_terminal_size().columns, WIDEST_HELP) - 2
        with command.make_context("perdure", arguments, terminal_width=width) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return errors.OK


def _complete(command: Any) -> int:
    """A shell asks, through the script of `perdure completion`, how a line may go on."""
    import_module("typer.completion").completion_init()
    try:
        command.main([], prog_name="perdure", complete_var=COMPLETING)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else errors.FAILED
    return errors.OK
