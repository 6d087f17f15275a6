"""The event loop of a simulated process: real tasks and futures, time that somebody else moves.

In:   callbacks and timers of asyncio, and of the engine.
Out:  `drain` runs everything that is ready; `fire` what is due by now.

Nothing in here waits or decides. What reaches the loop from outside, an answer of the
database or the end of an activity, is handed in one at a time and drained, so how many
turns a Python version needs for the same work makes no difference.
"""

import asyncio
import contextvars
import heapq
import itertools
import math
from asyncio.events import Handle, TimerHandle, _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

# More callbacks than that in one drain are a loop that never ends.
MOST_CALLBACKS = 100_000


class NeverCalm(Exception):  # noqa: N818 - it names the trouble
    """A simulated process runs on and on without waiting for anything."""


class NodeLoop(asyncio.AbstractEventLoop):
    """One simulated process's loop; `now` tells the milliseconds that have passed, `turn` is told when it runs."""

    # Python 3.11 cannot, and a seed is to be the same schedule everywhere.
    starts_eagerly = False

    def __init__(self, now: Callable[[], int], turn: Callable[[], None]) -> None:
        self._now = now
        self._turn = turn
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[int, int, TimerHandle]] = []
        self._numbers = itertools.count()
        self._is_closed = False
        # Asyncio's own set has those of all loops there have ever been.
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.troubles: list[str] = []

    # Running

    def drain(self) -> None:
        """Run everything that is ready, and what that makes ready, until nothing is."""
        ready, done = self._ready, 0
        if not ready:
            return
        self._turn()
        outer = _get_running_loop()
        _set_running_loop(self)
        try:
            while ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                done += 1
                if done > MOST_CALLBACKS:
                    raise NeverCalm
        finally:
            _set_running_loop(outer)

    def fire(self) -> bool:
        """Run the timers that are due by now, in their order; whether there were any."""
        now, due = self._now(), []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            if not timer.cancelled():
                self._ready.append(timer)
        self.drain()
        return bool(due)

    def timers(self) -> Iterator[tuple[int, Callable[..., object]]]:
        """When which callback is due, in no order."""
        for due, _, timer in self._timers:
            if not timer.cancelled():
                yield due, timer._callback  # type: ignore[attr-defined]  # as above

    def is_due(self, now: int) -> bool:
        """Whether the time of a timer has come."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            if not timers[0][2].cancelled():
                return True
            heapq.heappop(timers)
        return False

    def run(self, callback: Callable[..., object], *args: object) -> None:
        """Call this on the loop, and run what follows from it."""
        self.call_soon(callback, *args)
        self.drain()

    def call_now(self, callback: Callable[[], object]) -> None:
        """Call this on the loop, before anything that is ready."""
        outer = _get_running_loop()
        _set_running_loop(self)
        try:
            callback()
        finally:
            _set_running_loop(outer)

    def end(self) -> None:
        """Unwind every task, as far as they will go, and take no more work."""
        for _ in range(10):
            tasks = sorted((task for task in self._tasks if not task.done()), key=lambda task: task.get_name())
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.drain()
        self._is_closed = True
        self._timers.clear()
        self._ready.clear()

    # What asyncio asks of a loop

    def call_soon(  # type: ignore[override]  # wider
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        if not self._is_closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_later(  # type: ignore[override]  # wider
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> TimerHandle:
        return self._timer(self._now() + math.ceil(round(delay * 1000, 3)), callback, args, context)

    def call_at(  # type: ignore[override]  # wider
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> TimerHandle:
        return self._timer(math.ceil(round(when * 1000, 3)), callback, args, context)

    def _timer(
        self, due: int, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> TimerHandle:
        timer = TimerHandle(due / 1000, callback, args, self, context)
        heapq.heappush(self._timers, (due, next(self._numbers), timer))
        return timer

    def time(self) -> float:
        return self._now() / 1000

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        options.setdefault("name", f"task-{next(self._numbers):09}")
        task = asyncio.Task(coro, loop=self, **options)
        self._tasks.add(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self.troubles.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_closed

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Asyncio tells of a timer that was called off; it is passed over when its time comes."""
