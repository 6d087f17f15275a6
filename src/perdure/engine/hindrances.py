"""Hindrances: what keeps a free run from going on: it rests, or no living worker has its code.

In:   a run's row, and what the living workers have code for.
Out:  what hinders it, as a value and in words; one line in the log for callers that wait for it.
Waiting goes on: a rest ends by itself, and a worker with the code may come at any time.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from perdure.kernel.quarantine import is_suspect, times_lost, told_alone
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.records import RunRow, WorkerRow

log = logging.getLogger("perdure.engine")

CODE_MISSING = "code_missing"
# A worker that is started anew is gone for a moment; code that is missing for longer is told of.
TELL_AFTER_MS = 5_000
# So many names that workers have are told beside one that none of them has.
MOST_NAMED = 5
# So many rests are remembered as told; a process that waits for more runs may be told of one twice.
MOST_REMEMBERED = 10_000

# What living workers have code for, by queue; None where one of them does not say.
Served: TypeAlias = Mapping[str, frozenset[str] | None]


class Rest(msgspec.Struct, frozen=True):
    """The run was alone with workers that died, and is tried again at this time."""

    until: int
    reason: str


class NoCode(msgspec.Struct, frozen=True):
    """No living worker has the code of the run, which has waited since this time."""

    workflow: str
    queue: str
    since: int
    reason: str


def served_by(workers: Iterable[WorkerRow], namespace: str) -> dict[str, frozenset[str] | None]:
    """What these workers have code for; DecodeError or ValidationError for a row that says nothing that makes sense."""
    served: dict[str, frozenset[str] | None] = {}
    for worker in workers:
        if worker.namespace == namespace:
            # One of a version before this does not say what it has.
            names = None if worker.workflows is None else msgspec.json.decode(worker.workflows, type=frozenset[str])
            for queue in msgspec.json.decode(worker.queues, type=list[str]):
                known = served.get(queue, frozenset())
                served[queue] = None if known is None or names is None else known | names
    return served


def hindrance_of(row: RunRow, served: Served, now: int) -> Rest | NoCode | None:
    """What keeps a run from going on that is open, not held, and that nobody has."""
    if row.closed_at is not None or row.owner is not None or row.held is not None:
        return None
    if (rest := rest_of(row, now)) is not None:
        return rest
    is_ripe = row.wake_at is not None and row.wake_at <= now
    if row.wake_at is not None and not is_ripe:
        # Until its time has come nobody is missed.
        return None
    # Where nobody is at work at all, what only waits is not missed.
    if not (is_ripe or row.queue in served) or has_code(served, row.queue, row.workflow):
        return None
    since = max(row.updated_at, row.wake_at or 0) if is_ripe else row.updated_at
    return NoCode(row.workflow, row.queue, since, told_missing(row.workflow, row.queue, served))


def rest_of(row: RunRow, now: int) -> Rest | None:
    """The rest of a run that was alone with workers that died, while it lasts."""
    if not is_suspect(row.losses) or row.owner is not None or row.wake_at is None or row.wake_at <= now:
        return None
    return Rest(row.wake_at, told_alone(times_lost(row.losses, row.outlived)))


def has_code(served: Served, queue: str, workflow: str) -> bool:
    """Whether a living worker may run this workflow, or the activity of this task, on a queue."""
    names = served.get(queue, frozenset())
    return names is None or workflow in names


def told_missing(workflow: str, queue: str, served: Served) -> str:
    """That nobody has the code, what those have who are there, and what to do."""
    is_task = workflow.startswith(TASK_PREFIX)
    kind, name = ("activity", workflow.removeprefix(TASK_PREFIX)) if is_task else ("workflow", workflow)
    if queue not in served:
        return f"no living worker works its queue, {queue}; start one that has the {kind} {name}"
    names = sorted(each for each in served[queue] or () if each.startswith(TASK_PREFIX) == is_task)
    shown = [name.removeprefix(TASK_PREFIX) for name in names[:MOST_NAMED]]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    there = f"; workers there have: {', '.join([*shown, *more])}" if shown else ""
    return (
        f"no living worker has code for the {kind} {name!r} (queue {queue}{there}); "
        f'start one that has it, or, if it was renamed, let it keep its name: @{kind}(name="{name}")'
    )


class Hindered:
    """Tells callers that wait for a run what hinders it: of a name that is missing once, of each rest once."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str] | tuple[str, int]] = set()

    def look_at(self, row: RunRow, served: Served, now: int) -> None:
        """Say what keeps a run from going on that a caller waits for, unless that was done."""
        match hindrance_of(row, served, now):
            case Rest():
                self.tell_rest(row, now)
            case NoCode(workflow, queue, since, reason) if now - since >= TELL_AFTER_MS:
                if self._is_news((queue, workflow)):
                    log.warning(
                        "run %r waits since %s: %s",
                        row.workflow_id,
                        told_time(at(since)),
                        reason,
                        extra={"event": CODE_MISSING, "workflow": workflow, "queue": queue},
                    )
            case None if has_code(served, row.queue, row.workflow):
                self._told.discard((row.queue, row.workflow))

    def tell_rest(self, row: RunRow, now: int) -> None:
        """Say that a run rests that a caller waits for, if it does, unless that was done."""
        rest = rest_of(row, now)
        if rest is not None and self._is_news((row.run_id, rest.until)):
            log.warning(
                "run %r rests until %s: %s",
                row.workflow_id,
                told_time(at(rest.until)),
                rest.reason,
                extra={"event": "awaited_run_rests", "run_id": row.run_id, "workflow_id": row.workflow_id},
            )

    def tell_missing(self, found: Iterable[NoCode], served: Served, now: int) -> None:
        """Warn a worker of runs that are due and whose code neither it nor any other has, unless that was done."""
        self._told -= {key for key in self._told if isinstance(key[1], str) and has_code(served, key[0], key[1])}
        for each in found:
            if now - each.since >= TELL_AFTER_MS and self._is_news((each.queue, each.workflow)):
                log.warning(
                    "a run of %s waits since %s: %s",
                    each.workflow,
                    told_time(at(each.since)),
                    each.reason,
                    extra={"event": CODE_MISSING, "workflow": each.workflow, "queue": each.queue},
                )

    def _is_news(self, what: tuple[str, str] | tuple[str, int]) -> bool:
        if what in self._told:
            return False
        if len(self._told) >= MOST_REMEMBERED:
            self._told.clear()
        self._told.add(what)
        return True


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def told_time(moment: datetime) -> str:
    """A moment as people read it, by the clock on their wall, with its zone: a server may hang on another one."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"
