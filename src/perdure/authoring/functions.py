"""`@activity` and `@workflow`: ordinary functions, made durable.

Calling a decorated function always gives a coroutine with the function's own
signature. Inside a workflow the call is durable; outside, an activity just runs
and a workflow refuses to.
"""

import asyncio
import inspect
import math
from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast, overload

import msgspec

from perdure.authoring.durations import Duration, seconds
from perdure.authoring.lint.check import refuse_unrepeatable
from perdure.authoring.registry import Registry, checked_name
from perdure.authoring.runtime import current
from perdure.codec import Arguments, Signature, ValueType
from perdure.errors import BadOption, BadValue, NotInWorkflow
from perdure.ids import checked_id
from perdure.kernel.conflict import OnConflict
from perdure.kernel.retry import Retry
from perdure.kernel.traits import PLAIN, TASK_PREFIX, OnParentClose, Traits

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
E = TypeVar("E", bound=StrEnum)

# As people write them; the enums are what the rules know.
ConflictPolicy: TypeAlias = Literal["return", "reject", "replace", "terminate"]
ParentClosePolicy: TypeAlias = Literal["cancel", "terminate", "abandon"]

DEFAULT_TIMEOUT = 300.0
LARGEST_ATTRIBUTES = 16 * 1024
HIGHEST_PRIORITY = 1_000_000


class ActivityOptions(msgspec.Struct, frozen=True):
    """How an activity is tried: how often, for how many seconds each time, and where; and what it is known by."""

    retry: Retry = Retry()
    timeout: float = DEFAULT_TIMEOUT
    key: str | None = None
    queue: str | None = None


class WorkflowOptions(msgspec.Struct, frozen=True):
    """How a run is started; times are milliseconds."""

    id: str | None = None
    queue: str | None = None
    priority: int | None = None
    delay_ms: int = 0
    on_conflict: OnConflict = OnConflict.RETURN
    traits: Traits = PLAIN


# What most runs are started with; compared by identity.
DEFAULTS = WorkflowOptions()


class Function(Generic[P, R_co]):
    """A decorated function: its name, its signature, and `.fn`, the original."""

    kind = "function"
    # Of an activity it gives a value or a coroutine: whoever calls it knows which of them was written.
    fn: Callable[P, Any]
    settings: object
    # Of a copy with other options: what it is a copy of.
    _original: "Function[..., object] | None" = None

    def __init__(self, fn: Callable[P, object], name: str) -> None:
        self.fn = fn
        self.name = name
        self.signature = Signature(fn, name)
        self.signature.check()
        self.result_name = f"the result of {self.kind} {name!r}"
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__
        self.__wrapped__ = fn

    if TYPE_CHECKING:
        # An `async def` to type checkers. Were it said to return a Coroutine[Any, Any, R], which is the same,
        # mypy would take these for Anys of the user's and answer Any to a gather() of different functions.
        async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
            raise NotImplementedError

    @property
    def origin(self) -> str:
        return f"{self.fn.__module__}.{self.fn.__qualname__}"

    def _with(self, settings: object) -> Self:
        """A copy with other options."""
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.settings = settings
        changed._original = self._original or self
        return changed

    def __reduce__(self) -> str | tuple[object, ...]:
        """By name, as functions are; a copy with other options by that of its original."""
        return self.__qualname__ if self._original is None else (_changed, (self._original, self.settings))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


def _changed(original: Function[..., object], settings: object) -> Function[..., object]:
    """A copy with options that was pickled."""
    return original._with(settings)


class Activity(Function[P, R_co]):
    """A step: runs at least once, its outcome is recorded exactly once."""

    kind = "activity"
    key: str | None = None
    settings: ActivityOptions

    def __init__(self, fn: Callable[P, object], name: str, options: ActivityOptions) -> None:
        super().__init__(fn, name)
        self.settings = options
        self.is_async = inspect.iscoroutinefunction(fn)

    def _begun(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        call = self._call(args, kwargs)
        # A task made of this call is a branch of its run; branches are named by their coroutines.
        call.__qualname__ = self.name  # type: ignore[attr-defined]  # it is a coroutine object
        return call

    if not TYPE_CHECKING:
        __call__ = _begun

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R_co:
        runtime = current()
        if runtime is None:
            return await self._call_plainly(args, kwargs)
        call = runtime.run_activity(self, args, kwargs)
        try:
            return await call.future  # type: ignore[no-any-return]  # what was recorded fits the annotation
        except asyncio.CancelledError:
            call.abandon()
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
    ) -> "Activity[P, R_co]":
        """A copy of this activity that is tried differently.

        A call with a `key` is known by it instead of by its place in the code, which may then be moved. With a `queue`
        it runs in whichever worker of that queue takes it, `Perdure(url, queues=("gpu",))`.
        """
        return self._with(_activity_options(self.settings, retry, timeout, key, queue))

    def here(self) -> "Activity[P, R_co]":
        """A copy of this activity that runs where it is called, whatever its queue."""
        return self._with(msgspec.structs.replace(self.settings, queue=None, key=None))

    def _with(self, settings: object) -> Self:
        changed = super()._with(settings)
        changed.key = changed.settings.key
        return changed


class BoundCall(Generic[R_co]):
    """A workflow with its arguments, checked: what `start_many` and `continue_as_new` take."""

    def __init__(self, workflow: "Workflow[..., R_co]", arguments: Arguments) -> None:
        self.workflow = workflow
        self.arguments = arguments
        self._is_taken = False

    def _take_arguments(self) -> Arguments:
        """The arguments for one run alone: whoever takes them again gets copies."""
        if self._is_taken:
            data = self.arguments[0]
            return data, *self.workflow.signature.restore(data)
        self._is_taken = True
        return self.arguments

    def __repr__(self) -> str:
        return f"<call of {self.workflow.name}>"


class Workflow(Function[P, R_co]):
    """A durable function: its steps survive the process that runs it."""

    kind = "workflow"
    fn: Callable[P, Coroutine[Any, Any, R_co]]
    settings: WorkflowOptions

    def __init__(self, fn: Callable[P, Coroutine[Any, Any, R_co]], name: str, options: WorkflowOptions) -> None:
        super().__init__(fn, name)
        self.settings = options

    def _begun(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        call = self._call(args, kwargs)
        # As for activities: a task made of this call is named after the workflow.
        call.__qualname__ = self.name  # type: ignore[attr-defined]  # it is a coroutine object
        return call

    if not TYPE_CHECKING:
        __call__ = _begun

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R_co:
        runtime = current()
        if runtime is None:
            raise NotInWorkflow(
                f"calling the workflow {self.name!r} directly",
                f"start it with `await app.run({self.__name__}, ...)`, in tests through `perdure.testing.Environment`; "
                f"`{self.__name__}.fn` is the plain function",
            )
        call = runtime.run_child(self, args, kwargs)
        # As `answered` does, without a coroutine more for each of thousands of children.
        try:
            return cast("R_co", await call.future)
        except asyncio.CancelledError:
            call.abandon()
            raise

    def call(self, *args: P.args, **kwargs: P.kwargs) -> BoundCall[R_co]:
        """The workflow with these arguments, for `start_many`; BadArguments when they do not fit."""
        return BoundCall(self, self.signature.record(args, kwargs))

    def options(
        self,
        *,
        id: str | None = None,
        queue: str | None = None,
        timeout: Duration | None = None,
        priority: int | None = None,
        entity_id: str | None = None,
        correlation_id: str | None = None,
        attributes: Mapping[str, object] | None = None,
        delay: Duration | None = None,
        on_conflict: ConflictPolicy | OnConflict | None = None,
        on_parent_close: ParentClosePolicy | OnParentClose | None = None,
    ) -> "Workflow[P, R_co]":
        """A copy of this workflow that is started differently; what is not given stays as it is.

        `timeout` ends the run as TIMED_OUT, `delay` begins it later, a higher `priority` is taken first.
        A child has queue, priority and correlation id from its parent unless they are given.
        """
        base, traits = self.settings, self.settings.traits
        traits = msgspec.structs.replace(
            traits,
            on_parent_close=traits.on_parent_close
            if on_parent_close is None
            else _member(OnParentClose, on_parent_close, "on_parent_close").value,
            entity_id=traits.entity_id if entity_id is None else checked_id("entity id", entity_id),
            correlation_id=traits.correlation_id
            if correlation_id is None
            else checked_id("correlation id", correlation_id),
            attributes=traits.attributes if attributes is None else recorded_attributes(attributes),
            timeout_ms=traits.timeout_ms if timeout is None else _milliseconds(timeout, "timeout", least=1),
        )
        settings = WorkflowOptions(
            id=base.id if id is None else checked_id("workflow id", id),
            queue=base.queue if queue is None else checked_id("queue", queue),
            priority=base.priority if priority is None else _priority(priority),
            delay_ms=base.delay_ms if delay is None else _milliseconds(delay, "delay"),
            on_conflict=base.on_conflict if on_conflict is None else _member(OnConflict, on_conflict, "on_conflict"),
            traits=PLAIN if traits == PLAIN else traits,
        )
        return self._with(settings)


def recorded_attributes(attributes: Mapping[str, object]) -> str:
    """Attributes as JSON; BadInput when they are not names with plain values."""
    if not isinstance(attributes, Mapping):
        raise BadOption(f"attributes are {attributes!r}; give a dict of names and plain values")
    for name in attributes:
        checked_id("attribute name", name)
    given = {name: value for name, value in attributes.items() if value is not None}
    try:
        data, _ = ValueType(Any).record(given, "the attributes")
    except BadValue as error:
        hold = "attributes hold text, numbers, truth values and lists or dicts of them; write a date as text"
        raise BadOption(f"{error}; {hold}") from None
    if len(data) > LARGEST_ATTRIBUTES:
        raise BadOption(
            f"the attributes take {len(data):,} bytes, the limit is {LARGEST_ATTRIBUTES:,}; keep them short"
        )
    return data.decode()


def _milliseconds(duration: Duration, what: str, least: int = 0) -> int:
    return max(math.ceil(seconds(duration, what) * 1000), least)


def _priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > HIGHEST_PRIORITY:
        most = f"{HIGHEST_PRIORITY:,}"
        raise BadOption(f"priority is {priority!r}; give a whole number from -{most} to {most}, higher comes first")
    return priority


def _member(kind: type[E], given: str, what: str) -> E:
    try:
        return kind(given)
    except ValueError:
        raise BadOption(f"{what} is {given!r}; give one of {', '.join(repr(str(m)) for m in kind)}") from None


activities: Registry[Activity[..., Any]] = Registry("activity")
workflows: Registry[Workflow[..., Any]] = Registry("workflow")


def _activity_options(
    base: ActivityOptions,
    retry: Retry | None,
    timeout: Duration | None,
    key: str | None = None,
    queue: str | None = None,
) -> ActivityOptions:
    if retry is not None and not isinstance(retry, Retry):
        raise BadOption(f"retry is {retry!r}; give a Retry(...)")
    return ActivityOptions(
        base.retry if retry is None else retry,
        base.timeout if timeout is None else seconds(timeout, "timeout"),
        base.key if key is None else checked_name("activity key", key),
        base.queue if queue is None else checked_id("queue", queue),
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
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
) -> ActivityDecorator: ...
def activity(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout: Duration | None = None,
    queue: str | None = None,
) -> Any:
    """Make a function a durable step. A plain `def` runs in a thread; with a `queue`, in any worker of that queue."""
    options = _activity_options(ActivityOptions(), retry, timeout, queue=queue)

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
        if (name or "").startswith(TASK_PREFIX):
            raise BadOption(f"the workflow name {name!r} is one of an activity on a queue; give it another one")
        decorated: Workflow[..., Any] = Workflow(fn, name or fn.__name__, DEFAULTS)
        refuse_unrepeatable(decorated)
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
