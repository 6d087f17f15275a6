"""docs/cli.md is true: each of its examples is typed, and prints what stands there."""

import os
import pty
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from perdure.cli.commands import COMMANDS
from tests.cli.shell import Shell, Zygote, until

LOOKING = {"list", "show", "events", "doctor", "audit"}
DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def examples() -> Iterator[tuple[str, str]]:
    """Each command that is typed, and what stands below it."""
    for block in re.findall(r"```console\n(.*?)```", DOCUMENT, re.DOTALL):
        yield from re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)


def pattern(printed: str) -> str:
    """What stands in the document as a regular expression: `…` is anything, and blanks are not counted."""
    words = re.sub(r"\s+", " ", printed.strip())
    return re.escape(words).replace("…", ".*?").replace(r"\ ", r"\s*")


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
                until(lambda: shows(shell, words, printed))  # noqa: B023 - called at once
                continue
            else:
                seen = left_on_screen(shell.in_colour(*words)[1])
            assert re.fullmatch(pattern(printed), seen.strip(), re.DOTALL), f"{typed}\n{seen}"


def shows(shell: Shell, words: list[str], printed: str) -> bool:
    seen = left_on_screen(shell.in_colour(*words)[1])
    return re.fullmatch(pattern(printed), seen.strip(), re.DOTALL) is not None


def at_work(shell: Shell, words: list[str], workers: ExitStack) -> str:
    """Begin a worker that ends with the test; what it says when it is ready."""
    ours, theirs = pty.openpty()
    workers.callback(os.close, ours)
    workers.enter_context(shell.begin(*words, files=[theirs] * 3))
    os.close(theirs)
    seen = ""
    while "activities" not in seen or not seen.endswith("\n"):
        seen += os.read(ours, 4096).decode()
    return left_on_screen(seen)


def test_the_document_names_every_command() -> None:
    for name in COMMANDS.keys() - {"completion"}:
        assert f"$ perdure {name} " in DOCUMENT or f"$ perdure {name}\n" in DOCUMENT, name
    assert "perdure completion bash" in DOCUMENT
