"""Undo: what a workflow has done is taken back, newest first, when it does not end well.

In:   an activity or a workflow that undoes something, and its arguments.
Out:  a handle that forgets it again; nothing is called before the run fails, is cancelled or runs out of time.
"""

import inspect
from asyncio.events import _get_running_loop
from typing import ParamSpec

from perdure.authoring.function import DecoratedFunction
from perdure.authoring.runtime import Runtime, required
from perdure.errors import BadOption, NotInWorkflow

P = ParamSpec("P")


class Undo:
    """A call that undoes something, registered with `undo()`."""

    # Its state, once it is over; and what it failed with.
    state = "waiting"
    error: str | None = None
    is_begun = False

    def __init__(
        self,
        function: DecoratedFunction[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        stack: "dict[Undo, None]",
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self._stack = stack

    @property
    def name(self) -> str:
        return self.function.name

    def drop(self) -> None:
        """Forget it: what it would undo is to stay. One that has begun already goes on."""
        if not self.is_begun:
            self._stack.pop(self, None)

    def __repr__(self) -> str:
        return f"<undo {self.name}, {self.state}>"


def undo(function: DecoratedFunction[P, object], /, *args: P.args, **kwargs: P.kwargs) -> Undo:
    """Have this called with these arguments should the run fail, be cancelled or run out of time.

    All that a run has registered is called in reverse order once its code has ended, each as a durable call of its
    own, before the run is closed. A run that returns calls none of it.
    """
    runtime: Runtime | None = getattr(_get_running_loop(), "runtime", None)
    if runtime is None:
        raise NotInWorkflow("undo()", "it registers what a workflow does when it fails")
    if not isinstance(function, DecoratedFunction):
        raise _no_function(function)
    # As a replay would restore them: whatever becomes of what is given here, they stay as they are.
    _, given, named = function.signature.record(args, kwargs)
    undos = runtime.undos
    waiting = runtime.begin_undos() if undos is None or not undos.waiting else undos.waiting
    handle = Undo(function, given, named, waiting)
    waiting[handle] = None
    return handle


def _no_function(given: object) -> BadOption:
    if inspect.iscoroutine(given):
        # Nobody will await it, and nobody needs to be told of that twice.
        given.close()
        return BadOption(
            "undo() calls the function itself, later: write `undo(refund, order)`, not `undo(refund(order))`"
        )
    return BadOption(f"undo() takes an activity or a workflow and its arguments, not {given!r}")


async def unwind() -> None:
    """Undo everything that is registered so far now, newest first, and go on.

    What cannot be undone does not stop the rest; `describe().undo` tells. A cancellation meanwhile is felt when all
    of it is done.
    """
    undos = required("unwind()", "it undoes what a workflow has registered with undo()").undos
    if undos is not None:
        await undos.unwind()
