"""`perdure resume`, and what `perdure show` says of a run in quarantine."""

import json
import os
import re
import sqlite3
from contextlib import closing

from perdure.kernel.quarantine import Death, quarantine_report
from tests.cli.shell import Shell


def quarantine(shell: Shell, id: str) -> None:
    deaths = tuple(Death(1_700_000_000_000 + n, 100 + n, "box") for n in range(5))
    report = quarantine_report(id, deaths, "in the activity charge at charge, after its start")
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db, db:
        db.execute(
            "update runs set held = 'quarantine', held_report = ?, status = 'SUSPENDED', wake_at = null", (report,)
        )


def test_a_run_in_quarantine_tells_which_workers_died_and_the_way_out(shell: Shell) -> None:
    """Whoever is paged at night must see what happened, and what to type."""
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    quarantine(shell, "g-1")

    code, seen = shell.at_terminal("show", "g-1")

    assert code == 0
    assert "HELD (quarantine)" in seen
    assert "5 workers died with this run" in seen
    assert re.search(r"where it was +in the activity charge at charge, after its start", seen)
    assert re.search(r"process 104 on box, found dead 2023-11-1\d ", seen)
    assert "`perdure resume g-1`" in re.sub(r"\s+", " ", seen)
    death = shell("show", "g-1").json["held_report"]["deaths"][0]
    assert death == {"at": "2023-11-14T22:13:20Z", "pid": 100, "host": "box"}
    listed = shell.at_terminal("list")[1]
    assert "HELD (quarantine)" in listed
    assert re.search(r" 5 workers died with this run$", listed, re.MULTILINE)


def test_a_run_that_workers_may_die_of_says_so_before_it_is_held(shell: Shell) -> None:
    """In a loop of restarts nobody should have to wait for the verdict to learn where to look."""
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db, db:
        db.execute("update runs set losses = 3")
    assert re.search(
        r"lost +its workers died 3 times in a row while it was in the same calls", shell.at_terminal("show", "g-1")[1]
    )
    assert shell("show", "g-1").json["losses"] == 3


def test_resume_lets_it_go_on(shell: Shell) -> None:
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    quarantine(shell, "g-1")
    with shell.at_work():
        answer = shell("resume", "g-1")
        assert (answer.code, answer.json["held"]) == (0, None)
        assert shell("wait", "g-1", "--timeout", "120").json == "hello ann"
    again = shell("resume", "g-1")
    assert again.code == 1
    assert "run 'g-1' has ended (COMPLETED); there is nobody to signal and nothing to stop or resume" in again.err


def test_resume_refuses_a_run_that_is_not_held(shell: Shell) -> None:
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    answer = shell("resume", "g-1")
    assert answer.code == 1
    assert answer.err.startswith("error: run 'g-1' is not held (PENDING) and goes on by itself")
    quarantine(shell, "g-1")
    code, seen = shell.at_terminal("resume", "g-1")
    assert code == 0
    assert "g-1 is not held any more; a worker tries it again" in seen


def test_whoever_waits_for_a_held_run_is_told_once(shell: Shell) -> None:
    """The command says it with the report; the log of the engine must not say it once more."""
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    quarantine(shell, "g-1")
    waited = shell("wait", "g-1")
    assert (waited.code, waited.out) == (1, "")
    assert waited.err.startswith("error: run 'g-1' is held (quarantine) and cannot go on\nheld: ")
    assert waited.err.count("is held (quarantine)") == 1


def test_held_runs_can_be_listed_and_a_worker_that_starts_tells_of_them(shell: Shell) -> None:
    """Three held runs among a million are found by their state, not by luck."""
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    quarantine(shell, "g-1")
    assert shell("start", "shop:greet", '["bob"]', "--id", "g-2").code == 0
    for word, ids in (("held", ["g-1"]), ("quarantine", ["g-1"]), ("mismatch", []), ("held,pending", ["g-2", "g-1"])):
        assert [run["workflow_id"] for run in shell("list", "--status", word).json] == ids
    assert "held, mismatch, quarantine" in " ".join(shell("list", "--help").out.split())
    assert shell("list", "--status", "hold").err.startswith("error: no status is named 'hold' (did you mean held?)")
    reader, writer = os.pipe()
    with os.fdopen(reader) as said, shell.begin("worker", "shop", files=[reader, writer, writer]):
        os.close(writer)
        assert "1 run is held (1 quarantine); see it with `perdure list --status held`" in said.readline()


def test_a_cancel_of_a_held_run_says_that_nothing_takes_it(shell: Shell) -> None:
    """The request waits in its inbox; whoever waits for the end must know what it hangs on."""
    shell.waits_for_approval("o-1")
    quarantine(shell, "o-1")

    for words, code in ((["--wait"], 1), ([], 0)):
        done = shell("cancel", "o-1", *words)
        assert done.code == code
        assert done.err == (
            "warning: run 'o-1' is held (quarantine) and does not take the request; `perdure resume o-1` lets it go on "
            "and stop, `perdure cancel o-1 --force` closes it as it is, `perdure show o-1` tells why\n"
        )
    assert "o-1 is to stop, but is held" in shell.at_terminal("cancel", "o-1")[1]
    asked = shell("cancel", "o-1", "--deadline", "200ms", "--wait", "--timeout", "120")
    assert (asked.code, asked.err.count("warning: ")) == (0, 1)
    assert "it is closed as it is at its deadline" in asked.err
    assert shell("show", "o-1").json["status"] == "CANCELLED"


def test_a_held_run_is_closed_by_force_without_a_word(shell: Shell) -> None:
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    quarantine(shell, "g-1")
    assert shell("cancel", "g-1", "--force", "--wait").json["status"] == "CANCELLED"


def test_resume_all_frees_every_run_that_is_held_and_no_other(shell: Shell) -> None:
    """After a program that died by itself, nobody should have to type a hundred names."""
    for number in range(3):
        assert shell("start", "shop:greet", '["ann"]', "--id", f"g-{number}").code == 0
    quarantine(shell, "g-1")
    assert shell("start", "shop:greet", '["ann"]', "--id", "free").code == 0

    answer = shell("resume", "--all")

    assert answer.code == 0
    assert sorted((each["id"], each["status"], each["held"]) for each in json.loads(answer.out)) == [
        (f"g-{number}", "PENDING", None) for number in range(3)
    ]
    assert shell("resume", "--all").json == []
    assert "no run is held" in shell.at_terminal("resume", "--all")[1]


def test_resume_wants_a_name_or_all(shell: Shell) -> None:
    for words in ([], ["g-1", "--all"]):
        answer = shell("resume", *words)
        assert (answer.code, answer.err) == (
            64,
            "error: name the run that shall go on, or say --where or --all; `perdure list --status held` shows them\n",
        )
