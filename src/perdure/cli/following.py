"""Following a run until it ends, is held, or takes too long.

In:   an open Perdure and a run.
Out:  progress on standard error, the result on standard output, an exit code.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

import perdure
from perdure import codec
from perdure.cli.exits import FAILED, OK, TIMED_OUT, say
from perdure.cli.holds import is_stuck, print_hold
from perdure.cli.output import errors, is_for_people, print_json, screen
from perdure.cli.progress import Progress
from perdure.engine.holds import AWAITED_RUN_HELD

if TYPE_CHECKING:
    from perdure.app import RunInfo

LOOK_EVERY = 0.1


async def follow(
    app: "perdure.Perdure",
    run: "perdure.Run[Any]",
    opened_at: datetime,
    timeout: float | None,
    *,
    as_json: bool,
    too_late: Callable[[str], None],
) -> int:
    """Show a run's progress and print its result; answers the exit code. Raises what ended the run otherwise."""
    info, ending = await watch(app, run, opened_at, timeout)
    if ending.done() and not ending.cancelled():
        print_result(ending.result(), as_json=as_json)
        return OK
    if not is_stuck(info):
        too_late(f"still open after {timeout:g} s")
        return TIMED_OUT
    say(f"run {run.id!r} is held ({info.held}) and cannot go on")
    print_hold(errors(), info)
    return FAILED


async def watch(
    app: "perdure.Perdure",
    run: "perdure.Run[Any]",
    opened_at: datetime,
    timeout: float | None,
    *,
    leaves_held: bool = True,
) -> "tuple[RunInfo, asyncio.Task[Any]]":
    """The run, or the one that continues it, as it stands in the end; and its result, which may not be there."""
    logging.getLogger("perdure.engine").addFilter(_is_news)
    ending = asyncio.create_task(run.result())
    try:
        with Progress(errors(), app, run, opened_at) as progress:
            return await _watched(ending, progress, timeout, leaves_held=leaves_held), ending
    finally:
        # Nobody waits for it any more, also when Ctrl-C came; one that has ended stays as it is.
        ending.cancel()
        await asyncio.wait({ending})


def _is_news(record: logging.LogRecord) -> bool:
    """Whether the command does not say it itself, and better: that the run is held, with the whole report."""
    return getattr(record, "event", None) != AWAITED_RUN_HELD


async def _watched(
    ending: "asyncio.Task[Any]", progress: Progress, timeout: float | None, *, leaves_held: bool
) -> "RunInfo":
    """The run as it stands when it has ended, is held for good, or has taken too long."""
    clock = asyncio.get_running_loop().time
    deadline = math.inf if timeout is None else clock() + timeout
    while True:
        await asyncio.wait({ending}, timeout=max(0.0, min(LOOK_EVERY, deadline - clock())))
        # Whether it has ended is asked before the look, so that its last event is shown.
        is_over = ending.done() or clock() >= deadline
        info = await progress.look()
        if is_over or (leaves_held and is_stuck(info)):
            return info


def print_result(result: object, *, as_json: bool) -> None:
    """The result as JSON; coloured for people."""
    value = codec.load(codec.dump(result, "the result"))
    if is_for_people(as_json=as_json):
        screen().print_json(msgspec.json.encode(value).decode())
    else:
        print_json(value)
