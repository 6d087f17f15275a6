"""Hints: what the annotations of a function mean.

In:   a function, while it is being decorated.
Out:  each parameter's type on its own, or why it cannot be told.
Annotations may be strings, and name classes that exist for type checkers only, or
only inside the function around; what one of them hides says nothing about the others.
"""

import inspect
import sys
import typing
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any, ParamSpecArgs, ParamSpecKwargs


class Hints:
    """A function's annotations, resolved when they are asked for."""

    def __init__(self, fn: Callable[..., object]) -> None:
        self._annotations = dict(getattr(fn, "__annotations__", {}))
        origin = inspect.unwrap(fn)
        self._globals = getattr(origin, "__globals__", {})
        self._parameters = {each.__name__: each for each in getattr(origin, "__type_params__", ())}
        self._resolve_locals(origin)

    def of(self, name: str) -> tuple[Any, str | None]:
        """The annotation of a parameter or of `return`, and if it cannot be resolved the reason why."""
        try:
            found = self._resolved(name, self._parameters)
        except Exception as error:  # noqa: BLE001 - annotations are code
            return Any, f"{type(error).__name__}: {error}"
        return (Any if isinstance(found, ParamSpecArgs | ParamSpecKwargs) else found), None

    def _resolved(self, name: str, names: dict[str, Any]) -> Any:
        if name not in self._annotations:
            return Any
        carrier = SimpleNamespace(__annotations__={name: self._annotations[name]})
        return typing.get_type_hints(carrier, self._globals, names, include_extras=True)[name]

    def _resolve_locals(self, fn: Callable[..., object]) -> None:
        """Look up what only the function around knows, which is running now but will be gone later."""
        around, _, _ = fn.__qualname__.rpartition(".<locals>.")
        if not around or not any(isinstance(each, str) for each in self._annotations.values()):
            return
        names = {**_locals_of(around, self._globals), **self._parameters}
        for name in self._annotations:
            try:
                self._annotations[name] = self._resolved(name, names)
            except Exception:  # noqa: BLE001, S112 - it may be defined further down; asked again when it is needed
                continue


def _locals_of(qualname: str, globals: dict[str, Any]) -> dict[str, Any]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_qualname == qualname and frame.f_globals is globals:
            return frame.f_locals
        frame = frame.f_back
    return {}
