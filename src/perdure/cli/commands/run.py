"""`perdure run`: start a run, or go on with one, and work it in this process.

In:   MODULE:WORKFLOW and JSON arguments.
Out:  progress on standard error, the result on standard output.
"""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

import perdure
from perdure.app.database import MEMORY
from perdure.cli.input import options as given
from perdure.cli.input.starts import StartCall, StartOptions
from perdure.cli.input.values import duration
from perdure.cli.output.errors import INTERRUPTED, Trouble
from perdure.cli.output.follow import follow
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import errors
from perdure.diagnostics.unworked import UnworkedQueues
from perdure.errors import NotAllowed

EXAMPLES = {
    "run": """\
perdure run shop:checkout '{"order": "o-17", "cents": 4200}' --id o-17
perdure run shop.py:checkout @order.json --wait 5m"""
}


def run(
    target: given.Target,
    arguments: given.Arguments = "{}",
    *,
    id: given.Id = None,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="DURATION",
            parser=duration,
            help="Stop waiting after so long: 30, 30s, 5m, 2h or 1d; the run is kept.",
        ),
    ] = None,
    timeout: given.Timeout = None,
    delay: given.Delay = None,
    queue: given.Queue = None,
    priority: given.Priority = None,
    entity: given.Entity = None,
    correlation: given.Correlation = None,
    attribute: given.Attributes = None,
    on_conflict: given.Conflict = None,
    url: given.Url = given.DEFAULT_URL,
    namespace: given.Namespace = given.DEFAULT_NAMESPACE,
    as_json: given.AsJson = False,
) -> None:
    """Start a run, work it here, and print its result."""
    options = StartOptions(id, queue, timeout, delay, priority, entity, correlation, attribute, on_conflict)
    call = StartCall(target, arguments, options)
    # The command tells of held runs and failed attempts itself.
    logging.getLogger("perdure").addHandler(logging.NullHandler())
    app = perdure.Perdure(url, namespace=namespace, queues=list(call.queues))
    work = Work(app, call)
    try:
        code = asyncio.run(work.run(wait, as_json=as_json))
    except NotAllowed as refused:
        ways = "`run` works the run itself; `perdure start` and `perdure wait` leave that to the workers there are"
        raise Trouble(f"{refused}; {ways}") from None
    except KeyboardInterrupt:
        work.say_how_to_go_on("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


class Work:
    """One `perdure run`: the run it follows, and how to call for it again."""

    def __init__(self, app: "perdure.Perdure", call: StartCall) -> None:
        self._app = app
        self._call = call
        self._run: perdure.Run[Any] | None = None

    async def run(self, wait: float | None, *, as_json: bool) -> int:
        """Work the run until it ends, is held, or takes too long; answers the exit code."""
        opened_at = datetime.now(UTC)
        async with self._app as app:
            self._run = await self._call.start(app)
            queues = UnworkedQueues(app.url, self._call.module, self._call.queues, hint)
            return await follow(
                app, self._run, opened_at, wait, queues, as_json=as_json, too_late=self.say_how_to_go_on
            )

    def say_how_to_go_on(self, what: str) -> None:
        """Tell that the run is kept, and the command that goes on with it."""
        if self._run is None:
            text = f"`{hint('list')}` shows whether the run was started"
        elif self._app.url == MEMORY:
            text = "the run was in memory only and is gone; --url names a file to keep runs"
        else:
            again = hint("run", self._call.target, self._call.arguments, "--id", self._run.id)
            text = f"the run is kept on disk, nothing is lost. Go on with it:\n  {again}"
        errors().print(Text.assemble((f"{what}; ", "yellow"), text), soft_wrap=True)
