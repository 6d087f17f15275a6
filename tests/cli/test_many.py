"""Steering many runs at once: `--where` instead of a name."""

import sqlite3
from contextlib import closing

from tests.cli.shell import Shell


def started(shell: Shell, count: int) -> None:
    for number in range(count):
        assert shell("start", "shop:greet", '["ann"]', "--id", f"g-{number}", "--attribute", "tenant=acme").code == 0


def test_many_runs_are_paused_resumed_signalled_cancelled_and_retried(shell: Shell) -> None:
    started(shell, 3)
    where = ("--where", "tenant = :t", "--param", "t=acme")
    paused = shell("pause", *where, "--reason", "why", "--yes")
    assert paused.json == {"matched": 3, "done": 3, "skipped": 0, "errors": {}}
    assert shell("signal", "approved", "true", *where, "--id", "s-1", "--yes").json["done"] == 3
    assert shell("signal", "approved", "true", *where, "--id", "s-1", "--yes").json["skipped"] == 3
    held = shell("list", "--status", "paused").json
    assert [(run["held"], run["held_report"]["reason"]) for run in held] == [("paused", "why")] * 3
    assert shell("resume", "--where", "held = 'paused'", "--yes").json["done"] == 3
    assert shell("cancel", *where, "--yes").json["done"] == 3
    assert shell("retry", *where, "--reason", "too early", "--yes").json["done"] == 3
    assert shell("show", "g-0").json["fork_reason"] == "too early"
    assert shell("terminate", *where, "--yes").json["done"] == 3
    assert shell("terminate", *where, "--yes").json["matched"] == 0


def test_a_name_that_is_nearly_that_of_a_field_is_told_before_anybody_says_yes(shell: Shell) -> None:
    """As an attribute nobody has it, and `!=` means every run."""
    started(shell, 2)
    asked = shell("terminate", "--where", "workflw != 'greet'")
    assert "did you mean workflow?" in asked.err
    assert asked.err.index("did you mean") < asked.err.index("2 runs match")


def test_who_does_not_say_yes_is_asked_and_told_what_matches(shell: Shell) -> None:
    """A filter that means more than was meant is seen before anything happens."""
    started(shell, 7)
    piped = shell("terminate", "--where", "tenant = 'acme'")
    assert piped.code == 64
    assert "7 runs match (g-" in piped.err
    assert "say --yes to terminate them" in piped.err
    code, seen = shell.at_terminal("terminate", "--where", "tenant = 'acme'", typed="n\n")
    assert (code, "7 runs match (g-" in seen) == (1, True)
    code, seen = shell.at_terminal("terminate", "--where", "tenant = 'acme'", typed="\x04")
    assert (code, "Traceback" in seen) == (130, False)
    assert {run["status"] for run in shell("list").json} == {"PENDING"}
    code, seen = shell.at_terminal("terminate", "--where", "tenant = 'acme'", typed="y\n")
    assert (code, "7 matched, 7 done, 0 skipped" in seen) == (0, True)


def test_a_filter_may_be_as_long_here_as_anywhere(shell: Shell) -> None:
    """What is shown before the question must not make it longer."""
    started(shell, 2)
    where = " or ".join([*["tenant = 'x'"] * 99, "id = 'g-1'"])
    assert "1 run matches (g-1); say --yes to cancel it" in shell("cancel", "--where", where).err
    assert "2 runs match (g-" in shell("resume", "--where", "true").err
    assert shell("cancel", "--where", where, "--yes").json["done"] == 1
    assert "1 run matches (g-1); say --yes to retry it" in shell("retry", "--where", where).err


def test_errors_are_told_and_the_exit_code_is_1(shell: Shell) -> None:
    started(shell, 2)
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db, db:
        db.execute("update runs set seed = 'spoilt' where workflow_id = 'g-0'")
    answer = shell("pause", "--where", "true", "--yes")
    assert answer.code == 1
    assert "1 of them: RunUnreadable (g-0)" in answer.err
    assert '"done": 1' in answer.out


def test_a_run_or_a_filter_is_named_and_not_both(shell: Shell) -> None:
    started(shell, 1)
    for command in ("cancel", "terminate", "pause", "retry"):
        assert "or say which ones with --where" in shell(command).err
        assert shell(command, "g-0", "--where", "true").code == 64
    assert shell("resume", "g-0", "--where", "true").code == 64
    assert shell("signal", "g-0", "approved", "1", "--where", "true").code == 64
    assert "name the run and the signal" in shell("signal", "g-0").err
    assert shell("cancel", "--where", "true", "--force").code == 64
    assert shell("cancel", "--where", "status =", "--yes").code == 64
