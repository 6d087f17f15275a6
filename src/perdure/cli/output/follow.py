"""Following a run until it ends, is held, or takes too long.

In:   an open Perdure and a run.
Out:  progress on standard error, the result on standard output, an exit code.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import typer

import perdure
from perdure import codec
from perdure.cli.output.errors import FAILED, OK, TIMED_OUT, say
from perdure.cli.output.held import print_hold
from perdure.cli.output.progress import Progress
from perdure.cli.output.reconnect import OutOfReach, Reconnecting
from perdure.cli.output.tables import errors, is_for_people, print_coloured_json, print_json
from perdure.diagnostics.unworked import UnworkedQueues
from perdure.engine.held import AWAITED_RUN_HELD
from perdure.engine.hindrances import CODE_MISSING
from perdure.errors import StoreUnavailable, without_password
from perdure.views.held import is_stuck
from perdure.views.run import RunInfo

LOOK_EVERY = 0.1
# So long a last look may take when the time is over; a server may be there and not answer.
LAST_LOOK = 5.0


async def follow(
    app: "perdure.Perdure",
    run: "perdure.Run[Any]",
    opened_at: datetime,
    timeout: float | None,
    queues: UnworkedQueues,
    *,
    as_json: bool,
    too_late: Callable[[str], None],
) -> int:
    """Show a run's progress and print its result; answers the exit code. Raises what ended the run otherwise."""
    try:
        info, ending = await watch(app, run, opened_at, timeout, queues)
    except OutOfReach:
        too_late(f"still open after {timeout:g} s")
        # Raised, so that nobody tries for long to hand anything back to a server that is gone.
        raise typer.Exit(TIMED_OUT) from None
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
    queues: UnworkedQueues | None = None,
    *,
    leaves_held: bool = True,
) -> "tuple[RunInfo, asyncio.Task[Any]]":
    """The run, or the one that continues it, as it stands in the end; and its result, which may not be there.

    OutOfReach when the time is over and the database cannot be asked.
    """
    logging.getLogger("perdure.engine").addFilter(_is_news)
    console = errors()
    ending = asyncio.create_task(_ending(run, app.url))
    try:
        with Progress(console, app, run, opened_at) as progress:
            look = Look(app.url, progress, Reconnecting(app.url, console), queues)
            return await look.until(ending, timeout, leaves_held=leaves_held), ending
    finally:
        # Nobody waits for it any more, also when Ctrl-C came; one that has ended stays as it is.
        ending.cancel()
        await asyncio.wait({ending})


async def _ending(run: "perdure.Run[Any]", url: str) -> object:
    """The result of a run; the looks at it meanwhile tell of outages."""
    return await Reconnecting(url, None).until_answered(run.result)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether the command does not say it itself, and better: that the run is held, or that nobody has its code."""
    return getattr(record, "event", None) not in {AWAITED_RUN_HELD, CODE_MISSING}


class Look:
    """Looks at a run again and again, as long as the caller wants to wait."""

    def __init__(self, url: str, progress: Progress, patience: Reconnecting, queues: UnworkedQueues | None) -> None:
        self._url = without_password(url)
        self._progress = progress
        self._patience = patience
        self._queues = queues
        self._seen: RunInfo | None = None

    async def until(self, ending: "asyncio.Task[Any]", timeout: float | None, *, leaves_held: bool) -> RunInfo:
        """The run as it stands when it has ended, is held for good, or has taken too long."""
        clock = asyncio.get_running_loop().time
        deadline = math.inf if timeout is None else clock() + timeout
        while True:
            await asyncio.wait({ending}, timeout=max(0.0, min(LOOK_EVERY, deadline - clock())))
            # Whether it has ended is asked before the look, so that its last event is shown.
            has_ended, is_late = ending.done(), clock() >= deadline
            try:
                info = await self._once(deadline)
            except StoreUnavailable as error:
                self._patience.bear(error)
                if self._queues is not None:
                    self._queues.rest()
                if has_ended and self._seen is not None:
                    return self._seen
                if clock() >= deadline:
                    raise OutOfReach(error.url, error.trouble) from None
            else:
                if has_ended or is_late or (leaves_held and is_stuck(info)):
                    return info

    async def _once(self, deadline: float) -> RunInfo:
        """The run as it stands; a look that hangs is not waited for when the time is over."""
        patience = max(deadline - asyncio.get_running_loop().time(), LAST_LOOK)
        try:
            async with asyncio.timeout(None if math.isinf(patience) else patience):
                self._seen = await self._progress.look()
                if self._queues is not None:
                    await self._queues.look(self._seen, self._progress.warn)
        except TimeoutError:
            raise StoreUnavailable(self._url, "the server does not answer") from None
        self._patience.rest()
        return self._seen


def print_result(result: object, *, as_json: bool) -> None:
    """The result as JSON; coloured for people."""
    value = codec.load(codec.dump(result, "the result"))
    if is_for_people(as_json=as_json):
        print_coloured_json(value)
    else:
        print_json(value)
