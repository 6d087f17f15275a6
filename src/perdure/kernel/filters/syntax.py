"""The shape of a filter: conditions on fields and attributes, joined by and, or, not.

There is one way to say each thing, so that whoever reads a Filter has few cases: `!=` is Not of `=`, null is
IsNull, a status is text in upper case, `ago` is the moment it means.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["text", "number", "time", "status"]
Operator: TypeAlias = Literal["=", "<", "<=", ">", ">="]

# The fields of a run, and what each holds. Every other name is an attribute.
FIELDS: dict[str, Kind] = {
    "id": "text",
    "run_id": "text",
    "workflow": "text",
    "status": "status",
    "queue": "text",
    "priority": "number",
    "step": "text",
    "held": "text",
    "entity_id": "text",
    "correlation_id": "text",
    "parent_id": "text",
    "schedule": "text",
    "error": "text",
    "created_at": "time",
    "updated_at": "time",
    "closed_at": "time",
}


class Field(msgspec.Struct, frozen=True, gc=False):
    """A field that every run has, by one of the names in FIELDS."""

    name: str


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """An attribute, which a run has or not."""

    name: str


Name: TypeAlias = Field | Attribute


class TextValue(msgspec.Struct, frozen=True, gc=False):
    text: str


class NumberValue(msgspec.Struct, frozen=True, gc=False):
    """A whole number of 64 bits, or a finite floating point number."""

    number: int | float


class TruthValue(msgspec.Struct, frozen=True, gc=False):
    is_true: bool


class TimeValue(msgspec.Struct, frozen=True, gc=False):
    """A moment, in milliseconds; only fields of kind time are compared with it."""

    at: int


PlainValue: TypeAlias = TextValue | NumberValue | TruthValue
Value: TypeAlias = PlainValue | TimeValue


class Constant(msgspec.Struct, frozen=True, gc=False):
    """All runs, or none."""

    is_true: bool


class Compare(msgspec.Struct, frozen=True, gc=False):
    """The name has a value of the same type that is equal to this one, less or greater."""

    name: Name
    operator: Operator
    value: Value


class In(msgspec.Struct, frozen=True):
    """The name equals one of these values."""

    name: Name
    values: tuple[Value, ...]


class Like(msgspec.Struct, frozen=True, gc=False):
    """The name is a text that fits the pattern, in which only `%` and `_` have a meaning."""

    name: Name
    pattern: str


class Contains(msgspec.Struct, frozen=True, gc=False):
    """The attribute is a list with this value in it."""

    name: Attribute
    value: PlainValue


class IsNull(msgspec.Struct, frozen=True, gc=False):
    """The run has no such attribute, or the field no value."""

    name: Name


class Not(msgspec.Struct, frozen=True):
    inner: "Filter"


class And(msgspec.Struct, frozen=True):
    """All of these, of which none is an And; made by `all_of`."""

    parts: tuple["Filter", ...]


class Or(msgspec.Struct, frozen=True):
    """At least one of these, of which none is an Or; made by `any_of`."""

    parts: tuple["Filter", ...]


Condition: TypeAlias = Compare | In | Like | Contains | IsNull
Filter: TypeAlias = Constant | Condition | Not | And | Or

EVERYTHING = Constant(True)


def all_of(filters: Iterable[Filter]) -> Filter:
    """The runs that match all of the filters; all runs when there is no filter."""
    parts = [part for each in filters for part in (each.parts if isinstance(each, And) else (each,))]
    parts = [part for part in parts if part != EVERYTHING]
    return And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else EVERYTHING


def any_of(filters: Iterable[Filter]) -> Filter:
    """The runs that match at least one of the filters; none when there is no filter."""
    parts = [part for each in filters for part in (each.parts if isinstance(each, Or) else (each,))]
    return Or(tuple(parts)) if len(parts) > 1 else parts[0] if parts else Constant(False)
