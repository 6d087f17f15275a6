"""The registry: which function stands behind a name in this process.

It does not keep functions alive: what a test defines and drops is gone.
"""

from typing import Generic, Protocol, TypeVar
from weakref import ref

from perdure.errors import BadOption, DuplicateName
from perdure.ids import checked_id


class Named(Protocol):
    """A decorated function: a name, and where it was written."""

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str: ...


N = TypeVar("N", bound=Named)

# These mean something in the places of a history.
_RESERVED = frozenset("()/#")


def checked_name(what: str, name: object) -> str:
    """The name itself, if it can stand in a place; else BadInput."""
    checked = checked_id(what, name)
    if _RESERVED & set(checked):
        raise BadOption(f"the {what} {checked!r} must not contain any of ( ) / #")
    return checked


class Registry(Generic[N]):
    """Decorated functions of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._known: dict[str, ref[N]] = {}

    def add(self, function: N) -> None:
        """Register under its name; the same function written anew replaces its old self."""
        name = checked_name(f"{self.kind} name", function.name)
        known = self.get(name)
        if known is not None and known.origin != function.origin:
            raise DuplicateName(self.kind, name, known.origin, function.origin)
        self._known[name] = ref(function)

    def get(self, name: str) -> N | None:
        """The function behind a name, if it is still there."""
        known = self._known.get(name)
        return None if known is None else known()

    def names(self) -> tuple[str, ...]:
        # A list of its own first: another thread may import a module with more of them meanwhile.
        return tuple(sorted(name for name, known in list(self._known.items()) if known() is not None))
