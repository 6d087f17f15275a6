"""Filters in SQL: a condition on runs that is true of exactly those that the evaluator says match.

In:   a Filter, and the database it is for.
Out:  SQL made of fixed pieces, and parameters: nothing that a caller wrote stands in the SQL itself.

Every condition is true or false, never null, so that `not` is the opposite. Attributes are looked up in their own
table, in which each has its type. There, whole numbers are kept beside their floating point: two numbers compare
exactly, whatever a database makes of a whole one and a fraction.
"""

import math
from typing import Any, assert_never

import msgspec

from perdure.kernel.filters import Filter, RunFields
from perdure.kernel.filters.evaluator import LARGEST, SMALLEST, comparable_number
from perdure.kernel.filters.syntax import (
    And,
    Attribute,
    Compare,
    Condition,
    Constant,
    Contains,
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
from perdure.stores import rows
from perdure.stores.listing import Dialect
from perdure.stores.records import RunRow

# The columns of fields that are not called as they are, and those that may be empty.
COLUMNS = {"id": "workflow_id"}
MAY_BE_NULL = frozenset({"step", "held", "entity_id", "correlation_id", "parent_id", "schedule", "error", "closed_at"})
# Texts up to here are in the index of attributes.
LONGEST_INDEXED = 200
TRUTHS = {True: "true", False: "false"}
# How an attribute's type is kept.
TEXT, NUMBER, TRUTH, OTHER = "text", "number", "truth", "other"
ALWAYS, NEVER = "true", "false"

_attributes = msgspec.json.Decoder(dict[str, Any]).decode


class Conditions:
    """Makes conditions, and gathers their parameters under names that no other query part has."""

    def __init__(self, dialect: Dialect, prefix: str = "given") -> None:
        self.dialect = dialect
        self._prefix = prefix
        self.parameters: dict[str, object] = {}

    def of(self, filter: Filter) -> str:
        """The condition that is true of the runs that match."""
        match filter:
            case Constant(is_true):
                return ALWAYS if is_true else NEVER
            case Not(inner):
                return f"not ({self.of(inner)})"
            case And(parts):
                return " and ".join(f"({self.of(part)})" for part in parts)
            case Or(parts):
                return " or ".join(f"({self.of(part)})" for part in parts)
            case _:
                return self._fulfilled(filter)

    def bind(self, value: object) -> str:
        """A parameter, as it stands in the SQL."""
        name = f"{self._prefix}_{len(self.parameters)}"
        self.parameters[name] = value
        kind = {int: "bigint", float: "float8", str: "text"}[type(value)]
        return self.dialect.typed.format(f":{name}", kind)

    def _fulfilled(self, condition: Condition) -> str:
        if isinstance(condition.name, Attribute):
            return self._of_attribute(condition.name.name, condition)
        column = self._column(condition.name)
        match condition:
            case IsNull():
                return f"{column} is null" if condition.name.name in MAY_BE_NULL else NEVER
            case Compare(name, operator, value):
                return self._known(name, self._compared(column, operator, value))
            case In(name, values):
                return self._known(name, self._any([self._compared(column, "=", value) for value in values]))
            case Like(name, pattern):
                return self._known(name, self._like(column, pattern))
            case _:
                assert_never(condition)

    def _column(self, name: Name) -> str:
        return self.dialect.error if name.name == "error" else COLUMNS.get(name.name, name.name)

    def _known(self, name: Name, condition: str) -> str:
        """The same, false where the column is empty."""
        return f"({self._column(name)} is not null and ({condition}))" if name.name in MAY_BE_NULL else condition

    def _any(self, conditions: list[str]) -> str:
        return " or ".join(f"({each})" for each in conditions)

    def _compared(self, column: str, operator: Operator, value: Value) -> str:
        match value:
            case TextValue(text):
                return f"{column} {operator} {self.bind(text)}"
            case TimeValue(at):
                return f"{column} {operator} {self.bind(at)}"
            case NumberValue(number):
                return self._whole_compared(column, operator, number)
            case TruthValue():
                return NEVER
            case _:
                assert_never(value)

    def _like(self, column: str, pattern: str) -> str:
        return self.dialect.like.format(column, self.bind(self.dialect.pattern(pattern)))

    # Numbers

    def _whole_compared(self, column: str, operator: Operator, number: float) -> str:
        """How a column of whole numbers compares with any number."""
        if number < SMALLEST or number > LARGEST:
            return ALWAYS if (number > 0) == (operator in {"<", "<="}) and operator != "=" else NEVER
        low = math.floor(number)
        if low == number:
            return f"{column} {operator} {self.bind(low)}"
        if operator == "=":
            return NEVER
        return f"{column} {'<=' if operator in {'<', '<='} else '>'} {self.bind(low)}"

    def _float_compared(self, column: str, operator: Operator, number: float) -> str:
        """How a column of floating point numbers compares with any number, which may lie between two of them."""
        near = float(number)
        if near == number:
            return f"{column} {operator} {self.bind(near)}"
        if operator == "=":
            return NEVER
        # Below the number are all up to the one next to it, that one too if it is below.
        if operator in {"<", "<="}:
            return f"{column} {'<' if near > number else '<='} {self.bind(near)}"
        return f"{column} {'>' if near < number else '>='} {self.bind(near)}"

    # Attributes

    def _of_attribute(self, name: str, condition: Condition) -> str:
        match condition:
            case IsNull():
                return f"not {self._exists(name, 'a.n = 0')}"
            case Compare(_, operator, value):
                return self._exists(name, f"a.n = 0 and {self.attribute_is(operator, value)}")
            case In(_, values):
                found = self._any([self.attribute_is("=", value) for value in values])
                return self._exists(name, f"a.n = 0 and ({found})")
            case Like(_, pattern):
                return self._exists(name, f"a.n = 0 and a.kind = '{TEXT}' and {self._like('a.text', pattern)}")
            case Contains(_, value):
                return self._exists(name, f"a.n > 0 and {self.attribute_is('=', value)}")
            case _:
                assert_never(condition)

    def _exists(self, name: str, condition: str) -> str:
        named = f"a.name = {self.bind(name)}"
        return f"exists (select 1 from attributes as a where a.run_id = runs.run_id and {named} and {condition})"  # noqa: S608 - fixed pieces

    def attribute_is(self, operator: Operator, value: Value) -> str:
        """The condition on the row of an attribute, or of an item of its list."""
        match value:
            case TextValue(text):
                return f"a.kind = '{TEXT}' and a.text {operator} {self.bind(text)}"
            case TruthValue(is_true):
                return f"a.kind = '{TRUTH}' and a.text = '{TRUTHS[is_true]}'" if operator == "=" else NEVER
            case NumberValue(number):
                whole = self._whole_compared("a.whole", operator, number)
                fraction = self._float_compared("a.number", operator, number)
                return f"a.kind = '{NUMBER}' and case when a.whole is null then {fraction} else {whole} end"
            case TimeValue():
                return NEVER
            case _:
                assert_never(value)


# The rows of attributes


def are_plain(attributes: str | None) -> bool:
    """Whether every database makes the same rows of these attributes by itself: no lists, fractions, odd characters."""
    text = attributes or "{}"
    if "\\" in text:
        return False
    for value in _attributes(text).values():
        kind = type(value)
        if not (kind is str or kind is bool or value is None or (kind is int and SMALLEST <= value <= LARGEST)):
            return False
    return True


def attribute_rows(run_id: str, namespace: str, attributes: str | None) -> list[tuple[object, ...]]:
    """The rows of a run's attributes: each value with number 0, and the plain ones in a list with others."""
    found: list[tuple[object, ...]] = []
    for name, value in _attributes(attributes or "{}").items():
        kind = type(value)
        # Most are texts, whole numbers and truths, for which this is all there is to do.
        if kind is str and "\0" not in value:
            found.append((run_id, namespace, name, 0, TEXT, value, None, None))
        elif kind is int and SMALLEST <= value <= LARGEST:
            found.append((run_id, namespace, name, 0, NUMBER, None, float(value), value))
        elif kind is bool:
            found.append((run_id, namespace, name, 0, TRUTH, TRUTHS[value], None, None))
        elif value is not None:
            found.append((run_id, namespace, name, 0, *_typed(value)))
        if kind is list:
            items = dict.fromkeys(_typed(item) for item in value if isinstance(item, str | int | float))
            found += [(run_id, namespace, name, n, *item) for n, item in enumerate(items, start=1)]
    return found


def _typed(value: object) -> tuple[str, str | None, float | None, int | None]:
    """Type, text, floating point and whole number of a value."""
    match value:
        case bool(is_true):
            return TRUTH, TRUTHS[is_true], None, None
        case str(text) if "\0" not in text:
            return TEXT, text, None, None
        case int(number) | float(number):
            return NUMBER, None, *_numbers(comparable_number(number))
        case _:
            return OTHER, None, None, None


def _numbers(number: float) -> tuple[float, int | None]:
    is_whole = SMALLEST <= number <= LARGEST and number == math.floor(number)
    return float(number), math.floor(number) if is_whole else None


# The same run for the evaluator


def run_fields(row: RunRow) -> RunFields:
    """A run as filters see it; Garbled."""
    error = _error(row)
    try:
        found = _attributes(row.attributes or "{}")
    except (msgspec.MsgspecError, UnicodeDecodeError) as trouble:
        raise rows.Garbled(f"its attributes cannot be read: {trouble}") from None
    return RunFields(
        id=row.workflow_id,
        run_id=row.run_id,
        workflow=row.workflow,
        status=row.status,
        queue=row.queue,
        priority=row.priority,
        step=row.step,
        held=row.held,
        entity_id=row.entity_id,
        correlation_id=row.correlation_id,
        parent_id=row.parent_id,
        schedule=row.schedule,
        error=None if error is None else error.replace("\0", "\ufffd"),
        created_at=row.created_at,
        updated_at=row.updated_at,
        closed_at=row.closed_at,
        # No database keeps a zero character in a text: such a text is there, and equals nothing.
        attributes={name: _comparable(value) for name, value in found.items()},
    )


def _error(row: RunRow) -> str | None:
    """Why a run ended without a result; nothing where its outcome cannot be read, which is so for databases, too."""
    try:
        return rows.error_text(row)
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError):
        return None


def _comparable(value: object) -> object:
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return {} if isinstance(value, str) and "\0" in value else value
