"""What type checkers say: wrong lines are reported, right ones are not, and no Any leaks out of the public API."""

import inspect
import os
import re
import subprocess
import sys
import typing
from collections.abc import Coroutine, Generator, Iterator
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure

ROOT = Path(__file__).parent.parent
WRONG, RIGHT, SHOP = (f"tests/typing/{name}.py" for name in ("wrong", "right", "shop"))
FILES = [WRONG, RIGHT, SHOP]

# Nothing may be fetched: what the development dependencies brought must do.
NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")

# Where a signature of the public API has an Any that nothing can replace, and why.
ANYS = {
    "Activity.fn": "a value or a coroutine, as it was written; a union would have to be taken apart by every caller",
    "BoundCall.__init__, arguments": "made by Workflow.call(), of what the codec has restored",
}

# What the standard library has for a coroutine's and a generator's inner talk with the event loop.
INNER: dict[object, int] = {Coroutine: 2, Generator: 1}


class Report(typing.NamedTuple):
    """What a type checker says of a line."""

    file: str
    line: int
    code: str
    text: str


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Report]]:
    """What both type checkers say; they run side by side, once."""
    mypy = started("mypy", "--strict", "--no-error-summary", "--no-pretty", *FILES)
    pyright = started("pyright", "--outputjson", "--pythonpath", sys.executable, *FILES)
    return {"mypy": list(by_mypy(output_of(mypy))), "pyright": list(by_pyright(output_of(pyright)))}


def started(module: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", module, *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYRIGHT_")}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment | NO_NETWORK, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def output_of(checker: "subprocess.Popen[str]") -> str:
    output, errors = checker.communicate(timeout=500)
    assert checker.returncode in {0, 1}, output + errors
    return output


def by_mypy(output: str) -> Iterator[Report]:
    for line in output.splitlines():
        if " note: " not in line:
            found = re.fullmatch(r"(.+?):(\d+): error: (.+)  \[([a-z-]+)\]", line)
            assert found is not None, line
            yield Report(found[1], int(found[2]), found[4], found[3])


class Position(msgspec.Struct):
    line: int


class Range(msgspec.Struct):
    start: Position


class Diagnostic(msgspec.Struct):
    """A diagnostic in pyright's own words."""

    file: str
    severity: str
    message: str
    range: Range
    rule: str = ""


class Output(msgspec.Struct, rename="camel"):
    general_diagnostics: list[Diagnostic]


def by_pyright(output: str) -> Iterator[Report]:
    for found in msgspec.json.decode(output, type=Output).general_diagnostics:
        file = str(Path(found.file).relative_to(ROOT))
        yield Report(file, found.range.start.line + 1, found.rule, found.message)


def marks() -> dict[int, str]:
    """The lines that are marked as wrong, and the code mypy shall report them under."""
    lines = enumerate((ROOT / WRONG).read_text().splitlines(), start=1)
    return {number: found[1] for number, line in lines if (found := re.search(r"# wrong: ([a-z-]+)$", line))}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_every_wrong_line_is_reported_and_no_other(reports: dict[str, list[Report]], checker: str) -> None:
    reported = {report.line: report for report in reports[checker] if report.file == WRONG}
    lines = (ROOT / WRONG).read_text().splitlines()
    passed = [f"{line}: {lines[line - 1].strip()}" for line in sorted(marks().keys() - reported.keys())]
    surprising = [reported[line] for line in sorted(reported.keys() - marks().keys())]
    assert (passed, surprising) == ([], [])
    assert len(marks()) >= 40


def test_wrong_lines_are_wrong_for_the_reason_they_are_marked_with(reports: dict[str, list[Report]]) -> None:
    codes = {(report.line, report.code) for report in reports["mypy"] if report.file == WRONG}
    assert [mark for mark in marks().items() if mark not in codes] == []


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_right_lines_are_accepted_and_have_the_types_they_should(
    reports: dict[str, list[Report]], checker: str
) -> None:
    """The types are asserted in the file itself, and reported there when they are others."""
    assert [report for report in reports[checker] if report.file != WRONG] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (resources.files("perdure") / "py.typed").is_file()


# Any


def test_no_any_stands_in_the_public_signatures() -> None:
    """An Any switches checking off for whoever gets it, without a word."""
    found = {where for name in perdure.__all__ for where, hint in hints_of(name) if has_any(hint)}
    assert found == ANYS.keys()


def hints_of(name: str) -> Iterator[tuple[str, object]]:
    """Every annotation of a public name, and where it stands."""
    public = getattr(perdure, name)
    if inspect.isfunction(public):
        yield from function_hints(name, public)
    elif inspect.isclass(public):
        yield from class_hints(name, public)


def is_generated(function: object) -> bool:
    """Whether `@dataclass` wrote it; it says nothing of types, and type checkers know better."""
    return inspect.isfunction(function) and inspect.unwrap(function).__code__.co_filename == "<string>"


def class_hints(name: str, kind: type[object]) -> Iterator[tuple[str, object]]:
    for field, hint in typing.get_type_hints(kind).items():
        if not field.startswith("_"):
            yield f"{name}.{field}", hint
    for member in dir(kind):
        is_private = member.startswith("_") and not member.endswith("__")
        function = member_function(inspect.getattr_static(kind, member))
        is_ours = (getattr(function, "__module__", None) or "").startswith("perdure.") and not is_generated(function)
        if not is_private and is_ours:
            yield from function_hints(f"{name}.{member}", function)


def member_function(value: object) -> Any:
    match value:
        case property():
            return value.fget
        case cached_property():
            return value.func
        case staticmethod() | classmethod():
            return value.__func__
        case _:
            return value if inspect.isfunction(value) else None


def function_hints(name: str, function: Any) -> Iterator[tuple[str, object]]:
    """Of an overloaded function, what its overloads say."""
    names = {each: getattr(perdure, each) for each in perdure.__all__}
    for said in typing.get_overloads(function) or [function]:
        hints = typing.get_type_hints(said, localns=names)
        assert "return" in hints, f"{name} does not say what it returns"
        yield from ((f"{name}, {parameter}", hint) for parameter, hint in hints.items())


def has_any(hint: object) -> bool:
    if hint is Any:
        return True
    if isinstance(hint, list | tuple):
        return any(map(has_any, hint))
    return any(map(has_any, typing.get_args(hint)[INNER.get(typing.get_origin(hint), 0) :]))
