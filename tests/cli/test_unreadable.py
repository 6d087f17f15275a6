"""Runs that cannot be read, as people meet them: `perdure list`, `show`, `events`, `resume`, `terminate`."""

import json
import re
import sqlite3
from contextlib import closing

import pytest

from tests.cli.shell import Shell, until

NO_TEXT = "cast(x'7bff7d' as text)"


def spoil(shell: Shell, statement: str) -> None:
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db, db:
        assert db.execute(statement).rowcount == 1


def listed(shell: Shell) -> str:
    return shell.at_terminal("list")[1]


def test_list_shows_the_others_and_says_which_it_left_out(shell: Shell) -> None:
    """One spoilt row made the whole list fail, when it was needed most."""
    for number in ("1", "2", "3"):
        assert shell("run", "shop:greet", f'["{number}"]', "--id", f"g-{number}").code == 0
    spoil(shell, f"update runs set step = {NO_TEXT} where workflow_id = 'g-2'")

    done = shell("list")

    assert (done.code, [run["workflow_id"] for run in json.loads(done.out)]) == (0, ["g-3", "g-1"])
    assert done.err.startswith("warning: run 'g-2' (")
    assert "it cannot be read: the step in its row cannot be read" in done.err
    assert "`perdure audit`" in done.err
    shown = shell("show", "g-2")
    assert shown.code == 1
    assert "run 'g-2' cannot be read: the step in its row" in shown.err
    assert "try again" not in shown.err
    assert shell("audit").code == 1


def test_a_run_that_cannot_be_read_shows_why_and_ends_once_it_is_corrected(shell: Shell) -> None:
    """Whoever is paged at night must see what is wrong, in which event, and what to type."""
    shell.waits_for_approval("o-1")
    spoil(shell, "update events set body = 'x' || body where seq = 2")
    with shell.at_work():
        assert shell("signal", "o-1", "approved", "true").code == 0
        until(lambda: json.loads(shell("show", "o-1").out)["held"] == "quarantine")
        code, seen = shell.at_terminal("show", "o-1")
        assert code == 0
        assert "HELD (quarantine)" in seen
        seen = re.sub(r"\s+", " ", seen)
        assert "event 2 cannot be read as ActivityCompleted" in seen
        for word in ("audit", "resume o-1", "terminate o-1"):
            assert f"`perdure {word}`" in seen
        assert re.search(
            r"HELD \(quarantine\).* event 2 cannot be read as ActivityCompleted$", listed(shell), re.MULTILINE
        )
        events = shell("events", "o-1")
        assert events.code == 1
        assert "event 2 cannot be read" in events.err

        spoil(shell, "update events set body = substr(body, 2) where seq = 2")
        assert shell("resume", "o-1").code == 0
        assert shell("wait", "o-1", "--timeout", "20").code == 0


def test_show_tells_of_a_run_whose_input_is_no_json(shell: Shell) -> None:
    """It ended in a traceback; and the worker told of an error without a word about where it was."""
    shell.waits_for_approval("o-1")
    spoil(shell, "update runs set input = '{oops' where workflow_id = 'o-1'")
    with shell.at_work():
        assert shell("signal", "o-1", "approved", "true").code == 0
        until(lambda: json.loads(shell("show", "o-1").out)["held"] == "quarantine")
    shown = shell("show", "o-1")
    assert shown.err.startswith("warning: ")
    assert "run 'o-1' cannot be read: its input cannot be read: JSON is malformed" in shown.err
    assert json.loads(shown.out)["input"] is None
    code, seen = shell.at_terminal("show", "o-1")
    assert (code, "Traceback" in seen) == (0, False)
    assert re.search(r"^ *input +cannot be read$", seen, re.MULTILINE)
    assert "its input cannot be read: JSON is malformed" in re.sub(r"\s+", " ", seen)


def test_a_history_is_shown_up_to_the_event_that_cannot_be_read(shell: Shell) -> None:
    """The guide says so, and only the error came; how far a run had got is what one wants to know."""
    shell.waits_for_approval("o-1")
    spoil(shell, "update events set body = 'x' || body where seq = 3")
    piped = shell("events", "o-1")
    assert piped.code == 1
    assert [event["seq"] for event in json.loads(piped.out)] == [1, 2]
    assert "event 3 cannot be read" in piped.err
    code, seen = shell.at_terminal("events", "o-1")
    assert code == 1
    assert re.search(r"^ *2 .*reserve", seen, re.MULTILINE)
    assert "event 3 cannot be read" in re.sub(r"\s+", " ", seen)
    assert re.search(
        r"^ *history +2 events, as far as it can be read$", shell.at_terminal("show", "o-1")[1], re.MULTILINE
    )


def test_a_run_that_is_held_as_unreadable_can_be_given_up(shell: Shell) -> None:
    shell.waits_for_approval("o-1")
    spoil(shell, "update events set kind = 'ActivityDreamt' where seq = 2")
    answer = shell("terminate", "o-1")
    assert answer.code == 0
    assert shell("list").json[0]["status"] == "TERMINATED"


def test_a_run_whose_row_cannot_be_read_can_be_given_up(shell: Shell) -> None:
    """Nobody can show it, and nobody has to: that it shall end is all there is to say."""
    shell.waits_for_approval("o-1")
    spoil(shell, f"update runs set step = {NO_TEXT}, seed = 'x' where workflow_id = 'o-1'")
    answer = shell("terminate", "o-1")
    assert answer.code == 0
    assert answer.err.startswith("warning: o-1 is told to end; ")
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db:
        assert db.execute("select status, owner, wake_at from runs").fetchall() == [("TERMINATED", None, None)]


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("status", "'BOGUS'", "the status in its row cannot be read: 'BOGUS' is not a valid Status"),
        ("attributes", "'{oops'", "the attributes in its row cannot be read: JSON is malformed"),
        ("attributes", "'[1]'", "the attributes in its row cannot be read: Expected object, got array"),
        ("waiting", "'{oops'", "the waiting in its row cannot be read: JSON is malformed"),
        ("waiting", "'[{\"x\":1}]'", "the waiting in its row cannot be read: "),
    ],
)
def test_a_request_to_stop_that_is_on_disk_is_no_error(shell: Shell, column: str, value: str, told: str) -> None:
    """It was told as refused, and the run stopped a second later."""
    shell.waits_for_approval("o-1")
    spoil(shell, f"update runs set {column} = {value} where workflow_id = 'o-1'")
    signalled = shell("signal", "o-1", "approved", "true")
    assert signalled.code == 1
    assert told in signalled.err

    answer = shell("cancel", "o-1")

    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("warning: o-1 is told to stop; ")
    assert told in answer.err
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db:
        assert db.execute("select kind from inbox").fetchall() == [("CancelRequest",)]


def test_resume_tells_what_keeps_a_run_from_being_shown(shell: Shell) -> None:
    """Of a status that does not exist it said that the run goes on by itself; it does not."""
    shell.waits_for_approval("o-1")
    spoil(shell, "update runs set status = 'BOGUS' where workflow_id = 'o-1'")
    answer = shell("resume", "o-1")
    assert answer.code == 1
    assert "its status is 'BOGUS', which no open run has" in answer.err
    spoil(shell, "update runs set status = 'SUSPENDED', held = 'quarantine', wake_at = null, attributes = '{oops'")
    left = shell("resume", "--all")
    assert (left.code, left.out) == (0, "[]\n")
    assert left.err.startswith("warning: run 'o-1' (")
    assert "stays held" in left.err
    answer = shell("resume", "o-1")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("warning: o-1 is not held any more; ")


def test_a_worker_whose_row_cannot_be_read_stops_no_command(shell: Shell) -> None:
    """Commands look whether anybody works; one row that is spoilt ended them in a traceback, or with bad advice."""
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    with shell.at_work():
        for spoilt in ("'{'", NO_TEXT):
            spoil(shell, f"update workers set queues = {spoilt}, host = {NO_TEXT}")
            assert shell("start", "shop:greet", '["bob"]').code == 0
            checks = json.loads(shell("doctor").out)["checks"]
            assert [each for each in checks if each["state"] == "trouble"] == []
