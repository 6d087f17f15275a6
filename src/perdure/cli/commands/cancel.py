"""`perdure cancel`: ask a run to stop, also when no worker is alive.

In:   the name of a run.
Out:  the run as it stands once the request is on disk, or once it has ended.
"""

import asyncio
from datetime import UTC, datetime
from typing import Annotated

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
    Waiting,
    Where,
    Yes,
)
from perdure.cli.input.values import duration, parameters
from perdure.cli.output.errors import FAILED, OK, Mistake, warn
from perdure.cli.output.follow import watch
from perdure.cli.output.stopped import print_stopped
from perdure.cli.output.suggestions import hint
from perdure.cli.output.unworked import warn_if_nobody_works
from perdure.errors import RunUnreadable
from perdure.views.held import is_stuck
from perdure.views.run import RunInfo

EXAMPLES = {
    "cancel": """\
perdure cancel o-17 --reason "out of stock"
perdure cancel o-17 --deadline 30s --wait""",
}


def cancel(
    name: AnyRunName = None,
    *,
    where: Where = None,
    parameter: Parameters = None,
    yes: Yes = False,
    reason: Reason = None,
    deadline: Annotated[
        float | None,
        typer.Option("--deadline", metavar="DURATION", parser=duration, help="How long it may clean up: 30s, 5m."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Close it at once, without clean-up.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    timeout: Waiting = None,
    key: Key = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Ask a run to stop; it may clean up first."""
    one_or_many(name, where, "cancel")
    if where is not None:
        if force or wait or deadline is not None:
            raise Mistake(
                "--force, --deadline and --wait are for one run; `perdure terminate --where` ends many at once"
            )
        many = Many(url, namespace, where, parameters(parameter), yes=yes, as_json=as_json, key=key)
        many.ask_all("cancel", reason=reason)
        return
    assert name is not None
    if force and deadline is not None:
        raise Mistake("--force leaves no time to clean up, --deadline gives some; choose one of them")
    if timeout is not None and not wait:
        raise Mistake("--timeout limits the time that --wait waits; give both")

    async def request() -> RunInfo:
        opened_at = datetime.now(UTC)
        async with client(url, namespace) as app:
            run = await found(app, name, key)
            await run.cancel(reason, deadline=deadline, force=force)
            try:
                info = await run.describe()
            except RunUnreadable as error:
                # The request is on disk all the same; only how the run stands cannot be told.
                warn(f"{run.id} is told to stop; {error}")
                raise typer.Exit(FAILED if wait else OK) from None
            await warn_if_nobody_works(url, info)
            _warn_if_held(info)
            # At its deadline a held run ends as well.
            leaves_held = info.deadline_at is None
            if not wait or (leaves_held and is_stuck(info)):
                return info
            after, _ = await watch(app, run, opened_at, timeout, leaves_held=leaves_held)
            if not is_stuck(info):
                _warn_if_held(after)
            return after

    print_stopped(asyncio.run(request()), is_awaited=wait, as_json=as_json)


def _warn_if_held(info: RunInfo) -> None:
    """Say that nobody takes the request to stop, and what helps."""
    if not is_stuck(info):
        return
    forced = f"`{hint('cancel', info.id, '--force')}` closes it as it is"
    warn(
        f"run {info.id!r} is held ({info.held}) and does not take the request; "
        f"`{hint('resume', info.id)}` lets it go on and stop, "
        f"{forced if info.deadline_at is None else 'it is closed as it is at its deadline'}, "
        f"`{hint('show', info.id)}` tells why"
    )
