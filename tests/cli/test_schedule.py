"""`perdure schedule`: schedules from the command line."""

from datetime import UTC, datetime, timedelta

from tests.cli.shell import Shell, until

NIGHTLY = ("--cron", "0 2 * * *", "--zone", "Europe/Berlin")


def test_a_schedule_is_made_shown_changed_and_deleted(shell: Shell) -> None:
    made = shell("schedule", "create", "greets", "shop:greet", '["ann"]', *NIGHTLY, "--overlap", "queue_one").json
    assert (made["name"], made["workflow"], made["arguments"]) == ("greets", "greet", {"name": "ann", "times": 1})
    assert (made["when"]["expression"], made["when"]["overlap"]) == ("0 2 * * *", "queue_one")
    assert [each["name"] for each in shell("schedule", "list").json] == ["greets"]
    assert shell("schedule", "update", "greets", "--overlap", "skip").json["when"]["overlap"] == "skip"
    assert shell("schedule", "pause", "greets", "--reason", "why not").json["reason"] == "why not"
    assert "paused" in shell.at_terminal("schedule", "list")[1]
    assert not shell("schedule", "resume", "greets").json["paused"]
    run = shell("schedule", "trigger", "greets").json
    assert shell("list", "--where", "schedule = 'greets'").json[0]["run_id"] == run["run_id"]
    assert shell("schedule", "show", "greets").json["decisions"][0]["kind"] == "triggered"
    assert "triggered" in shell.at_terminal("schedule", "show", "greets")[1]
    assert shell("schedule", "delete", "greets").json == {"name": "greets", "deleted": True}
    gone = shell("schedule", "show", "greets")
    assert (gone.code, "no schedule 'greets' exists" in gone.err) == (1, True)


def test_a_backfill_answers_counts(shell: Shell) -> None:
    assert shell("schedule", "create", "often", "shop:greet", '["ann"]', "--every", "15m").code == 0
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    span = ("--from", (now - timedelta(hours=1)).isoformat(), "--to", now.isoformat())
    assert shell("schedule", "backfill", "often", *span).json == {"times": 5, "existing": 0, "accepted": 5}


def test_times_and_clock_changes_are_shown_beforehand(shell: Shell) -> None:
    """No database is needed to see what an expression means."""
    found = shell("schedule", "next", "0 2 * * *", "--zone", "Europe/Berlin", "--limit", "400").json
    assert len(found) == 400
    shown = shell.at_terminal("schedule", "next", "30 2 * * *", "--zone", "Europe/Berlin", "--limit", "400")[1]
    assert "the clock has changed to CEST" in shown
    assert "the clock has changed to CET" in shown


def test_timetables_are_told_in_words_and_times_of_a_schedule_by_its_name(shell: Shell) -> None:
    shell("schedule", "create", "often", "shop:greet", '["ann"]', "--every", "1h", "--offset", "90s")
    shell("schedule", "create", "nightly", "shop:greet", '["ann"]', *NIGHTLY, "--overlap", "queue_one")
    assert "every 1 h, 90 s later\n" in shell.at_terminal("schedule", "show", "often")[1]
    assert "cron 0 2 * * * (Europe/Berlin), overlap queue_one" in shell.at_terminal("schedule", "show", "nightly")[1]
    times = shell("schedule", "next", "often", "--limit", "2").json
    assert [time["time"][14:19] for time in times] == ["01:30", "01:30"]
    assert "Europe/Berlin" in shell.at_terminal("schedule", "next", "nightly")[1]
    nobody = shell("schedule", "next", "nobody")
    assert (nobody.code, "no schedule is named 'nobody'" in nobody.err) == (64, True)


def test_what_makes_no_sense_is_told_before_a_database_is_made(shell: Shell) -> None:
    for words, told in (
        (["create", "x", "shop:greet", '["ann"]', "--cron", "61 * * * *"], "Bad minute"),
        (["create", "x", "shop:greet", '["ann"]', "--cron", "@daily", "--zone", "Mars"], "no time zone"),
        (["create", "x", "shop:greet", '["ann"]'], "give one of --cron, --every and --at"),
        (["create", "x", "shop:greet", '["ann"]', "--every", "15m", "--zone", "UTC"], "--zone does not go"),
        (["create", "x"], "say what it starts"),
        (["create", "x", "shop:greet", "[1]", "--every", "15m"], "name"),
        (["create"], "name the schedule"),
        (["backfill", "x"], "say from when to when"),
        (["list", "x"], "it takes no name"),
        (["next", "0 0 0 1 1 * 1999"], "never starts"),
    ):
        answer = shell("schedule", *words)
        assert (answer.code, told in answer.err) == (64, True), (words, answer.err)
    assert shell("schedule", "create", "x", "shop:greet", '["ann"]', "--at", "2020-01-01T00:00").code == 64
    past = shell("schedule", "create", "x", "shop:greet", '["ann"]', "--at", "2020-01-01T00:00Z")
    assert "never starts" in past.err


def test_doctor_shows_who_has_which_duty(shell: Shell) -> None:
    assert shell("schedule", "create", "often", "shop:greet", '["ann"]', "--every", "1s").code == 0
    assert "duties" not in {check["check"] for check in shell("doctor").json["checks"]}
    with shell.at_work():
        until(lambda: bool(shell("list").json))
        found = {check["check"]: check for check in shell("doctor").json["checks"]}
        assert found["duties"]["state"] == "ok"
        assert "schedules in main: worker " in found["duties"]["found"]
