"""Publishing: values that activities publish, handed over to the engine in bulk.

In:   values, from tasks and threads, as fast as code makes them.
Out:  what has gathered since the loop had its last turn, as one change; of a task, for the run that called it.

At most so many values of a run are on their way to disk: beyond that a thread waits, and a task is told.
"""

import asyncio
import threading
from asyncio.events import _get_running_loop
from itertools import groupby

from perdure.engine.ports import Outputs, OwnedRun, Published
from perdure.errors import StreamFull
from perdure.kernel.traits import TASK_PREFIX
from perdure.worker.runtime import MOST_UNWRITTEN

# How often a thread that waits looks whether the worker is still there.
LOOK_SECONDS = 0.5


class Publishing:
    """What the activities of a worker publish by; made on the loop that the worker runs on."""

    def __init__(self, outputs: Outputs) -> None:
        self.outputs = outputs
        self.loop = asyncio.get_running_loop()

    def publish(self, owned: OwnedRun, source: str, attempt: int, name: str, body: str) -> None:
        """A value of an activity at a place of a run. Any thread may call."""
        outlet = owned.outlet
        if outlet is None:
            # Of several threads that come first, one makes it.
            outlet = owned.__dict__.setdefault("outlet", RunOutlet(self, owned))
        lost = 0 if owned.lost_attempts is None else owned.lost_attempts.get(source, 0)
        outlet.add((name, source, attempt + lost), body)


class RunOutlet:
    """The values of one run's activities that are not on disk yet."""

    def __init__(self, publishing: Publishing, owned: OwnedRun) -> None:
        self._outputs = publishing.outputs
        self._loop = publishing.loop
        self._owned = owned
        is_task = owned.workflow.startswith(TASK_PREFIX) and owned.traits.parent_id is not None
        self._run_id = str(owned.traits.parent_id) if is_task else owned.run_id
        self._changed = threading.Condition()
        self._values: list[tuple[tuple[str, str, int], str]] = []
        self._unwritten = 0

    def add(self, key: tuple[str, str, int], body: str) -> None:
        """Take a value in; when there is no room for it, wait in a thread, and raise StreamFull on the loop."""
        is_on_loop = _get_running_loop() is self._loop
        with self._changed:
            while self._unwritten >= MOST_UNWRITTEN:
                if is_on_loop:
                    raise StreamFull(self._owned.workflow_id, key[0], MOST_UNWRITTEN)
                if self._loop.is_closed():
                    # The worker is gone, and this attempt with it.
                    return
                self._changed.wait(LOOK_SECONDS)
            self._unwritten += 1
            self._values.append((key, body))
            is_first = len(self._values) == 1
        if is_first:
            self._hand_over(is_on_loop=is_on_loop)

    def _hand_over(self, *, is_on_loop: bool) -> None:
        """Have what gathers from now on written at the loop's next turn."""
        if is_on_loop:
            self._loop.call_soon(self.flush)
            return
        try:
            self._loop.call_soon_threadsafe(self.flush)
        except RuntimeError:
            # The loop is closed: the worker is gone, and others have its runs.
            return

    def flush(self) -> None:
        """Give what was published so far to the engine: before the outcome of the activity, or at the loop's turn."""
        with self._changed:
            values, self._values = self._values, []
        published = []
        for (name, source, attempt), found in groupby(values, lambda value: value[0]):
            bodies = tuple(body for _, body in found)
            one = Published(self._run_id, name, bodies, source=source, attempt=attempt, settled=self._written)
            published.append(one)
        if published:
            self._outputs.publish(self._owned, published)

    def _written(self, count: int) -> None:
        with self._changed:
            self._unwritten -= count
            self._changed.notify_all()
