"""A task: an activity on a queue, run by the worker of that queue that takes it.

In:   an activity that names a queue, and its arguments; or the name of a task.
Out:  the workflow that a task is a run of: one step, the activity itself.

A task is a child of the run that calls the activity, so everything that holds for runs holds for it: it is claimed in
bulk, belongs to a worker's lease, is taken over when that dies, retries and waits like any other, and its end is a
message to its caller.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import msgspec

from perdure.authoring.activity import Activity, activities
from perdure.authoring.options import ActivityOptions, WorkflowOptions
from perdure.authoring.runtime import required
from perdure.authoring.workflow import Workflow
from perdure.errors import ActivityFailed, BadInput
from perdure.kernel import tasks
from perdure.kernel.events import ChildCompleted, ChildFailed, Event
from perdure.kernel.retry import Retry
from perdure.kernel.tasks import TaskInput
from perdure.kernel.traits import TASK_PREFIX
from perdure.worker.calls.call import CallingCode, CallingRun, CallServices, NeededCode
from perdure.worker.calls.child import AGAIN_MS, ChildCall
from perdure.worker.failures.classes import class_named, name_of
from perdure.worker.failures.failures import failure_of, raised
from perdure.worker.loop.places import keyed_place


def input_of(activity: Activity[..., Any], arguments: bytes, called_at: int) -> bytes:
    """What a task of this activity is started with."""
    settings = activity.settings
    retry = settings.retry
    return msgspec.json.encode(
        TaskInput(
            msgspec.Raw(arguments),
            settings.timeout,
            retry.max_attempts,
            retry.initial_interval,
            retry.backoff,
            retry.max_interval,
            tuple(kind if isinstance(kind, str) else name_of(kind) for kind in retry.non_retryable),
            settings.heartbeat,
            settings.at_most_once,
            begin_by(settings, called_at),
            settings.queue_timeout,
            settings.transaction,
            settings.has_timeout,
        )
    )


def begin_by(settings: ActivityOptions, called_at: int) -> int | None:
    """When a call on a queue is not to be begun any more."""
    return None if settings.queue_timeout is None else called_at + math.ceil(settings.queue_timeout * 1000)


def too_late(activity: str, queue: str, queue_timeout: float) -> TimeoutError:
    """The error for an activity that waited for too long to be begun."""
    return TimeoutError(tasks.too_late(activity, queue, queue_timeout))


class TaskSignature:
    """What goes into a task, and what comes out of it: that of its activity."""

    # Those of the activity are inside the one argument that a task has.
    defaults: ClassVar[dict[str, msgspec.Raw]] = {}

    def __init__(self, activity: Activity[..., Any]) -> None:
        self._activity = activity
        self.result = activity.signature.result

    def restore(self, data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The activity as it is to be tried, and its arguments."""
        given = msgspec.json.decode(data, type=TaskInput)
        unwanted = tuple(class_named(name) or name for name in given.non_retryable)
        retry = Retry(given.max_attempts, given.initial_interval, given.backoff, given.max_interval, unwanted)
        settings = ActivityOptions(
            retry,
            given.timeout,
            heartbeat=given.heartbeat,
            at_most_once=given.at_most_once,
            transaction=given.transaction,
            has_timeout=given.has_timeout,
        )
        args, kwargs = self._activity.signature.restore(bytes(given.arguments))
        return (self._activity.tried(settings), args, kwargs, given), {}


class Task(Workflow[..., Any]):
    """The workflow of one step that a task is a run of."""

    # It has no code of its own: where its activity failed is what its caller wants to know.
    passes_failures_on = True

    def __init__(self, activity: Activity[..., Any]) -> None:
        # One is made for every call: not by way of those that people write, whose signatures are looked at.
        self.fn = _perform
        self.name = f"{TASK_PREFIX}{activity.name}"
        self.settings = WorkflowOptions(queue=activity.settings.queue)
        self.activity = activity
        self.signature = TaskSignature(activity)  # type: ignore[assignment]  # it does what programs need of one
        self.result_name = activity.result_name


async def _perform(
    activity: Activity[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], given: TaskInput
) -> Any:
    runtime = required("a task", "call its activity")
    if given.begin_by is not None and runtime.now() > given.begin_by:
        # Its worker came too late, and the caller is told so by now or by this.
        raise too_late(activity.name, runtime.info().queue, given.queue_timeout or 0)
    return await activity(*args, **kwargs)


_tasks: "WeakKeyDictionary[Activity[..., Any], Task]" = WeakKeyDictionary()


def task_named(name: str) -> Task | None:
    """The task of this name, if its activity is registered in this process."""
    if not name.startswith(TASK_PREFIX):
        return None
    activity = activities.get(name.removeprefix(TASK_PREFIX))
    if activity is None:
        return None
    task = _tasks.get(activity)
    if task is None:
        task = _tasks[activity] = Task(activity)
    return task


def task_names() -> tuple[str, ...]:
    """The tasks that there is code for in this process."""
    return tuple(f"{TASK_PREFIX}{name}" for name in activities.names())


def with_tasks(find: Callable[[str], Workflow[..., Any] | None]) -> Callable[[str], Workflow[..., Any] | None]:
    """Find workflows, and tasks as well."""

    def found(name: str) -> Workflow[..., Any] | None:
        return find(name) or task_named(name)

    return found


class TaskCall(ChildCall, kind="task"):
    """An activity on a queue: a child that runs it, wherever that queue is worked."""

    __slots__ = ("begin_by", "is_overdue")

    workflow: Task
    # When it is not to be begun any more, and whether that time has come and it was given up if it could be.
    begin_by: int | None
    is_overdue: bool

    @classmethod
    def ask(cls, runtime: CallingCode, activity: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "TaskCall":
        if activity.key is None:
            place = runtime.place(activity.name)
        else:
            place = keyed_place(runtime.loop.root, f"{activity.name}({activity.key})")
        data, _, _ = activity.signature.record(args, kwargs)
        now = runtime.loop.now
        call = cls(runtime, place, Task(activity), input_of(activity, data, now))
        call.begin_by = begin_by(activity.settings, now)
        call.is_overdue = False
        runtime.add(call)
        return call

    @property
    def activity(self) -> Activity[..., Any]:
        return self.workflow.activity

    def answer(self, event: Event, restored: object) -> None:
        fact = event.fact
        if type(fact) is not ChildCompleted:
            super().answer(event, restored)
            return
        try:
            self.future.set_result(self.activity.signature.result.restore(fact.result, self.activity.result_name))
        except BadInput as error:
            # The worker that ran it may have other code, which is the call's failure as any other.
            self.future.set_exception(error)

    # Waiting to be begun

    def start(self, live: CallingRun, services: CallServices) -> None:
        super().start(live, services)
        if self.begin_by is not None:
            services.ring_at(self.begin_by, live, self)

    def ring(self, live: CallingRun, services: CallServices) -> None:
        """It is too late to begin: give it up, unless a worker has begun it."""
        if live.is_leaving or live.starting:
            services.ring_at(services.clock.now() + AGAIN_MS, live, self)
            return
        self.is_overdue = True
        settings = self.activity.settings
        error = too_late(self.activity.name, settings.queue or "", settings.queue_timeout or 0)
        child = ChildFailed(self.workflow.name, self.child_id, self.run_id, failure_of(error))
        services.engine.owner.close_unbegun(live.owned, self.place, child)

    def wake_at(self, live: CallingRun, now: int) -> int | None:
        at = super().wake_at(live, now)
        return at if self.begin_by is None or self.is_overdue else min(self.begin_by, at or self.begin_by)

    def raised(self, fact: ChildFailed) -> Exception:
        return raised(fact.failure, partial(ActivityFailed, self.activity.name))

    def shown(self, live: CallingRun) -> dict[str, object]:
        name, queue = self.activity.name, self.activity.settings.queue
        return {"kind": "activity", "place": self.place, "name": name, "queue": queue, "run_id": self.run_id}

    def needs(self, live: CallingRun) -> NeededCode | None:
        name, queue = self.activity.name, self.activity.settings.queue or ""
        return NeededCode(f"the activity {name}", self.workflow.name, queue, name)
