"""The Runtime: what durable calls ask of whoever runs the workflow.

In:   calls made by workflow code.
Out:  futures of the run's own event loop.
A run has an event loop of its own, and its runtime is an attribute of that loop; so
"are we inside a workflow" is a look at the running loop, right by construction.
"""

import asyncio
import random
from asyncio.events import _get_running_loop
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from perdure.errors import NotInWorkflow

if TYPE_CHECKING:
    from perdure.authoring.functions import Activity, BoundCall, Workflow
    from perdure.authoring.info import Info
    from perdure.authoring.signals import Signal


class Call(Protocol):
    """A durable call on its way: its answer, and a way to say that nobody waits for it any more."""

    future: "asyncio.Future[Any]"

    def abandon(self) -> None: ...


class Runtime(Protocol):
    """What a running workflow can ask for."""

    @property
    def main_task(self) -> "asyncio.Task[Any] | None": ...

    def run_activity(self, activity: "Activity[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call: ...

    def run_child(self, workflow: "Workflow[..., Any]", args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call: ...

    def receive(self, signal: "Signal[Any]") -> Call: ...

    def record(self, fn: Callable[[], Any]) -> Call: ...

    def timer(self, key: str, delay: float) -> "asyncio.Future[None]": ...

    def now(self) -> int: ...

    def rng(self) -> random.Random: ...

    def patched(self, change_id: str) -> bool: ...

    def set_attributes(self, patch: dict[str, Any]) -> None: ...

    def set_step(self, step: str | None) -> None: ...

    def info(self) -> "Info": ...

    def successor(
        self, call: "BoundCall[Any] | None", args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> "BoundCall[Any]": ...


def current() -> Runtime | None:
    """The runtime of the workflow this code runs in, if it does."""
    return getattr(_get_running_loop(), "runtime", None)


def required(what: str, instead: str) -> Runtime:
    """The runtime, or NotInWorkflow."""
    runtime = current()
    if runtime is None:
        raise NotInWorkflow(what, instead)
    return runtime


async def answered(call: Call) -> Any:
    """The answer to a durable call; whoever stops waiting for it gives it up."""
    try:
        return await call.future
    except asyncio.CancelledError:
        call.abandon()
        raise
