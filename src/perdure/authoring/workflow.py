"""`@workflow`: an ordinary `async def`, made a durable function.

Calling it always gives a coroutine with the function's own signature. Inside a workflow the call starts a child run
and waits for it; outside, it refuses to.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from perdure.authoring.durations import Duration
from perdure.authoring.function import DecoratedFunction, checked_function
from perdure.authoring.lint.check import refuse_unrepeatable
from perdure.authoring.options import (
    DEFAULTS,
    ConflictPolicy,
    ParentClosePolicy,
    WorkflowOptions,
    workflow_options,
)
from perdure.authoring.registry import Registry
from perdure.authoring.runtime import current
from perdure.codec import Arguments
from perdure.errors import BadArguments, BadOption, BadSchedule, NotInWorkflow
from perdure.kernel.conflict import OnConflict
from perdure.kernel.schedules import LONGEST_NAME
from perdure.kernel.timetables import Timetable, Timing
from perdure.kernel.traits import TASK_PREFIX, OnParentClose

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class BoundCall(Generic[R_co]):
    """A workflow with its arguments, checked: what `start_many` and `continue_as_new` take."""

    def __init__(self, workflow: "Workflow[..., R_co]", arguments: Arguments) -> None:
        self.workflow = workflow
        self.arguments = arguments
        self._is_taken = False

    def _take_arguments(self) -> Arguments:
        """The arguments for one run alone: the next one that takes them gets copies."""
        if self._is_taken:
            data = self.arguments[0]
            return data, *self.workflow.signature.restore(data)
        self._is_taken = True
        return self.arguments

    def __repr__(self) -> str:
        return f"<call of {self.workflow.name}>"


class Workflow(DecoratedFunction[P, R_co]):
    """A durable function: its steps survive the process that runs it."""

    kind = "workflow"
    # Whether a run fails with what its last activity failed with, and not with an error of its own code.
    passes_failures_on = False
    fn: Callable[P, Coroutine[Any, Any, R_co]]
    settings: WorkflowOptions
    # When a schedule that comes with this code starts runs of it.
    schedule: Timetable | None = None

    def __init__(self, fn: Callable[P, Coroutine[Any, Any, R_co]], name: str, options: WorkflowOptions) -> None:
        super().__init__(fn, name)
        self.settings = options

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R_co:
        runtime = current()
        if runtime is None:
            raise NotInWorkflow(
                f"calling the workflow {self.name!r} directly",
                f"start it with `await app.run({self.__name__}, ...)`, in tests through `perdure.testing.Environment`; "
                f"`{self.__name__}.fn` is the plain function",
            )
        call = runtime.calls["child"](runtime, self, args, kwargs)
        # As `answered` does, without a coroutine more for each of thousands of children.
        try:
            return cast("R_co", await call.future)
        except asyncio.CancelledError:
            call.cancel()
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
        settings = workflow_options(
            self.settings,
            id,
            queue,
            timeout,
            priority,
            entity_id,
            correlation_id,
            attributes,
            delay,
            on_conflict,
            on_parent_close,
        )
        return self._with(settings)


workflows: Registry[Workflow[..., Any]] = Registry("workflow")


def _checked_schedule(decorated: Workflow[..., Any], schedule: Timetable) -> Timetable:
    """The timetable of a workflow that needs no arguments; BadSchedule."""
    if not isinstance(schedule, Timing):
        raise BadSchedule(f"schedule is {schedule!r}; give a Cron(...), an Every(...) or an At(...)")
    schedule.refuse_misleading()
    if len(decorated.name) > LONGEST_NAME:
        raise BadSchedule(f"the workflow name {decorated.name!r} is too long for a schedule, {LONGEST_NAME} characters")
    try:
        decorated.signature.record((), {})
    except BadArguments as error:
        raise BadSchedule(
            f"{error}; a workflow with a schedule is started without arguments: give them defaults, or make the "
            "schedule with app.schedules.create(...)"
        ) from None
    return schedule


class WorkflowDecorator(Protocol):
    """What `@workflow(...)` with options is."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, schedule: Timetable | None = None) -> WorkflowDecorator: ...
def workflow(
    fn: Callable[..., Any] | None = None, /, *, name: str | None = None, schedule: Timetable | None = None
) -> Any:
    """Make an `async def` a durable function.

    With a `schedule`, such as `Cron("0 2 * * *", "Europe/Berlin")`, workers that have this code start a run of it at
    each of its times; the schedule has the workflow's name, and is made, changed and removed with the code.
    """

    def decorate(fn: Callable[..., Any]) -> Workflow[..., Any]:
        if not inspect.iscoroutinefunction(checked_function(fn, "workflow")):
            raise BadOption(f"the workflow {fn.__qualname__} is a plain def; write `async def {fn.__name__}`")
        if (name or "").startswith(TASK_PREFIX):
            raise BadOption(f"the workflow name {name!r} is one of an activity on a queue; give it another one")
        decorated: Workflow[..., Any] = Workflow(fn, name or fn.__name__, DEFAULTS)
        refuse_unrepeatable(decorated)
        if schedule is not None:
            decorated.schedule = _checked_schedule(decorated, schedule)
        workflows.add(decorated)
        return decorated

    return decorate if fn is None else decorate(fn)
