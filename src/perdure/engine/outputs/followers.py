"""Followers: those in this process who wait for more of streams, or of histories.

In:   the numbers they have come to; what is written in this process.
Out:  a word to each when there is more. One look at the database serves all of them, however many they are; of what is
      published in this process they are told at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from perdure.clock import Alarm, Clock
from perdure.engine.background import Background
from perdure.errors import NotOpen, PerdureError
from perdure.stores.port import Store
from perdure.stores.records import RunRow

# How often those who wait for more have it looked at; when many wait looks are rarer, and take one part in so many of
# the time.
FOLLOW_MS, RAREST_MS, SHARE = 100, 1000, 20


class Waiting:
    """Somebody who waits for more of a stream than a number; a history has no name."""

    __slots__ = ("after", "future", "name", "run_id")

    def __init__(self, run_id: str, name: str, after: int) -> None:
        self.run_id = run_id
        self.name = name
        self.after = after
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


# A look at the runs of those who wait: whether there is more for one of them.
Look: TypeAlias = Callable[[Sequence[str]], Awaitable[Callable[[Waiting], bool]]]


class Followers:
    """Those in this process who wait for more; one look serves all of them."""

    def __init__(self, look: Look, clock: Clock, background: Background) -> None:
        self._look_at = look
        self._clock = clock
        self._background = background
        self.by_run: dict[str, list[Waiting]] = {}
        # Between two looks, and None when there is none to come.
        self._alarm: Alarm | None = None
        self._is_looking = False
        self._took_ms = 0

    async def wait(self, run_id: str, name: str, after: int) -> None:
        """Until there is more, or the run has ended, or may have."""
        if self._background.is_closed:
            raise NotOpen
        waiting = Waiting(run_id, name, after)
        self.by_run.setdefault(run_id, []).append(waiting)
        self._set_alarm()
        try:
            await waiting.future
        finally:
            self._forget(waiting)

    def _forget(self, waiting: Waiting) -> None:
        left = [each for each in self.by_run.get(waiting.run_id, ()) if each is not waiting]
        if left:
            self.by_run[waiting.run_id] = left
        else:
            self.by_run.pop(waiting.run_id, None)

    def look_at_once(self, run_id: str) -> None:
        """Something was published in a run, or it has ended: let all look who wait for it."""
        for waiting in self.by_run.get(run_id, ()):
            _tell(waiting)

    def _set_alarm(self) -> None:
        """Look in a while, if anybody waits by then."""
        if self._alarm is None and not self._is_looking and self.by_run:
            wait = max(FOLLOW_MS, min(SHARE * self._took_ms, RAREST_MS))
            self._alarm = self._clock.call_at(self._clock.now() + wait, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self.by_run and not self._background.is_closed:
            self._is_looking = True
            self._background.spawn(self._look_safely())

    async def _look_safely(self) -> None:
        try:
            await self._look()
        except PerdureError as error:
            for waiting in self._all():
                if not waiting.future.done():
                    waiting.future.set_exception(error)
        finally:
            self._is_looking = False
        self._set_alarm()

    async def _look(self) -> None:
        began = self._clock.monotonic()
        has_more = await self._look_at(list(self.by_run))
        for waiting in self._all():
            if has_more(waiting):
                _tell(waiting)
        self._took_ms = self._clock.monotonic() - began

    def _all(self) -> list[Waiting]:
        return [waiting for of_run in self.by_run.values() for waiting in of_run]

    def close(self) -> None:
        """Tell everybody that nothing is waited for any more."""
        if self._alarm is not None:
            self._alarm.cancel()
        for waiting in self._all():
            if not waiting.future.done():
                waiting.future.set_exception(NotOpen())


def _tell(waiting: Waiting) -> None:
    if not waiting.future.done():
        waiting.future.set_result(None)


def _has_ended(row: object) -> bool:
    """Whether a run has ended; one that cannot be read is looked at by who waits for it, and told of there."""
    return not isinstance(row, RunRow) or row.closed_at is not None


def look_at_streams(store: Store) -> Look:
    """Looks for more of streams, and for runs that have ended."""

    async def look(run_ids: Sequence[str]) -> Callable[[Waiting], bool]:
        # First who has ended: what was published before that is seen by who reads after it.
        ended = {row.run_id for row in await store.reads.ended_or_held(run_ids) if _has_ended(row)}
        heads = await store.reads.channels.heads(run_ids)

        def has_more(waiting: Waiting) -> bool:
            there = heads.get(waiting.run_id, ())
            return waiting.run_id in ended or any(
                head.n > waiting.after for head in there if head.name == waiting.name and not head.source
            )

        return has_more

    return look


def look_at_histories(store: Store) -> Look:
    """Looks for more events of runs; one that is not there any more has more, so that its reader learns of it."""

    async def look(run_ids: Sequence[str]) -> Callable[[Waiting], bool]:
        open_at = await store.reads.channels.open_histories(run_ids)
        return lambda waiting: open_at.get(waiting.run_id, waiting.after + 1) > waiting.after

    return look
