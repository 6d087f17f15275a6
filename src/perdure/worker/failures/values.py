"""Keepsakes: the values in an error, which no annotation tells anything about.

In:   an error's arguments or attributes.
Out:  JSON in which values of a few types are marked; later, the values again.
Keeps only what can be restored without running anybody's code: plain values, those
of well-known types, and members of enums that are loaded.
"""

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from perdure.codec import ValueType
from perdure.worker.failures.classes import class_named, name_of

LARGEST = 4000
DEEPEST = 10

_MARK = "$"
_WELL_KNOWN = (bytes, bytearray, datetime, date, time, timedelta, Decimal, UUID, type(Path()))
_KINDS = {kind.__name__: ValueType(kind) for kind in _WELL_KNOWN}
_COLLECTIONS = {kind.__name__: kind for kind in (tuple, set, frozenset)}


def keep(value: object) -> msgspec.Raw | None:
    """The value as JSON, if it can be restored from it."""
    try:
        data = msgspec.json.encode(_marked(value, DEEPEST))
    except Exception:  # noqa: BLE001 - an error whose values cannot be kept is still an error
        return None
    return msgspec.Raw(data) if len(data) <= LARGEST else None


def _marked(value: Any, left: int) -> object:
    kind = type(value)
    if not left:
        raise ValueError("nested too deeply")
    if kind in {str, int, bool, NoneType} or (kind is float and math.isfinite(value)):
        return value
    if isinstance(value, Enum):
        return {f"{_MARK}enum": [name_of(kind), value.name]}
    if kind is list:
        return [_marked(item, left - 1) for item in value]
    if kind is dict and all(type(key) is str and not key.startswith(_MARK) for key in value):
        return {key: _marked(item, left - 1) for key, item in value.items()}
    if kind in _COLLECTIONS.values():
        return {_MARK + kind.__name__: [_marked(item, left - 1) for item in value]}
    data, _ = _KINDS[kind.__name__].record(value, "error")
    return {_MARK + kind.__name__: msgspec.Raw(data)}


def restore(data: msgspec.Raw) -> Any:
    """The kept value again; None when it is not what was kept."""
    try:
        return _unmarked(msgspec.json.decode(data))
    except Exception:  # noqa: BLE001 - a record that is damaged, or not ours
        return None


def _unmarked(plain: Any) -> object:
    if isinstance(plain, list):
        return [_unmarked(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    mark: str
    content: Any
    mark, content = next(iter(plain.items()), ("", None))
    if not mark.startswith(_MARK):
        return {key: _unmarked(item) for key, item in plain.items()}
    name = mark.removeprefix(_MARK)
    if name == "enum":
        return _member(*content)
    if name in _COLLECTIONS:
        return _COLLECTIONS[name](_unmarked(item) for item in content)
    return _KINDS[name].restore(msgspec.json.encode(content), "error")


def _member(kind_name: str, name: str) -> object:
    kind = class_named(kind_name)
    if kind is None or not issubclass(kind, Enum):
        raise LookupError(kind_name)
    return kind.__members__[name]
