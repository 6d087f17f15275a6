"""Undo: what a workflow has done is taken back, newest first, when it does not end well.

In:   an activity or a workflow that undoes something, and its arguments.
Out:  a handle that forgets it again; nothing is called before the run fails, is cancelled or runs out of time.
"""

from typing import ParamSpec

from perdure.authoring.function import DecoratedFunction
from perdure.authoring.runtime import required
from perdure.errors import BadOption

P = ParamSpec("P")


class Undo:
    """A call that undoes something, registered with `undo()`."""

    __slots__ = ("_stack", "arguments", "error", "function", "is_begun", "state")

    def __init__(self, function: DecoratedFunction[..., object], arguments: bytes, stack: "dict[Undo, None]") -> None:
        self.function = function
        self.arguments = arguments
        self.state = "waiting"
        self.error: str | None = None
        self.is_begun = False
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
    runtime = required("undo()", "it registers what a workflow does when it fails")
    if not isinstance(function, DecoratedFunction):
        raise BadOption(f"undo() takes an activity or a workflow and its arguments, not {function!r}")
    data, _, _ = function.signature.record(args, kwargs)
    handle: Undo = runtime.undo(function, data)
    return handle


async def unwind() -> None:
    """Undo everything that is registered so far now, newest first, and go on.

    What cannot be undone does not stop the rest; `describe().undo` tells. A cancellation meanwhile is felt when all
    of it is done.
    """
    undos = required("unwind()", "it undoes what a workflow has registered with undo()").undos
    if undos is not None:
        await undos.unwind()
