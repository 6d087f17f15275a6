"""`perdure retry` and `perdure fork`, and what `perdure show` says of runs that were made so."""

import json
import re

import pytest

from tests.cli.shell import Shell


def started(shell: Shell) -> None:
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0


def test_a_run_that_was_stopped_is_retried_and_both_say_so(shell: Shell) -> None:
    """No worker is needed for it, and none has to have the code."""
    started(shell)
    assert shell("terminate", "g-1").code == 0
    old = shell("show", "g-1").json["run_id"]

    done = shell("retry", "g-1", "--reason", "too early")

    assert (done.code, "no worker is alive" in done.err) == (0, True)
    made = json.loads(done.out)
    assert (made["id"], made["forked_from"], made["fork_reason"]) == ("g-1", old, "too early")
    told = re.sub(r"\s+", " ", shell.at_terminal("show", "g-1")[1])
    assert f"made from {old}, up to event 1: too early" in told
    assert f"made anew as {made['run_id']}" in re.sub(r"\s+", " ", shell.at_terminal("show", old)[1])


def test_a_fork_takes_arguments_and_results(shell: Shell) -> None:
    """JSON as everywhere; a number is an event, anything else a place."""
    started(shell)

    done = shell("fork", "g-1", "--at", "1", "--id", "g-2", "--input", '{"name": "bob"}', "--result", 'a(k=1)={"x": 1}')

    assert done.code == 0, done
    made = json.loads(done.out)
    assert (made["id"], made["forked_at"]) == ("g-2", 1)
    events = shell("events", "g-2").json
    assert [(each["kind"], each["place"]) for each in events] == [("RunStarted", ""), ("ResultGiven", "a(k=1)")]
    assert events[0]["body"]["input"] == {"name": "bob", "times": 1}
    assert events[1]["body"] == {"value": {"x": 1}}


def test_arguments_are_checked_by_what_workers_announced_where_there_is_no_code(shell: Shell) -> None:
    """A text in the place of a number was written to disk, and the new run failed in every worker."""
    started(shell)
    with shell.at_work():
        assert shell("wait", "g-1", "--timeout", "120").code == 0
    at = ("fork", "g-1", "--at", "1", "--id", "g-2", "--input")

    wrong = shell(*at, '{"times": "two"}')
    assert (wrong.code, "'times': " in wrong.err, "expected integer" in wrong.err) == (64, True, True), wrong
    assert "it takes name, times" in shell(*at, '{"nam": 1}').err
    assert shell("show", "g-2").code == 1
    assert shell(*at, '{"times": 2}').code == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("retry", "g-1"), 1, "is open"),
        (("fork", "g-1", "--at", "1"), 1, "another id"),
        (("fork", "g-1", "--at", "7", "--id", "x"), 64, "only 1 to 1"),
        (("fork", "g-1", "--at", "charge", "--id", "x"), 64, "no event of a place 'charge'"),
        (("fork", "g-1", "--at", "1", "--id", "x", "--input", "[1]"), 64, "by name"),
        (("fork", "g-1", "--at", "1", "--id", "x", "--input", '{"nam": 1}'), 64, "nam"),
        (("fork", "g-1", "--at", "1", "--id", "x", "--result", "5"), 64, "PLACE=JSON"),
        (("fork", "g-1", "--id", "x"), 64, "--at"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_made(shell: Shell, words: tuple[str, ...], code: int, told: str) -> None:
    started(shell)

    done = shell(*words)

    assert (done.code, told in done.err) == (code, True), done
    assert len(shell("list").json) == 1
