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


ACTIONS = [(name, action) for name in COMMANDS for action in load(name).takes]


@pytest.mark.parametrize(("name", "action"), ACTIONS)
def test_each_thing_that_a_command_does_has_a_help_of_its_own(name: str, action: str) -> None:
    """Thirty options, of which three mean something, help nobody; and one that is not heeded must not be taken."""
    told = help_text(name, action)
    examples = told.partition("\nExamples:\n")[2].splitlines()
    assert examples
    assert all(line.startswith(f"  perdure {name} {action}") for line in examples), examples
    assert "--url" in told
    assert ("--key" in told) == ("key" in load(name).takes[action])


def help_text(*words: str) -> str:
    command = load(words[0])
    context = command.make_context(words[0], [*words[1:]], resilient_parsing=True)
    return str(command.get_help(context))


def test_an_option_of_another_thing_to_do_is_refused(shell: Shell) -> None:
    """It was taken and lost: `schedule pause --cron` changed no time."""
    assert {name for name, _ in ACTIONS} == {"schedule", "outbox", "key", "namespace"}
    for words, told in (
        (("schedule", "pause", "x", "--cron", "@daily"), "--cron does not go with `perdure schedule pause`; it goes"),
        (
            ("outbox", "remove", "x", "--reason", "y"),
            "--reason does not go with `perdure outbox remove`; it goes with pause",
        ),
        (("key", "list", "--role", "admin"), "--role does not go with `perdure key list`; it goes with create"),
        (("schedule", "pause", "x", "--crom", "@daily"), "No such option: --crom"),
    ):
        done = shell(*words)
        assert (done.code, told in done.err) == (64, True), done
