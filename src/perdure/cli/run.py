"""`perdure run`: start a run, or go on with one, and work it in this process.

In:   MODULE:WORKFLOW and JSON arguments.
Out:  progress on standard error, the result on standard output.
"""

import asyncio
import logging
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

import perdure
from perdure import codec
from perdure.cli.exits import FAILED, INTERRUPTED, OK, TIMED_OUT, say
from perdure.cli.hints import hint
from perdure.cli.holds import print_hold
from perdure.cli.inputs import json_given
from perdure.cli.modules import workflow_named
from perdure.cli.opening import MEMORY
from perdure.cli.options import DEFAULT_URL, AsJson, Url
from perdure.cli.output import errors, is_for_people, print_json, screen
from perdure.cli.progress import Progress

if TYPE_CHECKING:
    from perdure.app import RunInfo

LOOK_EVERY = 0.1
EXAMPLE = """'{"order": "o-17"}' by name, or '["o-17"]' in order"""


def run(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:WORKFLOW", help="shop:checkout, or shop.py:checkout", show_default=False),
    ],
    arguments: Annotated[
        str,
        typer.Argument(
            metavar="ARGUMENTS",
            help="JSON: an object by name or an array in order; literal, @file, or - for standard input.",
        ),
    ] = "{}",
    *,
    id: Annotated[
        str | None, typer.Option("--id", help="Your own key for the run; the same id again goes on with that run.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Stop waiting after so many seconds; the run is kept.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Start a run, work it here, and print its result."""
    data = json_given(arguments, "ARGUMENTS", EXAMPLE)
    workflow = workflow_named(target)
    # The command tells of held runs and failed attempts itself.
    logging.getLogger("perdure").addHandler(logging.NullHandler())
    work = Work(target, url)
    try:
        code = asyncio.run(work.run(workflow, data, id, timeout, as_json=as_json))
    except KeyboardInterrupt:
        work.say_how_to_go_on("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


class Work:
    """One `perdure run`: the run it follows, and how to call for it again."""

    def __init__(self, target: str, url: str) -> None:
        self._target = target
        self._url = url
        self._run: perdure.Run[Any] | None = None
        self._arguments = ""

    async def run(
        self,
        workflow: "perdure.Workflow[..., Any]",
        data: bytes,
        id: str | None,
        timeout: float | None,
        *,
        as_json: bool,
    ) -> int:
        """Work the run until it ends, is held, or takes too long; answers the exit code."""
        opened_at = datetime.now(UTC)
        async with perdure.Perdure(self._url, workflows=[workflow]) as app:
            self._run = run = await app.start_json(workflow.name, data, id=id)
            self._arguments = data.decode().strip()
            ending = asyncio.create_task(run.result())
            try:
                with Progress(errors(), run, opened_at) as progress:
                    info = await _followed(ending, progress, timeout)
            finally:
                # Nobody waits for it any more, also when Ctrl-C came; one that has ended stays as it is.
                ending.cancel()
            if info.held is not None:
                say(f"run {run.id!r} is held ({info.held}) and cannot go on")
                print_hold(errors(), info)
                return FAILED
            if not ending.done():
                self.say_how_to_go_on(f"still open after {timeout:g} s")
                return TIMED_OUT
            result = ending.result()
        _print(codec.load(codec.dump(result, "the result")), as_json=as_json)
        return OK

    def say_how_to_go_on(self, what: str) -> None:
        """Tell that the run is kept, and the command that goes on with it."""
        console = errors()
        if self._run is None:
            console.print(f"[yellow]{what};[/] ", end="")
            console.print(f"`{hint('list')}` shows whether the run was started", markup=False, soft_wrap=True)
            return
        if self._url == MEMORY:
            console.print(f"[yellow]{what};[/] the run was in memory only and is gone; --url names a file to keep runs")
            return
        again = hint("run", self._target, self._arguments, "--id", self._run.id)
        console.print(f"[yellow]{what};[/] the run is kept on disk, nothing is lost. Go on with it:")
        console.print(f"  {again}", markup=False, soft_wrap=True)


async def _followed(ending: "asyncio.Task[Any]", progress: Progress, timeout: float | None) -> "RunInfo":
    """The run as it stands when it has ended, is held, or has taken too long."""
    clock = asyncio.get_running_loop().time
    deadline = math.inf if timeout is None else clock() + timeout
    while True:
        await asyncio.wait({ending}, timeout=max(0.0, min(LOOK_EVERY, deadline - clock())))
        # Whether it has ended is asked before the look, so that its last event is shown.
        is_over = ending.done() or clock() >= deadline
        info = await progress.look()
        if is_over or info.held is not None:
            return info


def _print(result: object, *, as_json: bool) -> None:
    if is_for_people(as_json=as_json):
        screen().print_json(msgspec.json.encode(result).decode())
    else:
        print_json(result)
