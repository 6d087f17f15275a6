"""`--key`: what is typed again under an idempotency key is done once, and answered as at first."""

import json
from typing import Any

from tests.cli.shell import Shell


def twice(shell: Shell, *words: str) -> tuple[Any, Any]:
    """The answers to a command that is typed twice under one key."""
    answers = [shell(*words, "--key", "k") for _ in range(2)]
    assert [each.code for each in answers] == [0, 0], answers
    return json.loads(answers[0].out), json.loads(answers[1].out)


def test_a_command_under_a_key_is_done_once(shell: Shell) -> None:
    """A script that was cut off is started again from its first line."""
    first, again = twice(shell, "start", "shop:waits_a_day", '["o-1"]')
    assert first["run_id"] == again["run_id"]
    id = first["id"]
    other = shell("start", "shop:waits_a_day", '["o-2"]', "--key", "k")
    assert (other.code, "the key 'k'" in other.err) == (1, True), other
    twice(shell, "signal", id, "approved", "true", "--force")
    assert len(shell("show", id).json["unread"]) == 1
    twice(shell, "pause", id)
    twice(shell, "resume", id)
    twice(shell, "set", id, "tenant=acme")
    twice(shell, "terminate", id)
    first, again = twice(shell, "retry", id)
    assert (first["run_id"], first["forked_from"]) == (again["run_id"], again["forked_from"])
    first, again = twice(shell, "fork", id, "--at", "1", "--id", "trial")
    assert first["run_id"] == again["run_id"]
    first, again = twice(shell, "cancel", "--where", "id = 'trial'", "--yes")
    assert first == again == {"matched": 1, "done": 1, "skipped": 0, "errors": {}}
    twice(shell, "cancel", id)
    assert len(shell("list").json) == 3


def test_schedules_sinks_and_namespaces_take_a_key(shell: Shell) -> None:
    twice(shell, "schedule", "create", "often", "shop:greet", '["ann"]', "--every", "1h")
    first, again = twice(shell, "schedule", "trigger", "often")
    assert first == again
    span = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-01T01:00Z")
    first, again = twice(shell, "schedule", "backfill", "often", *span)
    assert first == again == {"times": 2, "existing": 0, "accepted": 2}
    twice(shell, "outbox", "add", "audit", "--log")
    assert [each["name"] for each in shell("outbox", "list").json] == ["audit"]
    twice(shell, "outbox", "pause", "audit")
    first, again = twice(shell, "outbox", "replay", "audit")
    assert first == again == {"name": "audit", "events": 0}
    twice(shell, "outbox", "remove", "audit")
    twice(shell, "namespace", "create", "blue")
