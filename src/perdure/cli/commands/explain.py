"""`perdure explain`: why a run does not move."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime

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
        for word, text in _evidence(label, value):
            table.add_row(word.replace("_", " "), Text(text))
    if told.advice is not None:
        table.add_row("what helps", Text(told.advice, style="yellow"))
    print_lines(console, table)
    if told.why is not None:
        console.print()
        print_lines(console, Padding(Text.assemble((f"run {told.why.id}", "bold"), f": {told.why.summary}"), (0, 2)))


def _evidence(label: str, value: object) -> Iterator[tuple[str, str]]:
    """A piece of evidence in words: a line for each part of a report, for each thing that is waited for besides."""
    if label == "report" and isinstance(value, Mapping):
        for name, part in value.items():
            # The remedy is told as what helps, the trouble at the top.
            if name not in {"remedy", "trouble"}:
                yield from _evidence(name, part)
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        for each in value:
            parts = [(name, _text(part)) for name, part in each.items() if part is not None]
            yield label, ", ".join(part if name == "kind" else f"{name} {part}" for name, part in parts)
    elif value is not None:
        yield label, _text(value)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return moment(value)
    return value if isinstance(value, str) else compact(value, LONGEST_VALUE)
