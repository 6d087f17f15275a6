"""Whether a run matches a filter.

In:   a Filter, and a run as plain values.
Out:  true or false, always; a run whose values have other types than the filter's does not match.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeGuard, assert_never

import msgspec

from perdure.kernel.filters.syntax import (
    And,
    Compare,
    Condition,
    Constant,
    Contains,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Name,
    Not,
    NumberValue,
    Operator,
    Or,
    TextValue,
    TimeValue,
    TruthValue,
    Value,
)

# What fits into 64 bits compares exactly; databases keep larger whole numbers as floating point.
SMALLEST, LARGEST = -(2**63), 2**63 - 1
LARGEST_FLOAT = math.nextafter(math.inf, 0)


class RunFields(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as filters see it: times in milliseconds, attributes as JSON gives them."""

    id: str
    run_id: str
    workflow: str
    status: str
    queue: str
    priority: int
    step: str | None
    held: str | None
    entity_id: str | None
    correlation_id: str | None
    parent_id: str | None
    error: str | None
    created_at: int
    updated_at: int
    closed_at: int | None
    attributes: Mapping[str, object]
    schedule: str | None = None


def matches(filter: Filter, run: RunFields) -> bool:
    """Whether the run is one of those the filter means."""
    match filter:
        case Constant(is_true):
            return is_true
        case Not(inner):
            return not matches(inner, run)
        case And(parts):
            return all(matches(part, run) for part in parts)
        case Or(parts):
            return any(matches(part, run) for part in parts)
        case _:
            return _fulfils(run, filter)


def _fulfils(run: RunFields, condition: Condition) -> bool:
    found = _found(run, condition.name)
    match condition:
        case Compare(_, operator, value):
            return _holds(found, operator, value)
        case In(_, values):
            return any(_holds(found, "=", value) for value in values)
        case Like(_, pattern):
            return isinstance(found, str) and is_like(found, pattern)
        case Contains(_, value):
            return isinstance(found, list | tuple) and any(_holds(each, "=", value) for each in found)
        case IsNull():
            return found is None
        case _:
            assert_never(condition)


def _found(run: RunFields, name: Name) -> object:
    return getattr(run, name.name) if isinstance(name, Field) else run.attributes.get(name.name)


# Values


def _holds(found: object, operator: Operator, value: Value) -> bool:
    """Whether what was found has the value's type, and compares with it as the operator says."""
    match value:
        case TextValue(text):
            return isinstance(found, str) and _compares(found, operator, text)
        case NumberValue(number):
            return _is_number(found) and _compares(comparable_number(found), operator, number)
        case TimeValue(at):
            return _is_number(found) and _compares(found, operator, at)
        case TruthValue(is_true):
            return operator == "=" and found is is_true
        case _:
            assert_never(value)


def _compares(found: Any, operator: Operator, value: Any) -> bool:
    """The comparison of two texts, or of two numbers."""
    match operator:
        case "=":
            return bool(found == value)
        case "<":
            return bool(found < value)
        case "<=":
            return bool(found <= value)
        case ">":
            return bool(found > value)
        case ">=":
            return bool(found >= value)
        case _:
            assert_never(operator)


def _is_number(found: object) -> TypeGuard[int | float]:
    return isinstance(found, int | float) and not isinstance(found, bool)


def comparable_number(number: int | float) -> int | float:  # noqa: PYI041 - each has its own case
    """The number as it is compared: a whole one of more than 64 bits is rounded, at most to the largest there is."""
    if isinstance(number, float) or SMALLEST <= number <= LARGEST:
        return number
    try:
        return float(number)
    except OverflowError:
        return LARGEST_FLOAT if number > 0 else -LARGEST_FLOAT


# Patterns


def is_like(text: str, pattern: str) -> bool:
    """Whether the text fits the pattern: `%` is any text, `_` any one character, all else is itself.

    The time it takes grows with the text and with the pattern, never with the number of ways they could fit.
    """
    first, *others = pattern.split("%")
    if not others:
        return len(text) == len(first) and _fits(text, first, 0)
    *middle, last = others
    begin, end = len(first), len(text) - len(last)
    if begin > end or not _fits(text, first, 0) or not _fits(text, last, end):
        return False
    return _has_in_order(text, [piece for piece in middle if piece], begin, end)


def _fits(text: str, piece: str, at: int) -> bool:
    return all(wanted in {"_", found} for wanted, found in zip(piece, text[at : at + len(piece)], strict=True))


def _has_in_order(text: str, pieces: list[str], begin: int, end: int) -> bool:
    """Whether the pieces stand between begin and end, one after the other; the leftmost place for each is the best."""
    gapped = [piece for piece in pieces if "_" in piece]
    places = _places_of(text, set("".join(gapped))) if gapped else {}
    for piece in pieces:
        at = _find_gapped(piece, places, begin, end) if "_" in piece else text.find(piece, begin, end)
        if at < 0:
            return False
        begin = at + len(piece)
    return True


def _places_of(text: str, wanted: set[str]) -> dict[str, int]:
    """For each wanted character a number whose bits say where in the text it stands."""
    bits = {character: bytearray(len(text) // 8 + 1) for character in wanted}
    for at, character in enumerate(text):
        if character in bits:
            bits[character][at >> 3] |= 1 << (at & 7)
    return {character: int.from_bytes(places, "little") for character, places in bits.items()}


def _find_gapped(piece: str, places: dict[str, int], begin: int, end: int) -> int:
    """Where a piece with `_` in it stands first, -1 when nowhere; all places are tried at once, as bits."""
    if end - begin < len(piece):
        return -1
    starts = (1 << (end - len(piece) + 1)) - (1 << begin)
    for offset, character in enumerate(piece):
        if character != "_":
            starts &= places[character] >> offset
    return (starts & -starts).bit_length() - 1
