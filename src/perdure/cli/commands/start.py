"""`perdure start`: a run for whatever worker takes it.

In:   MODULE:WORKFLOW, or over a server WORKFLOW, and JSON arguments.
Out:  the run's id, once it is on disk.
"""

import asyncio
from datetime import UTC, datetime

from rich.text import Text

import perdure
from perdure.app.network.remote import is_remote
from perdure.cli.input import options as given
from perdure.cli.input.database import idle, refuse_memory, under
from perdure.cli.input.starts import NamedCall, StartCall, StartOptions
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import is_for_people, print_json, screen, status_text
from perdure.cli.output.unworked import warn_if_nobody_works
from perdure.views.run import RunInfo

EXAMPLES = {
    "start": """\
perdure start shop:checkout '{"order": "o-17", "cents": 4200}' --id o-17
perdure start shop:checkout @order.json --delay 2h --attribute tenant=acme
perdure start checkout '["o-17", 4200]' --url http://127.0.0.1:7373"""
}


def start(
    target: given.Target,
    arguments: given.Arguments = "{}",
    *,
    id: given.Id = None,
    timeout: given.Timeout = None,
    delay: given.Delay = None,
    queue: given.Queue = None,
    priority: given.Priority = None,
    entity: given.Entity = None,
    correlation: given.Correlation = None,
    attribute: given.Attributes = None,
    on_conflict: given.Conflict = None,
    key: given.Key = None,
    url: given.Url = given.DEFAULT_URL,
    namespace: given.Namespace = given.DEFAULT_NAMESPACE,
    as_json: given.AsJson = False,
) -> None:
    """Start a run for a worker to take, and return at once."""
    refuse_memory(url)
    options = StartOptions(id, queue, timeout, delay, priority, entity, correlation, attribute, on_conflict)
    # A server knows workflows by their names; its caller may have no code at all.
    call = (NamedCall if is_remote(url) and ":" not in target else StartCall)(target, arguments, options)
    began_at = datetime.now(UTC)
    info = asyncio.run(_start(idle(url, namespace), call, key))
    if is_for_people(as_json=as_json):
        _print(info, is_new=info.created_at >= began_at)
    else:
        fields = ("run_id", "workflow", "status", "created_at", "delayed_until", "deadline_at")
        print_json({"id": info.id} | {name: getattr(info, name) for name in fields})
    if isinstance(call, StartCall) and not is_remote(url):
        asyncio.run(warn_if_nobody_works(url, info, call.module))


async def _start(app: "perdure.Perdure", call: NamedCall, key: str | None) -> RunInfo:
    async with app:
        run = await call.start(under(app, key))
        return await run.describe()


def _print(info: RunInfo, *, is_new: bool) -> None:
    console = screen()
    if is_new:
        text = Text.assemble(("▶ ", "bold"), "started ", (info.id, "bold"))
    else:
        text = Text.assemble((info.id, "bold"), " is there already: ", status_text(info.status, info.held))
    console.print(text, soft_wrap=True)
    console.print(f"  its result: {hint('wait', info.id)}", style="dim", soft_wrap=True)
