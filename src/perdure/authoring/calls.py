"""Plain calls of workflow code: time, waiting and chance that replay the same."""

import asyncio
import inspect
import random
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, cast, overload

from perdure.authoring.durations import Duration, seconds
from perdure.authoring.info import Info
from perdure.authoring.registry import checked_name
from perdure.authoring.runtime import answered, current, required
from perdure.authoring.workflow import BoundCall, Workflow
from perdure.errors import BadOption, NotAllowedInWorkflow
from perdure.ids import checked_id

T = TypeVar("T")


async def sleep(duration: Duration, *, key: str | None = None) -> None:
    """Wait; in a workflow durably, however often the process is restarted meanwhile.

    A `key` names the timer: code that sleeps by the same key again waits for its first time, or not at all
    when that is over.
    """
    delay = seconds(duration, "the duration of sleep()")
    runtime = current()
    if key is None or runtime is None:
        await asyncio.sleep(delay)
    else:
        await runtime.timer(checked_name("timer key", key), delay)


def now() -> datetime:
    """The time of the event the workflow is handling, in UTC."""
    runtime = required("now()", "use datetime.now(UTC) elsewhere")
    return datetime.fromtimestamp(runtime.now() / 1000, UTC)


def rng() -> random.Random:
    """The run's own random numbers; the same ones on every replay."""
    return required("rng()", "use the random module elsewhere").rng()


def uuid4() -> uuid.UUID:
    """A random UUID; the same one on every replay."""
    runtime = required("uuid4()", "use uuid.uuid4() elsewhere")
    return uuid.UUID(int=runtime.rng().getrandbits(128), version=4)


@overload
async def side_effect(fn: Callable[[], Awaitable[T]], /) -> T: ...
@overload
async def side_effect(fn: Callable[[], T], /) -> T: ...
async def side_effect(fn: Callable[[], object], /) -> object:
    """Call a small function once and record what it returned; a replay gets the record.

    What is not plain JSON needs a return annotation, as with an activity.
    For anything that can fail or take long, use an activity.
    """
    runtime = required("side_effect()", "just call the function elsewhere")
    return cast("object", await answered(runtime.calls["side_effect"](runtime, fn)))


def patched(change_id: str) -> bool:
    """Whether this run takes the new way of a change to its code.

    True for runs that come here for the first time, False for those that went by before
    the change was made; and the same answer for the rest of the run.
    """
    runtime = required("patched()", "it tells running workflows of a change to their code")
    return runtime.patched(checked_id("change id", change_id))


def set_attributes(**patch: object) -> None:
    """Merge into the run's attributes, which are shown with it; None takes one away."""
    required("set_attributes()", "give a new run attributes with `.options(attributes=...)`").set_attributes(patch)


def at(step: str) -> None:
    """Say where the workflow stands, for people to see."""
    required("at()", "it shows the current step of a run").set_step(checked_id("step", step))


def expose(name: str, function: Callable[[], object]) -> None:
    """Let everybody see what a function of the workflow gives: `expose("done", lambda: done)`.

    It is called without arguments, when the workflow waits and at most about once a second while it goes on; what it
    gives is read by `run.query(name)`, also when no worker is there. Exposed again under a name it takes its place.
    """
    runtime = required("expose()", "read what a run exposes with `run.query(...)`")
    runtime.outputs.expose(checked_id("query name", name), _shown_by(function))


def _shown_by(function: Any) -> Callable[[], object]:
    """A function that can be called without arguments; BadOption."""
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise BadOption(f"expose() takes a plain function, `lambda: done`, and not {function!r}")
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise BadOption(f"expose() calls its function without arguments, and {function!r} needs some") from None
    except ValueError:
        pass  # Some that are written in C do not say what they take.
    return cast("Callable[[], object]", function)


def info() -> Info:
    """The run this code runs in."""
    return required("info()", "use `run.describe()` elsewhere").info()


async def interrupted() -> str | None:
    """Wait until the run is asked to stop, and get the reason: `select(stop=interrupted(), job=jobs.receive())`.

    While a branch waits here, a cancel is told here and raises nothing; the run ends as its code ends, or at the
    deadline of the cancel. A cancel that came earlier is told at once.
    """
    runtime = required("interrupted()", "ask a run to stop with `run.cancel(...)`")
    return cast("str | None", await answered(runtime.calls["interrupted"](runtime)))


class ContinueAsNew(BaseException):
    """Leaves the workflow so that another run goes on in its place; not an Exception, so that nobody catches it."""

    def __init__(self, call: "BoundCall[Any]") -> None:
        super().__init__(call)
        self.call = call


@overload
def continue_as_new(call: BoundCall[object], /) -> NoReturn: ...
@overload
def continue_as_new(*args: object, **kwargs: object) -> NoReturn: ...
def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """Go on in a new run of the same id with an empty history; never returns.

    Takes the arguments of this workflow, or a call: `continue_as_new(poll.call(cursor))`. Attributes
    and unread signals are carried over.
    """
    runtime = required("continue_as_new()", "start a new run with `app.start(...)` elsewhere")
    if asyncio.current_task() is not runtime.main_task:
        raise NotAllowedInWorkflow("continue_as_new() in a task of its own", "call it from the workflow's main task")
    if runtime.undos is not None and (names := runtime.undos.names()):
        raise BadOption(
            f"the run cannot continue as a new one with something to undo: {names}; drop() it or await unwind() before"
        )
    given = args[0] if len(args) == 1 and isinstance(args[0], BoundCall) else None
    if given is not None and kwargs:
        raise BadOption("continue_as_new() takes a call or arguments, not both")
    raise ContinueAsNew(_successor(runtime.workflow, given, args, kwargs))


def _successor(
    workflow: Workflow[..., Any], call: BoundCall[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> BoundCall[Any]:
    if call is None:
        return BoundCall(workflow, workflow.signature.record(args, kwargs))
    if call.workflow.name != workflow.name:
        raise BadOption(f"a run of {workflow.name!r} cannot continue as one of {call.workflow.name!r}")
    return call


async def select(**choices: Awaitable[T]) -> tuple[str, T]:
    """The name and the value of the first to be done; the others are cancelled and consume nothing.

    When several are done at once, the one named first wins.
    """
    if not choices:
        raise BadOption("select() needs something to wait for; name it: select(expire=sleep(30), ...)")
    tasks = {name: asyncio.ensure_future(choice) for name, choice in choices.items()}
    try:
        await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        name, winner = next((name, task) for name, task in tasks.items() if task.done())
        return name, winner.result()
    finally:
        for task in tasks.values():
            task.cancel()
