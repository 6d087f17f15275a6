"""What a filter tells before any run is looked at: which names it uses, and what every match must have.

Whoever queries an index needs to know the latter. The answers are never too narrow: a run that matches the filter
has one of the required values and lies within the bounds.
"""

from collections.abc import Iterator

import msgspec

from perdure.kernel.filters.syntax import (
    And,
    Attribute,
    Compare,
    Condition,
    Constant,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Name,
    Not,
    Or,
    TextValue,
    TimeValue,
    Value,
)
from perdure.kernel.status import OPEN
from perdure.kernel.traits import TASK_PREFIX

# What activities on a queue are known by.
OF_ACTIVITIES = frozenset({"id", "run_id", "workflow", "parent_id"})


def fields_of(filter: Filter) -> frozenset[str]:
    """The fields that the filter asks for."""
    return frozenset(each.name.name for each, _ in _conditions(filter) if isinstance(each.name, Field))


def attributes_of(filter: Filter) -> frozenset[str]:
    """The attributes that the filter asks for."""
    return frozenset(each.name.name for each, _ in _conditions(filter) if isinstance(each.name, Attribute))


def conjuncts(filter: Filter) -> tuple[Filter, ...]:
    """The parts that every match must fulfil, each."""
    return filter.parts if isinstance(filter, And) else (filter,)


def is_about_closed(filter: Filter) -> bool:
    """Whether the filter names a closed status, or a time of closing, as something that it wants."""
    return any(_wants_closed(each, is_wanted) for each, is_wanted in _conditions(filter))


def asks_for_activities(filter: Filter) -> bool:
    """Whether the filter may mean activities on a queue: it says whose they are, or wants what is held.

    A list of runs leaves them out else, for they are parts of other runs.
    """
    named = {name.name for name in required_values(filter) if isinstance(name, Field)}
    return not named.isdisjoint(OF_ACTIVITIES) or any(
        _wants_activities(each, wanted) for each, wanted in _conditions(filter)
    )


def _wants_activities(condition: Condition, is_wanted: bool) -> bool:
    match condition:
        case IsNull(Field("held")):
            return not is_wanted
        case Compare(Field("held")) | In(Field("held")):
            return is_wanted
        case Like(Field("workflow"), pattern):
            return is_wanted and pattern.startswith(TASK_PREFIX)
        case _:
            return False


def _wants_closed(condition: Condition, is_wanted: bool) -> bool:
    match condition:
        case IsNull(Field("closed_at")):
            return not is_wanted
        case Compare(Field("closed_at")) | In(Field("closed_at")):
            return is_wanted
        case Compare(Field("status"), _, value):
            return is_wanted and _is_closed(value)
        case In(Field("status"), values):
            return is_wanted and any(map(_is_closed, values))
        case _:
            return False


def _is_closed(value: Value) -> bool:
    return isinstance(value, TextValue) and value.text not in OPEN


def _conditions(filter: Filter, *, is_wanted: bool = True) -> Iterator[tuple[Condition, bool]]:
    """Each condition, and whether it is to be true: false below an odd number of `not`."""
    match filter:
        case Constant():
            return
        case Not(inner):
            yield from _conditions(inner, is_wanted=not is_wanted)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _conditions(part, is_wanted=is_wanted)
        case _:
            yield filter, is_wanted


# What every match has


def required_values(filter: Filter) -> dict[Name, tuple[Value, ...]]:
    """The names whose value must be one of a few in every run that matches, and which those are."""
    match filter:
        case Compare(name, "=", value):
            return {name: (value,)}
        case In(name, values):
            return {name: values}
        case And(parts):
            return _of_all([required_values(part) for part in parts])
        case Or(parts):
            return _of_any([required_values(part) for part in parts])
        case _:
            return {}


def _of_all(found: list[dict[Name, tuple[Value, ...]]]) -> dict[Name, tuple[Value, ...]]:
    """Where several conditions concern one name, the one with the fewest values."""
    least: dict[Name, tuple[Value, ...]] = {}
    for each in found:
        for name, values in each.items():
            if name not in least or len(values) < len(least[name]):
                least[name] = values
    return least


def _of_any(found: list[dict[Name, tuple[Value, ...]]]) -> dict[Name, tuple[Value, ...]]:
    common = [name for name in found[0] if all(name in each for each in found)]
    return {name: tuple(dict.fromkeys(value for each in found for value in each[name])) for name in common}


class Bounds(msgspec.Struct, frozen=True):
    """The earliest and the latest moment that may match, themselves included; None where there is no limit."""

    earliest: int | None = None
    latest: int | None = None


def bounds_of(filter: Filter, field: str) -> Bounds:
    """Between which moments a time field lies in every run that matches."""
    match filter:
        case Compare(Field(name), operator, TimeValue(at)) if name == field:
            earliest = {"=": at, ">": at + 1, ">=": at}.get(operator)
            return Bounds(earliest, {"=": at, "<": at - 1, "<=": at}.get(operator))
        case In(Field(name), values) if name == field:
            moments = [value.at for value in values if isinstance(value, TimeValue)]
            return Bounds(min(moments, default=None), max(moments, default=None))
        case And(parts):
            return _inner_of([bounds_of(part, field) for part in parts])
        case Or(parts):
            return _outer_of([bounds_of(part, field) for part in parts])
        case _:
            return Bounds()


def _inner_of(found: list[Bounds]) -> Bounds:
    earliest = [each.earliest for each in found if each.earliest is not None]
    latest = [each.latest for each in found if each.latest is not None]
    return Bounds(max(earliest, default=None), min(latest, default=None))


def _outer_of(found: list[Bounds]) -> Bounds:
    earliest = [each.earliest for each in found if each.earliest is not None]
    latest = [each.latest for each in found if each.latest is not None]
    is_whole = (len(earliest) == len(found), len(latest) == len(found))
    return Bounds(min(earliest) if is_whole[0] else None, max(latest) if is_whole[1] else None)
