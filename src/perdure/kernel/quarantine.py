"""Quarantine: when the loss of a worker is held against a run.

In:   how often a run's worker was lost without progress, and which workers died with it as the only suspect.
Out:  whether it is a suspect, how long it is watched, and the report of one that is put into quarantine: with where it
      was when its worker was lost, as far as that was written down.

A loss says little: of all the runs a worker owned, one may have killed it, or none. So suspects are brought
back in groups; a group that is lost comes back in smaller ones, and in the end one at a time. Only the loss of a
worker that had a single suspect, and other runs beside it, is held against that one. A suspect that was alone with
its worker endangers nobody: it is tried again for ever, after pauses that grow.
"""

from typing import NamedTuple

import msgspec

# The indexes of the store know this number too.
SUSPECT_FROM = 2
QUARANTINE_FROM = 5
# How many suspects come back together, by how often they were lost; after that one at a time.
TOGETHER = {2: 100, 3: 10}
MOST_TOGETHER = max(TOGETHER.values())
# How long a worker watches a suspect that does not get on before it takes another one; and how much longer each time.
PATIENCE_MS = 100
LONGER = 4
LONGEST_PATIENCE_MS = 3_600_000
# How long a suspect that was alone with its worker rests before it is tried again; twice as long each time.
# The claims of SQLite know the longest one too.
FIRST_PAUSE_MS = 1000
LONGEST_PAUSE_MS = 300_000

# So many steps are named; a reader who sees more of them will not find the cause by reading on.
MOST_NAMED = 3

REMEDY = (
    "find out what ends the process: an activity that exits, takes all memory, or crashes a native library; "
    "fix that, restart the workers, then `perdure resume {id}`"
)


class Death(msgspec.Struct, frozen=True):
    """A worker that was lost with a run as its only suspect."""

    at: int
    pid: int
    host: str


def is_suspect(losses: int) -> bool:
    """Whether the run may be what its workers died of."""
    return losses >= SUSPECT_FROM


def suspects_at_once(wanted: int, losses: int, places: int) -> int:
    """How many suspects that were lost so often are claimed together; half of the places are for other runs."""
    return min(wanted, TOGETHER.get(losses, 1), max(1, places // 2))


def patience_ms(outlived: int) -> int:
    """How long a suspect is watched: longer than the last time, if it outlived that and was lost all the same."""
    return int(min(PATIENCE_MS * LONGER ** min(outlived, 99), LONGEST_PATIENCE_MS))


def pause_ms(losses: int) -> int:
    """How long a suspect rests that was alone with its worker, by how often it had been lost before."""
    return int(min(FIRST_PAUSE_MS * 2 ** min(losses - SUSPECT_FROM, 99), LONGEST_PAUSE_MS))


def times_lost(losses: int, outlived: int) -> int:
    """How often a run's workers died since it last got on: each watch that it outlived took a loss off the count."""
    return losses + outlived


def told_alone(times: int) -> str:
    """Why a run is tried again after a pause."""
    often = "once" if times == 1 else f"{times} times"
    return f"its worker died {often} while it ran; it, or somebody from outside, ended it"


def quarantine_report(workflow_id: str, deaths: tuple[Death, ...], under_way: str | None = None) -> str:
    """Why the run is held, and what to do, as JSON."""
    trouble = (
        f"{len(deaths)} workers died with this run, one after the other, and took others with them, each time in the "
        "same calls and with no other run that could have been the cause"
    )
    report = {
        "trouble": trouble,
        "under_way": under_way,
        "deaths": deaths,
        "remedy": REMEDY.format(id=workflow_id),
    }
    return msgspec.json.encode(report).decode()


# Where it was: what a suspect is about to do is written down before it begins; else the last event says where to look.


class Tried(NamedTuple):
    """An activity whose attempts have failed so far."""

    place: str
    name: str
    attempts: int


class LastEvent(NamedTuple):
    """The last event of a run after its start."""

    seq: int
    kind: str
    place: str


class _Wait(msgspec.Struct):
    """What a worker has noted of a wait; what else stands there is not for this."""

    kind: str
    place: str
    name: str | None = None


def places_of(waiting: str | None, tried: list[Tried]) -> list[str]:
    """The places that may still be under way; those with an outcome are not."""
    return [*(wait.place for wait in _waits(waiting)), *(each.place for each in tried)]


def where_it_was(waiting: str | None, tried: list[Tried], ended: set[str], last: LastEvent | None) -> str:
    """Where the run was, in words: the steps under way, if they are known, and what it had done before."""
    failed = {each.place: each for each in tried}
    steps = {wait.place: _step(wait, failed.get(wait.place)) for wait in _waits(waiting)}
    steps |= {each.place: _step(_Wait("activity", each.place, each.name), each) for each in tried}
    named = [step for place, step in steps.items() if place not in ended]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    before = "its start" if last is None else f"event {last.seq}, {last.kind} at {last.place or 'the run itself'}"
    if not named:
        return f"somewhere after {before}; what it began then was not written down"
    return f"in {', '.join(named[:MOST_NAMED])}{more}, after {before}"


def _step(wait: _Wait, tried: Tried | None) -> str:
    kind = wait.kind.replace("_", " ")
    named = f"the {kind} {wait.name} at {wait.place}" if wait.name is not None else f"the {kind} at {wait.place}"
    return named if tried is None else f"{named}, attempt {tried.attempts + 1}"


def _waits(waiting: str | None) -> list[_Wait]:
    try:
        found = msgspec.json.decode(waiting or "[]", type=list[_Wait])
    except msgspec.DecodeError:
        # A note that cannot be read must not keep the runs of a lost worker from being freed.
        return []
    return [wait for wait in found if wait.place]
