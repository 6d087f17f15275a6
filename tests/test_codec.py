"""Values: what is written comes back as it was, or is refused where it is made."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from perdure.codec import Signature, ValueType
from perdure.errors import BadArguments, BadValue


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list)


class Customer(BaseModel):
    name: str
    born: date
    at: Point


class Packet(msgspec.Struct):
    body: bytes


VALUES: list[tuple[Any, Any]] = [
    (int, 2**70),
    (float, 1),
    (str, "naïve \x00 \u2028 😀"),
    (bool, True),
    (None, None),
    (int | None, None),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (dict[int, str], {1: "a"}),
    (set[str], {"a", "b"}),
    (datetime, datetime(2030, 1, 2, 3, 4, 5, 6, UTC)),
    (timedelta, timedelta(days=1, microseconds=1)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=5)),
    (bytes, b"\x00\xff"),
    (Colour, Colour.RED),
    (Point, Point(1, 2.5, ["a"])),
    (list[Point], [Point(1), Point(2)]),
    (Customer, Customer(name="Ann", born=date(2000, 1, 2), at=Point(1))),
    (dict[str, Customer], {"a": Customer(name="Ann", born=date(2000, 1, 2), at=Point(1))}),
    (Packet, Packet(b"x")),
    (dict[str, object], {"a": [1, "b", None]}),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=[str(v[0]) for v in VALUES])
def test_annotated_values_come_back_as_they_were(annotation: Any, value: Any) -> None:
    kind = ValueType(annotation)
    data, seen = kind.record(value, "here")
    assert seen == value
    assert kind.restore(data, "here") == value
    assert type(kind.restore(data, "here")) is (float if annotation is float else type(value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_json_needs_no_annotation(value: object) -> None:
    kind = ValueType(Any)
    data, seen = kind.record(value, "here")
    assert seen == value
    assert kind.restore(data, "here") == value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "1"), (int, 1.5), (str, None), (Point, {"x": "a"}), (list[int], ["a"]), (Colour, "blue"), (Customer, 5)],
)
def test_what_does_not_fit_its_annotation_is_refused(annotation: Any, value: Any) -> None:
    with pytest.raises(BadValue, match="here"):
        ValueType(annotation).record(value, "here")


@pytest.mark.parametrize("annotation", [Any, int])
def test_a_forgotten_await_is_recognised(annotation: Any) -> None:
    async def forgotten() -> None: ...

    coroutine = forgotten()
    with pytest.raises(BadValue, match="is an `await` missing"):
        ValueType(annotation).record(coroutine, "here")
    coroutine.close()


def takes_all(a: int, /, b: str, *rest: float, c: Point | None = None, **others: int) -> None: ...


def test_all_kinds_of_parameters_come_back() -> None:
    signature = Signature(takes_all, "takes_all")
    data, args, kwargs = signature.record((1, "b", 2.0, 3), {"c": Point(1), "d": 4})
    assert (args, kwargs) == ((1, "b", 2.0, 3.0), {"c": Point(1), "d": 4})
    assert signature.restore(data) == (args, kwargs)


def later(a: int, b: int = 7, c: int = 8) -> None: ...


def test_arguments_may_be_given_by_name_in_order_or_as_json() -> None:
    signature = Signature(later, "later")
    by_name = signature.record((1,), {"c": 3})[0]
    assert signature.restore(by_name) == ((1,), {"c": 3})
    assert signature.from_json(b'{"a": 1, "c": 3}')[0] == by_name
    assert signature.from_json(b"[1, 2]")[1:] == ((1, 2), {})
    for wrong in (b"{", b"5", b"[1,2,3,4]", b'{"z": 1}'):
        with pytest.raises(BadArguments):
            signature.from_json(wrong)
