"""`@activity` and `@workflow`: ordinary functions, made durable.

Calling a decorated function always gives a coroutine with the function's own
signature. Inside a workflow the call is durable; outside, an activity just runs
and a workflow refuses to.
"""

import asyncio
import copy
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from perdure.authoring.durations import Duration, seconds
from perdure.authoring.registry import Registry
from perdure.authoring.runtime import current
from perdure.codec import Signature
from perdure.errors import BadOption, NotAllowedInWorkflow, NotInWorkflow
from perdure.ids import checked_id
from perdure.kernel.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT = 300.0


class ActivityOptions(msgspec.Struct, frozen=True):
    """How an activity is tried: how often, and for how many seconds each time."""

    retry: Retry = Retry()
    timeout: float = DEFAULT_TIMEOUT


class WorkflowOptions(msgspec.Struct, frozen=True):
    """How a run is started."""

    id: str | None = None


class Function(Generic[P, R]):
    """A decorated function: its name, its signature, and `.fn`, the original."""

    kind = "function"

    def __init__(self, fn: Callable[P, Any], name: str) -> None:
        self.fn = fn
        self.name = name
        self.signature = Signature(fn, name)
        self.result_name = f"the result of {self.kind} {name!r}"
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__
        self.__wrapped__ = fn

    @property
    def origin(self) -> str:
        return f"{self.fn.__module__}.{self.fn.__qualname__}"

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


class Activity(Function[P, R]):
    """A step: runs at least once, its outcome is recorded exactly once."""

    kind = "activity"

    def __init__(self, fn: Callable[P, Any], name: str, options: ActivityOptions) -> None:
        super().__init__(fn, name)
        self.settings = options
        self.is_async = inspect.iscoroutinefunction(fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        call = self._call(args, kwargs)
        # A task made of this call is a branch of its run; branches are named by their coroutines.
        call.__qualname__ = self.name  # type: ignore[attr-defined]  # it is a coroutine object
        return call

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        runtime = current()
        if runtime is None:
            return await self._call_plainly(args, kwargs)
        call = runtime.run_activity(self, args, kwargs)
        try:
            return await call.future  # type: ignore[no-any-return]  # what was recorded fits the annotation
        except asyncio.CancelledError:
            call.abandon()
            raise

    async def _call_plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if self.is_async:
            return cast("R", await self.fn(*args, **kwargs))
        return cast("R", await asyncio.to_thread(self.fn, *args, **kwargs))

    def options(self, *, retry: Retry | None = None, timeout: Duration | None = None) -> "Activity[P, R]":
        """A copy of this activity that is tried differently."""
        changed = copy.copy(self)
        changed.settings = _activity_options(self.settings, retry, timeout)
        return changed


class Workflow(Function[P, R]):
    """A durable function: its steps survive the process that runs it."""

    kind = "workflow"

    def __init__(self, fn: Callable[P, Any], name: str, options: WorkflowOptions) -> None:
        super().__init__(fn, name)
        self.settings = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return self._call()

    async def _call(self) -> R:
        if current() is None:
            raise NotInWorkflow(
                f"calling the workflow {self.name!r} directly",
                f"start it with `await app.run({self.__name__}, ...)`; `{self.__name__}.fn` is the plain function",
            )
        raise NotAllowedInWorkflow(
            f"calling the workflow {self.name!r}",
            "this version has no child runs; call its steps as activities",
        )

    def options(self, *, id: str | None = None) -> "Workflow[P, R]":
        """A copy of this workflow that is started differently."""
        changed = copy.copy(self)
        changed.settings = WorkflowOptions(self.settings.id if id is None else checked_id("workflow id", id))
        return changed


activities: Registry[Activity[..., Any]] = Registry("activity")
workflows: Registry[Workflow[..., Any]] = Registry("workflow")


def _activity_options(base: ActivityOptions, retry: Retry | None, timeout: Duration | None) -> ActivityOptions:
    if retry is not None and not isinstance(retry, Retry):
        raise BadOption(f"retry is {retry!r}; give a Retry(...)")
    return ActivityOptions(
        base.retry if retry is None else retry,
        base.timeout if timeout is None else seconds(timeout, "timeout"),
    )


class ActivityDecorator(Protocol):
    """What `@activity(...)` with options is."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Activity[P, R]: ...


class WorkflowDecorator(Protocol):
    """What `@workflow(...)` with options is."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


@overload
def activity(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
@overload
def activity(fn: Callable[P, R], /) -> Activity[P, R]: ...
@overload
def activity(
    *, name: str | None = None, retry: Retry | None = None, timeout: Duration | None = None
) -> ActivityDecorator: ...
def activity(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
) -> Any:
    """Make a function a durable step. A plain `def` runs in a thread."""
    options = _activity_options(ActivityOptions(), retry, timeout)

    def decorate(fn: Callable[..., Any]) -> Activity[..., Any]:
        decorated: Activity[..., Any] = Activity(_checked(fn, "activity"), name or fn.__name__, options)
        activities.add(decorated)
        return decorated

    return decorate if fn is None else decorate(fn)


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None) -> WorkflowDecorator: ...
def workflow(fn: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Make an `async def` a durable function."""

    def decorate(fn: Callable[..., Any]) -> Workflow[..., Any]:
        if not inspect.iscoroutinefunction(_checked(fn, "workflow")):
            raise BadOption(f"the workflow {fn.__qualname__} is a plain def; write `async def {fn.__name__}`")
        decorated: Workflow[..., Any] = Workflow(fn, name or fn.__name__, WorkflowOptions())
        workflows.add(decorated)
        return decorated

    return decorate if fn is None else decorate(fn)


def _checked(fn: Any, kind: str) -> Callable[..., Any]:
    if isinstance(fn, Function):
        raise BadOption(f"{fn!r} is decorated already; decorate the plain function once")
    if not inspect.isfunction(fn):
        raise BadOption(f"@{kind} takes a function, not {fn!r}")
    if fn.__name__ == "<lambda>":
        raise BadOption(f"@{kind} needs a function with a name of its own; write a `def` instead of a lambda")
    if next(iter(inspect.signature(fn).parameters), None) in {"self", "cls"}:
        raise BadOption(f"{fn.__qualname__} is a method; @{kind} takes functions, whose arguments can be written down")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise BadOption(f"the {kind} {fn.__qualname__} is a generator; it must return its result, not yield it")
    return fn
