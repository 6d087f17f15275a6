"""What `@activity` and `@workflow` make of a function: its name, its signature, and copies with other options."""

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from perdure.codec import Signature
from perdure.errors import BadOption

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class DecoratedFunction(Generic[P, R_co]):
    """A decorated function: its name, its signature, and `.fn`, the original."""

    kind = "function"
    # Of an activity it gives a value or a coroutine: the caller knows which of them was written.
    fn: Callable[P, Any]
    settings: object
    # Of a copy with other options: what it is a copy of.
    _original: "DecoratedFunction[..., object] | None" = None

    def __init__(self, fn: Callable[P, object], name: str) -> None:
        self.fn = fn
        self.name = name
        self.signature = Signature(fn, name)
        self.signature.check()
        self.result_name = f"the result of {self.kind} {name!r}"
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__
        self.__wrapped__ = fn

    if TYPE_CHECKING:
        # An `async def` to type checkers. Were it said to return a Coroutine[Any, Any, R], which is the same,
        # mypy would take these for Anys of the user's and answer Any to a gather() of different functions.
        async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
            raise NotImplementedError

    else:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
            call = self._call(args, kwargs)
            # A task made of this call is a branch of its run; branches are named by their coroutines.
            call.__qualname__ = self.name
            return call

    @property
    def origin(self) -> str:
        return f"{self.fn.__module__}.{self.fn.__qualname__}"

    def _with(self, settings: object) -> Self:
        """A copy with other options."""
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.settings = settings
        changed._original = self._original or self
        return changed

    def __reduce__(self) -> str | tuple[object, ...]:
        """By name, as functions are; a copy with other options by that of its original."""
        return self.__qualname__ if self._original is None else (_changed, (self._original, self.settings))

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}>"


def _changed(original: DecoratedFunction[..., object], settings: object) -> DecoratedFunction[..., object]:
    """A copy with options that was pickled."""
    return original._with(settings)


def checked_function(fn: Any, kind: str) -> Callable[..., Any]:
    if isinstance(fn, DecoratedFunction):
        raise BadOption(f"{fn!r} is decorated already; decorate the plain function once")
    if not inspect.isfunction(fn):
        raise BadOption(f"@{kind} takes a function, not {fn!r}")
    if fn.__name__ == "<lambda>":
        raise BadOption(f"@{kind} needs a function with a name of its own; write a `def` instead of a lambda")
    if next(iter(inspect.signature(fn).parameters), None) in {"self", "cls"}:
        raise BadOption(f"{fn.__qualname__} is a method; @{kind} takes functions, whose arguments can be written down")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise BadOption(f"the {kind} {fn.__qualname__} is a generator; it must return its result, not yield it")
    return fn
