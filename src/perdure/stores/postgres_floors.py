"""Floors: where looks for ripe runs begin, while dead rows lie before the first one that is there.

In:   questions after ripe runs, and how long each of them took.
Out:  the same questions, from a time on before which nothing was there.

As long as somebody has a snapshot open the index keeps every run that was ever ripe, and each look would walk over all
of them. So after a slow one the next begin where its first run was. Every now and then one begins at the start again:
a transaction that was open for long may have left a run with a time that has passed.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

from perdure.clock import elapsed
from perdure.stores.steps import Found

# A look that takes longer may have walked over dead rows.
SLOW_SECONDS = 0.005
# Whoever writes a run has its time from before its commit, and from a clock of its own.
LATE_MS = 2000
# Looks from the start take a fiftieth of the time; but there is one in every minute.
TIMES_AS_LONG, LEAST_SECONDS, MOST_SECONDS = 50, 1.0, 60.0
LOWEST, HIGHEST = -(2**63), 2**63 - 1
# More priorities than this nobody keeps in mind.
MOST_LEVELS = 50

Level: TypeAlias = tuple[object, object]
Ask: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[Found]]


class Floor(NamedTuple):
    """Before this time nothing was there; good until a moment of the clock that nobody sets."""

    since: int
    until: float


class Floors:
    """The floors of each queue and priority, as one process has learnt them."""

    def __init__(self) -> None:
        self._floors: dict[Level, Floor] = {}
        # The priorities that were seen in a queue, and until when there is no need to look for all of them.
        self._seen: dict[object, set[int]] = {}
        self._known_until: dict[object, float] = {}

    async def ask(self, ask: Ask, name: str, parameters: Mapping[str, object]) -> Found:
        """Ask for ripe runs, from the floor on."""
        if name == "ripe_levels":
            return await self._levels(ask, parameters)
        level = (parameters["queue"], parameters["priority"])
        floor, began = self._floor(level), elapsed()
        found = await ask(name, {**parameters, "since": floor.since})
        # What the same transaction has claimed is still there if that is undone: only the look before a claim counts.
        if name == "ripest" and elapsed() - began > SLOW_SECONDS:
            await self._raise(ask, parameters, level, floor)
        return found

    def _floor(self, level: Level) -> Floor:
        floor = self._floors.get(level)
        if floor is None or floor.until < elapsed():
            self._floors.pop(level, None)
            return Floor(LOWEST, 0.0)
        return floor

    async def _raise(self, ask: Ask, parameters: Mapping[str, object], level: Level, floor: Floor) -> None:
        """Begin a bit before the first run, or now, if it is that run that is slow to find."""
        now = parameters["now"]
        assert isinstance(now, int)
        if now - floor.since < 2 * LATE_MS:
            return
        began = elapsed()
        first = (await ask("first_ripe", {**parameters, "since": floor.since})).first
        took = elapsed() - began
        if took > SLOW_SECONDS:
            since = min(now, now if first is None else first[0]) - LATE_MS
            self._floors[level] = Floor(max(since, floor.since), floor.until or _next_full_look(took))

    async def _levels(self, ask: Ask, parameters: Mapping[str, object]) -> Found:
        """The priorities of a queue; those that were seen before are not looked for among dead rows."""
        queue = parameters["queue"]
        seen = self._seen.setdefault(queue, {0})
        if self._known_until.get(queue, 0.0) > elapsed():
            ranks = [LOWEST, *sorted(seen), HIGHEST]
            gaps = {"queue": queue, "above": ranks[:-1], "below": ranks[1:]}
            seen.update(priority for (priority,) in (await ask("levels_between", gaps)).rows)
            return Found(("priority",), [(priority,) for priority in sorted(seen, reverse=True)], len(seen))
        began = elapsed()
        found = await ask("ripe_levels", parameters)
        took = elapsed() - began
        self._seen[queue] = seen = {0, *seen, *(priority for (priority,) in found.rows)}
        if took > SLOW_SECONDS and len(seen) <= MOST_LEVELS:
            self._known_until[queue] = _next_full_look(took)
        return found


def _next_full_look(took: float) -> float:
    return elapsed() + min(max(took * TIMES_AS_LONG, LEAST_SECONDS), MOST_SECONDS)
