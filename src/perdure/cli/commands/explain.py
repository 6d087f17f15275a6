"""`perdure explain`: why a run does not move."""

import asyncio

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.app.run import explanation_of
from perdure.cli.input.database import client, found
from perdure.cli.input.options import DEFAULT_NAMESPACE, DEFAULT_URL, AsJson, Namespace, RunName, Url
from perdure.cli.output.suggestions import hint
from perdure.cli.output.tables import grid, is_for_people, print_json, print_lines, screen
from perdure.diagnostics.explain import Explanation
from perdure.views.words import compact, moment

EXAMPLES = {"explain": "perdure explain o-17"}
LONGEST_VALUE = 500


def explain(
    name: RunName, *, url: Url = DEFAULT_URL, namespace: Namespace = DEFAULT_NAMESPACE, as_json: AsJson = False
) -> None:
    """Say why a run does not move, and what helps; changes nothing."""
    told = asyncio.run(_explained(url, namespace, name))
    if is_for_people(as_json=as_json):
        _print(screen(), told)
    else:
        print_json(told.to_dict())


async def _explained(url: str, namespace: str, name: str) -> Explanation:
    async with client(url, namespace) as app:
        return await explanation_of(await found(app, name), hint)


def _print(console: Console, told: Explanation) -> None:
    print_lines(console, Text.assemble((f"run {told.id}", "bold"), f": {told.summary}"))
    table = grid()
    table.add_row("cause", told.cause)
    if told.since is not None:
        table.add_row("since", moment(told.since))
    for label, value in told.evidence.items():
        if value is not None:
            table.add_row(label.replace("_", " "), Text(compact(value, LONGEST_VALUE)))
    if told.advice is not None:
        table.add_row("what helps", Text(told.advice, style="yellow"))
    print_lines(console, table)
    if told.why is not None:
        console.print()
        print_lines(console, Padding(Text.assemble((f"run {told.why.id}", "bold"), f": {told.why.summary}"), (0, 2)))
