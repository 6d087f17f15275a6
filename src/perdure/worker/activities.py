"""Running activities: in tasks, in threads, or at once.

In:   an activity's function and arguments, and when to give up.
Out:  how the attempt ended, told to a callback on the worker's loop.
Knows nothing of histories; it makes one attempt, and when the next one is due others say.
"""

import asyncio
import contextvars
import dis
import functools
import heapq
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, TypeAlias

from perdure.clock import Alarm, Clock
from perdure.stores.records import AttemptRow, CallProgress
from perdure.threads import Threads
from perdure.worker.loop.exits import EXITS, is_for_the_process

Ended: TypeAlias = Callable[[BaseException | None, Any], None]

# So many deadlines are no burden.
FEW_DEADLINES = 64

HAS_EAGER_TASKS = sys.version_info >= (3, 12)
_SUSPENDS = frozenset({"GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "YIELD_VALUE", "SEND"})


class Manner(Enum):
    """How a function is run."""

    AT_ONCE = "at once"
    IN_A_TASK = "in a task"
    IN_A_THREAD = "in a thread"


def manner_of(fn: Callable[..., Any]) -> Manner:
    """A plain function needs a thread; a coroutine without an await ends with its first step and needs no task."""
    if not inspect.iscoroutinefunction(fn):
        return Manner.IN_A_THREAD
    suspends = any(instruction.opname in _SUSPENDS for instruction in dis.get_instructions(fn))
    return Manner.IN_A_TASK if suspends else Manner.AT_ONCE


def run_at_once(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[BaseException | None, Any]:
    """The error and the value of a coroutine function that never suspends."""
    try:
        contextvars.copy_context().run(fn(*args, **kwargs).send, None)
    except StopIteration as stop:
        return None, stop.value
    except BaseException as error:
        # Whatever user code raises is its outcome.
        if is_for_the_process(error):
            raise
        return error, None
    return RuntimeError(f"{fn.__qualname__} suspended though it has no await"), None


class Exited(Exception):
    """The activity called sys.exit() or the like: that is its cause, and no loop takes this one for its own end."""


async def without_exit(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a coroutine function returns; an exit it raises ends its task and not the process."""
    try:
        return await fn(*args, **kwargs)
    except EXITS as exit:
        if is_for_the_process(exit):
            raise
        raise Exited from exit


class RunningAttempt:
    """One attempt under way: told once how it ended, or called off.

    It fails when it takes longer than its timeout, or is silent for longer than its heartbeat. Both are counted from
    its begin, for which a plain function may have to wait until a thread is free.
    """

    __slots__ = ("_ended", "_heartbeat_ms", "_task", "_timeout_ms", "beat_ms", "began_ms", "is_cancelled")

    def __init__(self, ended: Ended, timeout: float, heartbeat: float | None = None) -> None:
        self._ended: Ended | None = ended
        self._task: asyncio.Future[Any] | None = None
        self._timeout_ms = math.ceil(timeout * 1000)
        self._heartbeat_ms = None if heartbeat is None else math.ceil(heartbeat * 1000)
        self.is_cancelled = False
        # By the clock that nobody sets; below zero as long as it has not begun.
        self.began_ms = self.beat_ms = -1

    @property
    def is_over(self) -> bool:
        return self._ended is None

    def begin(self, now: int) -> None:
        """Its code begins. Any thread may call."""
        self.beat_ms = self.began_ms = now

    def watch(self, task: "asyncio.Future[Any]") -> None:
        self._task = task
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Future[Any]") -> None:
        if task.cancelled():
            self.end(asyncio.CancelledError("the activity was cancelled"), None)
            return
        error = task.exception()
        if isinstance(error, EXITS) and isinstance(task, asyncio.Task):
            # The process ends; the next owner of the run makes this attempt again.
            self.cancel()
            return
        if isinstance(error, Exited):
            error = error.__cause__
        self.end(error, None if error is not None else task.result())

    def end(self, error: BaseException | None, value: Any) -> None:
        ended, self._ended = self._ended, None
        self._task = None
        if ended is not None:
            ended(error, value)

    def cancel(self) -> None:
        """Nobody wants to know any more: cancel a task; a thread is told so when it asks, and left to end by itself."""
        self.is_cancelled = True
        self._ended = None
        if self._task is not None:
            self._task.cancel()

    def cancels(self, task: "asyncio.Future[Any]") -> None:
        """Cancel this with the attempt, whose end somebody else tells."""
        self._task = task
        if self.is_cancelled:
            task.cancel()

    def forget(self) -> None:
        """Tell nobody how it ends, and do not cancel it; others have taken that over."""
        self._ended = self._task = None

    def leave(self) -> None:
        """The worker lets go of the run; write what must not be lost."""

    def last_words(self) -> CallProgress | None:
        """What the next attempt is to know, if there is anything."""
        return None

    # Time

    def due_ms(self, now: int) -> int:
        """When it is to be looked at whether its time is over."""
        if self.began_ms < 0:
            return now + min(self._timeout_ms, self._heartbeat_ms or self._timeout_ms)
        ends = self.began_ms + self._timeout_ms
        return ends if self._heartbeat_ms is None else min(ends, self.beat_ms + self._heartbeat_ms)

    def late(self, now: int) -> TimeoutError | None:
        """The error for one whose time is over; None while it has time. Any thread may call."""
        return TimeoutError(self._told(now)) if self.began_ms >= 0 and now >= self.due_ms(now) else None

    def time_out(self, now: int) -> None:
        """Its time is over."""
        ended = self._ended
        self.cancel()
        if ended is not None:
            ended(TimeoutError(self._told(now)), None)

    def _told(self, now: int) -> str:
        if self._heartbeat_ms is None or now >= self.began_ms + self._timeout_ms:
            return f"the activity took longer than its timeout of {self._timeout_ms / 1000:g} s"
        return f"the activity did not call heartbeat() for its heartbeat of {self._heartbeat_ms / 1000:g} s"


class Retries:
    """How many attempts of a call have failed, and when the next one is due, by place."""

    __slots__ = ("failed", "next_at")

    def __init__(self) -> None:
        self.failed: dict[str, int] = {}
        self.next_at: dict[str, int] = {}

    def add(self, attempt: AttemptRow) -> None:
        if attempt.attempt > self.failed.get(attempt.place, 0):
            self.failed[attempt.place] = attempt.attempt
            if attempt.next_at is not None:
                self.next_at[attempt.place] = attempt.next_at


class ActivityRunner:
    """Makes attempts, and ends those that take too long."""

    def __init__(self, clock: Clock, threads: int) -> None:
        self._clock = clock
        self.in_threads = 0
        self.in_tasks = 0
        self._calm: asyncio.Future[None] | None = None
        self._threads = Threads(threads, "perdure-activity")
        self._deadlines: list[tuple[int, int, RunningAttempt]] = []
        self._numbers = itertools.count()
        self._alarm: Alarm | None = None
        self._alarm_at = 0
        # How functions are run that were run before.
        self.manners: dict[Callable[..., Any], Manner] = {}

    def manner_of(self, fn: Callable[..., Any]) -> Manner:
        """How the function is run from now on."""
        self.manners[fn] = manner = manner_of(fn)
        return manner

    def run(
        self, attempt: RunningAttempt, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Begin an attempt, in a task or in a thread."""
        now = self._clock.monotonic()
        heapq.heappush(self._deadlines, (attempt.due_ms(now), next(self._numbers), attempt))
        self._set_alarm()
        if inspect.iscoroutinefunction(fn):
            self.in_tasks += 1
            attempt.begin(now)
            task = self._task(without_exit(fn, args, kwargs))
            task.add_done_callback(self._task_ended)
            attempt.watch(task)
        else:
            work = functools.partial(contextvars.copy_context().run, self._in_thread, attempt, fn, args, kwargs)
            self.in_threads += 1
            thread = self._threads.run(work)
            thread.add_done_callback(self._thread_ended)
            attempt.watch(thread)

    def watch(self, attempt: RunningAttempt, over: "asyncio.Future[None]", *, in_thread: bool) -> None:
        """See to the timeout of an attempt that is made elsewhere, until this is over."""
        heapq.heappush(self._deadlines, (attempt.due_ms(self._clock.monotonic()), next(self._numbers), attempt))
        self._set_alarm()
        if in_thread:
            self.in_threads += 1
            over.add_done_callback(self._thread_ended)
        else:
            self.in_tasks += 1
            over.add_done_callback(self._task_ended)

    def _in_thread(
        self, attempt: RunningAttempt, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        attempt.begin(self._clock.monotonic())
        return fn(*args, **kwargs)

    def _task_ended(self, _: object) -> None:
        self.in_tasks -= 1
        self._tell_calm()

    def _thread_ended(self, _: object) -> None:
        self.in_threads -= 1
        self._tell_calm()

    async def calm(self, grace_ms: int) -> None:
        """Until nothing runs any more, or the grace is over."""
        if grace_ms <= 0 or not (self.in_tasks or self.in_threads):
            return
        self._calm = asyncio.get_running_loop().create_future()
        alarm = self._clock.call_at(self._clock.now() + grace_ms, self.hurry)
        await self._calm
        alarm.cancel()

    def _tell_calm(self) -> None:
        if not self.in_tasks and not self.in_threads:
            self.hurry()

    def hurry(self) -> None:
        """The grace is over."""
        if self._calm is not None and not self._calm.done():
            self._calm.set_result(None)

    def _task(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        loop = asyncio.get_running_loop()
        # A loop that has to do the same on every Python, such as a simulator's, says that it starts nothing eagerly.
        if HAS_EAGER_TASKS and getattr(loop, "starts_eagerly", True):
            return asyncio.Task(work, loop=loop, eager_start=True)  # type: ignore[call-arg,unused-ignore]  # new in 3.12
        return loop.create_task(work)

    # Timeouts: one alarm for all attempts, set for the earliest. How long something takes is
    # measured by the clock that nobody sets, or all of them would be over when the wall clock is.

    def _set_alarm(self) -> None:
        if not self._deadlines:
            return
        at = self._deadlines[0][0]
        if self._alarm is None or at < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = at
            self._alarm = self._clock.call_at(self._clock.now() + at - self._clock.monotonic(), self._expire)

    def _expire(self) -> None:
        self._alarm = None
        now = self._clock.monotonic()
        while self._deadlines and (self._deadlines[0][2].is_over or self._deadlines[0][0] <= now):
            _, number, attempt = heapq.heappop(self._deadlines)
            if attempt.is_over:
                continue
            # It may have beaten since this deadline was set, or not have begun yet.
            if (due := attempt.due_ms(now)) > now:
                heapq.heappush(self._deadlines, (due, number, attempt))
            else:
                attempt.time_out(now)
        self._set_alarm()

    def tidy(self) -> None:
        """Let go of the deadlines of attempts that are over, when they are most of them."""
        if len(self._deadlines) > 2 * (self.in_tasks + self.in_threads) + FEW_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_over]
            heapq.heapify(self._deadlines)

    def close(self) -> None:
        """Forget the deadlines; threads that still run end with the process."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._threads.close()
