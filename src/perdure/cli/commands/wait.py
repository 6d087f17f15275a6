"""`perdure wait`: waits until a run has ended; any worker may work it.

In:   the name of a run.
Out:  progress on standard error, the result on standard output.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial

import typer
from rich.text import Text

from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url, Waiting
from perdure.cli.output.errors import INTERRUPTED
from perdure.cli.output.follow import follow
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import errors
from perdure.diagnostics.unworked import UnworkedQueues

EXAMPLES = {"wait": "perdure wait o-17 --timeout 5m"}


def wait(
    name: RunName,
    *,
    timeout: Waiting = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Wait until a run has ended, and print its result."""
    try:
        code = asyncio.run(_wait(name, timeout, url, namespace, as_json=as_json))
    except KeyboardInterrupt:
        say_how_to_go_on("interrupted", name)
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


async def _wait(name: str, timeout: float | None, url: str, namespace: str, *, as_json: bool) -> int:
    opened_at = datetime.now(UTC)
    async with client(url, namespace) as app:
        run = await found(app, name)
        queues, too_late = UnworkedQueues(url, hint=hint), partial(say_how_to_go_on, name=name)
        return await follow(app, run, opened_at, timeout, queues, as_json=as_json, too_late=too_late)


def say_how_to_go_on(what: str, name: str) -> None:
    """Tell that the run goes on without this command, and how to wait again."""
    text = f"the run is kept on disk and does not depend on this command. Wait again:\n  {hint('wait', name)}"
    errors().print(Text.assemble((f"{what}; ", "yellow"), text), soft_wrap=True)
