"""Held runs: what the report says, for somebody who was just woken up.

In:   a run that is held, and its report.
Out:  the two sides, what the history says and where the code waits, and the remedy.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.cli.output.tables import grid, moment, print_lines, visible
from perdure.views.run import moment as engine_moment

if TYPE_CHECKING:
    from perdure.app import RunInfo

MEANINGS = {
    "mismatch": "the workflow's code no longer fits the history of this run",
    "quarantine": "to go on with this run does harm, or is not possible",
    "paused": "somebody paused it",
}
# Held, but not stuck: somebody will let it go on.
MOVABLE = frozenset({"paused"})


def is_stuck(info: "RunInfo") -> bool:
    """Whether the run is held, and stays so until somebody has found out why."""
    return info.held is not None and info.held not in MOVABLE


def report_of(info: "RunInfo") -> object:
    """The report as a value, with its times as times; None when there is none."""
    if not info.held_report:
        return None
    try:
        report = msgspec.json.decode(info.held_report)
    except msgspec.DecodeError:
        return info.held_report
    for death in _those_with_time(report):
        # A time like all others that are shown, not a number.
        death["at"] = engine_moment(death["at"])
    return report


def note_of(info: "RunInfo") -> str:
    """Why the run is held, in a few words: of one in quarantine what its report begins with."""
    meaning, report = MEANINGS.get(str(info.held), ""), report_of(info)
    trouble = report.get("trouble") if isinstance(report, Mapping) else None
    if info.held != "quarantine" or not isinstance(trouble, str):
        return meaning
    return re.split(r"[,:;] ", trouble, maxsplit=1)[0] or meaning


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
        ("the workers", _deaths(report)),
        ("what to do", report.get("remedy")),
    ]
    return [(label, str(text)) for label, text in told if text]


def _event(event: object) -> str | None:
    if not isinstance(event, Mapping):
        return None
    return f"event {event.get('seq')} is {event.get('kind')} at {event.get('place') or 'the run itself'}"


def _deaths(report: Mapping[str, Any]) -> str:
    return "\n".join(
        f"process {death.get('pid')} on {death.get('host')}, found dead {moment(death['at'])}"
        for death in _those_with_time(report)
    )


def _those_with_time(report: object) -> list[dict[str, Any]]:
    """The deaths in a report; one that somebody wrote by hand may look otherwise."""
    deaths = report.get("deaths") if isinstance(report, Mapping) else None
    found = deaths if isinstance(deaths, list) else []
    return [death for death in found if isinstance(death, dict) and isinstance(death.get("at"), int | datetime)]


def _places(places: object) -> str | None:
    if places is None:
        return None
    if isinstance(places, list | tuple):
        return ", ".join(str(place) for place in places) or "nothing; it has ended"
    return str(places)
