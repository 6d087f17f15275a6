"""Start requests: what a caller gives to be started, checked and put into words for the engine."""

import inspect
from typing import Any

import msgspec

from perdure.authoring.activity import Activity
from perdure.authoring.options import DEFAULTS, WorkflowOptions
from perdure.authoring.workflow import BoundCall, Workflow
from perdure.codec import Arguments
from perdure.engine.ports import StartRequest
from perdure.errors import (
    BadArguments,
    BadOption,
)
from perdure.views.run_views import KnownRun


def no_workflow(given: object) -> BadOption:
    name = getattr(given, "__qualname__", repr(given))
    if inspect.iscoroutine(given):
        given.close()
        return BadOption(f"this is a call of {name}; give the workflow and its arguments apart: start({name}, ...)")
    if isinstance(given, BoundCall):
        return BadOption(f"{given!r} is a call; give the workflow and its arguments apart, or use start_many({name})")
    if isinstance(given, str):
        return BadOption(f"{name} is a name; give the workflow itself, or use start_json({name}, b'...')")
    if isinstance(given, Activity):
        return BadOption(f"{name} is an activity; call it from a workflow, and start that")
    return BadOption(f"{name} is not a workflow; decorate it with @workflow")


def workflow_of(row: KnownRun, given: object) -> Workflow[..., Any]:
    """The workflow that the caller named, when the run is one of it."""
    if not isinstance(given, Workflow):
        raise no_workflow(given)
    if given.name != row.workflow:
        raise BadOption(
            f"run {row.workflow_id!r} is one of {row.workflow!r}, not of {given.name!r}; name its own workflow, or none"
        )
    return given


def recorded(wanted: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments as they are written; options among them are a common mistake."""
    try:
        return wanted.signature.record(args, kwargs)
    except BadArguments as error:
        options = inspect.signature(Workflow.options).parameters.keys() & kwargs.keys()
        if not options:
            raise
        name = min(options)
        hint = f"options go with the workflow: start({wanted.__name__}.options({name}=...), ...)"
        raise BadArguments(error.function, f"{error.trouble}; {hint}") from None


def bound(call: object, whose: str = "start_many() takes") -> BoundCall[Any]:
    """A workflow with its arguments; BadOption for anything else."""
    if not isinstance(call, BoundCall):
        raise BadOption(f"{call!r:.100} is not a call; {whose} calls such as pack.call(1)")
    return call


def request_of(wanted: Workflow[..., Any], arguments: Arguments) -> StartRequest:
    data, args, kwargs = arguments
    if wanted.settings is DEFAULTS:
        return StartRequest(wanted.name, data.decode(), arguments=(args, kwargs), is_plain=True)
    return request_by_name(wanted.name, data, wanted.settings, (args, kwargs))


def checked_json(workflow: str, data: bytes) -> bytes:
    """Arguments that are JSON; whether they fit is checked where the workflow is known."""
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise BadArguments(workflow, f"the arguments are not JSON: {error}") from None
    return data


def request_by_name(
    workflow: str,
    data: bytes,
    settings: WorkflowOptions,
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
) -> StartRequest:
    """The request to start a workflow whose code may be elsewhere."""
    return StartRequest(
        workflow,
        data.decode(),
        settings.id,
        settings.queue or "default",
        settings.priority or 0,
        arguments,
        settings.traits,
        settings.delay_ms,
        on_conflict=settings.on_conflict,
    )
