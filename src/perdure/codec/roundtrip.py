"""Likeness: whether what was restored is what was written, down to the types.

In:   a value, and what was restored from its JSON.
Out:  nothing, or the first difference: where it is, and what would have come of it.
Looks at the structure of values; a class's own `==` may lie or be missing.
"""

import dataclasses
import functools
import inspect
import math
import reprlib
from collections.abc import Callable
from datetime import datetime, time, tzinfo
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, TypeAlias

import msgspec

from perdure.codec.wire import DEEPEST_VALUE, TOO_DEEP, encode, is_textual, no_place_for

# Types whose values are alike when they are equal.
LEAVES: frozenset[Any] = frozenset({str, int, bool, NoneType, float, bytes})

_LOST = object()


class ValueDifference(msgspec.Struct):
    """What would come back changed: how, and where in the value. `lost_type` is set when it is the type that would."""

    trouble: str
    path: str = ""
    lost_type: str | None = None

    def inside(self, step: str) -> "ValueDifference":
        """The same, seen from one level up."""
        self.path = step + self.path
        return self


Comparer: TypeAlias = Callable[[Any, Any, int], ValueDifference | None]


def difference(value: Any, restored: Any, left: int = DEEPEST_VALUE) -> ValueDifference | None:
    """The first place where the two are not alike; `left` levels may still follow."""
    kind: Any = type(value)
    if kind in LEAVES and kind is type(restored):
        return None if value == restored else _changed(value, restored)
    return comparer(kind)(value, restored, left)


@functools.lru_cache(maxsize=1024)
def comparer(kind: Any) -> Comparer:
    """How values of this type are compared."""
    if kind in _COMPARERS:
        return _COMPARERS[kind]
    if issubclass(kind, Enum):
        return _identical
    if issubclass(kind, tuple):
        return _sequences
    if is_textual(kind):
        return _texts
    if hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_fields"):
        return functools.partial(_models, tuple(kind.model_fields))
    names = field_names(kind)
    return _objects if names is None else functools.partial(_fields, names)


def field_names(kind: type) -> tuple[str, ...] | None:
    """The declared fields of a struct, dataclass or attrs class."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(attribute.name for attribute in attributes)


# Plain values


def _plain(value: Any, restored: Any, _: int) -> ValueDifference | None:
    if type(value) is type(restored):
        return None if value == restored else _changed(value, restored)
    if type(value) is float and not math.isfinite(value):
        return ValueDifference(no_place_for(value))
    if type(value) is int and type(restored) is float:
        # An int is welcome as a float, as long as it is the same number.
        return None if value == restored else _changed(value, restored)
    return _other_type(value, restored)


def _identical(value: Any, restored: Any, _: int) -> ValueDifference | None:
    return None if value is restored else _other_type(value, restored) or _changed(value, restored)


def _texts(value: Any, restored: Any, _: int) -> ValueDifference | None:
    """Some types are not equal to themselves, but have the same text."""
    return _other_type(value, restored) or (None if str(value) == str(restored) else _changed(value, restored))


def _moments(value: Any, restored: Any, _: int) -> ValueDifference | None:
    if type(value) is not type(restored):
        return _other_type(value, restored)
    if value.replace(tzinfo=None, fold=0) != restored.replace(tzinfo=None, fold=0):
        return _changed(value, restored)
    if value.tzinfo is None:
        return None if restored.tzinfo is None and value.fold == restored.fold else _changed(value, restored)
    offset = _fixed_offset(value.tzinfo)
    if offset is None:
        remedy = "pass it as .astimezone(UTC), and the zone's name beside it if it matters"
        return ValueDifference(f"the time zone {value.tzinfo} would come back as a fixed offset; {remedy}")
    return None if offset == restored.utcoffset() else _changed(value, restored)


def _fixed_offset(zone: tzinfo) -> object:
    """The zone's distance from UTC, if it is the same at all times."""
    try:
        return zone.utcoffset(None)
    except Exception:  # noqa: BLE001 - a zone's own code may raise anything
        return None


# Containers


def _sequences(value: Any, restored: Any, left: int) -> ValueDifference | None:
    if type(value) is not type(restored):
        return _other_type(value, restored)
    if not left:
        return ValueDifference(TOO_DEEP)
    if len(value) != len(restored):
        return ValueDifference(f"{len(value)} items would come back as {len(restored)}")
    if _are_equal_leaves(value, restored):
        return None
    for index, (mine, theirs) in enumerate(zip(value, restored, strict=True)):
        found = difference(mine, theirs, left - 1)
        if found is not None:
            return found.inside(f"[{index}]")
    return None


def _are_equal_leaves(value: Any, restored: Any) -> bool:
    """The quick look at long rows of plain values: all of it happens in C."""
    kinds = list(map(type, value))
    return LEAVES.issuperset(kinds) and kinds == list(map(type, restored)) and value == restored


def _mappings(value: Any, restored: Any, left: int) -> ValueDifference | None:
    if type(value) is not type(restored):
        return _other_type(value, restored)
    if not left:
        return ValueDifference(TOO_DEEP)
    names, again = list(value), list(restored)
    if not _are_equal_leaves(names, again):
        found = _keys(names, again, left)
        if found is not None:
            return found
    mine, theirs = list(value.values()), list(restored.values())
    if _are_equal_leaves(mine, theirs):
        return None
    for name, one, other in zip(names, mine, theirs, strict=True):
        found = difference(one, other, left - 1)
        if found is not None:
            return found.inside(f"[{reprlib.repr(name)}]")
    return None


def _keys(names: list[object], again: list[object], left: int) -> ValueDifference | None:
    for key, twin in zip(names, again, strict=False):
        if type(key) is not str and type(twin) is str:
            trouble = f"the key {reprlib.repr(key)} would come back as a string; annotate the type"
            return ValueDifference(trouble)
        found = difference(key, twin, left - 1)
        if found is not None:
            break
    else:
        if len(names) == len(again):
            return None
    known = {str(twin) for twin in again}
    lost = next((key for key in names if str(key) not in known), names[0])
    return ValueDifference(
        f"the key {reprlib.repr(lost)} would be lost or changed; the annotation does not provide for it"
    )


def _sets(value: Any, restored: Any, left: int) -> ValueDifference | None:
    if type(value) is not type(restored):
        return _other_type(value, restored)
    if LEAVES.issuperset(map(type, value)) and set(map(type, value)) == set(map(type, restored)) and value == restored:
        return None
    # The two need not have the same order; their items' JSON gives them one.
    return _sequences(sorted(value, key=encode), sorted(restored, key=encode), left)


# Objects


def _fields(names: tuple[str, ...], value: Any, restored: Any, left: int) -> ValueDifference | None:
    if type(value) is not type(restored):
        return _other_type(value, restored)
    if not left:
        return ValueDifference(TOO_DEEP)
    for name in names:
        found = difference(getattr(value, name, _LOST), getattr(restored, name, _LOST), left - 1)
        if found is not None:
            return found.inside(f".{name}")
    mine: dict[str, object] = getattr(value, "__dict__", {})
    beside = mine.keys() - names
    return _undeclared(type(value), {name: mine[name] for name in sorted(beside)}, vars(restored)) if beside else None


def _undeclared(kind: type, mine: dict[str, object], theirs: dict[str, object]) -> ValueDifference | None:
    """Attributes beside the fields are not written: they must be made anew, the same as before."""
    for name, one in mine.items():
        if name not in theirs:
            if hasattr(type(inspect.getattr_static(kind, name, None)), "__get__"):
                continue  # A cached property is computed again when it is asked for.
            return ValueDifference("the attribute would be lost; declare it as a field", f".{name}")
        other = theirs[name]
        if type(one) is not type(other) or (type(one) in LEAVES and one != other):
            trouble = f"{_shown(one)} would come back as {_shown(other)}; declare the attribute as a field"
            return ValueDifference(trouble, f".{name}")
    return None


def _models(names: tuple[str, ...], value: Any, restored: Any, left: int) -> ValueDifference | None:
    """Pydantic models; which of their fields were set explicitly is no part of them, as for their own `==`."""
    found = _fields(names, value, restored, left)
    if found is not None:
        return found
    found = difference(value.__pydantic_extra__ or {}, restored.__pydantic_extra__ or {}, left - 1)
    return found or _undeclared(type(value), value.__pydantic_private__ or {}, restored.__pydantic_private__ or {})


def _objects(value: Any, restored: Any, left: int) -> ValueDifference | None:
    """What declares no fields: by its attributes, and without any by its own word."""
    if value is restored:
        return None
    if type(value) is not type(restored):
        return _other_type(value, restored)
    mine, theirs = _state(value), _state(restored)
    if mine or theirs:
        # Such objects may point at each other in circles; so they may not go deep.
        return difference(mine, theirs, left // 2)
    try:
        is_alike = bool(value == restored)
    except Exception:  # noqa: BLE001 - a value's own code may raise anything
        is_alike = False
    return None if is_alike else ValueDifference(f"the {_name(value)} would come back changed")


def _state(value: Any) -> dict[str, object]:
    state = dict(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"} and hasattr(value, name):
                state[name] = getattr(value, name)
    return dict(sorted(state.items()))


_COMPARERS: dict[Any, Comparer] = {
    **dict.fromkeys(LEAVES, _plain),
    list: _sequences,
    tuple: _sequences,
    dict: _mappings,
    set: _sets,
    frozenset: _sets,
    datetime: _moments,
    time: _moments,
    Decimal: _texts,
}


# Words


def _name(value: object) -> str:
    return type(value).__name__


def _shown(value: object) -> str:
    return "nothing" if value is _LOST else reprlib.repr(value)


def _changed(value: object, restored: object) -> ValueDifference:
    return ValueDifference(f"{_shown(value)} would come back as {_shown(restored)}")


def _other_type(value: object, restored: object) -> ValueDifference | None:
    if type(value) is type(restored):
        return None
    if restored is _LOST or value is _LOST:
        return _changed(value, restored)
    return ValueDifference(f"{_name(value)} would come back as {_name(restored)}", lost_type=_name(value))
