"""The table of other engines' bugs: every row is there, and what it names exists."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "bugs-of-others.md"


def table() -> dict[str, str]:
    """What keeps each bug away, by its number."""
    rows = [line.strip("|").split("|") for line in TABLE.read_text().splitlines() if line.startswith("| R")]
    return {row[0].strip(): row[-1] for row in rows}


def named_in(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)


@cache
def known_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_table_has_a_row_for_every_bug() -> None:
    assert list(table()) == [f"R{number:02}" for number in range(1, 73)]


def test_every_test_that_the_table_names_exists() -> None:
    """A test that was renamed keeps nothing away by its old name."""
    missing = [
        f"{number}: {path}::{test}"
        for number, text in table().items()
        for path, test in named_in(text)
        if not (ROOT / path).is_file() or test not in known_in(path)
    ]
    assert missing == []


def test_most_bugs_have_a_test_and_the_others_a_reason() -> None:
    reasons = {number: text for number, text in table().items() if not text.strip().startswith("`tests/")}
    assert len(table()) - len(reasons) >= 48
    assert all("elongs to" in text or "mpossible" in text for text in reasons.values())
