"""`perdure schedule`: schedules from the command line."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.cli.shell import Shell, until

NIGHTLY = ("--cron", "0 2 * * *", "--zone", "Europe/Berlin")


def told(shell: Shell, *words: str) -> Any:
    """The JSON it printed; that no worker is there is told beside it."""
    answer = shell(*words)
    assert answer.code == 0, answer
    return json.loads(answer.out)


def test_a_schedule_is_made_shown_changed_and_deleted(shell: Shell) -> None:
    made = told(shell, "schedule", "create", "greets", "shop:greet", '["ann"]', *NIGHTLY, "--overlap", "queue_one")
    assert (made["name"], made["workflow"], made["arguments"]) == ("greets", "greet", {"name": "ann", "times": 1})
    assert (made["when"]["expression"], made["when"]["overlap"]) == ("0 2 * * *", "queue_one")
    assert [each["name"] for each in told(shell, "schedule", "list")] == ["greets"]
    assert told(shell, "schedule", "update", "greets", "--overlap", "skip")["when"]["overlap"] == "skip"
    assert told(shell, "schedule", "pause", "greets", "--reason", "why not")["reason"] == "why not"
    assert "paused" in shell.at_terminal("schedule", "list")[1]
    assert not told(shell, "schedule", "resume", "greets")["paused"]
    run = told(shell, "schedule", "trigger", "greets")
    assert shell("list", "--where", "schedule = 'greets'").json[0]["run_id"] == run["run_id"]
    assert told(shell, "schedule", "show", "greets")["decisions"][0]["kind"] == "triggered"
    assert "triggered" in shell.at_terminal("schedule", "show", "greets")[1]
    assert told(shell, "schedule", "delete", "greets") == {"name": "greets", "deleted": True}
    gone = shell("schedule", "show", "greets")
    assert (gone.code, "no schedule 'greets' exists" in gone.err) == (1, True)


def test_a_backfill_answers_counts(shell: Shell) -> None:
    assert shell("schedule", "create", "often", "shop:greet", '["ann"]', "--every", "15m").code == 0
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    span = ("--from", (now - timedelta(hours=1)).isoformat(), "--to", now.isoformat())
    assert told(shell, "schedule", "backfill", "often", *span) == {"times": 5, "existing": 0, "accepted": 5}


def test_times_and_clock_changes_are_shown_beforehand(shell: Shell) -> None:
    """No database is needed to see what an expression means."""
    found = told(shell, "schedule", "next", "0 2 * * *", "--zone", "Europe/Berlin", "--limit", "400")
    assert len(found) == 400
    shown = shell.at_terminal("schedule", "next", "30 2 * * *", "--zone", "Europe/Berlin", "--limit", "400")[1]
    assert "the clock has changed to CEST" in shown
    assert "the clock has changed to CET" in shown
    assert shell.at_terminal("schedule", "next", "@daily", "--limit", "1")[1].count("UTC") == 1


def test_timetables_are_told_in_words_and_times_of_a_schedule_by_its_name(shell: Shell) -> None:
    shell("schedule", "create", "often", "shop:greet", '["ann"]', "--every", "1h", "--offset", "90s")
    shell("schedule", "create", "nightly", "shop:greet", '["ann"]', *NIGHTLY, "--overlap", "queue_one")
    assert "every 1 h, 90 s later\n" in shell.at_terminal("schedule", "show", "often")[1]
    assert "cron 0 2 * * * (Europe/Berlin), overlap queue_one" in shell.at_terminal("schedule", "show", "nightly")[1]
    times = told(shell, "schedule", "next", "often", "--limit", "2")
    assert [time["time"][14:19] for time in times] == ["01:30", "01:30"]
    assert "Europe/Berlin" in shell.at_terminal("schedule", "next", "nightly")[1]
    nobody = shell("schedule", "next", "nobody")
    assert (nobody.code, "no schedule is named 'nobody'" in nobody.err) == (64, True)


def test_what_makes_no_sense_is_told_before_a_database_is_made(shell: Shell) -> None:
    for words, expected in (
        (["create", "x", "shop:greet", '["ann"]', "--cron", "61 * * * *"], "the minute is '61'; give 0-59, "),
        (["create", "x", "shop:greet", '["ann"]', "--cron", "@daily", "--zone", "Mars"], "no time zone"),
        (["create", "x", "shop:greet", '["ann"]'], "give one of --cron, --every and --at"),
        (["create", "x", "shop:greet", '["ann"]', "--every", "15m", "--zone", "UTC"], "--zone does not go"),
        (["create", "x"], "say what it starts"),
        (["create", "x", "shop:greet", "[1]", "--every", "15m"], "name"),
        (["create"], "name the schedule"),
        (["backfill", "x"], "say from when to when"),
        (["list", "x"], "it takes no name"),
        (
            ["create", "x", "shop:greet", '["ann"]', "--every", "15m", "--overlap", "no"],
            "--overlap is 'no'; give one of",
        ),
        (
            ["create", "x", "shop:greet", '["ann"]', "--every", "15m", "--catch-up", "no"],
            "--catch-up is 'no'; give one",
        ),
        (["create", "x", "shop:greet", '["ann"]', "--every", "15m", "--offset", "20m"], "less than --every"),
        (["create", "x", "shop:greet", '["ann"]', "--at", "2020-01-01T00:00Z"], "once at 2020-01-01 "),
        (["update", "x"], "say what to change: `perdure schedule update x"),
        (["next", "@daily", "--limit", "0"], "--limit is 0; give a whole number"),
        (["pause", "x", "y"], "takes a name alone, and 'y' came after it"),
        (["next", "0 0 0 1 1 * 1999"], "never starts"),
        (["create", "x", "shop:greet", '["ann"]', "--cron", "*/90 * * * *"], "any length: --every"),
        (["next", "0 2 * * * Europe/Berlin"], "what looks like a time zone; give it beside the expression"),
        (["next", "@dayly"], "has 1 field; give 5"),
        (
            ["create", "x", "shop:greet", '["ann"]', "--at", "2099-01-01"],
            "'2099-01-01' has no zone; write 2099-01-01T00:00Z for UTC",
        ),
        (["next", "*/90 * * * *"], "steps by 90 in the minute, of which there are only 60"),
    ):
        answer = shell("schedule", *words)
        assert (answer.code, expected in answer.err) == (64, True), (words, answer.err)
    assert shell("schedule", "create", "x", "shop:greet", '["ann"]', "--at", "2020-01-01T00:00").code == 64
    assert told(shell, "schedule", "create", "often", "shop:greet", '["ann"]', "--every", "1h")
    kind = shell("schedule", "update", "often", "--cron", "@daily")
    assert kind.err == (
        "error: a schedule with --every has no --cron; it has --every, --offset, --overlap, --catch-up, --within, "
        "--jitter, --starts-at, --ends-at; to give it times of another kind, delete it and create it anew\n"
    )
    past = shell("schedule", "create", "x", "shop:greet", '["ann"]', "--at", "2020-01-01T00:00Z")
    assert "never starts" in past.err


def test_it_is_told_that_nobody_decides_schedules_or_has_the_code(shell: Shell) -> None:
    """A schedule without a worker was silent: nothing started, and nothing said why."""
    made = shell("schedule", "create", "often", "shop:greet", '["ann"]', "--every", "1h")
    nobody = "no worker is alive in the namespace main, so that none has the duty `schedules`: nothing starts until one"
    assert (made.code, nobody in made.err) == (0, True), made
    assert nobody in shell("schedule", "list").err
    shown = shell("schedule", "show", "often")
    assert "start one with `perdure worker MODULE`, or let a cron of yours call `perdure tick`" in shown.err
    span = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-01T01:00Z")
    assert nobody in shell("schedule", "backfill", "often", *span).err
    assert "no worker" not in shell("schedule", "pause", "often").err
    assert "schedules" not in {check["check"] for check in shell("doctor").json["checks"]}
    shell("schedule", "resume", "often")
    doctor = {check["check"]: check for check in shell("doctor").json["checks"]}["schedules"]
    assert (doctor["state"], nobody in doctor["found"]) == ("warning", True)

    with closing(sqlite3.connect(shell.folder / "perdure.db")) as db, db:
        db.execute("update schedules set body = replace(replace(body, 'greet', 'gone'), '\"api\"', '\"code\"')")
        db.execute("update schedules set source = 'code'")
    with shell.at_work():
        beside = shell("schedule", "show", "often").err
        assert (
            "no living worker has code for gone on the queue default, which the schedule often, declared in" in beside
        )
        assert "or remove the schedule with `perdure schedule delete often`" in beside
        doctor = {check["check"]: check for check in shell("doctor").json["checks"]}["schedules"]
        assert (doctor["state"], "no living worker has code for gone" in doctor["found"]) == ("warning", True)
        assert "often" in {each["name"] for each in told(shell, "schedule", "list")}


def test_doctor_shows_who_has_which_duty(shell: Shell) -> None:
    assert shell("schedule", "create", "often", "shop:greet", '["ann"]', "--every", "1s").code == 0
    assert "duties" not in {check["check"] for check in shell("doctor").json["checks"]}
    with shell.at_work():
        until(lambda: bool(shell("list").json))
        found = {check["check"]: check for check in shell("doctor").json["checks"]}
        assert found["duties"]["state"] == "ok"
        assert "schedules in main: worker " in found["duties"]["found"]
