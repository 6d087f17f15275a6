"""The thread behind a sync bridge: an event loop of its own, and calls that wait for it.

In:   a Perdure to open there, and coroutines to run, from any thread.
Out:  what they return or raise, in the thread that asked.
Knows nothing of what is called.
"""

import asyncio
import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from perdure.app.open_apps import Home, refuse_in_workflows
from perdure.errors import NotOpen, OpenElsewhere, WouldDeadlock

T = TypeVar("T")

# How a `with` block was left: as `__exit__` is told.
Left: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class AsyncApp(Protocol):
    """A Perdure, as the bridge sees it; what else it can do is called by the generated classes alone."""

    url: str
    namespace: str
    _home: Home
    _is_worker: bool

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ThreadCall(Generic[T]):
    """A coroutine on its way through the loop, and a lock that is free once it is through."""

    __slots__ = ("_done", "_work", "task")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self.task: asyncio.Task[T] | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def wait(self) -> None:
        # Ctrl-C gets through: a lock is waited for without the interpreter's lock, and signals are looked at.
        self._done.acquire()

    def begin(self, then: "Callable[[asyncio.Task[T]], object]") -> None:
        """Run it, on the loop."""
        self.task = asyncio.get_running_loop().create_task(self._work)
        self.task.add_done_callback(then)

    def end(self) -> None:
        """The loop is through with it, or will never come to it."""
        if self.task is None:
            self._work.close()
        else:
            look_at(self.task)
        self._done.release()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


def look_at(task: "asyncio.Task[Any]") -> None:
    """See a task's error, lest asyncio complain of it when nobody waits for it any more."""
    if task.done() and not task.cancelled():
        task.exception()


class LoopThread:
    """A Perdure that is opened, used and closed on an event loop in a thread of its own, once."""

    def __init__(self, app: AsyncApp) -> None:
        self._app = app
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._leaving: asyncio.Future[Left] = self._loop.create_future()
        self._is_settled = threading.Event()
        self._is_over = False
        self._trouble: BaseException | None = None
        self._calls: set[ThreadCall[Any]] = set()
        # Calls run in a context of their own: timers must not keep alive what a web request has in its context,
        # and workflow code must not see it, since a replay would not.
        self._context = contextvars.Context()
        # A daemon: a program that ends without closing must end. To the engine that is a kill, which loses nothing.
        self._thread = threading.Thread(target=self._run, name="perdure-sync", daemon=True)

    # In any thread

    def open(self) -> None:
        """Open the Perdure, or raise what keeps it from opening."""
        try:
            self._thread.start()
        except RuntimeError:
            self._loop.close()
            raise
        try:
            self._is_settled.wait()
        except BaseException:
            self.close((None, None, None))
            raise
        if self._is_over:
            self.close((None, None, None))

    def close(self, how: Left) -> None:
        """Close the Perdure, whose `with` block was left like this."""
        self._post(self._leave, how)
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and wait for what comes of it."""
        try:
            refuse_in_workflows()
            self.refuse_waiting_for_ever()
        except BaseException:
            work.close()
            raise
        call = self.begin(work)
        try:
            call.wait()
        except BaseException:
            self._post(call.cancel)
            raise
        if call.task is None or not call.task.done() or call.task.cancelled():
            raise NotOpen(self._app.url)
        return call.task.result()

    def begin(self, work: Coroutine[Any, Any, T]) -> ThreadCall[T]:
        """Run a coroutine on the loop, and wait for nothing."""
        call = ThreadCall(work)
        # Put down before the look: either this sees that the loop has ended, or the end sees this.
        self._calls.add(call)
        if self._is_over or not self._post(self._begin, call):
            self._end(call)
        return call

    @property
    def is_inherited(self) -> bool:
        """Whether another process opened this, from which this one was forked."""
        return os.getpid() != self._pid

    def refuse_waiting_for_ever(self) -> None:
        """Refuse in a forked child, and on the thread that would have to answer."""
        if self.is_inherited:
            raise OpenElsewhere(self._app.url, self._pid)
        if threading.get_ident() == self._thread.ident:
            raise WouldDeadlock(self._app.url)

    def _post(self, callback: Callable[..., object], *args: object) -> bool:
        """Call back on the loop; False when it is closed."""
        try:
            self._loop.call_soon_threadsafe(callback, *args, context=self._context)
        except RuntimeError:
            return False
        return True

    # In the thread of the loop

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that opens or closes this
            self._trouble = error
        finally:
            self._is_over = True
            for call in list(self._calls):
                self._end(call)
            self._is_settled.set()

    async def _live(self) -> None:
        try:
            await self._app.__aenter__()
            try:
                self._is_settled.set()
                how = await self._leaving
            except BaseException as error:
                # The loop is being ended from below: user code has raised KeyboardInterrupt in it.
                await self._app.__aexit__(type(error), error, error.__traceback__)
                raise
            await self._app.__aexit__(*how)
        finally:
            self._is_over = True

    def _leave(self, how: Left) -> None:
        if not self._leaving.done():
            self._leaving.set_result(how)

    def _begin(self, call: ThreadCall[Any]) -> None:
        if self._is_over:
            self._end(call)
        else:
            call.begin(lambda _: self._end(call))

    def _end(self, call: ThreadCall[Any]) -> None:
        # The thread that takes it out tells it; the others come too late.
        with contextlib.suppress(KeyError):
            self._calls.remove(call)
            call.end()
