"""Work beside the steps of runs: tasks of the worker's own loop, held until they are done."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    """Tasks that nobody awaits."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def abandon(self) -> None:
        """Let none of them go on."""
        for task in self._tasks:
            task.cancel()


async def others_had_their_turn(turns: int = 4) -> None:
    """Until the loop has turned a few times: a step of another run takes several."""
    for _ in range(turns):
        await asyncio.sleep(0)
