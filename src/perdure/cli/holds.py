"""Held runs: what the report says, for somebody who was just woken up.

In:   a run that is held, and its report.
Out:  the two sides, what the history says and where the code waits, and the remedy.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.app.views import moment as engine_moment
from perdure.cli.output import grid, moment, print_lines, visible

if TYPE_CHECKING:
    from perdure.app import RunInfo

MEANINGS = {
    "mismatch": "the workflow's code no longer fits the history of this run",
    "quarantine": "to go on with this run does harm",
    "unreadable": "the database holds something of this run that cannot be read",
    "paused": "somebody paused it",
}
# Held, but not stuck: somebody will let it go on.
MOVABLE = frozenset({"paused"})


def report_of(info: "RunInfo") -> object:
    """The report as a value; None when there is none."""
    if not info.held_report:
        return None
    try:
        return msgspec.json.decode(info.held_report)
    except msgspec.DecodeError:
        return info.held_report


def print_hold(console: Console, info: "RunInfo") -> None:
    """Say that the run is held, why, and what to do."""
    reason = str(info.held)
    console.print(Text.assemble(("held: ", "bold red"), (MEANINGS.get(reason, reason), "bold")), soft_wrap=True)
    table = grid()
    for label, text in _sides(report_of(info)):
        table.add_row(label, Text(visible(text)))
    print_lines(console, Padding(table, (0, 0, 0, 2)))
    console.print(Text("  Nothing is lost: the run stays as it is until somebody acts.", style="dim"), soft_wrap=True)


def _sides(report: object) -> list[tuple[str, str]]:
    if not isinstance(report, Mapping):
        return [("report", str(report))] if report is not None else []
    told = [
        ("what happened", report.get("trouble")),
        ("where it was", report.get("under_way")),
        ("the history says", _event(report.get("history"))),
        ("the code waits at", _places(report.get("code_waits_at")) if report.get("history") else None),
        ("the workers", _deaths(report.get("deaths"))),
        ("what to do", report.get("remedy")),
    ]
    return [(label, str(text)) for label, text in told if text]


def _event(event: object) -> str | None:
    if not isinstance(event, Mapping):
        return None
    return f"event {event.get('seq')} is {event.get('kind')} at {event.get('place') or 'the run itself'}"


def _deaths(deaths: object) -> str | None:
    if not isinstance(deaths, list):
        return None
    found = [death for death in deaths if isinstance(death, Mapping) and isinstance(death.get("at"), int)]
    return "\n".join(
        f"process {death.get('pid')} on {death.get('host')}, found dead {moment(engine_moment(death['at']))}"
        for death in found
    )


def _places(places: object) -> str | None:
    if places is None:
        return None
    if isinstance(places, list | tuple):
        return ", ".join(str(place) for place in places) or "nothing; it has ended"
    return str(places)
