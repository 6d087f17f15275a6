"""`perdure outbox`: sinks from the command line."""

from tests.cli.shell import Shell

HOOK = ("--webhook", "https://crm.example/hook", "--secret", "env:CRM_SECRET")


def test_a_sink_is_made_shown_changed_and_removed(shell: Shell) -> None:
    assert shell("run", "shop:greet", '["eve"]').code == 0
    made = shell("outbox", "add", "crm", *HOOK, "--event", "run.failed", "--workflow", "greet").json
    assert (made["name"], made["events"], made["state"]) == ("crm", ["run.failed"], "active")
    assert [each["name"] for each in shell("outbox", "list").json] == ["crm"]
    changed = shell("outbox", "update", "crm", "--event", "run.*", "--max-attempts", "3").json
    assert changed["events"] == ["run.*"]
    assert shell("outbox", "pause", "crm", "--reason", "why not").json["reason"] == "why not"
    assert "paused" in shell.at_terminal("outbox", "list")[1]
    assert shell("start", "shop:greet", '["ann"]').code == 0
    assert shell("outbox", "list").json[0]["backlog"] == 1
    assert shell("outbox", "resend", "crm", "--from", "2020-01-01T00:00Z").json == {"name": "crm", "events": 3}
    assert shell("outbox", "dead-letters", "crm").json == []
    assert shell("outbox", "replay", "crm").json == {"name": "crm", "events": 0}
    assert shell("outbox", "resume", "crm").json["state"] == "active"
    assert shell("outbox", "remove", "crm").json == {"name": "crm", "removed": True}
    assert "was not there" in shell.at_terminal("outbox", "remove", "crm")[1]


def test_what_makes_no_sink_is_told(shell: Shell) -> None:
    assert shell("run", "shop:greet", '["eve"]').code == 0
    for words, told in (
        (["list", "crm"], "takes no name"),
        (["pause"], "name the sink"),
        (["add", "crm"], "say where events go"),
        (["add", "crm", "--webhook", "https://crm.example"], "has a secret"),
        (["add", "crm", "--webhook", "https://10.0.0.1", "--secret", "env:A"], "private address"),
        (["add", "crm", "--log", "--event", "run.begun"], "no event 'run.begun'"),
        (["resend", "crm"], "say from when"),
        (["pause", "crm"], "crm"),
    ):
        refused = shell("outbox", *words)
        assert refused.code != 0
        assert told in refused.err


def test_what_is_wrong_is_told_in_flags(shell: Shell) -> None:
    """A keyword of the API helps nobody who types."""
    add = ("outbox", "add", "crm", "--webhook")
    for words, told in (
        ((*add, "http://crm.example/", "--secret", "env:CRM_SECRET"), "for private addresses, with --allow-private"),
        ((*add, "https://127.0.0.1/", "--secret", "env:CRM_SECRET"), "--allow-private allows such"),
        (("outbox", "update", "crm"), "say what to change: `perdure outbox update crm"),
    ):
        done = shell(*words)
        assert (done.code, told in done.err) == (64, True), done
    assert shell("start", "shop:greet", '["ann"]').code == 0
    few = shell("outbox", "add", "crm", "--log", "--max-attempts", "0")
    assert (few.code, ">= 1 - at --max-attempts" in few.err) == (64, True), few
    assert "; `perdure outbox list` shows those" in shell("outbox", "pause", "crm").err


def test_a_sink_is_tried_from_the_command_line(shell: Shell) -> None:
    """From this process and at once, so that whoever sets it up knows; a failure is told with its reason."""
    assert shell("run", "shop:greet", '["eve"]').code == 0
    assert shell("outbox", "add", "audit", "--log", "--event", "run.*").code == 0
    assert shell("outbox", "test", "audit").json["name"] == "audit"
    nowhere = ("--webhook", "http://127.0.0.1:9/hook", "--allow-private", "--secret", "a secret that nobody can guess")
    assert shell("outbox", "add", "crm", *nowhere, "--event", "run.*").code == 0
    failed = shell("outbox", "test", "crm")
    assert failed.code != 0
    assert "crm" in failed.err
    assert "a secret" not in failed.err
    missing = shell("outbox", "test", "nobody")
    assert missing.code != 0
    assert "nobody" in missing.err
