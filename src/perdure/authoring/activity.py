"""`@activity`: an ordinary function, made a durable step.

Calling it always gives a coroutine with the function's own signature. Inside a workflow the call is durable;
outside, the function just runs.
"""

import asyncio
import inspect
import re
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast, overload

import msgspec

from perdure.authoring.durations import Duration
from perdure.authoring.function import DecoratedFunction, checked_function
from perdure.authoring.options import ActivityOptions, activity_options
from perdure.authoring.registry import Registry
from perdure.authoring.runtime import current
from perdure.kernel.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Activity(DecoratedFunction[P, R_co]):
    """A step: runs at least once, its outcome is recorded exactly once."""

    kind = "activity"
    key: str | None = None
    settings: ActivityOptions

    def __init__(self, fn: Callable[P, object], name: str, options: ActivityOptions) -> None:
        super().__init__(fn, name)
        self.settings = options
        self.is_async = inspect.iscoroutinefunction(fn)

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R_co:
        runtime = current()
        if runtime is None:
            return await self._call_plainly(args, kwargs)
        settings = self.settings
        kind = "task" if settings.queue is not None else "transaction" if settings.transaction else "activity"
        call = runtime.calls[kind](runtime, self, args, kwargs)
        try:
            return await call.future  # type: ignore[no-any-return]  # what was recorded fits the annotation
        except asyncio.CancelledError:
            call.cancel()
            raise

    async def _call_plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R_co:
        if self.is_async:
            return cast("R_co", await self.fn(*args, **kwargs))
        return cast("R_co", await asyncio.to_thread(self.fn, *args, **kwargs))

    def options(
        self,
        *,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        key: str | None = None,
        queue: str | None = None,
        heartbeat: Duration | None = None,
        queue_timeout: Duration | None = None,
        at_most_once: bool | None = None,
        transaction: bool | None = None,
    ) -> "Activity[P, R_co]":
        """A copy of this activity that is tried differently.

        A call with a `key` is known by it instead of by its place in the code, which may then be moved. With a `queue`
        it runs in whichever worker of that queue takes it, `Perdure(url, queues=("gpu",))`, and fails when none has
        begun it within `queue_timeout`. An attempt fails that has not called heartbeat() for as long as `heartbeat`.
        With `at_most_once` no attempt follows another one, not even one that was lost with its process. With
        `transaction` its SQL, on the connection it gets by resource(), is committed together with its result.
        """
        given = (retry, timeout, key, queue, heartbeat, queue_timeout, at_most_once, transaction)
        return self._with(activity_options(self.settings, *given))

    def tried(self, settings: ActivityOptions) -> "Activity[P, R_co]":
        """A copy of this activity that is tried as these say, whatever its own options."""
        return self._with(settings)

    def _with(self, settings: object) -> Self:
        changed = super()._with(settings)
        changed.key = changed.settings.key
        return changed


activities: Registry[Activity[..., Any]] = Registry("activity")
# The place of a call of an activity: its branch, its name, its key or how-many-th of that name.
_PLACE = re.compile(r"(?:[^()]*/)?([^/()#]+)(?:\(.*\)|#\d+)?", re.DOTALL)
# Calls that are no activities have these names in their places.
_OTHERS = frozenset({"signal", "deferred", "request", "sleep"})


def check_result(place: str, data: msgspec.Raw) -> None:
    """BadValue for a result that the activity which is called at this place would not give, if it is known here."""
    found = _PLACE.fullmatch(place)
    name = "" if found is None else found[1]
    known = None if name in _OTHERS else activities.get(name)
    if known is not None:
        known.signature.result.restore(data, f"the result of {place!r}")


class ActivityDecorator(Protocol):
    """What `@activity(...)` with options is."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Activity[P, R]: ...


@overload
def activity(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
@overload
def activity(fn: Callable[P, R], /) -> Activity[P, R]: ...
@overload
def activity(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
    heartbeat: Duration | None = None,
    queue_timeout: Duration | None = None,
    at_most_once: bool | None = None,
    transaction: bool | None = None,
) -> ActivityDecorator: ...
def activity(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
    heartbeat: Duration | None = None,
    queue_timeout: Duration | None = None,
    at_most_once: bool | None = None,
    transaction: bool | None = None,
) -> Any:
    """Make a function a durable step. A plain `def` runs in a thread; with a `queue`, in any worker of that queue."""
    given = (retry, timeout, None, queue, heartbeat, queue_timeout, at_most_once, transaction)
    options = activity_options(ActivityOptions(), *given)

    def decorate(fn: Callable[..., Any]) -> Activity[..., Any]:
        decorated: Activity[..., Any] = Activity(checked_function(fn, "activity"), name or fn.__name__, options)
        activities.add(decorated)
        return decorated

    return decorate if fn is None else decorate(fn)
