"""The Runtime: what durable calls ask of the run they are made in.

In:   calls made by workflow code.
Out:  futures of the run's own event loop.
A run has an event loop of its own, and its runtime is an attribute of that loop; so
"are we inside a workflow" is a look at the running loop, right by construction.
"""

import asyncio
import random
from asyncio.events import _get_running_loop
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from perdure.authoring.info import Info
from perdure.errors import NotInWorkflow
from perdure.kernel.requests import RequestAnswer


class PendingCall(Protocol):
    """A durable call on its way: its answer, and a way to say that nobody waits for it any more."""

    future: "asyncio.Future[Any]"

    def cancel(self) -> None: ...


class Undos(Protocol):
    """What a run has registered to undo: the calls that are left, their names, newest first, and a way to make them."""

    @property
    def waiting(self) -> dict[Any, None]: ...

    def names(self) -> str: ...

    async def unwind(self) -> None: ...


class Outlets(Protocol):
    """What a running workflow can show and publish."""

    def expose(self, name: str, function: Callable[[], object]) -> None: ...

    def publish(self, name: str, body: str) -> None: ...


class Runtime(Protocol):
    """What a running workflow can ask for.

    A durable call is asked for by the name of its kind, `runtime.calls["signal"](runtime, signal)`; what else it
    takes is known to its authoring function and to its file in the worker.
    """

    @property
    def calls(self) -> Mapping[str, Callable[..., Any]]: ...

    @property
    def main_task(self) -> "asyncio.Task[Any] | None": ...

    @property
    def workflow(self) -> Any:
        """The workflow that the run is one of."""

    def timer(self, key: str, delay: float) -> "asyncio.Future[None]": ...

    def now(self) -> int: ...

    def rng(self) -> random.Random: ...

    def patched(self, change_id: str) -> bool: ...

    def set_attributes(self, patch: dict[str, Any]) -> None: ...

    def set_step(self, step: str | None) -> None: ...

    @property
    def outputs(self) -> "Outlets": ...

    def info(self) -> Info: ...

    def token(self, name: str) -> str: ...

    def answer(self, message_id: str, answer: RequestAnswer) -> None: ...

    # Where the first call that undoes something is to be registered; all that are, if any ever was.
    def begin_undos(self) -> dict[Any, None]: ...

    @property
    def undos(self) -> "Undos | None": ...


def current() -> Runtime | None:
    """The runtime of the workflow this code runs in, if it does."""
    return getattr(_get_running_loop(), "runtime", None)


def required(what: str, instead: str) -> Runtime:
    """The runtime, or NotInWorkflow."""
    runtime = current()
    if runtime is None:
        raise NotInWorkflow(what, instead)
    return runtime


async def answered(call: PendingCall) -> Any:
    """The answer to a durable call, which is cancelled when nobody waits for it any more."""
    try:
        return await call.future
    except asyncio.CancelledError:
        call.cancel()
        raise
