"""`perdure pause`: have a run begin nothing more, also when no worker is alive.

In:   the name of a run.
Out:  the run as it stands once the request is on disk.
"""

import asyncio

from rich.text import Text

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
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import is_for_people, print_json, screen
from perdure.views.run import RunInfo

EXAMPLES = {
    "pause": """\
perdure pause o-17 --reason "the bank is down"
perdure pause --where "workflow = 'checkout'\""""
}


def pause(
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
    """Have a run begin nothing more, until it is resumed."""
    one_or_many(name, where, "pause")
    if where is not None:
        many = Many(url, namespace, where, parameters(parameter), yes=yes, as_json=as_json, key=key)
        many.ask_all("pause", reason=reason)
        return
    assert name is not None

    async def request() -> RunInfo:
        async with client(url, namespace) as app:
            run = await found(app, name, key)
            await run.pause(reason)
            return await run.describe()

    info = asyncio.run(request())
    if is_for_people(as_json=as_json):
        how = "is paused" if info.held is not None else "pauses when what is under way has ended"
        screen().print(Text.assemble((info.id, "bold"), f" {how}; {hint('resume', info.id)}"), soft_wrap=True)
    else:
        print_json({"id": info.id, "run_id": info.run_id, "status": info.status, "held": info.held})
