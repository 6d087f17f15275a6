"""`perdure tick`: one bounded pass of maintenance, for where no worker stays."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

import perdure
from perdure.cli.input.database import existing, refuse_memory, refuse_server
from perdure.cli.input.modules import load
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, Url
from perdure.cli.input.values import duration
from perdure.cli.output.errors import Mistake, say
from perdure.cli.output.tables import is_for_people, print_json, screen

# So long it takes at most, and so many runs are worked where nothing else is said.
BUDGET_SECONDS = 20.0
MAX_JOBS = 10
EXAMPLES = {
    "tick": """\
perdure tick --budget 1m
perdure tick shop --max-jobs 50"""
}


def tick(
    module: Annotated[
        str | None,
        typer.Argument(metavar="MODULE", help="What has its code: schedules, and ripe runs.", show_default=False),
    ] = None,
    *,
    max_jobs: Annotated[
        int | None,
        typer.Option("--max-jobs", metavar="N", help="Work so many ripe runs of MODULE; 0 for none.", min=0),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", metavar="DURATION", parser=duration, help="Take no longer than this.", show_default="20s"
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    namespace: Namespace = DEFAULT_NAMESPACE,
    as_json: AsJson = False,
) -> None:
    """Do once what workers do for all now and then, and work ripe runs."""
    refuse_memory(url)
    refuse_server(url)
    if module is None and max_jobs:
        raise Mistake("--max-jobs works runs, which takes their code; write `perdure tick MODULE --max-jobs 10`")
    if module is None:
        # Without code there is nothing to be done in a database that is not there; its name was mistyped.
        existing(url)
    else:
        load(module)
    jobs = 0 if module is None else MAX_JOBS if max_jobs is None else max_jobs
    done = asyncio.run(_tick(url, namespace, jobs, BUDGET_SECONDS if budget is None else budget))
    if is_for_people(as_json=as_json):
        for name, count in done.counts.items():
            screen().print(f"{name:<13} {count}", highlight=False)
        for part, error in done.errors.items():
            say(f"error: {part}: {error}")
    else:
        print_json({"counts": done.counts, "errors": done.errors})
    if done.errors:
        raise typer.Exit(1)


async def _tick(url: str, namespace: str, jobs: int, budget: float) -> "perdure.Tick":
    """Maintenance first, for it makes runs ripe; then runs, in the time that is left."""
    until = asyncio.get_running_loop().time() + budget
    async with perdure.Perdure(url, namespace=namespace, worker=False) as app:
        done = await app.tick(budget=budget)
        left = until - asyncio.get_running_loop().time()
        if jobs and left > 0:
            processed = await app.process_available(max_jobs=jobs, budget=left)
            done.counts.update(asdict(processed))
        return done
