"""A filter as text that parses to the same filter: to be shown to people, and to be sent elsewhere."""

from datetime import UTC, datetime, timedelta
from typing import assert_never

from perdure.kernel.filters.operands import is_plain_name
from perdure.kernel.filters.syntax import (
    And,
    Attribute,
    Compare,
    Condition,
    Constant,
    Contains,
    Filter,
    In,
    IsNull,
    Like,
    Name,
    Not,
    NumberValue,
    Or,
    TextValue,
    TimeValue,
    TruthValue,
    Value,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_text(filter: Filter) -> str:
    """The filter in its own language; parameters and `ago` appear as what they stood for."""
    match filter:
        case Constant(is_true):
            return _value(TruthValue(is_true))
        case Not(inner):
            return _opposite(inner)
        case And(parts):
            return " and ".join(f"({to_text(each)})" if isinstance(each, Or) else to_text(each) for each in parts)
        case Or(parts):
            return " or ".join(map(to_text, parts))
        case _:
            return f"{_name(filter.name)} {_relation(filter)}"


def _relation(condition: Condition) -> str:
    match condition:
        case Compare(_, operator, value):
            return f"{operator} {_value(value)}"
        case In(_, values):
            return f"in ({', '.join(map(_value, values))})"
        case Like(_, pattern):
            return f"like {_quoted(pattern)}"
        case Contains(_, value):
            return f"contains {_value(value)}"
        case IsNull():
            return "is null"
        case _:
            assert_never(condition)


def _opposite(inner: Filter) -> str:
    match inner:
        case Compare(name, "=", value):
            return f"{_name(name)} != {_value(value)}"
        case In(name) | Like(name) | Contains(name):
            return f"{_name(name)} not {_relation(inner)}"
        case IsNull(name):
            return f"{_name(name)} is not null"
        case And() | Or():
            return f"not ({to_text(inner)})"
        case _:
            return f"not {to_text(inner)}"


def _name(name: Name) -> str:
    if not isinstance(name, Attribute) or is_plain_name(name.name):
        return name.name
    return 'attributes."' + name.name.replace('"', '""') + '"'


def _value(value: Value) -> str:
    match value:
        case TextValue(text):
            return _quoted(text)
        case NumberValue(number):
            return repr(number)
        case TruthValue(is_true):
            return "true" if is_true else "false"
        case TimeValue(at):
            moment = EPOCH + timedelta(milliseconds=at)
            return f"'{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z'"
        case _:
            assert_never(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
