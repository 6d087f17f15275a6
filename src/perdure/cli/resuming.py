"""`perdure resume`: let a run go on that is held.

In:   the name of a run in quarantine, or of one whose code fits its history again.
Out:  the run as it stands once that is on disk.
"""

import asyncio
from typing import TYPE_CHECKING

from rich.text import Text

from perdure.cli.neglect import warn_if_nobody_works
from perdure.cli.opening import client, found
from perdure.cli.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url
from perdure.cli.output import is_for_people, print_json, screen

if TYPE_CHECKING:
    from perdure.app import RunInfo

EXAMPLES = {"resume": "perdure resume o-17"}


def resume(
    name: RunName,
    *,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Let a held run go on."""

    async def request() -> "RunInfo":
        async with client(url, namespace) as app:
            run = await found(app, name)
            await run.resume()
            info = await run.describe()
            warn_if_nobody_works(url, info)
            return info

    info = asyncio.run(request())
    if is_for_people(as_json=as_json):
        screen().print(Text.assemble((info.id, "bold"), " is not held any more; it goes on"), soft_wrap=True)
    else:
        print_json({"id": info.id, "run_id": info.run_id, "status": info.status, "held": info.held})
