"""`perdure worker`: work the queues until told to stop.

In:   the modules whose workflows and activities this process has.
Out:  runs that move on; a line when it is ready, and when it stops.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Annotated

import typer
from rich.text import Text

import perdure
from perdure.app.database import location
from perdure.app.hosts.presets import PRESETS
from perdure.app.shutdown import SIGNALS, shutdown
from perdure.authoring.activity import activities
from perdure.authoring.durations import seconds
from perdure.authoring.workflow import workflows
from perdure.cli.input.config import configured_modules
from perdure.cli.input.database import refuse_memory
from perdure.cli.input.modules import load
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_QUEUE, DEFAULT_URL, Namespace, Url
from perdure.cli.input.reload import Reloader
from perdure.cli.output.errors import Mistake, Trouble, say, warn
from perdure.cli.output.tables import LogFormatter, screen
from perdure.views.words import counted

# How long the interpreter lets one thread run before another gets its turn, in seconds. The loop and
# the threads of activities take turns; with Python's own 5 ms a busy thread would hold up every commit.
SWITCH_INTERVAL = 0.0005
# How long activities under way may go on when the worker is told to stop.
GRACE_SECONDS = 10
# A restart that has to wait longer than this many seconds says what it waits for.
LONG_PAUSE = 1.0
EXAMPLES = {
    "worker": """\
perdure worker shop
perdure worker shop.py --reload
perdure worker gpumodule --queue gpu
perdure worker shop gpumodule --queue default --queue gpu"""
}


def work(
    modules: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODULE]...",
            help="shop, or shop.py; several may be given. Without any, those of the config file.",
            show_default=False,
        ),
    ] = None,
    *,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="NAME", help="Work this queue, not `default`; may be given more than once."),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a source file of the modules changes; for development.")
    ] = False,
    preset: Annotated[
        str, typer.Option("--preset", metavar="NAME", help="How it works: `dev`, `standard` or `throughput`.")
    ] = "standard",
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
) -> None:
    """Work the runs of these modules' workflows until Ctrl-C or SIGTERM."""
    refuse_memory(url)
    places = [module_alone(module) for module in modules or configured_modules()]
    if not places:
        raise Mistake("no module is named; write one, such as `perdure worker shop`, or set modules in the config file")
    queues = queue or [DEFAULT_QUEUE]
    if preset not in PRESETS:
        raise Mistake(f"there is no preset {preset!r}; there are {', '.join(PRESETS)}")
    app = perdure.Perdure(url, namespace=namespace, queues=queues, preset=preset)
    shift = Shift(app, queues, grace=seconds(PRESETS[preset].grace, "grace"))
    begin_logging()
    if not reload:
        _load(places, shift.queues)
        asyncio.run(shift.work())
    else:
        work_reloading(places, shift, Reloader(places))
    say_line("stopped")


def begin_logging() -> None:
    """Log to standard error, and let threads take turns quickly, for the process is ours."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler])


def module_alone(typed: str) -> str:
    """The module itself; Mistake when a workflow in it is named, for a worker works all that it has the code of."""
    place, colon, _ = typed.partition(":")
    if colon:
        raise Mistake(
            f"{typed} names one workflow, a worker works all of a module; write {place or 'the module'} alone, "
            "or give some runs a queue of their own and work that with --queue"
        )
    return typed


def work_reloading(places: list[str], shift: "Shift", reloader: Reloader) -> None:
    """Work until told to stop, or until a file changes and the process starts anew."""
    try:
        _load(places, shift.queues)
    except (Mistake, Trouble) as error:
        if not reloader.notes_files_of(error):
            raise
        asyncio.run(shift.wait(reloader, f"{error}; waiting for the next save"))
    else:
        reloader.note_sources()
        asyncio.run(shift.work(reloader))
    if not shift.is_over:
        reloader.restart()


def _load(places: list[str], queues: Sequence[str]) -> None:
    for place in places:
        load(place)
    # Any activity may be called with a queue; who names one here says that it is.
    if workflows.names() or _queues_of_activities() or (activities.names() and set(queues) != {DEFAULT_QUEUE}):
        return
    raise Mistake(
        f"neither a workflow nor an activity on a queue is in {', '.join(places)}; "
        'decorate an `async def` with @workflow, or a function with @activity(queue="...")'
    )


def _queues_of_activities() -> set[str]:
    """The queues that activities of these modules go to."""
    found = (activities.get(name) for name in activities.names())
    return {each.settings.queue for each in found if each is not None and each.settings.queue is not None}


def _activities_told(queues: Sequence[str]) -> str:
    """The activities that this worker can run, and those it leaves to workers of their queues."""
    names, others = [], []
    for name in activities.names():
        found = activities.get(name)
        queue = None if found is None else found.settings.queue
        if queue is None or queue in queues:
            names.append(name)
        else:
            others.append(f"{name} (queue {queue})")
    left = f"; left to others: {', '.join(others)}" if others else ""
    return f"{', '.join(names) or 'none'}{left}"


def _warn_of_no_work(queues: Sequence[str]) -> None:
    """Say so when nothing these modules have can come to a worker of these queues."""
    wanted = _queues_of_activities()
    if not workflows.names() and wanted and not wanted & set(queues):
        words = " ".join(f"--queue {name}" for name in sorted(wanted))
        warn(f"the activities of these modules go to other queues than {', '.join(queues)}; work those with {words}")


class Shift:
    """A worker's time: begins when it is ready, ends with a signal."""

    def __init__(
        self,
        app: "perdure.Perdure",
        queues: Sequence[str],
        beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._app = app
        self._grace = grace
        # What goes on while it works, such as a server.
        self._beside = beside
        self.queues = queues
        self.is_over = False

    async def work(self, reloader: Reloader | None = None) -> None:
        """Work until a signal comes, or a file changes."""
        async with self._app, self._beside():
            stop = self._until_signal()
            _say_ready(self._app.url, self.queues, reloader)
            _warn_of_no_work(self.queues)
            if reloader is None:
                await stop.wait()
            else:
                await reloader.changed_before(stop)
            if self.is_over:
                say_line(
                    f"stopping: activities under way may finish, for up to {self._grace:g} s; "
                    "Ctrl-C again stops at once and loses nothing"
                )
            elif reloader is not None:
                text = f"{reloader.changed} changed; restarting when activities under way have finished"
                asyncio.get_running_loop().call_later(LONG_PAUSE, say_line, text)

    async def wait(self, reloader: Reloader, why: str) -> None:
        """Say why, and do nothing until a signal comes, or a file changes."""
        stop = self._until_signal()
        say(why)
        await reloader.changed_before(stop)

    def _until_signal(self) -> asyncio.Event:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def on_signal() -> None:
            self.is_over = True
            stop.set()
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(each)
                signal.signal(each, signal.SIG_DFL)
            # A second one waits for no activity, and a third one for nothing.
            shutdown.catch((signal.SIGINT, *SIGNALS))

        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, on_signal)
        return stop


def _say_ready(url: str, queues: Sequence[str], reloader: Reloader | None) -> None:
    if reloader is not None and reloader.came_after is not None:
        has = (
            f"{counted(len(workflows.names()), 'workflow')}, "
            f"{counted(len(activities.names()), 'activity', 'activities')}"
        )
        say_line(f"worker {os.getpid()} restarted, {reloader.came_after} changed: {has}", style="bold")
        return
    say_line(f"worker {os.getpid()} is ready on {location(url)}; Ctrl-C stops it", style="bold")
    say_line(f"  workflows   {', '.join(workflows.names()) or 'none'}")
    say_line(f"  activities  {_activities_told(queues)}")
    say_line(f"  queues      {', '.join(queues)}")


def say_line(text: str, style: str = "") -> None:
    """A line for people, at once."""
    screen().print(Text(text, style=style), soft_wrap=True)
    sys.stdout.flush()
