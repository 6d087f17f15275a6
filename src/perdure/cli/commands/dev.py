"""`perdure dev`: a server and a worker on this machine, which begin anew when code changes.

In:   the modules of the user.
Out:  the address, where the routes are shown, and a first thing to try; then answers, until told to stop.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

import perdure
from perdure.authoring.workflow import workflows
from perdure.cli.commands.serve import Listen, loaded_server
from perdure.cli.commands.worker import GRACE_SECONDS, Shift, begin_logging, module_alone, say_line, work_reloading
from perdure.cli.input.config import configured_modules
from perdure.cli.input.database import refuse_memory, refuse_server
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_QUEUE, DEFAULT_URL, Namespace, Url
from perdure.cli.input.reload import Reloader

if TYPE_CHECKING:
    from perdure.app.network.serving import ServerOptions

EXAMPLES = {
    "dev": """\
perdure dev shop
perdure dev shop.py --listen 127.0.0.1:8080"""
}
# Where the process that was here before the reload listened.
LISTEN = "PERDURE_RELOADED_LISTEN"
# Something of each type, so that what is tried is taken.
SAMPLES: dict[object, object] = {int: 1, float: 1.0, bool: True, str: "a", list: [], dict: {}}


def dev(
    modules: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODULE]...", help="shop, or shop.py; several may be given.", show_default=False),
    ] = None,
    *,
    listen: Listen = "127.0.0.1:7373",
    queue: Annotated[
        list[str] | None, typer.Option("--queue", metavar="NAME", help="Work this queue, not `default`.")
    ] = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
) -> None:
    """Serve and work on this machine, and begin anew when a source file changes."""
    refuse_memory(url)
    refuse_server(url)
    places = [module_alone(module) for module in modules or configured_modules()]
    queues = queue or [DEFAULT_QUEUE]
    app = perdure.Perdure(url, namespace=namespace, worker=bool(places), queues=queues, grace=GRACE_SECONDS)
    begin_logging()
    reloader = Reloader(places)
    # A port that was picked is the same one after a reload: pages and shells have its address.
    options = loaded_server(reloader.kept.get(LISTEN, listen), no_auth=True)
    shift = Shift(app, queues, lambda: _served(app, options, reloader))
    if places:
        work_reloading(places, shift, reloader)
    else:
        asyncio.run(shift.work())
    say_line("stopped")


@asynccontextmanager
async def _served(app: "perdure.Perdure", options: "ServerOptions", reloader: Reloader) -> AsyncIterator[None]:
    from perdure.app.network.server import begin_server, end_server  # noqa: PLC0415 - it needs the extra `server`

    server, _ = await begin_server(app, options)
    reloader.kept[LISTEN] = urlsplit(server.url).netloc
    try:
        say_line(f"serving on {server.url} without keys; routes: {server.url}/docs; Ctrl-C stops it", style="bold")
        if (line := something_to_try(server.url)) is not None:
            say_line(f"  try: {line}")
        yield
    finally:
        await end_server(app, server, GRACE_SECONDS)


def something_to_try(url: str) -> str | None:
    """A command that starts the first workflow there is."""
    found = next((each for each in map(workflows.get, workflows.names()) if each is not None), None)
    if found is None:
        return None
    given = {
        name: SAMPLES.get(parameter.annotation)
        for name, parameter in signature(found.fn, eval_str=True).parameters.items()
        if parameter.default is Parameter.empty and parameter.kind is not Parameter.VAR_POSITIONAL
    }
    body = json.dumps({"workflow": found.name, "input": given})
    return f"curl -H 'Content-Type: application/json' -d '{body}' '{url}/v1/runs?wait=5'"
