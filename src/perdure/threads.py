"""Threads for plain functions.

Daemon threads, unlike those of concurrent.futures: an activity that outlasts its worker must
not keep the process from ending. And they take work as long as anybody gives them some; a pool
takes no more once the main thread has ended, while other threads may still be using the engine.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

Job: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Threads:
    """Up to so many threads, made when they are needed; further work waits for a free one."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._made: list[threading.Thread] = []
        # Threads that wait for work or are about to, and work that no thread has taken yet. Whoever ends its work
        # may take what another one was waiting for; counted apart, idle threads would be forgotten one by one.
        self._idle = 0
        self._waiting = 0
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    def run(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        """A future of the running loop for what the work returns or raises."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting += 1
            needs_one = self._waiting > self._idle and len(self._made) < self._most
            self._idle += needs_one
        self._jobs.put((work, future))
        if needs_one:
            thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._made) + 1}", daemon=True)
            thread.start()
            self._made.append(thread)
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end with their work."""
        for _ in self._made:
            self._jobs.put(None)

    def join(self) -> None:
        """Wait until all have ended, once they were closed."""
        for thread in self._made:
            thread.join()

    def _next(self) -> Job | None:
        job = self._jobs.get()
        with self._lock:
            self._idle -= 1
            self._waiting -= job is not None
        return job

    def _work(self) -> None:
        while (job := self._next()) is not None:
            work, future = job
            # One that was called off while it waited for a thread is not done.
            if not future.cancelled() and not _done(work, future):
                return
            del job, work, future
            with self._lock:
                self._idle += 1


def _done(work: Callable[[], Any], future: "asyncio.Future[Any]") -> bool:
    """Do the work and tell what came of it; False when nobody is there to hear of it."""
    try:
        value = work()
    except BaseException as error:  # noqa: BLE001 - it is the outcome of the work, not of the thread
        return tell_loop(future, None, error)
    return tell_loop(future, value)


def tell_loop(future: "asyncio.Future[Any]", value: object = None, error: BaseException | None = None) -> bool:
    """Settle a future from another thread; False when its loop is closed, and nobody is there to hear of it."""
    try:
        future.get_loop().call_soon_threadsafe(_settle, future, error, value)
    except RuntimeError:
        return False
    return True


def _settle(future: "asyncio.Future[Any]", error: BaseException | None, value: Any) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(f"the function raised {error!r}"))
    else:
        future.set_exception(error)
