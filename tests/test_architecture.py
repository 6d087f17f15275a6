"""ARCHITECTURE.md is true: every file and every function it names is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "perdure"
MAP = (ROOT / "ARCHITECTURE.md").read_text()
NAMED = re.compile(r"`([^`]+)`")


def section(title: str) -> str:
    """What stands under a heading."""
    found = re.search(rf"^## {re.escape(title)}.*?\n(.*?)(?=^## |\Z)", MAP, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(title: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def names_in(path: Path) -> set[str]:
    """Every class and function of a file, and every method as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {f"{node.name}.{each.name}" for each in methods}
    return found


QUESTIONS = rows("Where is …?")


def test_the_map_answers_many_questions() -> None:
    assert len(QUESTIONS) >= 40


@pytest.mark.parametrize(("what", "file", "name"), QUESTIONS)
def test_what_a_question_asks_for_is_where_the_map_says(what: str, file: str, name: str) -> None:
    assert name.strip("`") in names_in(SOURCE / file.strip("`")), what


@pytest.mark.parametrize("step", rows("The road of one step"), ids=lambda step: step[0])
def test_the_road_of_a_step_goes_through_files_and_functions_that_are_there(step: list[str]) -> None:
    known: set[str] = set()
    for word in NAMED.findall(step[1]):
        if word.endswith(".py"):
            known = names_in(SOURCE / word)
        else:
            assert word in known


def test_every_file_the_map_names_is_there() -> None:
    files = set(re.findall(r"`([\w/]+\.(?:py|md|sql))`", MAP))
    assert [file for file in sorted(files) if not (SOURCE / file).exists() and not (ROOT / file).exists()] == []


def test_modules_went_where_the_map_says() -> None:
    gone = [
        new
        for _, now in rows("Where modules went")
        for new in NAMED.findall(now)
        if not any((root / f"{new}.py").exists() or (root / new).is_dir() for root in (SOURCE, ROOT))
    ]
    assert gone == []
