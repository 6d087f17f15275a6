"""Terminals of all kinds: narrow, old, colourless, closed, gone."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.modules import SHOP
from tests.cli.shell import Shell, Zygote, command, environment, until


@pytest.fixture(scope="module")
def busy(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell with a failed run, a waiting one, and one with characters of the world."""
    shell = Shell(zygote, tmp_path_factory.mktemp("busy"))
    (shell.folder / "shop.py").write_text(SHOP)
    shell.waits_for_approval("o-1")
    assert shell("run", "shop:declines", "--id", "d-1").code == 1
    assert shell("run", "shop:greet", '["Zoë → 日本"]', "--id", "z-1").json == "hello Zoë → 日本"
    return shell


@pytest.mark.parametrize("words", ["list", "show o-1", "events d-1", "doctor", "--help", "run --help"])
def test_a_narrow_terminal_is_enough(busy: Shell, words: str) -> None:
    code, seen = busy.at_terminal(*words.split(), COLUMNS="40")
    assert code == 0
    # Commands that are to be copied stay whole.
    lines = [line for line in seen.splitlines() if "perdure " not in line]
    assert max(len(line) for line in lines) <= 40, seen
    assert " \n" not in seen


def test_a_list_on_a_narrow_terminal_gives_each_run_lines_of_its_own(busy: Shell) -> None:
    _, seen = busy.at_terminal("list", COLUMNS="40")
    assert re.search(r"^z-1 +COMPLETED\n  greet, .* ago, took \d+ ms\nd-1 +FAILED\n", seen, re.MULTILINE)
    assert re.search(r"^o-1 +SUSPENDED\n  checkout, .* ago\n  signal approved$", seen, re.MULTILINE)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_our_marks_gets_plain_ones(busy: Shell, encoding: str) -> None:
    """Nothing that is printed may fail for its characters."""
    code, shown = busy.at_terminal("events", "z-1", PYTHONIOENCODING=encoding)
    assert code == 0
    assert re.search(r"\+ completed +-> \"hello Zo. -> \?\?\"", shown)
    code, ran = busy.at_terminal("run", "shop:greet", '["a"]', PYTHONIOENCODING=encoding)
    assert code == 0
    assert "> " in ran
    assert busy.at_terminal("show", "nö", PYTHONIOENCODING=encoding)[0] == 1


def test_json_is_the_same_in_every_encoding(busy: Shell) -> None:
    for words in (["events", "z-1"], ["show", "z-1"], ["wait", "z-1"], ["list"]):
        plain = busy(*words, PYTHONIOENCODING="ascii")
        assert plain.out.isascii()
        assert plain.json == busy(*words).json


def test_colours_only_where_they_are_welcome(busy: Shell) -> None:
    assert "\x1b[" in busy.in_colour("list")[1]
    assert "\x1b[1mUsage:" in busy.in_colour("--help")[1]
    assert "\x1b[31m" in busy.in_colour("show", "nope")[1]
    for words in (["list"], ["show", "d-1"], ["events", "o-1"], ["show", "nope"], ["--help"]):
        # Nor bold or dim letters: whoever says so wants plain text, in a log or on a Braille display.
        assert not re.search(r"\x1b\[[0-9;]*m", busy.in_colour(*words, NO_COLOR="1")[1])
    assert "\x1b" not in busy("list").out + busy("show", "nope").err + busy("--help").out


def test_texts_of_others_cannot_steer_the_terminal(shell: Shell) -> None:
    """An error's text may hold what somebody outside has sent."""
    (shell.folder / "evil.py").write_text(
        "from perdure import workflow\n@workflow\nasync def evil(): raise ValueError('\\x1b]0;owned\\x07\\x1b[2J')\n"
    )
    assert shell("run", "evil:evil", "--id", "e-1").code == 1
    for words in (["list"], ["show", "e-1"], ["events", "e-1"], ["run", "evil:evil", "--id", "e-1"]):
        seen = shell.in_colour(*words)[1]
        assert "owned" in seen
        assert not re.search(r"\x1b\]|\x07|\x1b\[2J", seen)


# Turns what follows round, so that `cod.exe` reads as a document; and what else is not seen, or is an escape by itself.
HIDDEN = "\u202e\u2066\u200f\u061c\u2028\ufeff\x9b2J"
HIDES = f"""
import logging
from perdure import Signal, activity, set_attributes, workflow

EVIL = "fdp{HIDDEN}exe"
word = Signal("word", str)

@activity
async def echoes(text: str) -> str:
    return text

@workflow
async def hides(text: str) -> str:
    set_attributes(note=EVIL)
    logging.getLogger("perdure.evil").warning(EVIL)
    return await echoes(text) + EVIL

@workflow
async def fails(text: str) -> str:
    raise ValueError(EVIL + await word.receive())
"""


def test_texts_of_others_cannot_turn_a_line_round(shell: Shell) -> None:
    """Whoever reads a name, a payload or an error must see the characters that are there, in their order."""
    (shell.folder / "evil.py").write_text(HIDES)
    given = json.dumps([HIDDEN])
    seen = [
        shell.in_colour("run", "evil:hides", given, "--id", "h-1")[1],
        shell.in_colour("start", "evil:fails", given, "--id", "f-1")[1],
        shell.in_colour("signal", "f-1", "word", json.dumps(HIDDEN))[1],
        shell.in_colour("show", "f-1")[1],
        shell.in_colour("run", "evil:fails", given, "--id", "f-1")[1],
        shell.in_colour("cancel", HIDDEN)[1],
    ]
    seen += [
        shell.in_colour(*words, id)[1]
        for id in ("h-1", "f-1")
        for words in (["show"], ["events"], ["wait"], ["show", "--json"], ["events", "--json"])
    ]
    seen.append(shell.in_colour("list")[1])
    for text in seen:
        assert not set(text) & set(HIDDEN.rstrip("2J")), text
    assert '"fdp?' not in seen[0]
    assert shell("wait", "h-1").json == f"{HIDDEN}fdp{HIDDEN}exe"


def test_what_a_worker_logs_cannot_turn_a_line_round(shell: Shell) -> None:
    (shell.folder / "evil.py").write_text(HIDES)
    assert shell("start", "evil:hides", '["a"]', "--id", "h-1").code == 0
    said, say = os.pipe()
    with shell.begin("worker", "evil", files=[said, say, say]) as worker, os.fdopen(said) as lines:
        os.close(say)
        logged = next(line for line in iter(lines.readline, "") if "perdure.evil" in line)
        worker.send(signal.SIGKILL)
        worker.wait()
    assert logged.endswith("fdp???????2Jexe\n")


@pytest.mark.parametrize("words", ["events z-1", "events z-1 --follow", "--help", "list", "completion bash"])
def test_output_may_be_cut_off(busy: Shell, words: str) -> None:
    """`perdure events ID | head` is no failure."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command(*words.split()),
        cwd=busy.folder,
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_streams_may_be_closed(busy: Shell) -> None:
    for closed in (">&-", "<&- >&- 2>&-"):
        done = subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command("list")],
            cwd=busy.folder,
            env=environment(),
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b""), closed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_told(busy: Shell) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("list"), cwd=busy.folder, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"error: No space left on device\n")


def test_ctrl_c_while_loading_leaves_no_traceback(folder: Path) -> None:
    """The engine takes a moment to load, and a user's module may take minutes."""
    (folder / "slow.py").write_text("import os, sys\nos.write(2, b'loading')\nwhile True: pass\n")
    for words in (["run", "slow:greet"], ["worker", "slow"], ["worker", "slow", "--reload"]):
        process = subprocess.Popen(command(*words), cwd=folder, env=environment(), stderr=subprocess.PIPE)
        assert process.stderr is not None
        assert process.stderr.read(7) == b"loading"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120)[1] == b""
        assert process.returncode == 130


def test_ctrl_c_while_json_is_typed_leaves_no_traceback(shell: Shell) -> None:
    """`perdure run shop:greet -` waits for whoever types."""
    given, typed = os.pipe()
    said, say = os.pipe()
    with shell.begin("run", "shop:greet", "-", files=[given, say, say]) as command:
        os.close(say)
        # It sleeps only when it waits for what is typed.
        until(lambda: ") S " in Path(f"/proc/{command.pid}/stat").read_text())
        command.send(signal.SIGINT)
        assert command.wait() == 130
    with os.fdopen(said) as rest:
        assert rest.read() == ""
    os.close(typed)
    os.close(given)
