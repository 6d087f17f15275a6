"""A brief worker: one for the length of a call, with a row, a lease and an epoch of its own.

In:   how to make an engine and a worker, and how long they may work.
Out:  an open engine whose worker takes only what it is told to; at the end everything is handed back.
A process that is killed or frozen in the middle is a dead worker like any other.
"""

import asyncio
from collections.abc import Callable, Collection
from types import TracebackType
from typing import TYPE_CHECKING, Self

from perdure.app.closing import close_fully
from perdure.app.shutdown import Shutdown
from perdure.engine.engine import StoreEngine

if TYPE_CHECKING:
    from perdure.worker.worker import Worker

# Of the budget so much is kept for handing back, or a fifth if that is less.
RESERVE_MS = 1000
# How often it is looked whether runs have come to wait, in seconds: soon at first, then less often.
FIRST_LOOK, LAST_LOOK = 0.002, 0.02


class BriefWorker:
    """Works until its runs wait or have ended, or the budget is used up."""

    def __init__(
        self,
        engine: StoreEngine,
        namespace: str,
        queues: tuple[str, ...],
        make: "Callable[[StoreEngine], Worker]",
        budget_ms: int,
        shutdown: Shutdown | None,
    ) -> None:
        self.engine = engine
        self.namespace = namespace
        self._queues = queues
        self._make = make
        self._shutdown = shutdown
        self.until = engine.clock.monotonic() + budget_ms - min(RESERVE_MS, budget_ms // 5)

    async def __aenter__(self) -> Self:
        self.worker = self._make(self.engine)
        await self.engine.open(self.namespace, self.worker, self._queues)
        if self._shutdown is not None:
            self._shutdown.watch(self, lambda: self.worker.close(0))
        try:
            await self.worker.begin()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        try:
            await close_fully(self._hand_back(), self.worker.hurry)
        finally:
            if self._shutdown is not None:
                await self._shutdown.until_ended()
                self._shutdown.forget(self)

    async def _hand_back(self) -> None:
        try:
            await self.worker.close(0)
        finally:
            await self.engine.close()

    @property
    def is_over(self) -> bool:
        """Whether nothing more may be begun."""
        return self.engine.clock.monotonic() >= self.until

    async def until_left(self, run_ids: Collection[str]) -> None:
        """Until none of these runs lives here any more, for those that wait are parked; or the time is over."""
        look = FIRST_LOOK
        while not self.is_over:
            self.worker.park_waiting()
            if not any(map(self.worker.is_live, run_ids)):
                return
            await asyncio.sleep(look)
            look = min(2 * look, LAST_LOOK)
