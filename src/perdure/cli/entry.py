"""The entry point: puts the commands together and turns what they raise into exit codes."""

import errno
import os
import sys
from typing import Annotated, Any

import typer
import typer.main

import perdure
from perdure.cli import events, exits, run, runs, signals, worker

# Typer brings its own Click or uses the one installed; its errors are known by their common root.
UsageError: type[Any] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="perdure",
    help="Durable workflows: every step is remembered on disk, so a crash loses nothing.",
    epilog="Exit codes: 0 ok, 1 failed, 2 timed out, 64 wrong usage.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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


app.command("run")(run.run)
app.command("worker")(worker.work)
app.command("list")(runs.list_runs)
app.command("show")(runs.show)
app.command("events")(events.events)
app.command("signal")(signals.send)


def main() -> None:
    """Run the command line of this process, and end the process."""
    exits.leave(outcome(sys.argv[1:]))


def _sentence(message: str) -> str:
    """A message of Click or Pydantic, made ready to go on with the command that helps."""
    text = message.replace("Value error, ", "").rstrip(".")
    return f"{text} See" if text.endswith("?") else f"{text}; see"


def outcome(arguments: list[str]) -> int:
    """Run one command; answers its exit code."""
    command = typer.main.get_command(app)
    try:
        return command.main(arguments, prog_name="perdure", standalone_mode=False) or exits.OK
    except UsageError as error:
        context = error.ctx.command_path if error.ctx is not None else "perdure"
        exits.say(f"{_sentence(error.format_message())} `{context} --help`")
        return exits.USAGE
    except exits.TOLD as error:
        return exits.tell(error)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except OSError as error:
        if error.errno == errno.EPIPE:
            # Whoever read the output has seen enough; Python must not complain about it while it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return exits.OK
        exits.say(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
        return exits.FAILED
