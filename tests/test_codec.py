"""Signatures: a call's arguments are bound, written by name and restored as the function gets them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import codec
from perdure.codec import Signature, ValueType
from perdure.errors import BadArguments, BadValue, ValueTooLarge

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Point:
    x: int
    y: float = 0.5


def recorded(fn: Callable[..., object], *args: Any, **kwargs: Any) -> tuple[bytes, tuple[Any, ...], dict[str, Any]]:
    """What is recorded of a call; it is the same for those who read it later."""
    signature = Signature(fn, fn.__name__)
    data, seen_args, seen_kwargs = signature.record(args, kwargs)
    assert signature.restore(data) == (seen_args, seen_kwargs)
    return data, seen_args, seen_kwargs


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_json_needs_no_annotation(value: object) -> None:
    kind = ValueType(Any)
    data, seen = kind.record(value, "here")
    assert repr(seen) == repr(value)
    assert repr(kind.restore(data, "here")) == repr(codec.load(data)) == repr(value)


@pytest.mark.parametrize("annotation", [Any, int])
def test_a_forgotten_await_is_recognised(annotation: Any) -> None:
    async def forgotten() -> None: ...

    coroutine = forgotten()
    with pytest.raises(BadValue, match="is an `await` missing"):
        ValueType(annotation).record(coroutine, "here")
    coroutine.close()


def test_dump_refuses_what_json_has_no_place_for() -> None:
    assert codec.dump({"a": [None, 1.5]}, "here") == b'{"a":[null,1.5]}'
    with pytest.raises(BadValue, match="here: nan has no place in JSON"):
        codec.dump({"a": [None, float("nan")]}, "here")


# Binding


def takes_all(a: int, /, b: str, *rest: float, c: Point | None = None, **others: int) -> None: ...


def later(a: int, b: int = 7, c: int = 8) -> None: ...


def guarded(a: int = 1, /, b: date | None = None, *, c: int = 2) -> None: ...


def two_texts(a: str, b: str) -> None: ...


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "data", "seen_args", "seen_kwargs"),
    [
        (later, (1, 2, 3), {}, '{"a":1,"b":2,"c":3}', (1, 2, 3), {}),
        (later, (1,), {}, '{"a":1,"b":7,"c":8}', (1, 7, 8), {}),
        (later, (1, 2), {}, '{"a":1,"b":2,"c":8}', (1, 2, 8), {}),
        (later, (1,), {"c": 3}, '{"a":1,"b":7,"c":3}', (1, 7, 3), {}),
        (later, (), {"c": 3, "b": 2, "a": 1}, '{"a":1,"b":2,"c":3}', (1, 2, 3), {}),
        (guarded, (), {"b": date(2030, 1, 2)}, '{"a":1,"b":"2030-01-02","c":2}', (1, date(2030, 1, 2)), {"c": 2}),
        (guarded, (5,), {"c": 6}, '{"a":5,"b":null,"c":6}', (5, None), {"c": 6}),
        (takes_all, (1, "b"), {}, '{"a":1,"b":"b","c":null}', (1, "b"), {"c": None}),
        (
            takes_all,
            (1, "b", 2.0, 3),
            {"c": Point(1), "d": 4},
            '{"a":1,"b":"b","rest":[2.0,3],"c":{"x":1,"y":0.5},"others":{"d":4}}',
            (1, "b", 2.0, 3.0),
            {"c": Point(1), "d": 4},
        ),
    ],
)
def test_arguments_are_written_by_name_and_come_back_in_place(
    fn: Any, args: Any, kwargs: Any, data: str, seen_args: Any, seen_kwargs: Any
) -> None:
    assert recorded(fn, *args, **kwargs) == (data.encode(), seen_args, seen_kwargs)


def test_arguments_written_without_defaults_get_those_of_the_code() -> None:
    """So were all of them before defaults were recorded."""
    assert Signature(later, "later").restore(b'{"a":1,"c":3}') == ((1, 7, 3), {})
    assert Signature(guarded, "guarded").restore(b"{}") == ((1, None), {"c": 2})


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3, 4), {}, "too many positional arguments; it takes .a: int, b: int = 7, c: int = 8"),
        ((1,), {"a": 1}, "multiple values for argument 'a'"),
        ((1,), {"z": 1}, "unexpected keyword argument 'z'"),
    ],
)
def test_arguments_that_do_not_fit_the_function_are_refused(args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(BadArguments, match=f"^later: .*{words}"):
        recorded(later, *args, **kwargs)


def test_a_refusal_names_the_function_and_the_argument() -> None:
    with pytest.raises(BadValue, match="^later, argument 'b': Expected `int`, got `str`"):
        recorded(later, 1, "2")
    with pytest.raises(BadValue, match="^two_texts, argument 'b': .*surrogate"):
        recorded(two_texts, "a", "\ud800")
    with pytest.raises(BadValue, match=r"^takes_all, argument 'rest': Expected `float`.*`\$\[1\]`"):
        recorded(takes_all, 1, "b", 1.0, "x")
    with pytest.raises(BadValue, match="^later, argument 'c': an int has more digits"):
        recorded(later, 1, 2, 10**5000)


def test_all_arguments_together_have_a_limit_too() -> None:
    with pytest.raises(ValueTooLarge, match="^two_texts: the value takes"):
        recorded(two_texts, "x" * 2**20, "y" * 2**20)


# As JSON


@pytest.mark.parametrize(
    ("fn", "given", "args", "kwargs"),
    [
        (later, '{"a": 1, "c": 3}', (1, 7, 3), {}),
        (later, "[1, 2]", (1, 2, 8), {}),
        (later, '{"c": 3, "b": 2, "a": 1}', (1, 2, 3), {}),
        (takes_all, '[1, "b", 2, 3.5]', (1, "b", 2.0, 3.5), {"c": None}),
        (takes_all, '{"a": 1, "b": "b", "rest": [2], "c": {"x": 1}}', (1, "b", 2.0), {"c": Point(1)}),
    ],
)
def test_arguments_may_be_given_as_json(fn: Any, given: str, args: Any, kwargs: Any) -> None:
    signature = Signature(fn, "fn")
    data, *seen = signature.from_json(given.encode())
    assert tuple(seen) == signature.restore(data) == (args, kwargs)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("5", "a JSON object by name or an array in order"),
        ("[1,2,3,4]", "4 given; it takes"),
        ('{"z": 1}', "it has no parameter z"),
        ('{"b": 1}', "missing a required argument: 'a'"),
    ],
)
def test_json_that_is_no_call_is_refused(given: str, words: str) -> None:
    with pytest.raises(BadArguments, match=words):
        Signature(later, "later").from_json(given.encode())


def test_json_of_the_wrong_types_is_refused() -> None:
    with pytest.raises(BadValue, match="argument 'a': Expected `int`, got `str`"):
        Signature(later, "later").from_json(b'{"a": "1"}')


# Annotations


def as_text(at: "date", where: "list[Point]", who: "OnlyForCheckers | None" = None, *more: "date") -> "date": ...  # type: ignore[empty-body]  # it is never called


def broken(a: "no such thing", b: int = 1) -> None: ...  # type: ignore[valid-type]  # noqa: F722 - on purpose


def traced(fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def traces(*args: P.args, **kwargs: P.kwargs) -> R:
        return fn(*args, **kwargs)

    return traces


def hidden(fn: Callable[P, R]) -> Callable[P, R]:
    def hides(*args: P.args, **kwargs: P.kwargs) -> R:
        return fn(*args, **kwargs)

    return hides


def test_annotations_may_be_strings() -> None:
    _, args, _ = recorded(as_text, date(2030, 1, 2), [Point(1)])
    assert args == (date(2030, 1, 2), [Point(1)], None)
    assert Signature(as_text, "as_text").result.annotation is date


def test_an_annotation_for_type_checkers_only_hides_no_other() -> None:
    """The parameter itself takes plain values, and says what is missing when it gets others."""
    _, args, _ = recorded(as_text, date(2030, 1, 2), [], "1.5", date(2030, 1, 3))
    assert args == (date(2030, 1, 2), [], "1.5", date(2030, 1, 3))
    with pytest.raises(BadValue, match="'who'.*annotate the type.*name 'OnlyForCheckers' is not defined"):
        recorded(as_text, date(2030, 1, 2), [], date(2030, 1, 3))


def test_an_annotation_that_is_no_code_is_told_about() -> None:
    with pytest.raises(BadValue, match="'a'.*so that it can be resolved: SyntaxError"):
        recorded(broken, date(2030, 1, 2))


def test_classes_of_the_function_around_are_found() -> None:
    @dataclass
    class Local:
        day: date

    def takes(local: "Local", many: "list[Local] | None" = None, late: "Late | None" = None) -> "Local": ...  # type: ignore[empty-body]

    signature = Signature(takes, "takes")

    @dataclass
    class Late:
        x: int

    local = Local(date(2030, 1, 2))
    assert signature.record((local, [local]), {})[1:] == ((local, [local], None), {})
    assert signature.result.annotation is Local
    with pytest.raises(BadValue, match="'late'.*name 'Late' is not defined"):
        signature.record((local,), {"late": Late(1)})


def test_a_wrapped_function_keeps_its_types() -> None:
    assert recorded(traced(guarded), 1, date(2030, 1, 2))[1:] == ((1, date(2030, 1, 2)), {"c": 2})


def test_a_wrapper_that_hides_the_types_takes_plain_values() -> None:
    assert recorded(hidden(guarded), 1, "x", c=[2])[1:] == ((1, "x"), {"c": [2]})
    with pytest.raises(BadValue, match="'args'.*date would come back as str"):
        recorded(hidden(guarded), date(2030, 1, 2))


def test_a_path_is_a_path_everywhere(tmp_path: Path) -> None:
    def reads(path: Path, others: dict[str, Path]) -> None: ...

    assert recorded(reads, tmp_path, {"a": tmp_path / "a"})[1] == (tmp_path, {"a": tmp_path / "a"})
