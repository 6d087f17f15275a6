"""`perdure wait`: waits until a run has ended; any worker may work it.

In:   the name of a run.
Out:  progress on standard error, the result on standard output.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url, Waiting
from perdure.cli.output.errors import INTERRUPTED, OK, TIMED_OUT, Mistake, Trouble
from perdure.cli.output.follow import follow
from perdure.cli.output.suggestions import did_you_mean, hint
from perdure.cli.output.tables import errors, is_for_people, print_json, screen
from perdure.diagnostics.unworked import UnworkedQueues
from perdure.kernel.status import Status
from perdure.views.run import RunInfo

# How often a run is looked at, in seconds.
LOOK_S = 0.1
EXAMPLES = {"wait": "perdure wait o-17 --timeout 5m\nperdure wait o-17 --for step=packing"}


def wait(
    name: RunName,
    *,
    until: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="FIELD=VALUE",
            help="Until it is there: status=suspended, step=packing. May be given more than once, for any of them.",
        ),
    ] = None,
    timeout: Waiting = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Wait until a run has ended, and print its result."""
    wanted = [_wanted(word) for words in until or () for word in words.split("|")]
    try:
        if wanted:
            raise typer.Exit(asyncio.run(_wait_for(name, wanted, timeout, url, namespace, as_json=as_json)))
        code = asyncio.run(_wait(name, timeout, url, namespace, as_json=as_json))
    except KeyboardInterrupt:
        say_how_to_go_on("interrupted", name)
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


def _wanted(word: str) -> tuple[str, str]:
    """A field and what it shall be."""
    field, _, value = (part.strip() for part in word.partition("="))
    if field not in {"status", "step"} or not value:
        raise Mistake(
            f"--for {word!r} is neither a status nor a step; write --for status=suspended or --for step=packing"
        )
    if field == "status" and value.upper().replace("-", "_") not in Status.__members__:
        known = [each.lower() for each in Status]
        raise Mistake(f"no status is named {value!r}{did_you_mean(value, known)}; there are {', '.join(known)}")
    return field, value.upper().replace("-", "_") if field == "status" else value


async def _wait_for(
    name: str, wanted: list[tuple[str, str]], timeout: float | None, url: str, namespace: str, *, as_json: bool
) -> int:
    """Look at a run until it is as wanted; one that has ended otherwise will not be any more."""
    async with client(url, namespace) as app:
        run = await found(app, name)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    info = await run.describe()
                    if any(getattr(info, field) == value for field, value in wanted):
                        return _said(info, as_json=as_json)
                    if info.continued_to is not None:
                        run = await app.get(run_id=info.continued_to)
                    elif info.closed_at is not None:
                        raise Trouble(f"run {info.id!r} has ended ({info.status}) and did not come to {_told(wanted)}")
                    else:
                        await asyncio.sleep(LOOK_S)
        except TimeoutError:
            again = [word for field, value in wanted for word in ("--for", f"{field}={value}")]
            say_how_to_go_on(f"not {_told(wanted)} after {timeout:g} s", name, *again)
            return TIMED_OUT


def _told(wanted: list[tuple[str, str]]) -> str:
    return " or ".join(f"{field} {value.lower() if field == 'status' else value}" for field, value in wanted)


def _said(info: RunInfo, *, as_json: bool) -> int:
    if is_for_people(as_json=as_json):
        at = "" if info.step is None else f", at {info.step}"
        screen().print(Text(f"{info.id} is {info.status.lower()}{at}"), soft_wrap=True)
    else:
        print_json({"id": info.id, "run_id": info.run_id, "status": info.status, "step": info.step})
    return OK


async def _wait(name: str, timeout: float | None, url: str, namespace: str, *, as_json: bool) -> int:
    opened_at = datetime.now(UTC)
    async with client(url, namespace) as app:
        run = await found(app, name)
        queues, too_late = UnworkedQueues(url, hint=hint), partial(say_how_to_go_on, name=name)
        return await follow(app, run, opened_at, timeout, queues, as_json=as_json, too_late=too_late)


def say_how_to_go_on(what: str, name: str, *options: str) -> None:
    """Tell that the run goes on without this command, and how to wait again."""
    text = f"the run is kept on disk and does not depend on this command. Wait again:\n  {hint('wait', name, *options)}"
    errors().print(Text.assemble((f"{what}; ", "yellow"), text), soft_wrap=True)
