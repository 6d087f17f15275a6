"""`perdure worker`: work the queues until told to stop.

In:   the modules whose workflows and activities this process has.
Out:  runs that move on; a line when it is ready, and when it stops.
"""

import asyncio
import logging
import os
import signal
import sys
from typing import Annotated

import typer
from rich.text import Text

import perdure
from perdure.authoring.functions import activities, workflows
from perdure.cli.exits import Mistake
from perdure.cli.modules import load
from perdure.cli.opening import location, refuse_memory
from perdure.cli.options import DEFAULT_URL, Url
from perdure.cli.output import screen

# How long the interpreter lets one thread run before another gets its turn, in seconds. The loop and
# the threads of activities take turns; with Python's own 5 ms a busy thread would hold up every commit.
SWITCH_INTERVAL = 0.0005


def work(
    modules: Annotated[
        list[str],
        typer.Argument(metavar="MODULE...", help="shop, or shop.py; several may be given.", show_default=False),
    ],
    *,
    url: Url = DEFAULT_URL,
) -> None:
    """Work the runs of these modules' workflows until Ctrl-C or SIGTERM."""
    refuse_memory(url)
    for module in modules:
        load(module.partition(":")[0])
    if not workflows.names():
        raise Mistake(f"no workflow is in {', '.join(modules)}; decorate an `async def` with @workflow")
    sys.setswitchinterval(SWITCH_INTERVAL)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_work(url))


async def _work(url: str) -> None:
    stop = asyncio.Event()
    async with perdure.Perdure(url):
        _stop_on_signals(stop)
        _say_ready(url)
        await stop.wait()
        _say("stopping: activities under way may finish; Ctrl-C again stops at once and loses nothing")
    _say("stopped")


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        stop.set()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
            # A second one ends the process on the spot; its runs go on elsewhere.
            signal.signal(each, signal.SIG_DFL)

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, on_signal)


def _say_ready(url: str) -> None:
    _say(f"worker {os.getpid()} is ready on {location(url)}; Ctrl-C stops it", style="bold")
    _say(f"  workflows   {', '.join(workflows.names())}")
    _say(f"  activities  {', '.join(activities.names()) or 'none'}")


def _say(text: str, style: str = "") -> None:
    screen().print(Text(text, style=style), soft_wrap=True)
    sys.stdout.flush()
