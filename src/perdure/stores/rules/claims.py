"""Claims: which of the ripe runs a worker takes, whatever the database.

In:   a claim, and a database that answers inside a transaction.
Out:  the ids of the runs that were taken.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.kernel.quarantine import suspects_at_once
from perdure.stores.answers import Answer, Applied
from perdure.stores.operations import ClaimRuns
from perdure.stores.rows import Garbled
from perdure.stores.rules.changes import log_changes
from perdure.stores.rules.questions import Query, Several, Steps

# So many times as many ripe runs as are wanted are looked at, before each workflow is looked for by itself.
WINDOWS = 4
# So many levels of a queue are looked at one by one; what lies below them is looked for by its workflow.
MOST_LEVELS = 16
# So many timers that are due take their turns before a claim; what is due beyond them follows with the next one.
MOST_DUE = 1000
# The priority of runs that have none of their own.
USUAL = 0
LOOKS_FOR_A_CLAIM = ("ripe_levels", "first_suspect", "ripest")
LOOKS_FOR_NO_SUSPECTS = ("ripe_levels", "ripest")


class Ripe(NamedTuple):
    """What is ripe in one queue: its highest levels, the first suspect if any, and the first of the usual level.

    Of each level whether something in it is due: all of it may sleep.
    """

    queue: str
    levels: Sequence[tuple[int, bool]]
    suspects: Sequence[tuple[int, int, int]]
    usual: Sequence[tuple[str, bool]]


class Level(NamedTuple):
    """The runs of one queue and one priority; or, where a queue has more levels than are looked at, all below it."""

    of: Ripe
    priority: int
    is_rest: bool


class Suspect(NamedTuple):
    """The first suspect there is, and how often it was lost."""

    queue: str
    priority: int
    losses: int


def claim_runs(claim: ClaimRuns) -> Steps[Answer]:
    """Take ripe runs; Garbled."""
    taken = yield from _claim(claim)
    yield from log_changes(taken, claim.now)
    return Applied(taken)


def _claim(claim: ClaimRuns) -> Steps[list[str]]:
    """Level by level: the highest priority first, and within one the queues share alike."""
    known = {
        "worker_id": claim.worker_id,
        "namespace": claim.namespace,
        "workflows": claim.workflows,
        "now": claim.now,
    }
    ripe = yield from look(claim, known)
    levels = levels_of(ripe)
    suspect = first_suspect(ripe)
    if suspect is None:
        return (yield from _claim_levels(claim, known, levels, claim.limit))
    # The only place goes to runs of higher priority, if there is one that can be taken: most of a level may sleep.
    is_only, higher = claim.limit <= 1, suspect.priority
    ahead = [level for level in levels if is_only and level.priority > higher and not level.is_rest]
    taken = yield from _claim_levels(claim, known, ahead, claim.limit)
    if not taken:
        taken = yield from _claim_suspects(claim, known, suspect)
        others = [level for level in levels if level not in ahead]
        taken += yield from _claim_levels(claim, known, others, claim.limit - len(taken))
    return taken


def look(claim: ClaimRuns, known: dict[str, object]) -> Steps[list[Ripe]]:
    """What is ripe in each queue. Most runs have no priority of their own, so the first of those are asked for too."""
    names = LOOKS_FOR_A_CLAIM if claim.suspects else LOOKS_FOR_NO_SUSPECTS
    ripe = []
    for queue in claim.queues:
        asked = {"queue": queue, "priority": USUAL, "window": WINDOWS * claim.limit, "most_levels": MOST_LEVELS}
        yield Query("ripen", {"queue": queue, "now": claim.now, "most_due": MOST_DUE})
        levels, *suspects, usual = (yield Several(names, known | asked)).rows
        ripe.append(Ripe(queue, levels, suspects[0] if suspects else (), usual))
    return ripe


def levels_of(ripe: Sequence[Ripe]) -> list[Level]:
    """The levels in which something is due, the highest first; Garbled."""
    levels = [Level(of, _orderable(each), is_rest=False) for of in ripe for each, is_due in of.levels if is_due]
    cut = [(of, min(each for each, _ in of.levels)) for of in ripe if len(of.levels) >= MOST_LEVELS]
    levels += [Level(of, lowest, is_rest=True) for of, lowest in cut]
    return sorted(levels, key=lambda level: (-level.priority, level.is_rest))


def _claim_levels(claim: ClaimRuns, known: dict[str, object], levels: Sequence[Level], limit: int) -> Steps[list[str]]:
    """Level by level, until there is no room."""
    taken: list[str] = []
    for place, level in enumerate(levels):
        share = -(-(limit - len(taken)) // _sharers(levels[place:]))
        if share <= 0:
            break
        asked = known | {"queue": level.of.queue, "priority": level.priority, "limit": share}
        if level.is_rest:
            taken += yield from _claim_rest(claim.workflows, asked, share)
        else:
            seen = level.of.usual if level.priority == USUAL else None
            taken += yield from _claim_level(claim.workflows, asked, share, seen)
    return taken


def _sharers(levels: Sequence[Level]) -> int:
    """How many queues share with the first level: those that have the same one; with a rest, all that have any."""
    first = levels[0]
    return len({each.of.queue for each in levels if first.is_rest or each[1:] == first[1:]})


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


def _claim_rest(workflows: Sequence[str], below: dict[str, object], limit: int) -> Steps[list[str]]:
    """Take the ripest runs below a level that this worker has code for, whatever their priorities."""
    each: list[tuple[Any, ...]] = []
    for name in workflows:
        found = (yield Query("ripest_below", below | {"workflow": name, "window": WINDOWS * limit})).rows
        each += [(-_orderable(priority), *row) for priority, *row in found]
    run_ids = [_claimable(run_id) for _, _, _, run_id in sorted(each)]
    return (yield from _take("claim_runs", below, run_ids, limit))


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
