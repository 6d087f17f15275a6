"""The wire: values as JSON bytes, whatever they travel under.

In:   any value.
Out:  its JSON, or BadValue with the reason why it has none.
Knows nothing of annotations; what JSON cannot tell apart is no concern here.
"""

import dataclasses
import inspect
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import Any
from uuid import UUID

import msgspec

from perdure.errors import BadValue, ValueTooLarge

LARGEST_VALUE = 2 * 1024 * 1024

# Deeper is refused, so that a replay never finds too little stack for what was recorded.
DEEPEST_VALUE = 64
TOO_DEEP = f"the value is nested too deeply (the limit is {DEEPEST_VALUE} levels) or contains itself"

NOT_TEXT = "a string holds half a surrogate pair, which is not text; pass bytes"

# Of these modules, every type is restored by calling it with its own text.
_TEXTUAL = frozenset({"pathlib", "ipaddress", "fractions", "zoneinfo"})


_NO_KEYS = frozenset({bool, NoneType, list, dict, set, frozenset})
_PLAIN = (str, int, float, bytes, Decimal, UUID, datetime, date, time, timedelta)


def is_textual(kind: type) -> bool:
    """Whether values of this type travel as their text, such as paths and network addresses."""
    return kind is complex or kind.__module__.partition(".")[0] in _TEXTUAL


@lru_cache(maxsize=1024)
def knows_names(model: Any) -> bool:
    """Whether a pydantic model can be validated by its fields' own names, whatever their aliases (2.11 and later)."""
    return "by_name" in inspect.signature(model.model_validate_json).parameters


def _to_json(value: Any) -> object:
    """What msgspec does not know: pydantic models speak for themselves, some types by their text."""
    kind: Any = type(value)
    if hasattr(kind, "model_dump"):
        by_alias = not knows_names(kind)
        # Whatever a warning could say is found by looking at what comes back.
        return value.model_dump(mode="json", round_trip=True, warnings=False, by_alias=by_alias)
    if is_textual(kind):
        return str(value)
    if inspect.iscoroutine(value):
        raise NotImplementedError("it is a coroutine; is an `await` missing?")
    raise NotImplementedError(_unwritable(kind))


def _unwritable(kind: type) -> str:
    name = kind.__name__
    # As values msgspec writes these itself; so it asks about a key.
    if kind in _NO_KEYS or kind in _PLAIN or issubclass(kind, tuple | msgspec.Struct) or dataclasses.is_dataclass(kind):
        return f"{name} values cannot be a key in JSON; pass a list of pairs instead of the dict"
    for plain in _PLAIN:
        if issubclass(kind, plain):
            return f"{name} is more than {plain.__name__}, and would lose the rest; pass a plain {plain.__name__}"
    return (
        f"{name} values cannot be written as JSON; pass what it is made of, "
        "in plain values, a dataclass, a struct or a model, and annotate the type"
    )


_encoder = msgspec.json.Encoder(enc_hook=_to_json)
encode = _encoder.encode


def encoded(value: object, where: str) -> bytes:
    """The value as JSON; BadValue says at which place it could not be, and why."""
    try:
        data = encode(value)
    except RecursionError:
        raise BadValue(where, TOO_DEEP) from None
    except UnicodeEncodeError:
        raise BadValue(where, NOT_TEXT) from None
    except Exception as error:  # noqa: BLE001 - a value's own code may raise anything
        raise BadValue(where, _told(error)) from None
    if len(data) > LARGEST_VALUE:
        raise ValueTooLarge(where, len(data), LARGEST_VALUE)
    return data


def _told(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if text.startswith("Only dicts with"):
        return "its keys cannot be keys in JSON; pass a list of pairs instead of the dict"
    if "integer string conversion" in text:
        return "an int has more digits than Python writes; pass its bytes or its hex()"
    return text


def dump(value: object, where: str) -> bytes:
    """The value as JSON; BadValue says at which place it could not be."""
    data = encoded(value, where)
    odd = odd_number(value, data)
    if odd is not None:
        raise BadValue(where, odd)
    return data


def load(data: bytes) -> object:
    """JSON as plain Python."""
    return msgspec.json.decode(data)


def odd_number(value: object, data: bytes) -> str | None:
    """What is wrong with a number in the value that JSON has no place for; it was silently written as null."""
    if b"null" not in data:
        return None
    number = _odd(msgspec.to_builtins(value, enc_hook=_to_json, str_keys=True))
    return None if number is None else no_place_for(number)


def no_place_for(number: float) -> str:
    return f"{number} has no place in JSON; use None or a string"


def _odd(plain: object) -> float | None:
    """The first number that is none, in plain lists and dicts."""
    match plain:
        case float():
            return None if math.isfinite(plain) else plain
        case dict():
            return _odd(list(plain.values()))
        case list():
            return next((odd for item in plain if (odd := _odd(item)) is not None), None)
        case _:
            return None
