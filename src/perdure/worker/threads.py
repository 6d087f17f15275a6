"""Threads for plain functions.

Daemon threads, unlike those of concurrent.futures: an activity that outlasts its
worker must not keep the process from ending.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

Job: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Threads:
    """Up to so many threads, made when they are needed; further work waits for a free one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made = 0
        self._idle = threading.Semaphore(0)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    def run(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """A future of the running loop for what the work returns or raises."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, future))
        if not self._idle.acquire(blocking=False) and self._made < self._most:
            self._made += 1
            threading.Thread(target=self._work, name=f"perdure-activity-{self._made}", daemon=True).start()
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end with their work."""
        for _ in range(self._made):
            self._jobs.put(None)

    def _next(self) -> Job | None:
        try:
            return self._jobs.get_nowait()
        except queue.Empty:
            self._idle.release()
            return self._jobs.get()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            work, future = job
            if future.cancelled():
                continue  # Called off while it waited for a thread.
            error: BaseException | None = None
            value = None
            try:
                value = work()
            except BaseException as raised:  # noqa: BLE001 - it is the outcome of the work, not of the thread
                error = raised
            try:
                future.get_loop().call_soon_threadsafe(partial(_settle, future, error, value))
            except RuntimeError:
                return  # The loop is closed: nobody is there to hear of it.
            del job, work, future, error, value


def _settle(future: "asyncio.Future[Any]", error: BaseException | None, value: Any) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(f"the activity raised {error!r}"))
    else:
        future.set_exception(error)
