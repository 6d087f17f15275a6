"""`perdure resume`: let runs go on that are held.

In:   the name of a run in quarantine, or of one whose code fits its history again; or all there are.
Out:  the runs as they stand once that is on disk.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import typer
from rich.text import Text

import perdure
from perdure.app import Run
from perdure.cli.input.database import client, found
from perdure.cli.input.many import Many
from perdure.cli.input.options import (
    DEFAULT_NAMESPACE,
    DEFAULT_URL,
    AnyRunName,
    AsJson,
    Key,
    Namespace,
    Parameters,
    Url,
    Where,
    Yes,
)
from perdure.cli.input.values import parameters
from perdure.cli.output.errors import OK, Mistake, warn
from perdure.cli.output.tables import is_for_people, print_json, screen
from perdure.cli.output.unworked import warn_if_nobody_works
from perdure.errors import RunClosed, RunNotHeld, RunUnreadable
from perdure.views.run import RunInfo

EXAMPLES = {"resume": "perdure resume o-17\nperdure resume --all"}


def resume(
    name: AnyRunName = None,
    *,
    where: Where = None,
    parameter: Parameters = None,
    yes: Yes = False,
    all: Annotated[
        bool, typer.Option("--all", help="Every run that is held as quarantine or mismatch, not just one.")
    ] = False,
    key: Key = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Let a held run go on, or all of them."""
    if where is not None and name is None and not all:
        many = Many(url, namespace, where, parameters(parameter), yes=yes, as_json=as_json, key=key)
        many.ask_all("resume", reason=None)
        return
    if all and key is not None:
        raise Mistake("--key goes with one run, or with --where; --all is many commands, each of them done once anyway")
    if (name is None) != all or where is not None:
        raise Mistake("name the run that shall go on, or say --where or --all; `perdure list --status held` shows them")

    async def request() -> "list[RunInfo]":
        async with client(url, namespace) as app:
            if name is None:
                resumed = [info async for run in _held(app) if (info := await _resumed_if_held(run)) is not None]
            else:
                resumed = [await _resumed(await found(app, name, key))]
            for info in {each.queue: each for each in resumed}.values():
                await warn_if_nobody_works(url, info)
            return resumed

    resumed = asyncio.run(request())
    if is_for_people(as_json=as_json):
        _print(resumed)
    else:
        answers = [{"id": i.id, "run_id": i.run_id, "status": i.status, "held": i.held} for i in resumed]
        print_json(answers if all else answers[0])


async def _held(app: "perdure.Perdure") -> "AsyncIterator[Run[object]]":
    """Every run that is held, a page at a time; one that is resumed is not on the next page."""
    cursor, is_more = None, True
    while is_more:
        page = await app.list(status=["quarantine", "mismatch"], after=cursor)
        for error in page.unreadable:
            warn(f"run {error.id!r} ({error.run_id}) stays held; {error}")
        for info in page:
            yield await app.get(run_id=info.run_id)
        cursor, is_more = page.cursor, page.cursor is not None


async def _resumed(run: "Run[object]") -> RunInfo:
    await run.resume()
    try:
        return await run.describe()
    except RunUnreadable as error:
        warn(f"{run.id} is not held any more; {error}")
        raise typer.Exit(OK) from None


async def _resumed_if_held(run: "Run[object]") -> "RunInfo | None":
    """The run after it was resumed; None when another process was quicker."""
    try:
        return await _resumed(run)
    except (RunNotHeld, RunClosed):
        return None


def _print(resumed: "list[RunInfo]") -> None:
    for info in resumed:
        screen().print(
            Text.assemble((info.id, "bold"), " is not held any more; a worker tries it again"), soft_wrap=True
        )
    if not resumed:
        screen().print(
            "no run is held as quarantine or mismatch; those that are paused are resumed by their id, or --where"
        )
