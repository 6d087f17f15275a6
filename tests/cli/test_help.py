"""Help: every command is named, explained, and shown in use."""

import re

import pytest

from perdure.cli.command_table import COMMANDS, load
from tests.cli.shell import Shell


def test_help_names_every_command_and_the_exit_codes(shell: Shell) -> None:
    done = shell()
    assert done.code == 0
    assert done.out == shell("--help").out == shell("-h").out == shell("help").out
    assert shell("help", "run").out == shell("run", "--help").out
    for name, entry in COMMANDS.items():
        assert re.search(rf"^  {name} +{entry.about.split()[0]}", done.out, re.MULTILINE), name
    assert "Exit codes: 0 ok, 1 failed, 2 timed out, 64 wrong usage." in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_the_same_in_both_places_and_has_an_example(shell: Shell, name: str) -> None:
    """Help does not load the commands, so what they are for stands twice."""
    assert load(name).help == COMMANDS[name].about
    told = shell(name, "--help").out
    assert f"\nExamples:\n  perdure {name} " in told
    assert "PERDURE_URL" in told or name == "completion"


def test_the_version_is_told(shell: Shell) -> None:
    assert re.fullmatch(r"perdure \d+\.\d+\.\d+\S*\n", shell("--version").out)
