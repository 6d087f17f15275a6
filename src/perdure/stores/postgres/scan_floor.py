"""Floors: where looks for ripe runs begin, while dead rows lie before the first one that can be claimed.

In:   questions after ripe runs, and how long each of them took.
Out:  the same questions, from a time on before which nothing was there.

As long as somebody has a snapshot open the index keeps every run that was ever ripe, and each look would walk over all
of them. So after a slow one the next begin where its first run was. Every now and then it is looked from the start, by
somebody whom no claim waits for: a transaction that was open for long may have left a run with a time that has passed.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from perdure.clock import elapsed
from perdure.stores.rules.claims import MOST_LEVELS
from perdure.stores.rules.questions import Found

# A look that takes longer may have walked over dead rows.
SLOW_SECONDS = 0.005
# Whoever writes a run has its time from before its commit, and from a clock of its own.
LATE_MS = 2000
# Looks from the start take a fiftieth of the time; but there is one in every minute.
TIMES_AS_LONG, LEAST_SECONDS, MOST_SECONDS = 50, 1.0, 60.0
LOWEST, HIGHEST = -(2**63), 2**63 - 1
# What makes two looks the same.
LEVEL = ("queue", "priority", "namespace", "workflows")

Level: TypeAlias = tuple[object, ...]
Ask: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[Found]]


class Floors:
    """The floors of each queue and priority, as one process has learnt them."""

    # Not where time is virtual: a busy machine is slow as well, and looks from the start come by real time.
    learns = True

    def __init__(self) -> None:
        self._floors: dict[Level, int] = {}
        # The priorities that were seen in a queue in which it takes long to find them.
        self._seen: dict[object, set[int]] = {}
        self._look_at = 0.0
        self._was_slow = False

    def must_be_learnt(self) -> bool:
        """Whether looks must be made one by one: there are floors, or it is to be found out which of them is slow."""
        was_slow, self._was_slow = self._was_slow, False
        return was_slow or bool(self._floors) or bool(self._seen)

    def note_together(self, seconds: float) -> None:
        """Several looks took so long together."""
        self._was_slow = self.learns and seconds > SLOW_SECONDS

    async def ask(self, ask: Ask, name: str, parameters: Mapping[str, object]) -> Found:
        """Ask for ripe runs, from the floor on."""
        if name == "ripe_levels":
            return await self._levels(ask, parameters)
        if name == "next_wakes":
            return await self._next_wakes(ask, parameters)
        level = _level_of(parameters)
        since, began = self._floors.get(level, LOWEST), elapsed()
        found = await ask(name, {**parameters, "since": since})
        # What the same transaction has claimed is still there if that is undone: only the look before a claim counts.
        if name == "ripest" and elapsed() - began > SLOW_SECONDS and self.learns:
            await self._raise(ask, parameters, level, since)
        return found

    async def _raise(self, ask: Ask, parameters: Mapping[str, object], level: Level, since: int) -> None:
        """Begin a bit before the first run, or now, if it is that run that is slow to find."""
        now = parameters["now"]
        assert isinstance(now, int)
        if now - since < 2 * LATE_MS:
            return
        began = elapsed()
        (first,) = (await _next_of(ask, parameters, since)).first
        # Whoever looked from the start meanwhile may have found one before the floor.
        if elapsed() - began > SLOW_SECONDS and self._floors.get(level, LOWEST) == since:
            self._floors[level] = max(since, min(now, now if first is None else first) - LATE_MS)
            self._look_at = self._look_at or elapsed() + LEAST_SECONDS

    async def _next_wakes(self, ask: Ask, parameters: Mapping[str, object]) -> Found:
        """When the next run becomes ripe: from the start, or level by level where there are floors.

        Where there are more levels than are looked at, by time alone.
        """
        asked = {"queue": parameters["queue"], "now": HIGHEST, "most_levels": MOST_LEVELS}
        levels = (await self._levels(ask, asked)).rows
        if len(levels) >= MOST_LEVELS:
            return await ask("next_wakes_of_all", parameters)
        priorities = [priority for priority, _ in levels]
        if not priorities:
            return Found(("min",), (), 0)
        if not self._floors:
            return await ask("next_wakes", {**parameters, "priorities": priorities, "since": LOWEST})
        found: list[Sequence[int | None]] = []
        for priority in priorities:
            one = {**parameters, "priority": priority}
            found += (await _next_of(ask, one, self._floors.get(_level_of(one), LOWEST))).rows
        return Found(("min",), [min(found, key=_never_last)], 1)

    async def _levels(self, ask: Ask, parameters: Mapping[str, object]) -> Found:
        """The priorities of a queue; those that were seen before are not looked for among dead rows."""
        queue = parameters["queue"]
        if len(self._seen.get(queue, ())) > MOST_LEVELS:
            del self._seen[queue]
        if (seen := self._seen.get(queue)) is not None:
            ranks = [LOWEST, *sorted(seen), HIGHEST]
            gaps = {"queue": queue, "above": ranks[:-1], "below": ranks[1:]}
            seen.update(priority for (priority,) in (await ask("levels_between", gaps)).rows)
            levels = [(priority, True) for priority in sorted(seen, reverse=True)]
            return Found(("priority", "is_due"), levels, len(levels))
        began = elapsed()
        found = await ask("ripe_levels", parameters)
        # Where there are more priorities than are looked at, they are not known.
        if elapsed() - began > SLOW_SECONDS and self.learns and found.count < MOST_LEVELS:
            # Most runs have none of their own.
            self._seen[queue] = {0, *(priority for priority, _ in found.rows)}
            self._look_at = self._look_at or elapsed() + LEAST_SECONDS
        return found

    # From the start

    @property
    def is_look_due(self) -> bool:
        """Whether it is time to look from the start; never as long as looks are quick."""
        return 0.0 < self._look_at <= elapsed()

    async def look(self, ask: Ask) -> None:
        """Look from the start: floors go down to what is there, or away where they are not needed any more."""
        began = elapsed()
        try:
            for queue in list(self._seen):
                await self._look_for_levels(ask, queue)
            for level in list(self._floors):
                await self._lower(ask, level)
        finally:
            pause = min(max((elapsed() - began) * TIMES_AS_LONG, LEAST_SECONDS), MOST_SECONDS)
            self._look_at = elapsed() + pause if self._floors or self._seen else 0.0

    async def _look_for_levels(self, ask: Ask, queue: object) -> None:
        began = elapsed()
        found = await ask("ripe_levels", {"queue": queue, "now": HIGHEST, "most_levels": MOST_LEVELS})
        if elapsed() - began <= SLOW_SECONDS or len(self._seen[queue]) > MOST_LEVELS:
            del self._seen[queue]
        else:
            self._seen[queue].update(priority for priority, _ in found.rows)

    async def _lower(self, ask: Ask, level: Level) -> None:
        began = elapsed()
        (first,) = (await _next_of(ask, dict(zip(LEVEL, level, strict=True)), LOWEST)).first
        if elapsed() - began <= SLOW_SECONDS:
            del self._floors[level]
        elif first is not None:
            self._floors[level] = min(self._floors[level], first)


async def _next_of(ask: Ask, parameters: Mapping[str, object], since: int) -> Found:
    """When the next run of one level becomes ripe, from a time on."""
    return await ask("next_wakes", {**parameters, "priorities": [parameters["priority"]], "since": since})


def _never_last(row: Sequence[int | None]) -> tuple[bool, int]:
    return row[0] is None, row[0] or 0


def _level_of(parameters: Mapping[str, object]) -> Level:
    found = [parameters[key] for key in LEVEL]
    return tuple(tuple(each) if isinstance(each, list) else each for each in found)
