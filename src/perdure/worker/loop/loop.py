"""A deterministic event loop: one per run, real asyncio inside.

In:   callbacks of the run's tasks, and timers that fire by events only.
Out:  tasks whose names and order depend on nothing but the workflow's code and its
      history; durable timers for everything asyncio would wait for by the clock.

The loop never waits. `drain` runs what is ready, in order, until nothing is; then
the next event is handed in. The tasks and futures are asyncio's own.
"""

import asyncio
import gc
import logging
import math
from asyncio.events import Handle, TimerHandle, _get_running_loop, _set_running_loop
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any, NoReturn, Protocol, TypeAlias

from perdure.errors import NotAllowedInWorkflow
from perdure.kernel.retry import LONGEST_SECONDS
from perdure.worker.loop import asyncio_patch
from perdure.worker.loop.asyncio_functions import RunFuture
from perdure.worker.loop.eviction import MOST_REFUSALS, Evicted, bury_unless_unwound
from perdure.worker.loop.exits import EXITS, is_for_the_process
from perdure.worker.loop.generators import Generators
from perdure.worker.loop.places import Branch, current_branch

log = logging.getLogger("perdure.worker")

# So many callbacks without waiting for anything are a loop that never ends.
MOST_CALLBACKS = 1_000_000

Work: TypeAlias = Coroutine[Any, Any, Any] | Generator[Any, None, Any]


class NeverWaits(Exception):
    """The workflow runs on and on without waiting for anything."""

    def __str__(self) -> str:
        return f"the workflow ran {MOST_CALLBACKS:,} callbacks without waiting for anything; it spins"


class RunTask(asyncio.Task[Any]):
    """A task that hashes by the run's salt and its number, so that sets of tasks have a fixed order."""

    _run_hash: int
    # What to add to the requests to cancel that asyncio counts.
    _more_requests = 0
    _is_to_be_cancelled_again = False

    def __hash__(self) -> int:
        return self._run_hash

    def cancel(self, msg: Any = None) -> bool:
        self.get_loop().has_cancelled = True  # type: ignore[attr-defined]  # a run's loop
        return super().cancel(msg)

    # Since 3.13 `uncancel` also takes back a request that was not felt yet. Before, nothing can; so here the one
    # request that may be taken back, that of a group which ends with errors, is made when the step is over.

    def cancel_again(self) -> None:
        """Feel the cancellation once more at the next await of this step or after it, unless it is taken back."""
        self._is_to_be_cancelled_again = True
        self.get_loop().call_next(self._cancel_again)  # type: ignore[attr-defined]  # a run's loop

    def _cancel_again(self) -> None:
        if self._is_to_be_cancelled_again:
            self._is_to_be_cancelled_again = False
            if self.cancel():
                self._more_requests -= 1

    def cancelling(self) -> int:
        return super().cancelling() + self._more_requests

    def uncancel(self) -> int:
        requests = self.cancelling()
        if requests > 0:
            requests -= 1
            self._more_requests -= 1
        if requests == 0:
            self._is_to_be_cancelled_again = False
        return requests


class Timers(Protocol):
    """Who keeps the loop's timers."""

    def start_timer(self, handle: "RunTimer") -> None: ...

    def cancel_timer(self, handle: "RunTimer") -> None: ...


class RunTimer(TimerHandle):
    """A timer of the loop with the place it is known by; `fire_at` is engine time."""

    __slots__ = ("fire_at", "place")

    place: str
    fire_at: int


class RunLoop(asyncio.AbstractEventLoop):
    """The event loop of one run."""

    # Most runs leave these as they are.
    is_dead = False
    has_cancelled = False
    _tasks: dict[RunTask, None] | None = None
    _generators: Generators | None = None
    _turns: Any = None
    _made = 0
    _hashed = 0
    _refusals = 0

    def __init__(self, runtime: Timers, salt: int, started_at: int) -> None:
        self.runtime = runtime
        self.now = started_at
        self.root = Branch("")
        self._started_at = started_at
        self._salt = salt
        self._ready: list[Any] = []
        self.main: RunTask | None = None

    # Running

    def drain(self) -> None:
        """Run everything that is ready, and what that makes ready, until nothing is."""
        # A collection now could finalize another run's leftovers inside this one.
        collects = gc.isenabled()
        if collects:
            gc.disable()
        outer = _get_running_loop()
        _set_running_loop(self)
        ready = self._ready
        self._turns = turns = iter(ready)
        done = 0
        try:
            # What is appended meanwhile is run too, in its turn.
            for item in turns:
                done += 1
                try:
                    if type(item) is tuple:
                        callback, args, context = item
                        context.run(callback, *args)
                    elif not item._cancelled:
                        item._run()
                except EXITS as exit:
                    # The task that raised it has it as its exception; it is the run that ends, not the process.
                    if is_for_the_process(exit):
                        raise
                except Exception as error:  # noqa: BLE001 - a callback of the workflow's own; asyncio only tells of it
                    self.call_exception_handler({"message": "a callback raised", "exception": error})
                if done == MOST_CALLBACKS:
                    raise NeverWaits
        finally:
            del ready[:done]
            # An error's traceback may keep this frame, which must not keep anything else.
            item = callback = args = context = None
            _set_running_loop(outer)
            if collects:
                gc.enable()

    def begin(self, work: Work) -> RunTask:
        """Make the run's main task."""
        asyncio_patch.install(RunLoop)
        # It hashes like any task of its run, but needs no keeping: the program holds it. Its branch is the root.
        self.main = task = self._made_task(work, Context())
        return task

    def call_next(self, callback: Callable[[], object]) -> None:
        """Call back right after what runs now, before everything else that is ready."""
        if self.is_dead:
            return
        ready = self._ready
        ready.insert(len(ready) - self._turns.__length_hint__(), (callback, (), copy_context()))

    def fire(self, timer: RunTimer) -> None:
        """Run a timer's callback with the next drain."""
        self._ready.append(timer)

    # What asyncio asks of a loop

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]  # wider
        if self.is_dead:
            return None
        if context is not None:
            # Tasks and futures call so, and ignore the answer.
            self._ready.append((callback, args, context))
            return None
        handle = Handle(callback, args, self)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # wider
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        self.refuse_when_dead()
        timer = RunTimer(when, callback, args, self, context)
        timer.fire_at = self._fire_at(when)
        timer.place = current_branch.get(self.root).place("timer()")
        self.runtime.start_timer(timer)
        return timer

    def keyed_timer(self, key: str, when: float) -> "asyncio.Future[None]":
        """A future that is done at this time, by a timer that is known by its key wherever it is called."""
        future = self.create_future()
        if when <= self.time():
            future.set_result(None)
            return future
        timer = RunTimer(when, _finish, (future,), self, None)
        timer.fire_at = self._fire_at(when)
        timer.place = self.root.place(f"timer({key})")
        future.add_done_callback(lambda _: timer.cancel())
        self.runtime.start_timer(timer)
        return future

    def _fire_at(self, when: float) -> int:
        return self._started_at + math.ceil(round(min(when, LONGEST_SECONDS) * 1000, 3))

    def call_later(  # type: ignore[override]  # wider
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        if not self.is_dead:
            assert isinstance(handle, RunTimer)
            self.runtime.cancel_timer(handle)

    def time(self) -> float:
        return (self.now - self._started_at) / 1000

    def create_future(self) -> "asyncio.Future[Any]":
        self.refuse_when_dead()
        return RunFuture(loop=self)

    def next_hash(self) -> int:
        """The hash of a future that is put into a set for the first time."""
        self._hashed += 1
        return self._salt - self._hashed

    def open_tasks(self) -> list[RunTask]:
        """The tasks that are not done, in the order they were made."""
        return [task for task in (self.main, *(self._tasks or ())) if task is not None and not task.done()]

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None, **_: Any) -> Any:
        self.refuse_when_dead(coro)
        if context is None:
            context = copy_context()
            context.run(current_branch.set, context.get(current_branch, self.root).child(_title(coro)))
        if type(coro) is not CoroutineType and asyncio.iscoroutine(coro):
            coro = _awaited(coro)
        # A context that is given is shared with whoever gave it, and so is its branch.
        task = self._made_task(coro, context)
        # asyncio itself keeps tasks weakly; a run's task must not vanish.
        if self._tasks is None:
            self._tasks = {}
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        if name is not None:
            task.set_name(name)
        return task

    def _made_task(self, work: Work, context: Context) -> RunTask:
        self._made += 1
        task = RunTask.__new__(RunTask)
        task._run_hash = self._salt + self._made
        # asyncio registers a task by its hash as soon as it is initialized.
        task.__init__(work, loop=self, name="task", context=context)  # type: ignore[misc]  # as said
        return task

    def _forget(self, task: "asyncio.Future[Any]") -> None:
        if self._tasks is not None:
            self._tasks.pop(task, None)  # type: ignore[call-overload]  # it is one of ours
        # Asked by `exception()`, it would no longer tell of an error that nobody looks at.
        if self._generators is not None and (task.cancelled() or task._exception is not None):
            self._generators.close_those_of(task)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            log.warning("in workflow code: %s", context.get("message"), exc_info=context.get("exception"))

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        return None

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.is_dead

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]  # it never does
        raise NotAllowedInWorkflow("using a thread", "do it in an activity; a plain `def` activity runs in a thread")

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> NoReturn:  # type: ignore[override]  # it never does
        raise NotAllowedInWorkflow("being called from a thread", "do it in an activity, or send the run a signal")

    @property
    def generators(self) -> Generators:
        """The async generators begun in this run."""
        if self._generators is None:
            self._generators = Generators(self)
        return self._generators

    # The end

    def refuse_when_dead(self, work: Any = None) -> None:
        """Raise in code of a dying run; code that goes on regardless is in the end left waiting for ever."""
        if not self.is_dead:
            return
        self._refusals += 1
        if self._refusals <= MOST_REFUSALS:
            if asyncio.iscoroutine(work):
                work.close()
            raise Evicted

    def evict(self) -> None:
        """Unwind whatever code is left, newest task first, so that no finalizer runs elsewhere later."""
        self.is_dead = True
        self._ready.clear()
        main, self.main = self.main, None
        if self._tasks or self._generators or (main is not None and not main.done()):
            self._unwind_all(main)
        # A program and its loop would hold each other until a collection finds them.
        self.runtime = None  # type: ignore[assignment]  # a dead loop asks for nothing

    def _unwind_all(self, main: RunTask | None) -> None:
        with self.as_running_loop():
            for task in [*reversed(self._tasks or {}), *([main] if main is not None else [])]:
                coro = task.get_coro()
                if coro is not None:
                    bury_unless_unwound(coro, coro)
                _part(task, getattr(task, "_fut_waiter", None))
            if self._generators is not None:
                self._generators.unwind()
        self._tasks = self._generators = None

    @contextmanager
    def as_running_loop(self) -> Iterator[None]:
        """Code that is unwound here finds this loop, and no collection comes between."""
        outer = _get_running_loop()
        _set_running_loop(self)
        collects = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            _set_running_loop(outer)
            if collects:
                gc.enable()


def _part(task: RunTask, awaited: Any) -> None:
    """A task and the future it waits for would hold each other until a collection finds them."""
    for callback, _ in getattr(awaited, "_callbacks", None) or ():
        if getattr(callback, "__self__", None) is task:
            awaited.remove_done_callback(callback)


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


async def _awaited(awaitable: Any) -> Any:
    """The same as a plain coroutine: before 3.13, steps of async generators go wrong if cancelled before they begin."""
    return await awaitable


def _title(coro: Any) -> str:
    """What a task made of this is called in places."""
    title: str = getattr(coro, "__qualname__", type(coro).__name__)
    # The library's wrapper of other awaitables has one name on 3.11 and another one later.
    return "_wrap_awaitable" if title.endswith("._wrap_awaitable") else title


def _refusing(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotAllowedInWorkflow(f"{name.replace('_', ' ')} of the event loop", instead)

    return refuse


for _name in (
    *("create_connection", "create_server", "create_unix_connection", "create_unix_server", "start_tls", "sendfile"),
    *("create_datagram_endpoint", "connect_read_pipe", "connect_write_pipe", "connect_accepted_socket"),
    *("subprocess_shell", "subprocess_exec", "add_reader", "remove_reader", "add_writer", "remove_writer"),
    *("sock_recv", "sock_recv_into", "sock_sendall", "sock_connect", "sock_accept", "sock_sendfile"),
    *("getaddrinfo", "getnameinfo", "add_signal_handler", "remove_signal_handler", "run_until_complete", "run_forever"),
):
    setattr(RunLoop, _name, _refusing(_name, "do it in an activity"))

for _name in ("stop", "close", "shutdown_asyncgens", "shutdown_default_executor", "set_task_factory"):
    setattr(RunLoop, _name, _refusing(_name, "the worker takes care of it"))
