"""docs/cli.md is true: each of its examples is typed, and prints what stands there."""

import os
import pty
import re
import select
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from perdure.cli.command_table import COMMANDS
from tests.cli.shell import PATIENCE, Shell, Zygote

LOOKING = {"list", "show", "events", "doctor", "audit"}
DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def examples() -> Iterator[tuple[str, str]]:
    """Each command that is typed, and what stands below it."""
    for block in re.findall(r"```console\n(.*?)```", DOCUMENT, re.DOTALL):
        yield from re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)


def missing(printed: str, seen: str) -> str:
    """What of the document is not seen where it should be; empty when all is. `…` is anything, blanks are not counted.

    Looks for one piece after the other and never goes back: a pattern of many `.*?` takes years to say no.
    """
    at, (*pieces, last) = 0, [piece.split() for piece in printed.split("…")]
    for number, words in enumerate(pieces):
        found = spaced(words).search(seen, at) if number else spaced(words).match(seen)
        if found is None:
            return not_there(words, "", seen[at:])
        at = found.end()
    is_there = spaced(last, r"\Z").search(seen, at) if pieces else spaced(last).fullmatch(seen)
    return "" if is_there else not_there(last, ", and then the end", seen[at:])


def spaced(words: list[str], end: str = "") -> re.Pattern[str]:
    """The words one after the other, with any blanks."""
    return re.compile(r"\s*" + r"\s*".join(map(re.escape, words)) + r"\s*" + end)


def not_there(words: list[str], end: str, rest: str) -> str:
    """Names as many of the words as it takes to see which one is missing."""
    count = next((n for n in range(1, len(words)) if not spaced(words[:n]).search(rest)), len(words))
    return f"not there: {' '.join(words[:count])}{end}\nin what comes then:\n{rest}"


def left_on_screen(written: str) -> str:
    """What is still there in the end: progress is erased again, line by line, upwards."""
    lines = [""]
    for token in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|\n|[^\x1b\n]+", written):
        match token:
            case "\n":
                lines.append("")
            case "\x1b[2K":
                lines[-1] = ""
            case "\x1b[1A":
                lines.pop()
            case text if not text.startswith("\x1b"):
                lines[-1] += text
    return "\n".join(lines)


def test_every_example_prints_what_stands_there(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)[0])
    shell = Shell(zygote, tmp_path)
    with ExitStack() as workers:
        for typed, printed in examples():
            program, *words = shlex.split(typed)
            assert program == "perdure"
            if words[-1] == "&":
                seen = at_work(shell, words[:-1], workers)
            elif words[0] in LOOKING:
                # What a run waits for is noted a moment after it begins to.
                seen = looked_at(shell, words, printed)
            else:
                seen = left_on_screen(shell.in_colour(*words)[1])
            assert missing(printed, seen) == "", typed


def looked_at(shell: Shell, words: list[str], printed: str) -> str:
    """What a command shows as soon as it is what stands there, or in the end."""
    deadline = time.monotonic() + PATIENCE
    while missing(printed, seen := left_on_screen(shell.in_colour(*words)[1])) and time.monotonic() < deadline:
        time.sleep(0.02)
    return seen


def at_work(shell: Shell, words: list[str], workers: ExitStack) -> str:
    """Begin a worker that ends with the test; what it says when it is ready."""
    ours, theirs = pty.openpty()
    workers.callback(os.close, ours)
    workers.enter_context(shell.begin(*words, files=[theirs] * 3))
    os.close(theirs)
    seen = ""
    while "queues" not in seen or not seen.endswith("\n"):
        assert select.select([ours], [], [], PATIENCE)[0], f"the worker says no more than\n{seen}"
        seen += os.read(ours, 4096).decode()
    return left_on_screen(seen)


@pytest.mark.parametrize(
    ("printed", "seen", "said"),
    [
        ("a … b", "a 1 2\nb", ""),
        ("a  b\n…", "a\nb  c", ""),
        ("a b", "a b c", "not there: a b, and then the end"),
        ("a … b", "a b c", "not there: b, and then the end"),
        ("a … b …", "x a b c", "not there: a"),
        ("a … b c d … e", "a b c e e", "not there: b c d"),
        ("… ms " * 200 + "end", "12 ms " * 200 + "no", "not there: ms end"),
    ],
)
def test_what_does_not_stand_there_is_told_at_once(printed: str, seen: str, said: str) -> None:
    """A long example that had changed kept the tests busy until they were killed, and nobody learnt which it was."""
    assert missing(printed, seen).partition("\n")[0].startswith(said)
    assert (missing(printed, seen) == "") == (said == "")


def test_the_document_names_every_command() -> None:
    for name in COMMANDS.keys() - {"completion"}:
        assert f"$ perdure {name} " in DOCUMENT or f"$ perdure {name}\n" in DOCUMENT, name
    assert "perdure completion bash" in DOCUMENT
