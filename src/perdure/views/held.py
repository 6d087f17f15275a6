"""Held runs in words: why a run does not go on, and what to do.

In:   a run that is held, and its report.
Out:  the reason, the two sides (what the history says and where the code waits), and the remedy.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from perdure.views.run import RunInfo
from perdure.views.run import moment as engine_moment
from perdure.views.words import moment

MEANINGS = {
    "mismatch": "the workflow's code no longer fits the history of this run",
    "quarantine": "to go on with this run does harm, or is not possible",
    "paused": "somebody paused it",
}
# Held, but not stuck: an operator will let it go on.
MOVABLE = frozenset({"paused"})


def is_stuck(info: RunInfo) -> bool:
    """Whether the run is held, and stays so until an operator has found out why."""
    return info.held is not None and info.held not in MOVABLE


def meaning_of(info: RunInfo) -> str:
    """What it means to be held for this reason."""
    return MEANINGS.get(str(info.held), str(info.held))


def report_of(info: RunInfo) -> object:
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


def note_of(info: RunInfo) -> str:
    """Why the run is held, in a few words: of one in quarantine what its report begins with."""
    meaning, report = MEANINGS.get(str(info.held), ""), report_of(info)
    trouble = report.get("trouble") if isinstance(report, Mapping) else None
    if info.held == "paused" and isinstance(trouble, str):
        return trouble
    if info.held != "quarantine" or not isinstance(trouble, str):
        return meaning
    return re.split(r"[,:;] ", trouble, maxsplit=1)[0] or meaning


def sides_of(info: RunInfo) -> list[tuple[str, str]]:
    """What the report tells, each part under a label of its own."""
    report = report_of(info)
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
    """The deaths in a report; a report that was written by hand may look otherwise."""
    deaths = report.get("deaths") if isinstance(report, Mapping) else None
    found = deaths if isinstance(deaths, list) else []
    return [death for death in found if isinstance(death, dict) and isinstance(death.get("at"), int | datetime)]


def _places(places: object) -> str | None:
    if places is None:
        return None
    if isinstance(places, list | tuple):
        return ", ".join(str(place) for place in places) or "nothing; it has ended"
    return str(places)
