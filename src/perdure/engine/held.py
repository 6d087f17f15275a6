"""Holds: what is said of runs that are held, or about to be: when it happens, to those who wait, and at a start.

In:   a run that cannot be read, or that workers died with; the row of one that a caller waits for; how many are held.
Out:  one line in the log for each of these, with the way out in words.
Waiting goes on: the run may be resumed at any time.
"""

import logging
import shlex
from collections.abc import Mapping

import msgspec

from perdure.errors import RunUnreadable
from perdure.kernel.quarantine import QUARANTINE_FROM, told_alone
from perdure.stores.answers import Blamed, Paused
from perdure.stores.records import RunRow

log = logging.getLogger("perdure.engine")

AWAITED_RUN_HELD = "awaited_run_held"
# How many holds are remembered as told; a process that waits for more of them may be told twice.
MOST_REMEMBERED = 10_000


class Holds:
    """Tells of each hold once."""

    def __init__(self) -> None:
        # When the run was held, by run_id: one that is held again is told again.
        self._told: dict[str, int] = {}

    def tell(self, row: RunRow) -> None:
        """Warn that the run is held, unless that was done."""
        if self._told.get(row.run_id) == row.updated_at:
            return
        if len(self._told) >= MOST_REMEMBERED:
            self._told.clear()
        self._told[row.run_id] = row.updated_at
        log.warning(
            "run %r is held (%s), and whoever waits for it waits until somebody acts: %s; %s",
            row.workflow_id,
            row.held,
            trouble_of(row),
            way_out(row.workflow_id),
            extra={
                "event": AWAITED_RUN_HELD,
                "run_id": row.run_id,
                "workflow_id": row.workflow_id,
                "reason": row.held,
            },
        )

    def forget(self, run_id: str) -> None:
        """The run has ended."""
        self._told.pop(run_id, None)


def tell_unreadable(error: RunUnreadable) -> None:
    """Say that a run is held since it cannot be read."""
    log.error(
        "run %r is held: %s (`perdure show %s`)",
        error.id,
        error.trouble,
        shlex.quote(error.id),
        extra={"event": "run_held", "run_id": error.run_id, "reason": "quarantine"},
    )


def tell_blamed(blamed: Blamed | Paused, now: int) -> None:
    """Say that workers die with a run: that it is tried again after a pause, suspected, or held by now."""
    id = blamed.workflow_id
    if isinstance(blamed, Paused):
        log.warning(
            "run %r rests: %s. No other run was in danger, so it is tried again, in %g s (`perdure show %s`)",
            id,
            told_alone(blamed.times),
            (blamed.until - now) / 1000,
            shlex.quote(id),
            extra={"event": "run_paused", "workflow_id": id, "deaths": blamed.times},
        )
    elif blamed.is_held:
        log.error(
            "run %r is held: its workers die, again and again, and take other runs with them, with no other that could "
            "be the cause (`perdure show %s`)",
            id,
            shlex.quote(id),
            extra={"event": "run_held", "workflow_id": id, "reason": "quarantine"},
        )
    else:
        log.warning(
            "run %r is suspected: %d of %d workers have died with it and no other run that could be the cause "
            "(`perdure show %s`)",
            id,
            blamed.deaths,
            QUARANTINE_FROM,
            shlex.quote(id),
            extra={"event": "run_suspected", "workflow_id": id, "deaths": blamed.deaths},
        )


def tell_how_many(counts: Mapping[str, int]) -> None:
    """Warn those who start a worker of runs that wait for a person to act, if there are any."""
    count = sum(counts.values())
    # A word that was spoilt in the database is told all the same.
    named = {str(reason): number for reason, number in counts.items()}
    if count:
        log.warning(
            "%s held (%s); see %s with `perdure list --status held`",
            "1 run is" if count == 1 else f"{count:,} runs are",
            ", ".join(f"{number:,} {reason}" for reason, number in sorted(named.items())),
            "it" if count == 1 else "them",
            extra={"event": "runs_held", "runs": count},
        )


def way_out(id: str) -> str:
    """What a person can do about a held run."""
    word = shlex.quote(id)
    return (
        f"`perdure show {word}` tells more, `perdure resume {word}` lets it go on, `perdure terminate {word}` ends it"
    )


def trouble_of(row: RunRow) -> str:
    """What happened, as the report has it."""
    try:
        report = msgspec.json.decode(row.held_report or "null")
    except msgspec.DecodeError:
        report = None
    found = report.get("trouble") if isinstance(report, dict) else None
    return str(found or "its report does not say why")
