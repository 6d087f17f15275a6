"""`perdure retry`: run again what failed in a run, or go on where it was stopped, in a new run under the same id."""

import asyncio

from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, Reason, RunName, Url
from perdure.cli.output.forked import print_forked
from perdure.cli.output.unworked import warn_if_nobody_works
from perdure.views.run import RunInfo

EXAMPLES = {"retry": 'perdure retry o-17 --reason "the bank is back"'}


def retry(
    name: RunName,
    *,
    reason: Reason = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Run again what failed in a run, or go on where it was stopped."""

    async def request() -> RunInfo:
        async with client(url, namespace) as app:
            return await (await (await found(app, name)).retry(reason)).describe()

    info = asyncio.run(request())
    print_forked(info, "retried", as_json=as_json)
    asyncio.run(warn_if_nobody_works(url, info))
