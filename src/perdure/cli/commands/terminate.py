"""`perdure terminate`: end a run at once, also when no worker is alive.

In:   the name of a run.
Out:  the run as it stands once the request is on disk, or once it has ended.
"""

import asyncio
from datetime import UTC, datetime

import typer

from perdure.cli.input.database import client, found
from perdure.cli.input.many import Many, one_or_many
from perdure.cli.input.options import (
    DEFAULT_NAMESPACE,
    DEFAULT_URL,
    AnyRunName,
    AsJson,
    Key,
    Namespace,
    Parameters,
    Reason,
    Url,
    Where,
    Yes,
)
from perdure.cli.input.values import parameters
from perdure.cli.output.errors import OK, warn
from perdure.cli.output.follow import watch
from perdure.cli.output.stopped import print_stopped
from perdure.errors import RunUnreadable
from perdure.views.run import RunInfo

# A worker ends a run of its own within moments; after so many seconds it does not seem to answer.
PATIENCE = 3.0
EXAMPLES = {"terminate": 'perdure terminate o-17 --reason "it hangs"'}


def terminate(
    name: AnyRunName = None,
    *,
    where: Where = None,
    parameter: Parameters = None,
    yes: Yes = False,
    reason: Reason = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """End a run at once, without clean-up."""
    one_or_many(name, where, "terminate")
    if where is not None:
        many = Many(url, namespace, where, parameters(parameter), yes=yes, as_json=as_json, key=key)
        many.ask_all("terminate", reason=reason)
        return
    assert name is not None

    async def request() -> RunInfo:
        opened_at = datetime.now(UTC)
        async with client(url, namespace) as app:
            run = await found(app, name, key)
            await run.terminate(reason)
            try:
                return (await watch(app, run, opened_at, PATIENCE))[0]
            except RunUnreadable as error:
                warn(f"{run.id} is told to end; {error}")
                raise typer.Exit(OK) from None

    print_stopped(asyncio.run(request()), is_awaited=False, as_json=as_json)
