"""Background: what the engine does beside requests, between opening and closing.

In:   coroutines that nobody waits for.
Out:  tasks that end with the engine at the latest; pauses while the database is unavailable.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from perdure.clock import Clock, pause


class Background:
    """Runs tasks, and knows whether the engine is closed and whether something waits for the database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._pauses = 0
        self.is_closed = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do this beside everything else."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in list(self._tasks):
            task.cancel()

    async def stall(self, ms: int) -> None:
        """Wait for a database that is unavailable."""
        self._pauses += 1
        try:
            await pause(self._clock, ms)
        finally:
            self._pauses -= 1

    @property
    def is_idle(self) -> bool:
        """Whether no task is under way."""
        return not self._tasks

    @property
    def is_stalled(self) -> bool:
        """Whether something waits for a database that is unavailable."""
        return self._pauses > 0
