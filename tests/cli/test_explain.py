"""`perdure explain`: why a run does not move, for people and for programs."""

import sqlite3
from contextlib import closing

from tests.cli.shell import Shell, until


def test_programs_get_the_cause_and_people_the_sentence(shell: Shell) -> None:
    shell("start", "shop:checkout", "--id", "e-1", '{"order": "e-1"}')
    told = shell("explain", "e-1").json
    assert (told["id"], told["cause"]) == ("e-1", "no_worker")
    assert told["summary"] == "no living worker works its queue, default"
    assert told["advice"].startswith("start one: `perdure worker MODULE")


def test_people_are_told_in_words_and_what_helps_after_a_failure(shell: Shell) -> None:
    shell("run", "shop:declines", "--id", "e-1")
    assert "`perdure retry e-1" in shell("explain", "e-1").json["advice"]
    shell.waits_for_approval("e-2")
    shell("pause", "e-2", "--reason", "lunch")
    until(lambda: shell("explain", "e-2").json["cause"] == "paused")
    _, seen = shell.at_terminal("explain", "e-2")
    assert "lunch" in seen
    assert "{" not in seen


def test_a_run_that_is_not_there_is_told_with_a_near_one(shell: Shell) -> None:
    shell("start", "shop:checkout", "--id", "e-1", '{"order": "e-1"}')
    done = shell("explain", "e-2")
    assert (done.code, done.out) == (1, "")
    assert "did you mean e-1?" in done.err


def test_stuck_runs_are_listed_and_go_with_no_filter(shell: Shell) -> None:
    shell("run", "shop:greet", '{"name": "Ann"}')
    assert shell("list", "--stuck").json == []
    done = shell("list", "--stuck", "--workflow", "greet")
    assert done.code == 64
    assert "--stuck goes with --limit and --after alone" in done.err


def test_doctor_and_list_tell_of_a_run_that_nobody_has_taken_for_a_minute(shell: Shell) -> None:
    shell("start", "shop:greet", "--id", "e-1", '{"name": "Ann"}')
    assert finding(shell) == ("ok", "no run is stuck")
    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db:
        db.execute("update runs set created_at = created_at - 120000, updated_at = updated_at - 120000")
        db.commit()
    assert finding(shell) == (
        "warning",
        "1 run stuck: 1 of greet on the queue default, which nobody has code for",
    )
    assert [run["workflow_id"] for run in shell("list", "--stuck").json] == ["e-1"]


def finding(shell: Shell) -> tuple[str, str]:
    (found,) = [each for each in shell("doctor").json["checks"] if each["check"] == "stuck"]
    return found["state"], found["found"]
