"""`perdure completion`: what shells offer."""

import shutil
import subprocess

import pytest

from tests.cli.shell import Shell, environment


def offered(shell: Shell, line: str) -> list[str]:
    """What bash is told when the tab key is hit at the end of a line."""
    words = line.split(" ")
    done = shell(_PERDURE_COMPLETE="complete_bash", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1))
    assert (done.code, done.err) == (0, "")
    return done.out.split()


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_it_understands(shell: Shell, name: str) -> None:
    done = shell("completion", name)
    assert (done.code, done.err) == (0, "")
    assert f"complete_{name}" in done.out
    program = shutil.which(name)
    if program is not None:
        words = [program, "--no-execute" if name == "fish" else "-n"]
        read = subprocess.run(words, input=done.out, env=environment(), capture_output=True, text=True, check=False)
        assert (read.returncode, read.stderr) == (0, "")


def test_commands_options_statuses_and_runs_are_offered(shell: Shell) -> None:
    assert offered(shell, "perdure si") == ["signal"]
    assert offered(shell, "perdure list --sta") == ["--status"]
    assert offered(shell, "perdure list --status fa") == ["failed"]
    assert offered(shell, "perdure list --status h") == ["held"]
    assert offered(shell, "perdure list --status q") == ["quarantine"]
    assert offered(shell, "perdure start --on-conflict re") == ["return", "reject", "replace"]
    assert offered(shell, "perdure completion ") == ["bash", "zsh", "fish"]
    assert offered(shell, "perdure show ") == []
    for id in ("order-1", "order-2", "trip-1"):
        assert shell("run", "shop:greet", '["a"]', "--id", id).code == 0
    assert offered(shell, "perdure show order") == ["order-2", "order-1"]
    assert offered(shell, "perdure wait t") == ["trip-1"]
