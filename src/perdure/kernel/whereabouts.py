"""Whereabouts: what a run was doing when its worker was lost, as far as that was written down.

In:   what it was last seen to wait for, its failed attempts, the places that have an outcome, its last event.
Out:  a sentence for whoever has to find out what its workers died of.
What a suspect is about to do is written down before it begins; else the last event says where to look.
"""

from typing import NamedTuple

import msgspec

# So many steps are named; whoever has more under way will not find the cause by reading on.
MOST_NAMED = 3


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
