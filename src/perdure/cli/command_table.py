"""The commands: their names and what each is for; their code is loaded when one is called.

In:   the words of the command line.
Out:  the command to invoke; the help, as plain text that any terminal can show.
A user who asks for help must not wait for the engine, nor for a library of pretty boxes.
"""

import re
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import typer
import typer.core
import typer.main

from perdure.cli.input.config import defaults
from perdure.cli.output.console import is_coloured

# Typer brings its own Click or uses the one installed; its errors are known by their common root.
UsageError: type[Any] = typer.BadParameter.__mro__[1]

HELP = {"help_option_names": ["-h", "--help"]}
HEADING = re.compile(r"^(Usage:|\S[^:\n]*:$)", re.MULTILINE)


class Entry(NamedTuple):
    """Where a command's function is, and what it is for."""

    home: str
    about: str


SECTIONS = {
    "Start and work": {
        "run": Entry("run:run", "Start a run, work it here, and print its result."),
        "start": Entry("start:start", "Start a run for a worker to take, and return at once."),
        "worker": Entry("worker:work", "Work the runs of these modules' workflows until Ctrl-C or SIGTERM."),
        "schedule": Entry(
            "schedule:schedule", "Make, show, change, trigger, backfill or delete schedules; see times beforehand."
        ),
        "outbox": Entry(
            "outbox:outbox", "Make, show, change, test or remove sinks; deliver dead letters, send events anew."
        ),
        "dev": Entry("dev:dev", "Serve and work on this machine, and begin anew when a source file changes."),
        "serve": Entry("serve:serve", "Serve runs over HTTP until Ctrl-C or SIGTERM."),
    },
    "Look": {
        "list": Entry("list:list_runs", "Show runs, newest first."),
        "count": Entry("count:count", "Count runs."),
        "show": Entry("show:show", "Show one run: where it stands, what it waits for, what went wrong."),
        "explain": Entry("explain:explain", "Say why a run does not move, and what helps; changes nothing."),
        "events": Entry("events:events", "Show what a run has done so far, step by step."),
        "query": Entry("query:query", "Show what a run exposes, or one value of it as JSON; no worker is needed."),
        "wait": Entry("wait:wait", "Wait until a run has ended, and print its result."),
    },
    "Steer": {
        "signal": Entry("signal:send", "Send a signal to a run; it is on disk when this returns."),
        "ask": Entry("ask:ask", "Ask a running workflow, and print its answer."),
        "resolve": Entry("resolve:resolve", "Give a deferred of a run its value, or an error."),
        "set": Entry("set:set_attributes", "Set attributes of a run, open or closed; runs are found by them."),
        "pause": Entry("pause:pause", "Have a run begin nothing more, until it is resumed."),
        "resume": Entry("resume:resume", "Let a held run go on, or all of them."),
        "retry": Entry("retry:retry", "Run again what failed in a run, or go on where it was stopped."),
        "fork": Entry("fork:fork", "Go on from a point of a run, in another run."),
        "cancel": Entry("cancel:cancel", "Ask a run to stop; it may clean up first."),
        "terminate": Entry("terminate:terminate", "End a run at once, without clean-up."),
    },
    "Care": {
        "tick": Entry("tick:tick", "Do once what workers do for all now and then, and work ripe runs."),
        "check": Entry(
            "check:check", "Check whether the open runs fit this code, before it is deployed; changes nothing."
        ),
        "replay": Entry("replay:replay", "Replay one run here, and show the line of code that takes each event."),
        "sql": Entry("sql:sql", "Run one statement that only reads, over tables and views with readable times."),
        "doctor": Entry("doctor:doctor", "Check that Perdure can work well here; changes nothing."),
        "audit": Entry("audit:audit", "Check that everything in the database is consistent; changes nothing."),
        "namespace": Entry("namespace:namespace", "Make, list, show or delete namespaces."),
        "key": Entry("key:key", "Make, list or revoke the keys that callers of a server show."),
        "migrate": Entry("migrate:migrate", "Bring the tables of a database up to date."),
        "completion": Entry("completion:completion", "Print the script that lets a shell complete commands."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


# Where it is noted which of several things a command is to do.
ACTION = "perdure.action"
ALWAYS_TAKEN = ("url", "as_json", "help")


class Shown(typer.core.TyperCommand):
    """A command whose examples are shown as they are written.

    Of one that does several things, `takes` says which options go with each of them: no other is taken, or shown in the
    help of that one.
    """

    takes: Mapping[str, tuple[str, ...]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[ACTION] = next((word for word in args if word in self.takes), None)
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            # An option without its value does not say of which command it is one.
            error.ctx = error.ctx or ctx
            action, option = ctx.meta[ACTION], getattr(error, "option_name", None)
            goes = [each for each in self.takes if option in self._options_of(each)]
            if action is not None and goes and action not in goes:
                what = f"`perdure {self.name} {action}`"
                raise UsageError(f"{option} does not go with {what}; it goes with {', '.join(goes)}", ctx) from None
            raise

    def _options_of(self, action: str) -> set[str]:
        return {name for each in self.params if each.name in self.takes[action] for name in each.opts}

    def get_params(self, ctx: Any) -> list[Any]:
        """Those of what is to be done, if that is known."""
        found, action = super().get_params(ctx), ctx.meta.get(ACTION)
        if action is None:
            return found
        taken = {*self.takes[action], *ALWAYS_TAKEN}
        return [each for each in found if each.param_type_name == "argument" or each.name in taken]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.epilog:
            lines, action = self.epilog.splitlines(), ctx.meta.get(ACTION)
            shown = [line for line in lines if line.startswith(f"perdure {self.name} {action}")] or lines
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in shown))

    def get_help(self, ctx: Any) -> str:
        return help_of(self, ctx)


class Commands(typer.core.TyperGroup):
    """`perdure` itself: knows every command by name, and loads the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: Shown(name, help=entry.about) for name, entry in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, found, rest = super().resolve_command(ctx, args)
        if name is None or found is None:
            return name, found, rest
        if not {"-h", "--help"} & set(rest):
            ctx.default_map = {name: defaults()}
        return name, load(name), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(len(name) for name in COMMANDS) + 2
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width - 2}}", entry.about) for name, entry in section.items()])

    def get_help(self, ctx: Any) -> str:
        return help_of(self, ctx)


def load(name: str) -> Any:
    """The command of this name, with the code behind it."""
    file, _, function = COMMANDS[name].home.partition(":")
    home = import_module(f"perdure.cli.commands.{file}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    examples = getattr(home, "EXAMPLES", {}).get(name)
    alone.command(name, cls=Shown, context_settings=HELP, epilog=examples)(getattr(home, function))
    command: Any = typer.main.get_command(alone)
    command.takes = {str(action): names for action, names in getattr(home, "TAKES", {}).items()}
    return command


def help_of(command: Any, context: Any) -> str:
    """The help of a command, as wide as the terminal; headings in bold on a terminal."""
    formatter = context.make_formatter()
    # Names that are longer than this stand on lines of their own, so that a narrow terminal has room for the rest.
    formatter.write_dl = partial(formatter.write_dl, col_max=min(30, formatter.width // 3))
    command.format_help(context, formatter)
    text = "\n".join(line.rstrip() for line in formatter.getvalue().rstrip().splitlines())
    if not is_coloured(sys.stdout):
        return text
    return HEADING.sub(lambda found: typer.style(found[0], bold=True), text)
