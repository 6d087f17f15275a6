"""Errors: they come back as their own type, with what they held, and nothing is imported for it."""

import asyncio
import errno
import http
import os
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import ActivityFailed, Retry, RunFailed, RunNotFound, activity, workflow
from perdure.kernel.failure import Failure
from perdure.testing import Environment
from perdure.worker.failures.failures import LONGEST_MESSAGE, LONGEST_TRACEBACK, failure_of, revive

MOMENT = datetime(2030, 1, 2, tzinfo=UTC)


class PlainError(Exception):
    pass


class OutOfStockError(Exception):
    """Tells more than it was given, and keeps what it was given."""

    def __init__(self, item: str, *, left: int) -> None:
        super().__init__(f"only {left} of {item} left")
        self.item = item
        self.left = left


class CodedError(Exception):
    """Its text is made of its attributes."""

    def __init__(self, status: http.HTTPStatus, cost: Decimal) -> None:
        super().__init__()
        self.status = status
        self.cost = cost

    def __str__(self) -> str:
        return f"{self.status.value} costs {self.cost}"


class HalfError(Exception):
    """One of its attributes cannot be kept, and its text is made of it."""

    def __init__(self, name: str, *, handle: object) -> None:
        super().__init__(name)
        self.handle = handle
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} {type(self.handle).__name__}"


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class LoudError(Exception):
    """Its constructor has an effect, which nobody wants twice."""

    made = 0

    def __init__(self) -> None:
        LoudError.made += 1
        super().__init__("loud", object())


@dataclass
class Item:
    name: str


@dataclass
class DeclaredError(Exception):
    code: int
    why: str = "?"


class NestedError:
    class Inner(Exception):  # noqa: N818 - a name for a test
        pass


class Slotted(Exception):  # noqa: N818 - a name for a test
    __slots__ = ("extra",)


class PartedError(ValueError, OSError):
    pass


class Copier(Exception):  # noqa: N818 - a name for a test
    """Says itself how it is to be made again."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a}/{b}")
        self.pair = (a, b)

    def __reduce__(self) -> tuple[type, tuple[int, int]]:
        return Copier, self.pair


def with_notes() -> Exception:
    error = PlainError("noted")
    error.add_note("one")
    error.add_note("two")
    return error


def caught(act: Callable[[], object]) -> Exception:
    try:
        act()
    except Exception as error:  # noqa: BLE001 - any error
        return error
    raise AssertionError("it raised nothing")


def group() -> "ExceptionGroup[Exception]":
    inner = ExceptionGroup("inner", [OutOfStockError("book", left=1), KeyError(("a", 1))])
    return ExceptionGroup("outer", [ValueError("x"), inner])


# Made by, and what must be the same about them after they were revived.
REVIVED: list[tuple[str, Callable[[], Exception], Callable[[Any], object]]] = [
    ("a builtin", lambda: ValueError("x", 1), lambda e: e.args),
    ("without arguments", PlainError, lambda e: e.args),
    ("a class of a module", lambda: PlainError("x"), lambda e: e.args),
    ("a class in a class", lambda: NestedError.Inner("x"), lambda e: e.args),
    ("a key", lambda: KeyError("k"), lambda e: e.args),
    ("a tuple as key", lambda: KeyError((1, ("a", None))), lambda e: e.args),
    ("a UUID as key", lambda: KeyError(UUID(int=5)), lambda e: e.args),
    ("all sorts of arguments", lambda: ValueError(b"\xff", MOMENT, {"a": [1.5]}, {1}, Path("x")), lambda e: e.args),
    ("an enum", lambda: ValueError(http.HTTPStatus.GONE), lambda e: e.args),
    ("a text that is more", lambda: ValueError(type("Text", (str,), {})("x")), str),
    ("a missing file", lambda: caught(lambda: open("/no/such/file")), lambda e: (e.errno, e.strerror, e.filename)),  # noqa: SIM115, PTH123
    ("two files", lambda: caught(lambda: os.rename("/no/such", "/b")), lambda e: (e.filename, e.filename2)),  # noqa: PTH104
    ("by its number", lambda: OSError(errno.ECONNREFUSED, "refused"), lambda e: (type(e), e.errno)),
    ("without a number", lambda: ConnectionError("down"), lambda e: (e.errno, e.args)),
    ("bytes that are no text", lambda: caught(b"a\xff".decode), lambda e: (e.object, e.start, e.reason)),
    ("text that is no ASCII", lambda: caught(lambda: "ä".encode("ascii")), lambda e: (e.object, e.end)),
    ("a missing module", lambda: caught(lambda: __import__("no_such_module")), lambda e: (e.name, e.args)),
    ("bad code", lambda: caught(lambda: compile("a b", "f.py", "exec")), lambda e: (e.filename, e.lineno, e.text)),
    ("with notes", with_notes, lambda e: (e.args, e.__notes__)),
    ("with its own constructor", lambda: OutOfStockError("book", left=3), lambda e: (e.item, e.left, e.args)),
    ("with a text of its attributes", lambda: CodedError(http.HTTPStatus.OK, Decimal("1.50")), lambda e: vars(e)),
    ("a dataclass", lambda: DeclaredError(5, why="x"), lambda e: (e.code, e.why)),
    ("made its own way", lambda: Copier(1, 2), lambda e: (e.pair, e.args)),
    ("of two builtin kinds", lambda: PartedError("x"), lambda e: e.args),
    ("one of ours", lambda: RunNotFound("a", "main"), lambda e: (e.id, e.namespace)),
    ("an attribute set later", lambda: (e := PlainError("x"), vars(e).update(code=7))[0], lambda e: e.code),
    ("a group", group, lambda e: (e.message, repr(e.exceptions), e.exceptions[1].exceptions[0].item)),
]

made: dict[str, Callable[[], BaseException]] = {name: make for name, make, _ in REVIVED}
looked: dict[str, Callable[[Any], object]] = {name: look for name, _, look in REVIVED}
seen: list[Any] = []


@activity(retry=Retry(max_attempts=1))
async def raises_made(name: str) -> None:
    error = made[name]()
    raise error


@workflow
async def catches_made(name: str) -> str:
    try:
        await raises_made(name)
    except Exception as error:  # noqa: BLE001 - any error
        seen.append(error)
        return f"{type(error).__module__}.{type(error).__qualname__}"
    return ""


@workflow
async def fails_as_made(name: str) -> None:
    await raises_made(name)


@pytest.mark.parametrize("name", looked)
async def test_a_workflow_sees_the_error_the_activity_raised(env: Environment, name: str) -> None:
    async with env:
        original = made[name]()
        run = await env.start(catches_made, name)
        assert await env.result(run) == f"{type(original).__module__}.{type(original).__qualname__}"
        assert (type(seen[-1]), str(seen[-1])) == (type(original), str(original))
        assert looked[name](seen[-1]) == looked[name](original)


@workflow
async def catches_a_childs(name: str) -> str:
    try:
        await fails_as_made(name)
    except Exception as error:  # noqa: BLE001 - any error
        seen.append(error)
        return type(error).__qualname__
    return ""


@pytest.mark.parametrize("name", looked)
async def test_a_parent_sees_the_error_its_child_raised(env: Environment, name: str) -> None:
    async with env:
        original = made[name]()
        run = await env.start(catches_a_childs, name)
        assert await env.result(run) == type(original).__qualname__
        assert looked[name](seen[-1]) == looked[name](original)


@pytest.mark.parametrize("name", looked)
async def test_whoever_waits_for_a_run_gets_its_error_as_the_cause(env: Environment, name: str) -> None:
    async with env:
        run = await env.start(fails_as_made, name)
        with pytest.raises(RunFailed) as raised:
            await env.result(run)
        cause, original = raised.value.__cause__, made[name]()
        assert type(cause) is type(original)
        assert looked[name](cause) == looked[name](original)
        assert (str(original) or type(original).__name__) in str(raised.value)


# What cannot be kept


def test_what_cannot_be_kept_is_told_in_a_note() -> None:
    again = revive(failure_of(HalfError("half", handle=object())))
    assert isinstance(again, HalfError)
    assert (again.args, again.name, again.__notes__) == (("half",), "half", ["its text was: half object"])


def test_arguments_that_cannot_be_kept_leave_the_text() -> None:
    """Nobody's class is made anew for the sake of an error, but the error's own."""
    original = PlainError(Item("book"))
    again = revive(failure_of(original))
    assert type(again) is PlainError
    assert (again.args, str(again)) == (("Item(name='book')",), str(original))


def test_a_constructor_is_called_only_with_what_it_was_given() -> None:
    LoudError.made = 0
    again = revive(failure_of(LoudError()))
    assert type(again) is LoudError
    assert LoudError.made == 1


def test_an_error_without_words_is_still_an_error() -> None:
    failure = failure_of(SilentError("x"))
    assert failure.message == "<SilentError whose text cannot be shown>"
    assert type(revive(failure)) is SilentError
    grouped = failure_of(ExceptionGroup("g", [SilentError("x")]))
    assert "SilentError whose text cannot be shown" in grouped.message


def test_a_huge_error_is_cut_to_size() -> None:
    """Its beginning and its end are what helps; the middle is not."""

    def deep(n: int) -> NoReturn:
        if n == 0:
            raise PlainError("x" * 1_000_000) from ValueError("the very cause")
        if n % 2:
            deep(n - 1)
        # Another line, so that the lines of the traceback differ.
        deep(n - 1)

    failure = failure_of(caught(lambda: deep(100)))
    assert len(failure.message) <= LONGEST_MESSAGE + 4
    assert len(failure.traceback) <= LONGEST_TRACEBACK + 4
    assert "the very cause" in failure.traceback
    assert failure.traceback.endswith("xxx\n")
    again = revive(failure)
    assert type(again) is PlainError
    assert str(again) == failure.message


def test_a_group_of_too_many_errors_says_how_many_there_were() -> None:
    again = revive(failure_of(ExceptionGroup("many", [ValueError(n) for n in range(1000)])))
    assert isinstance(again, ExceptionGroup)
    assert [str(each) for each in again.exceptions[-2:]] == ["49", "and 950 more errors"]


def test_a_group_too_deep_or_too_large_keeps_its_text() -> None:
    deep: Exception = ValueError("the innermost")
    for _ in range(200):
        deep = ExceptionGroup("g", [deep])
    again = revive(failure_of(deep))
    while isinstance(again, ExceptionGroup):
        again = again.exceptions[0]
    assert repr(again).startswith("RuntimeError('ExceptionGroup: g")
    wide = failure_of(ExceptionGroup("w", [ExceptionGroup("v", [ValueError("x" * 2000)] * 50)] * 50))
    assert len(msgspec.json.encode(wide)) < 20_000
    assert wide.message.startswith("w (50 sub-exceptions): ValueError: xxx")
    assert revive(wide) is None


def test_an_unknown_error_in_a_group_leaves_its_text() -> None:
    failure = failure_of(ExceptionGroup("g", [ValueError("x"), type("Gone", (Exception,), {})("was it")]))
    again = revive(failure)
    assert isinstance(again, ExceptionGroup)
    assert repr(again.exceptions) == "(ValueError('x'), RuntimeError('tests.test_failures.Gone: was it'))"


def test_causes_contexts_and_notes_are_in_the_traceback() -> None:
    def fails() -> None:
        try:
            dict[str, int]()["the context"]
        except KeyError:
            error = PlainError("the error")
            error.add_note("the note")
            raise error from OSError("the cause")

    text = failure_of(caught(fails)).traceback
    for words in ("the cause", "direct cause", "PlainError: the error", "the note", "in fails"):
        assert words in text


# What must not be revived


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError("x"), BaseException("x")]
)
def test_what_ends_programs_is_never_revived(error: BaseException) -> None:
    failure = failure_of(error)
    assert failure.type.endswith(type(error).__name__)
    assert revive(failure) is None
    assert revive(failure_of(BaseExceptionGroup("g", [error]))) is None


@pytest.mark.parametrize(
    "type_name",
    [
        "os.system",
        "builtins.exec",
        "builtins.int",
        "builtins.type",
        "builtins.BaseException",
        "subprocess.Popen",
        "subprocess",
        "tests.test_failures.made",
        "tests.test_failures.Item",
        "tests.test_failures.NestedError",
        "tests.test_failures.with_notes.__globals__",
        "no_such_module.Error",
        "xmlrpc.client.Fault",
        "",
        ".",
        "..ValueError",
        "ValueError",
        "a" * 100_000,
    ],
)
def test_names_of_anything_else_revive_nothing(type_name: str) -> None:
    before = set(sys.modules)
    assert revive(Failure(type_name, "x", msgspec.Raw(b'["touch me"]'))) is None
    assert set(sys.modules) == before


def test_looking_for_a_type_runs_nobodys_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module may import others when it is asked for a name; so it is not asked."""

    def must_not(name: str) -> NoReturn:
        raise AssertionError(name)

    module = types.ModuleType("asks_others")
    module.__getattr__ = must_not  # type: ignore[method-assign]  # as modules do it
    monkeypatch.setitem(sys.modules, "asks_others", module)
    assert revive(Failure("asks_others.Error", "x")) is None


def test_a_class_that_became_something_else_is_told_about(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = failure_of(PlainError("x"))
    for other in (len, Item, None, "PlainError", type):
        monkeypatch.setattr(sys.modules[__name__], "PlainError", other)
        assert revive(failure) is None


async def test_an_error_of_a_local_class_keeps_its_text(env: Environment) -> None:
    class LocalError(Exception):
        pass

    made["local"] = lambda: LocalError("here")
    async with env:
        run = await env.start(catches_made, "local")
        assert await env.result(run) == "perdure.errors.ActivityFailed"
        assert isinstance(seen[-1], ActivityFailed)
        assert "LocalError: here" in str(seen[-1])


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.binary(max_size=60))
def test_a_damaged_record_still_gives_the_type(arguments: bytes, attributes: bytes) -> None:
    again = revive(Failure("builtins.ValueError", "x", msgspec.Raw(arguments), "", msgspec.Raw(attributes)))
    assert type(again) is ValueError


@pytest.mark.parametrize(
    "marked",
    ['{"$enum": ["os.system", "x"]}', '{"$enum": ["http.HTTPStatus", "NONE"]}', '{"$object": 1}', '{"$tuple": 5}'],
)
def test_a_marked_value_that_is_none_of_ours_is_not_restored(marked: str) -> None:
    again = revive(Failure("builtins.ValueError", "x", msgspec.Raw(f"[{marked}]".encode())))
    assert (type(again), again and again.args) == (ValueError, ("x",))


@pytest.mark.parametrize("name", ["__class__", "__traceback__", "__cause__", "__dict__"])
def test_attributes_that_mean_something_to_python_are_left_alone(name: str) -> None:
    attributes = msgspec.Raw(msgspec.json.encode({name: "x", "code": 7}))
    again = revive(Failure("builtins.ValueError", "x", msgspec.Raw(b'["x"]'), "", attributes))
    assert vars(again) == {"code": 7}


def test_a_type_of_the_started_program_is_found_where_it_is_imported(tmp_path: Path) -> None:
    """A script run by hand and a worker that imports it call its classes differently."""
    (tmp_path / "shop.py").write_text(
        "import sys\n"
        "from perdure.worker.failures.failures import failure_of, revive\n"
        "class ShopError(Exception): pass\n"
        "if __name__ == '__main__':\n"
        "    failure = failure_of(ShopError('x'))\n"
        "    assert type(revive(failure)) is ShopError\n"
        "    print(failure.type)\n"
    )
    importing = (
        "import sys, shop; from perdure.worker.failures.failures import revive; "
        "from perdure.kernel.failure import Failure;"
        "print(type(revive(Failure(sys.argv[1], 'x'))) is shop.ShopError)"
    )
    for how in (["shop.py"], ["-m", "shop"]):
        name = subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert name == "shop.ShopError\n"
    found = subprocess.run(
        [sys.executable, "-c", importing, name.strip()], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout == "True\n"
