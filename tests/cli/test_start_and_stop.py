"""`perdure start`, `wait`, `cancel` and `terminate`: runs that others work."""

import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.cli.shell import Shell, until

NOBODY = "warning: no worker is alive that could take the run; start one with `perdure worker {}`\n"
NOBODY_ON_IT = (
    "warning: the run is on the queue {1}, which no living worker works; "
    "start one with `perdure worker {0} --queue {1}`\n"
)


@pytest.fixture
def worked(shell: Shell) -> Iterator[Shell]:
    """A shell beside which a worker of shop.py is at work."""
    with shell.at_work():
        yield shell


def started(shell: Shell, *words: str) -> dict[str, object]:
    """The answer to a start that nobody works yet."""
    done = shell("start", *words)
    queue = "slow" if "slow" in words else None
    assert done.err == (NOBODY if queue is None else NOBODY_ON_IT).format("shop", queue)
    assert done.code == 0
    return dict(done._replace(err="").json)


# Starting


def test_start_returns_at_once_and_a_worker_does_the_rest(shell: Shell) -> None:
    assert started(shell, "shop:greet", '["ann"]', "--id", "g-1")["status"] == "PENDING"
    with shell.at_work():
        assert shell("wait", "g-1", "--timeout", "20").json == "hello ann"


def test_start_takes_all_options_of_a_run(shell: Shell) -> None:
    words = (
        "--id g-1 --timeout 1h --delay 5m --priority 7 --entity e-1 --correlation c-1 --queue slow "
        "--attribute tenant=acme --attribute cents=900 --attribute vip=true"
    )
    answer = started(shell, "shop:greet", '["ann"]', *words.split())

    run = shell("show", "g-1").json

    assert answer["run_id"] == run["run_id"]
    assert (run["priority"], run["entity_id"], run["correlation_id"], run["queue"]) == (7, "e-1", "c-1", "slow")
    assert run["attributes"] == {"tenant": "acme", "cents": 900, "vip": True}
    assert run["delayed_until"] is not None
    _, seen = shell.at_terminal("show", "g-1")
    assert re.search(r"begins +\S+ \S+ \S+ \(in 5 min\)\n", seen)
    for filters in (["--entity", "e-1"], ["--correlation", "c-1"], ["--id", "g-1"]):
        assert [each["workflow_id"] for each in shell("list", *filters).json] == ["g-1"]
    assert shell("list", "--entity", "e-2").json == []


def test_the_same_id_again_does_as_it_is_told(shell: Shell) -> None:
    """Return, reject, replace, terminate: each is the answer somebody wants."""
    first = started(shell, "shop:greet", '["ann"]', "--id", "g-1")
    assert started(shell, "shop:greet", '["ann"]', "--id", "g-1") == first
    rejected = shell("start", "shop:greet", '["ann"]', "--id", "g-1", "--on-conflict", "reject")
    assert (rejected.code, rejected.out) == (1, "")
    assert rejected.err.endswith(
        """--on-conflict is 'reject'; use another --id, or --on-conflict return, which gives that run, \
or --on-conflict terminate, which ends it and starts a new one\n"""
    )
    open_still = shell("start", "shop:greet", '["bob"]', "--id", "g-1", "--on-conflict", "replace")
    assert open_still.err.endswith(
        """--on-conflict is 'replace', but it is still open; use another --id, \
or --on-conflict terminate, which ends it and starts a new one\n"""
    )

    second = started(shell, "shop:greet", '["bob"]', "--id", "g-1", "--on-conflict", "terminate")

    assert second["run_id"] != first["run_id"]
    assert shell("show", str(first["run_id"])).json["status"] == "TERMINATED"
    assert [run["run_id"] for run in shell("list", "--id", "g-1").json] == [second["run_id"], first["run_id"]]


def test_at_a_terminal_start_says_how_to_get_the_result(worked: Shell) -> None:
    code, seen = worked.at_terminal("start", "shop:checkout", '["o-1"]', "--id", "o-1")
    assert (code, seen) == (0, "▶ started o-1\n  its result: perdure wait o-1\n")
    code, seen = worked.at_terminal("start", "shop:checkout", '["o-1"]', "--id", "o-1")
    assert re.match(r"o-1 is there already: (PENDING|RUNNING|SUSPENDED)\n", seen)


def test_a_run_with_a_timeout_exits_with_2(shell: Shell) -> None:
    done = shell("run", "shop:checkout", '["o-1"]', "--id", "o-1", "--timeout", "100ms")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: run 'o-1' timed out: it took longer than its timeout of 0.1 s\n"
    assert shell("wait", "o-1").code == 2


def test_children_are_worked_by_the_run_that_starts_them(shell: Shell) -> None:
    assert shell("run", "shop:greets_all", '[["ann", "bob"]]', "--id", "all").json == ["hello ann", "hello bob"]

    run = shell("show", "all").json

    assert {child["workflow"] for child in run["children"]} == {"greet"}
    assert len(shell("list", "--parent", "all").json) == 2
    child = shell("show", run["children"][0]["run_id"]).json
    assert (child["parent_id"], child["parent_workflow_id"]) == (run["run_id"], "all")
    _, seen = shell.at_terminal("show", "all")
    assert re.search(r"children +\S+ +greet +COMPLETED\n +\S+ +greet +COMPLETED\n", seen)
    _, seen = shell.at_terminal("show", child["run_id"])
    assert re.search(rf"parent +all \({run['run_id']}\)\n", seen)
    _, seen = shell.at_terminal("events", "all")
    assert re.search(r'✓ child \S+ +→ "hello ann"', seen)


def test_a_continued_run_is_followed_to_its_end(shell: Shell) -> None:
    """Its id stays, its run_id does not; whoever waits for the id wants the last result."""
    code, seen = shell.at_terminal("run", "shop:counts_down", "[2]", "--id", "c-1")
    assert code == 0
    assert len(re.findall(r"→ continued +as \S+", seen)) == 2
    assert seen.rstrip().endswith('"lift-off"')
    first = shell("list", "--id", "c-1").json[-1]
    assert shell("wait", first["run_id"]).json == "lift-off"
    middle = shell("show", first["continued_to"]).json
    assert middle["continued_from"] == first["run_id"]
    _, seen = shell.at_terminal("show", middle["run_id"])
    assert re.search(rf"continues +{first['run_id']}\n", seen)
    assert re.search(rf"goes on as +{middle['continued_to']}\n", seen)
    followed = shell("events", first["run_id"], "--follow").out
    assert followed.count('"kind":"RunContinued"') == 2
    assert followed.splitlines()[-1].find('"kind":"RunCompleted"') > 0


# Waiting


def test_wait_stops_waiting_in_time_and_leaves_the_run_alone(worked: Shell) -> None:
    assert worked("start", "shop:checkout", '["o-1"]', "--id", "o-1").code == 0
    done = worked("wait", "o-1", "--timeout", "200ms")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "still open after 0.2 s; the run is kept on disk and does not depend on this command. Wait again:\n"
        "  perdure wait o-1\n"
    )
    assert worked("signal", "o-1", "approved", "true").code == 0
    assert worked("wait", "o-1").json == {"hold": "hold-o-1", "ok": True}


def test_wait_ends_as_the_run_did(shell: Shell) -> None:
    shell("run", "shop:declines", "--id", "d-1")
    done = shell("wait", "d-1")
    assert (done.code, done.out) == (1, "")
    assert "run 'd-1' failed: ValueError: the card" in done.err
    assert shell("start", "shop:greet", '["a"]', "--id", "g-1").code == 0
    assert shell("terminate", "g-1", "--reason", "enough").code == 0
    done = shell("wait", "g-1")
    assert (done.code, done.err) == (1, "error: run 'g-1' was terminated: enough\n")


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        ("wait o-1", "warning: no worker", "  perdure wait o-1\n"),
        ("cancel o-1 --wait", "warning: no worker", ""),
        ("events o-1 --follow --after 2", '{"seq":3', ""),
    ],
)
def test_ctrl_c_while_waiting_is_no_error(shell: Shell, words: str, first: str, last: str) -> None:
    shell.run_until("ActivityCompleted", "run", "shop:waits_a_day", '["o-1"]', "--id", "o-1", count=2)
    reader, writer = os.pipe()
    with shell.begin(*words.split(), files=[reader, writer, writer]) as command:
        os.close(writer)
        with os.fdopen(reader) as said:
            assert said.readline().startswith(first)
            command.send(signal.SIGINT)
            rest = said.read()
        assert command.wait() == 130
    assert rest.endswith(last)
    assert "Traceback" not in rest


# Following


def test_events_can_be_followed_until_the_run_has_ended(worked: Shell) -> None:
    """Each event comes when it is there, on a line of its own."""
    assert worked("start", "shop:checkout", '["o-1"]', "--id", "o-1").code == 0
    reader, writer = os.pipe()
    with worked.begin("events", "o-1", "--follow", files=[reader, writer, writer]) as command:
        os.close(writer)
        with os.fdopen(reader) as lines:
            assert '"kind":"RunStarted"' in lines.readline()
            assert '"kind":"ActivityCompleted"' in lines.readline()
            assert '"kind":"TimerFired"' in lines.readline()
            assert worked("signal", "o-1", "approved", "true").code == 0
            assert '"kind":"SignalReceived"' in lines.readline()
            assert '"kind":"RunCompleted"' in lines.readline()
            assert lines.read() == ""
        assert command.wait() == 0
    code, seen = worked.at_terminal("events", "o-1", "--follow", "--after", "3", COLUMNS="60")
    assert code == 0
    assert re.search(r"^4 +\d\d:\d\d:\d\d +✉ signal approved +← true\n5 .*✓ completed", seen, re.MULTILINE | re.DOTALL)


# Stopping


def test_cancel_asks_and_the_run_cleans_up(worked: Shell) -> None:
    assert worked("start", "shop:tidies", "--id", "t-1").code == 0
    until(lambda: worked("show", "t-1").json["waiting_for"] != [])

    done = worked("cancel", "t-1", "--reason", "out of stock", "--wait", "--timeout", "20").json

    assert (done["status"], done["cancel_reason"]) == ("CANCELLED", "out of stock")
    assert (worked.folder / "trace.log").read_text() == "tidied\n"
    _, seen = worked.at_terminal("events", "t-1")
    assert re.search(r"⚠ asked to stop +out of stock\n", seen)
    assert re.search(r"✗ cancelled +out of stock\n", seen)
    _, seen = worked.at_terminal("show", "t-1")
    assert re.search(r"reason +out of stock\n", seen)


def test_cancel_without_a_worker_is_kept_for_the_next_one(shell: Shell) -> None:
    """The request is on disk; --force does not wait for anybody."""
    shell.run_until("ActivityCompleted", "run", "shop:waits_a_day", '["o-1"]', "--id", "o-1", count=2)

    done = shell("cancel", "o-1", "--reason", "changed my mind", "--deadline", "1h")

    assert (done.code, done.err) == (0, NOBODY.format("MODULE"))
    _, seen = shell.at_terminal("show", "o-1")
    assert re.search(r"to stop +asked \S+ \S+ \S+ \(.* ago\): changed my mind\n", seen)
    assert re.search(r"must end +\S+ \S+ \S+ \(in 60 min\)\n", seen)
    assert re.search(r"unread +request to stop +\"changed my mind\", .* ago\n", seen)
    assert shell("show", "o-1").json["unread"][0]["kind"] == "CancelRequest"
    assert shell("cancel", "o-1", "--force").json["status"] == "CANCELLED"
    again = shell("cancel", "o-1")
    assert again.code == 1
    assert "run 'o-1' has ended (CANCELLED)" in again.err


def test_terminate_ends_a_run_at_once_with_a_worker_or_without(worked: Shell) -> None:
    assert worked("start", "shop:tidies", "--id", "t-1").code == 0
    until(lambda: worked("show", "t-1").json["waiting_for"] != [])
    done = worked("terminate", "t-1", "--reason", "it hangs").json
    assert (done["status"], done["error"]) == ("TERMINATED", "it hangs")
    assert not (worked.folder / "trace.log").exists()
    code, seen = worked.at_terminal("terminate", "t-1")
    assert code == 1
    assert "has ended (TERMINATED)" in seen


def test_an_unread_signal_is_shown(shell: Shell) -> None:
    assert shell("start", "shop:checkout", '["o-1"]', "--id", "o-1").code == 0
    for _ in range(2):
        assert shell("signal", "o-1", "approved", "true", "--id", "only-once").code == 0
    shown = shell("show", "o-1").json
    assert [(each["kind"], each["name"], each["payload"]) for each in shown["unread"]] == [
        ("SignalSent", "approved", True)
    ]
    assert shown["unread_count"] == 1
    _, seen = shell.at_terminal("show", "o-1")
    assert re.search(r"unread +signal approved true, .* ago\n", seen)
