"""asyncio in workflows: what would not replay alike on every Python, in our own words.

In:   the arguments of the asyncio function that each of these stands for.
Out:  what that function gives, in an order that depends on nothing but the workflow's
      code and its history: not on addresses, and not on the version of Python.

They behave as the library of Python 3.13 does; where one differs, it says so. Knows a
run's loop and tasks by what it asks of them, not by their types.
"""

import asyncio
from asyncio import CancelledError
from asyncio.timeouts import _State  # type: ignore[attr-defined]  # it has no public name
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Self, TypeAlias

Future: TypeAlias = "asyncio.Future[Any]"


class RunFuture(asyncio.Future[Any]):
    """A future that hashes by a number of its run, so that sets of futures have a fixed order."""

    _run_hash: int

    def __hash__(self) -> int:
        # Few futures are ever put into a set; the number is taken when one is.
        try:
            return self._run_hash
        except AttributeError:
            self._run_hash = self.get_loop().next_hash()  # type: ignore[attr-defined]  # a run's loop
            return self._run_hash

    def set_exception(self, exception: type | BaseException, /) -> None:
        # A future cannot carry it; up to 3.11.7 and 3.12.1 it refused, later ones carry this in its place.
        if isinstance(exception, StopIteration) or exception is StopIteration:
            told = RuntimeError("StopIteration interacts badly with generators and cannot be raised into a Future")
            told.__cause__ = told.__context__ = exception if isinstance(exception, BaseException) else exception()
            exception = told
        super().set_exception(exception)


# gather


def gather(*awaitables: Any, return_exceptions: bool = False) -> Future:
    """Up to 3.11 the library lets a turn pass even when all members are done; from 3.12 on it does not."""
    loop = asyncio.get_running_loop()
    if not awaitables:
        nothing = loop.create_future()
        nothing.set_result([])
        return nothing
    members: dict[Any, Future] = {}
    for awaitable in awaitables:
        if awaitable not in members:
            members[awaitable] = _member(awaitable, loop)
    outer = Gathering([members[awaitable] for awaitable in awaitables], loop, keeps_errors=return_exceptions)
    outer.begin(list(members.values()))
    return outer


def _member(awaitable: Any, loop: asyncio.AbstractEventLoop) -> Future:
    future: Any = asyncio.ensure_future(awaitable, loop=loop)
    if future is not awaitable:
        # Nobody else can see to it that it is awaited.
        future._log_destroy_pending = False
    return future  # type: ignore[no-any-return]  # a future


class Gathering(RunFuture):
    """What `gather` returns: done when all its members are, or when the first of them fails."""

    def __init__(self, members: list[Future], loop: asyncio.AbstractEventLoop, *, keeps_errors: bool) -> None:
        super().__init__(loop=loop)
        self._members = members
        self._keeps_errors = keeps_errors
        self._is_cancelling = False
        self._left = 0

    def begin(self, members: list[Future]) -> None:
        """Wait for the members, each once; those that are done already count at once."""
        self._left = len(members)
        done = []
        for member in members:
            if member.done():
                done.append(member)
            else:
                member.add_done_callback(self._count)
        for member in done:
            self._count(member)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the members; if any of them takes it, this ends as cancelled once they are done."""
        if self.done():
            return False
        is_taken = False
        for member in self._members:
            is_taken = member.cancel(msg) or is_taken
        self._is_cancelling = self._is_cancelling or is_taken
        return is_taken

    def _count(self, member: Future) -> None:
        self._left -= 1
        # Looked at, an error does not count as overlooked.
        error = None if member.cancelled() else member.exception()
        if self.done():
            return
        if not self._keeps_errors and (error is not None or member.cancelled()):
            self.set_exception(error or _cancellation(member))
        elif self._left == 0 and self._is_cancelling:
            self.set_exception(_cancellation(self._members[-1]))
        elif self._left == 0:
            self.set_result([_outcome(each) for each in self._members])


def _outcome(future: Future) -> Any:
    if future.cancelled():
        return CancelledError(getattr(future, "_cancel_message", None) or "")
    error = future.exception()
    return future.result() if error is None else error


def _cancellation(future: Any) -> BaseException:
    """The error that stands for the future's cancellation, with its message; asyncio gives it with its message once."""
    return future._make_cancelled_error()  # type: ignore[no-any-return]  # as its name says


# wait_for


async def wait_for(fut: Any, timeout: float | None) -> Any:
    """Awaits in place; the library of 3.11 makes a task of it, which begins a turn later."""
    if timeout is None or timeout > 0:
        async with asyncio.timeout(timeout):
            return await fut
    future = asyncio.ensure_future(fut)
    if future.done():
        return future.result()
    await _cancelled(future)
    try:
        return future.result()
    except CancelledError as error:
        raise TimeoutError from error


async def _cancelled(future: Future) -> None:
    """Cancel a future and wait until it is done, whatever comes of it."""
    is_done = asyncio.get_running_loop().create_future()

    def tell(_: Future) -> None:
        if not is_done.done():
            is_done.set_result(None)

    future.add_done_callback(tell)
    try:
        future.cancel()
        await is_done
    finally:
        future.remove_done_callback(tell)


# as_completed


def as_completed(fs: Iterable[Any], *, timeout: float | None = None) -> "Completions":
    """Makes its tasks at once and in order; the library makes them in the order of addresses, up to 3.12 later."""
    if asyncio.isfuture(fs) or asyncio.iscoroutine(fs) or isinstance(fs, Awaitable):
        raise TypeError(f"expects an iterable of awaitables, not {type(fs).__name__}")
    loop = asyncio.get_running_loop()
    return Completions([asyncio.ensure_future(each, loop=loop) for each in dict.fromkeys(fs)], timeout)


class Completions:
    """What `as_completed` returns: with `for` one coroutine for each result to come, with `async for` the futures."""

    def __init__(self, futures: list[Future], timeout: float | None) -> None:
        self._done: asyncio.Queue[Future | None] = asyncio.Queue()
        self._awaited = dict.fromkeys(futures)
        self._left = len(self._awaited)
        self._timer: asyncio.TimerHandle | None = None
        for future in self._awaited:
            future.add_done_callback(self._finish)
        if self._awaited and timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(timeout, self._give_up)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Coroutine[Any, Any, Any]:
        if self._left == 0:
            raise StopIteration
        self._left -= 1
        return self._next_result()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Future:
        if self._left == 0:
            raise StopAsyncIteration
        self._left -= 1
        return await self._next_done()

    async def _next_result(self) -> Any:
        return (await self._next_done()).result()

    async def _next_done(self) -> Future:
        future = await self._done.get()
        if future is None:
            raise TimeoutError
        return future

    def _finish(self, future: Future) -> None:
        if not self._awaited:
            return
        del self._awaited[future]
        self._done.put_nowait(future)
        if not self._awaited and self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        for future in self._awaited:
            future.remove_done_callback(self._finish)
            self._done.put_nowait(None)
        self._awaited.clear()


# TaskGroup, Timeout, Condition, Semaphore: methods, with the library's own attributes


async def leave_group(self: Any, _: object, exc: BaseException | None, __: object) -> None:
    """`TaskGroup.__aexit__`. A cancellation from outside that meets an error inside is raised again at the next await.

    Unlike in 3.13, a task that ends without any further await has then ended, and is not cancelled.
    """
    self._exiting = True
    if exc is not None and self._base_error is None and self._is_base_error(exc):
        self._base_error = exc
    if exc is not None and not self._aborting:
        self._abort()
    cancelled = await _members_done(self) or (exc if isinstance(exc, CancelledError) else None)
    if self._base_error is not None:
        raise self._base_error
    if self._parent_cancel_requested and self._parent_task.uncancel() == 0:
        cancelled = None
    errors = self._errors
    if cancelled is not None and not errors:
        raise cancelled
    if exc is not None and not isinstance(exc, CancelledError):
        errors.append(exc)
    if errors:
        self._errors = None
        raise _group_error(self._parent_task, errors, exc) from None


async def _members_done(group: Any) -> CancelledError | None:
    """Wait for the group's tasks; answers the cancellation that made it abort meanwhile."""
    cancelled = None
    while group._tasks:
        group._on_completed_fut = group._loop.create_future()
        try:
            await group._on_completed_fut
        except CancelledError as error:
            if not group._aborting:
                cancelled = error
                group._abort()
        group._on_completed_fut = None
    return cancelled


def _group_error(parent: Any, errors: list[BaseException], own: BaseException | None) -> BaseException:
    if parent.cancelling():
        # A task that was made by hand knows only the plain way.
        getattr(parent, "cancel_again", parent.cancel)()
    if isinstance(own, GeneratorExit) and len(errors) == 1:
        return own
    return BaseExceptionGroup("unhandled errors in a TaskGroup", errors)


async def enter_timeout(self: Any) -> Any:
    """`Timeout.__aenter__`. A task that is being cancelled already may set a limit to its clean-up; so since 3.11.3."""
    if self._state is not _State.CREATED:
        raise RuntimeError("Timeout has already been entered")
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("Timeout should be used inside a task")
    self._state = _State.ENTERED
    self._task = task
    self._cancelling = task.cancelling()
    self.reschedule(self._when)
    return self


async def leave_timeout(self: Any, _: object, exc: BaseException | None, __: object) -> None:
    """`Timeout.__aexit__`. What the code raised when its time was up tells of the timeout; so since 3.13."""
    if self._timeout_handler is not None:
        self._timeout_handler.cancel()
        self._timeout_handler = None
    if self._state is not _State.EXPIRING:
        self._state = _State.EXITED
        return
    self._state = _State.EXPIRED
    if self._task.uncancel() > self._cancelling:
        # Somebody else cancels the task, too.
        return
    if isinstance(exc, CancelledError):
        raise TimeoutError from exc
    for error in (exc, *(exc.exceptions if isinstance(exc, ExceptionGroup) else ())):
        _tell_of_timeout(error)


def _tell_of_timeout(error: BaseException | None) -> None:
    """Let the first cancellation among what the error came from be what caused a TimeoutError."""
    while error is not None:
        before = error.__context__
        if isinstance(before, CancelledError):
            error.__context__ = TimeoutError()
            error.__context__.__context__ = error.__context__.__cause__ = before
            return
        error = before


async def wait_for_notice(self: Any) -> bool:
    """`Condition.wait`. Whoever was woken and cannot make use of it wakes another; so since 3.13, and later 3.12."""
    if not self.locked():
        raise RuntimeError("cannot wait on un-acquired lock")
    notice = self._get_loop().create_future()
    self.release()
    try:
        self._waiters.append(notice)
        try:
            await notice
        finally:
            self._waiters.remove(notice)
            await _acquired_again(self)
    except BaseException:
        _wake_first(self._waiters, False)
        raise
    return True


async def _acquired_again(condition: Any) -> None:
    """Take the lock back, even while being cancelled; the cancellation is raised when it is there."""
    cancelled = None
    while True:
        try:
            await condition.acquire()
            break
        except CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def acquire_permit(self: Any) -> bool:
    """`Semaphore.acquire`. First come, first served, cancelled or not; so since 3.13, and later 3.12."""
    if self._waiters is None:
        self._waiters = deque()
    if self._value > 0 and all(waiter.cancelled() for waiter in self._waiters):
        self._value -= 1
        return True
    turn = self._get_loop().create_future()
    self._waiters.append(turn)
    try:
        try:
            await turn
        finally:
            self._waiters.remove(turn)
    except CancelledError:
        if turn.done() and not turn.cancelled():
            # It was handed a permit, and gives it back.
            self._value += 1
        raise
    finally:
        while self._value > 0 and _wake_first(self._waiters, True):
            self._value -= 1
    return True


def _wake_first(waiters: Iterable[Future], answer: object) -> bool:
    """Wake the first that still waits; False when none does."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(answer)
            return True
    return False


def all_tasks(loop: Any = None) -> set[Any]:
    """The run's tasks, put in one by one in the order they were made; the library goes through those of all runs."""
    own: Any = loop or asyncio.get_running_loop()
    return set(own.open_tasks())
