"""Claims: which of the ripe runs a worker takes, whatever the database.

In:   a claim, and a database that answers inside a transaction.
Out:  the ids of the runs that were taken.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.kernel.poison import suspects_at_once
from perdure.stores.answers import Answer, Applied
from perdure.stores.operations import ClaimRuns
from perdure.stores.rows import Garbled
from perdure.stores.steps import Query, Several, Steps

# So many times as many ripe runs as are wanted are looked at, before each workflow is looked for by itself.
WINDOWS = 4
# The priority of runs that have none of their own.
USUAL = 0
LOOKS_FOR_A_CLAIM = ("ripe_levels", "first_suspect", "ripest")
LOOKS_FOR_NO_SUSPECTS = ("ripe_levels", "ripest")


class Ripe(NamedTuple):
    """What is ripe in one queue: its levels, the first suspect if there is one, and the first of the usual level."""

    queue: str
    levels: Sequence[tuple[int]]
    suspects: Sequence[tuple[int, int, int]]
    usual: Sequence[tuple[str, bool]]


class Suspect(NamedTuple):
    """The first suspect there is, and how often it was lost."""

    queue: str
    priority: int
    losses: int


def claim_runs(claim: ClaimRuns) -> Steps[Answer]:
    """Level by level: the highest priority first, and within one the queues share alike; Garbled."""
    known = {
        "worker_id": claim.worker_id,
        "namespace": claim.namespace,
        "workflows": claim.workflows,
        "now": claim.now,
    }
    ripe = yield from look(claim, known)
    levels = [(each, priority) for each in ripe for (priority,) in each.levels]
    levels.sort(key=lambda level: -_orderable(level[1]))
    suspect = first_suspect(ripe)
    if suspect is None:
        return Applied((yield from _claim_levels(claim, known, levels, claim.limit)))
    # The only place goes to runs of higher priority, if there is one that can be taken: most of a level may sleep.
    ahead = [level for level in levels if claim.limit <= 1 and level[1] > suspect.priority]
    taken = yield from _claim_levels(claim, known, ahead, claim.limit)
    if not taken:
        taken = yield from _claim_suspects(claim, known, suspect)
        taken += yield from _claim_levels(claim, known, levels[len(ahead) :], claim.limit - len(taken))
    return Applied(taken)


def look(claim: ClaimRuns, known: dict[str, object]) -> Steps[list[Ripe]]:
    """What is ripe in each queue. Most runs have no priority of their own, so the first of those are asked for too."""
    names = LOOKS_FOR_A_CLAIM if claim.suspects else LOOKS_FOR_NO_SUSPECTS
    ripe = []
    for queue in claim.queues:
        asked = {"queue": queue, "priority": USUAL, "window": WINDOWS * claim.limit}
        levels, *suspects, usual = (yield Several(names, known | asked)).rows
        ripe.append(Ripe(queue, levels, suspects[0] if suspects else (), usual))
    return ripe


def _claim_levels(
    claim: ClaimRuns, known: dict[str, object], levels: Sequence[tuple[Ripe, int]], limit: int
) -> Steps[list[str]]:
    """Level by level, until there is no room."""
    taken: list[str] = []
    for place, (of_queue, priority) in enumerate(levels):
        alike = sum(other == priority for _, other in levels[place:])
        share = -(-(limit - len(taken)) // alike)
        if share <= 0:
            break
        level = known | {"queue": of_queue.queue, "priority": priority, "limit": share}
        seen = of_queue.usual if priority == USUAL else None
        taken += yield from _claim_level(claim.workflows, level, share, seen)
    return taken


def _take(name: str, known: dict[str, object], run_ids: list[str], limit: int) -> Steps[list[str]]:
    """Take the first of these runs that nobody else is just taking."""
    if not run_ids:
        return []
    found = yield Query(name, known | {"run_ids": run_ids, "limit": limit})
    return sorted(run_id for (run_id,) in found.rows)


def _claim_level(
    workflows: Sequence[str], level: dict[str, object], limit: int, seen: Sequence[tuple[str, bool]] | None
) -> Steps[list[str]]:
    """Take the ripest runs of a level that this worker has code for, without a walk over a backlog of others.

    `seen` are the first of them, if they were asked for already.
    """
    window = WINDOWS * limit
    found = (yield Query("ripest", level | {"window": window})).rows if seen is None else seen[:window]
    wanted = [_claimable(run_id) for run_id, is_wanted in found if is_wanted]
    if len(wanted) >= limit or len(found) < window:
        return (yield from _take("claim_ripest", level, wanted, limit))
    each: list[tuple[Any, ...]] = []
    for name in workflows:
        each += [(*row,) for row in (yield Query("ripest_of", level | {"workflow": name})).rows]
    return (yield from _take("claim_runs", level, [_claimable(run_id) for _, _, run_id in sorted(each)], limit))


def _orderable(priority: int) -> int:
    """A priority that runs can be put in order by; Garbled."""
    if type(priority) is not int:
        raise Garbled(f"a free run has the priority {priority!r}, which is no number")
    return priority


def _claimable(run_id: str) -> str:
    """An id that a claim can name; Garbled."""
    if type(run_id) is not str:
        raise Garbled(f"a ripe run has the id {run_id!r}, which is no text")
    return run_id


def first_suspect(ripe: Sequence[Ripe]) -> Suspect | None:
    """The first suspect of all queues; Garbled."""
    found = [
        (-_orderable(priority), wake_at, each.queue, losses)
        for each in ripe
        for priority, wake_at, losses in each.suspects
    ]
    if not found:
        return None
    priority, _, queue, losses = min(found)
    return Suspect(queue, -priority, losses)


def _claim_suspects(claim: ClaimRuns, known: dict[str, object], first: Suspect) -> Steps[list[str]]:
    """The first suspect of all queues, and those like it."""
    limit = suspects_at_once(claim.suspects, first.losses, claim.limit)
    alike = yield Query("suspects_like_it", known | {"queue": first.queue, "losses": first.losses, "limit": limit})
    return (yield from _take("claim_runs", known, [_claimable(run_id) for (run_id,) in alike.rows], limit))
