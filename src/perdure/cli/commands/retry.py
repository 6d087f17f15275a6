"""`perdure retry`: run again what failed in a run, or go on where it was stopped, in a new run under the same id."""

import asyncio

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
from perdure.cli.output.forked import print_forked
from perdure.cli.output.unworked import warn_if_nobody_works
from perdure.views.run import RunInfo

EXAMPLES = {"retry": 'perdure retry o-17 --reason "the bank is back"'}


def retry(
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
    """Run again what failed in a run, or go on where it was stopped."""
    one_or_many(name, where, "retry")
    if where is not None:
        many = Many(url, namespace, where, parameters(parameter), yes=yes, as_json=as_json, key=key)
        many.ask_all("retry", reason=reason)
        return
    assert name is not None

    async def request() -> RunInfo:
        async with client(url, namespace) as app:
            return await (await (await found(app, name, key)).retry(reason)).describe()

    info = asyncio.run(request())
    print_forked(info, "retried", as_json=as_json)
    asyncio.run(warn_if_nobody_works(url, info))
