"""What a worker tells others of its workflows, so that a server without their code can check and start them.

In:   workflows of this process.
Out:  names, parameters with their schemas and defaults, docstrings, and the channels beside their code.
"""

import inspect
import logging
from collections.abc import Iterable
from inspect import Parameter
from typing import Any

import msgspec

from perdure.authoring.deferreds import Deferred
from perdure.authoring.requests import Request
from perdure.authoring.signals import Signal
from perdure.authoring.workflow import Workflow
from perdure.engine.ports import AnnouncedChannel, AnnouncedParameter, AnnouncedWorkflow, Engine
from perdure.errors import PerdureError

log = logging.getLogger("perdure.engine")

CHANNELS = {"signal": Signal, "deferred": Deferred, "request": Request}
TAKES: dict[object, str] = {Parameter.VAR_POSITIONAL: "args", Parameter.VAR_KEYWORD: "kwargs"}


async def announce(engine: Engine, namespace: str, known: Iterable[Workflow[..., Any]]) -> None:
    """Tell others of these workflows; what is in the way is told, and harms nobody."""
    try:
        await engine.announcements.announce(namespace, [announced(workflow) for workflow in known])
    except PerdureError as error:
        text = "the workflows of this worker could not be announced, the next start tries again: %s"
        log.warning(text, error, extra={"event": "announce_failed"})


def announced(workflow: Workflow[..., Any]) -> AnnouncedWorkflow:
    """A workflow as others are told of it."""
    signature, kinds = workflow.signature, inspect.signature(workflow.fn).parameters
    parameters = tuple(
        AnnouncedParameter(name, _schema(kind.schema), _text(signature.defaults.get(name)), TAKES.get(kinds[name].kind))
        for name, kind in signature.parameters.items()
    )
    return AnnouncedWorkflow(workflow.name, parameters, inspect.getdoc(workflow.fn) or "", _channels(workflow))


def _channels(workflow: Workflow[..., Any]) -> tuple[AnnouncedChannel, ...]:
    """The channels that stand beside a workflow in its module."""
    beside = getattr(workflow.fn, "__globals__", {}).values()
    found = {
        (kind, each.name): AnnouncedChannel(kind, each.name, _schema(each.accepts))
        for each in list(beside)
        for kind, made_by in CHANNELS.items()
        if isinstance(each, made_by)
    }
    return tuple(found[key] for key in sorted(found))


def _text(default: msgspec.Raw | None) -> str | None:
    return None if default is None else bytes(default).decode()


def _schema(data: bytes | None) -> dict[str, Any] | None:
    return None if data is None else msgspec.json.decode(data, type=dict[str, Any])
