"""Channels: what signals, deferreds and requests have in common, a name and the type of what comes."""

import typing
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from perdure.codec import ValueType
from perdure.ids import checked_id

T = TypeVar("T")


class Channel(Generic[T]):
    """A named kind of message with a typed payload."""

    what: ClassVar[str]

    def __init__(self, name: str, type: type[T] | None = None) -> None:
        self.name = checked_id(f"{self.what} name", name)
        self._given_type = type
        if type is not None:
            self.payload.refuse_clashes(f"the {self.what} {name!r}")
            self.payload.refuse_unreadable(f"the {self.what} {name!r}")

    @cached_property
    def payload(self) -> ValueType:
        """How payloads are written and restored."""
        if self._given_type is not None:
            return ValueType(self._given_type)
        generic = typing.get_args(getattr(self, "__orig_class__", None))
        return ValueType(generic[0] if generic else Any)

    @cached_property
    def accepts(self) -> bytes | None:
        """The JSON schema of payloads, for people who send them by hand; None when anything will do, or it is long."""
        return self.payload.schema

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.name, self.payload.annotation)

    def __repr__(self) -> str:
        return f"<{self.what} {self.name}>"
