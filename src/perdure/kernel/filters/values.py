"""The values in a filter: what a literal or a parameter is, and whether it fits the name it is compared with.

In:   the text of a literal, or what the caller gave as a parameter; a name; the time.
Out:  a typed value, or Misfit, which says what would fit.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone
from difflib import get_close_matches
from enum import Enum
from typing import TypeAlias

import msgspec

from perdure.kernel.filters.evaluator import LARGEST_FLOAT, comparable_number
from perdure.kernel.filters.syntax import (
    FIELDS,
    Attribute,
    Kind,
    Name,
    NumberValue,
    TextValue,
    TimeValue,
    TruthValue,
    Value,
)
from perdure.kernel.retry import LONGEST_SECONDS
from perdure.kernel.status import HELD, Status

LONGEST_TEXT = 4000
LONGEST_NUMBER = 30
LONGEST_QUOTED = 40
# No database, or not every one, can keep these in a text.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

# The names of days and durations are short; what is longer is not looked at, so nothing here takes long.
LONGEST_TIME = 50
DAY = r"(\d{4})-(\d{2})-(\d{2})"
CLOCK = r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
OFFSET = r"(Z|[+-]\d{2}(?::?\d{2})?)"
MOMENT = re.compile(f"{DAY}(?:[T ]{CLOCK}{OFFSET}?)?", re.ASCII | re.IGNORECASE)
UNITS = {"ms": 1, "s": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SPAN = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(UNITS)})", re.ASCII)
SECONDS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
MINUTES = 60
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The first and the last moment that Python can tell.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999

TIMES = "'2026-01-31', '2026-01-31T09:30:00Z' or ago('2h')"
FITTING: dict[Kind, str] = {
    "text": "text, such as 'o-17'",
    "number": "a number",
    "time": f"a time, such as {TIMES}",
    "status": f"a status: {', '.join(repr(each.lower()) for each in Status)}",
}
PLAIN = "text, a number, true or false"


class Misfit(msgspec.Struct, frozen=True):
    """Why there is no value, and what would fit."""

    text: str


class TimeSpan(msgspec.Struct, frozen=True):
    """A duration, which only `ago` takes."""

    ms: int


Given: TypeAlias = Value | TimeSpan | None


# Literals and parameters


def number_of(text: str) -> NumberValue | Misfit:
    """The number a literal stands for."""
    is_whole = text.removeprefix("-").isdecimal() and len(text) <= LONGEST_NUMBER
    return _finite(int(text) if is_whole else float(text))


def parameter_value(given: object) -> Given | Misfit:
    """The value of a parameter, as Python has it; None is null."""
    match given.value if isinstance(given, Enum) else given:
        case None:
            return None
        case bool(is_true):
            return TruthValue(is_true)
        case int(number) | float(number):
            return _finite(number)
        case str(text):
            return _storable(str(text))
        case timedelta() | date() as moment:
            return _time_given(moment)
        case _:
            return Misfit(f"it is of type {type(given).__name__}; give {PLAIN}, None or a datetime, one value each")


def _finite(number: float) -> NumberValue | Misfit:
    # Without what a subclass may add to it.
    if not -LARGEST_FLOAT <= number <= LARGEST_FLOAT:
        return Misfit("it is too large, or not a number")
    return NumberValue(comparable_number(float(number) if isinstance(number, float) else int(number)))


def _storable(text: str) -> TextValue | Misfit:
    if len(text) > LONGEST_TEXT:
        return Misfit(f"its text has {len(text):,} characters, the limit is {LONGEST_TEXT:,}")
    if UNSTORABLE.search(text):
        return Misfit("its text holds a zero character or half of a surrogate pair, which no run has")
    return TextValue(text)


def _time_given(moment: date | timedelta) -> TimeValue | TimeSpan | Misfit:
    if isinstance(moment, timedelta):
        return TimeSpan(moment // timedelta(milliseconds=1))
    if not isinstance(moment, datetime):
        return moment_of(moment.isoformat())
    if moment.utcoffset() is None:
        return Misfit(f"{moment} has no time zone; give it one, for example datetime.now(UTC)")
    return _within(moment)


# Times


def moment_of(text: str) -> TimeValue | Misfit:
    """The moment that ISO text stands for: UTC without an offset, midnight without a time."""
    parts = MOMENT.fullmatch(text) if len(text) <= LONGEST_TIME else None
    if parts is None:
        return Misfit(f"{_shown(text)} is no time; write {TIMES}")
    year, month, day, hour, minute, second, fraction, offset = parts.groups("0")
    micros = int(fraction.ljust(6, "0")[:6])
    try:
        date_alone = datetime(int(year), int(month), int(day), tzinfo=_zone(offset))
        return _within(date_alone.replace(hour=int(hour), minute=int(minute), second=int(second), microsecond=micros))
    except ValueError as error:
        return Misfit(f"{_shown(text)} is no time: {error}")


def _zone(offset: str) -> timezone:
    digits = offset.lstrip("+-").replace(":", "").ljust(4, "0")
    if not digits.isdecimal():
        return UTC
    if int(digits[2:]) >= MINUTES:
        raise ValueError(f"the offset {offset} has more than 59 minutes")
    ahead = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-ahead if offset.startswith("-") else ahead)


def _within(moment: datetime) -> TimeValue | Misfit:
    at = (moment - EPOCH) // timedelta(milliseconds=1)
    return TimeValue(at) if FIRST_MS <= at <= LAST_MS else Misfit("the time lies beyond the years 1 to 9999 of UTC")


def moment_ago(given: Given, now: int) -> TimeValue | Misfit:
    """The moment that lies so long before now; a number is a number of seconds."""
    ms = _milliseconds(given)
    if ms is None:
        return Misfit("ago() takes a duration: write ago('30s'), ago('5m'), ago('2h') or ago('1h30m')")
    if not 0 <= ms <= LONGEST_SECONDS * 1000:
        return Misfit("ago() takes a duration from 0 to 1000 years")
    return TimeValue(max(FIRST_MS, min(now - round(ms), LAST_MS)))


def _milliseconds(given: Given) -> float | None:
    match given:
        case TimeSpan(ms):
            return ms
        case NumberValue(number):
            return number * 1000
        case TextValue(text) if len(text) <= LONGEST_TIME:
            return _milliseconds_of(text.replace(" ", "").lower())
        case _:
            return None


def _milliseconds_of(word: str) -> float | None:
    """A sum such as 1h30m; a number alone is one of seconds, as it is everywhere."""
    parts: list[tuple[str, str]] = SPAN.findall(word)
    if parts and "".join(number + unit for number, unit in parts) == word:
        return sum(float(number) * UNITS[unit] for number, unit in parts)
    return float(word) * 1000 if SECONDS.fullmatch(word) else None


# What fits a name


def fitting(name: Name, value: Given) -> Value | Misfit | None:
    """The value as it is compared with the name: text is made a status or a time where the name is one."""
    if isinstance(value, TimeSpan):
        return Misfit("a duration stands only in ago(): write ago(:name)")
    if isinstance(name, Attribute) and isinstance(value, TimeValue):
        return Misfit(f"{name.name} is an attribute, and attributes hold no times; compare it with {PLAIN}")
    return value if value is None or isinstance(name, Attribute) else _fitting_field(name.name, value)


def _fitting_field(field: str, value: Value) -> Value | Misfit:
    match FIELDS[field], value:
        case ("text", TextValue()) | ("number", NumberValue()) | ("time", TimeValue()):
            return value
        case "time", TextValue(text):
            return moment_of(text)
        case "status", TextValue(text):
            return _status_of(text)
        case kind, _:
            return Misfit(f"{field} is compared with {FITTING[kind]}, not with {_told(value)}")


def fitting_in_order(name: Name, value: Given) -> Value | Misfit:
    """The same for `<` and its like, which want something that has an order."""
    match fitting(name, value):
        case None:
            return Misfit("null is neither less nor greater than anything; write `is null` or `is not null`")
        case TruthValue():
            return Misfit("true and false have no order; write `= true` or `= false`")
        case TextValue() | NumberValue() | TimeValue() | Misfit() as fit:
            return fit


def _status_of(text: str) -> TextValue | Misfit:
    if text.upper() in Status.__members__:
        return TextValue(text.upper())
    if text.lower() == HELD:
        return Misfit("a run that is held is SUSPENDED; write held is not null")
    near = get_close_matches(text.lower(), [each.lower() for each in Status], 1)
    hint = f"did you mean {near[0]!r}?" if near else f"write {FITTING['status']}"
    return Misfit(f"{_shown(text)} is no status; {hint}")


def _told(value: Value) -> str:
    match value:
        case TextValue(text):
            return f"the text {_shown(text)}"
        case NumberValue(number):
            return f"the number {number!r}"
        case TruthValue(is_true):
            return "true" if is_true else "false"
        case TimeValue():
            return "a time"


def _shown(text: str) -> str:
    return repr(shortened(text))


def shortened(text: str) -> str:
    """As much of a text as a sentence bears."""
    return text if len(text) <= LONGEST_QUOTED else f"{text[: LONGEST_QUOTED - 1]}…"
