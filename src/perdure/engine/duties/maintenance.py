"""Maintenance: what workers do for all now and then, done once and in bounds, for who has no worker that stays.

In:   how long it may take.
Out:  how many things each part did; of a part that failed, why. The others are done all the same.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from perdure.clock import Clock, pause
from perdure.engine.duties.duties import Duties
from perdure.engine.leasing.takeover import Takeover
from perdure.engine.stopping import Stopping

log = logging.getLogger("perdure.engine")


class MaintenancePart(NamedTuple):
    """A part of maintenance: its name, what people call the things it does, and the work, which answers how many."""

    name: str
    counted_as: str
    work: Callable[[], Awaitable[int]]
    # Whether what it waits for is not ours.
    waits_outside: bool = False


Counts: TypeAlias = dict[str, int]
Errors: TypeAlias = dict[str, str]


class Maintenance:
    """Rescue, ends by the clock, and every duty of this process."""

    def __init__(self, clock: Clock, takeover: Takeover, stopping: Stopping, duties: Duties) -> None:
        self._clock = clock
        self._takeover = takeover
        self._stopping = stopping
        self._duties = duties

    async def tick(self, namespace: str, until: int, *others: MaintenancePart) -> tuple[Counts, Errors]:
        """Do each part once, those of the caller first, by a time on the clock that nobody sets.

        Those that wait for somebody outside are the last, all beside each other: a receiver that hangs until the time
        is over would keep every other part from its turn, in each tick anew.
        """
        counts: Counts = {}
        errors: Errors = {}

        async def do(part: MaintenancePart) -> None:
            try:
                done = await self._within(until - self._clock.monotonic(), part)
                counts[part.counted_as] = counts.get(part.counted_as, 0) + done
            except Exception as error:  # noqa: BLE001 - one part that fails must not stop the others
                errors[part.name] = f"{type(error).__name__}: {error}"
                extra = {"event": "part_failed", "part": part.name}
                log.warning("maintenance of %r failed: %s", part.name, error, extra=extra)

        parts = (*others, *self._parts(namespace))
        for part in parts:
            if not part.waits_outside:
                await do(part)
        await asyncio.gather(*(do(part) for part in parts if part.waits_outside))
        return counts, errors

    def _parts(self, namespace: str) -> Iterator[MaintenancePart]:
        yield MaintenancePart("rescue", "rescued", self._takeover.rescue)
        yield MaintenancePart("overdue", "overdue", lambda: self._stopping.close_overdue(namespace, self._clock.now()))
        for name, loop in list(self._duties.loops.items()):
            work = partial(loop.once, namespace)
            yield MaintenancePart(name, loop.counted_as, work, loop.waits_outside)

    async def _within(self, ms: int, part: MaintenancePart) -> int:
        """What a part answers; TimeoutError when that is not there in time, or there is none left to begin with."""
        if ms <= 0:
            raise TimeoutError("it was not begun, for the budget was over")
        work, over = asyncio.ensure_future(part.work()), asyncio.ensure_future(pause(self._clock, ms))
        try:
            await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise TimeoutError("it was not done when the budget was over; the next tick goes on with it")
            return work.result()
        finally:
            for task in (work, over):
                task.cancel()
            await asyncio.gather(work, over, return_exceptions=True)
