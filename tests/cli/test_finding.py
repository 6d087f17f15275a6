"""`list --where`, `count`, `set`, `events --last` and `wait --for`."""

import json

from tests.cli.shell import Shell


def test_runs_are_found_counted_and_marked(shell: Shell) -> None:
    for number in ("1", "2", "3"):
        shell("run", "shop:greet", f'["{number}"]', "--id", f"g-{number}", "--attribute", "tier=2")
    shell("run", "shop:declines", "--id", "d-1")

    assert shell("set", "g-1", "tenant=acme", "tier=null").json == {"tenant": "acme"}
    assert shell("set", "g-1", "self=1", "patch=1").json == {"tenant": "acme", "self": 1, "patch": 1}
    found = shell("list", "--where", "tenant = :who or error like '%declined'", "--param", "who=acme").json
    assert [run["workflow_id"] for run in found] == ["d-1", "g-1"]
    assert shell("count", "--where", "tier = 2").json == 2
    assert "COMPLETED" in shell.at_terminal("count", "--by", "status")[1]
    assert shell("count", "--by", "status").json == {"COMPLETED": 3, "FAILED": 1}
    code, seen = shell.at_terminal("list", "--where", "tier = :t", "--param", "t=2", "--limit", "1")
    assert code == 0
    assert "--where 'tier = :t' --param t=2 --limit 1 --after" in seen


def test_a_name_that_is_nearly_that_of_a_field_is_told_when_nothing_is_found(shell: Shell) -> None:
    shell("start", "shop:greet", '["1"]', "--id", "g-1", "--attribute", "state=new")
    for command in ("list", "count"):
        mistyped = shell(command, "--where", "workflw = 'greet'")
        assert (mistyped.code, "'workflw' is no field" in mistyped.err) == (0, True)
        assert "did you mean workflow?" in mistyped.err
    assert shell("list", "--where", "state = 'old'").err == ""


def test_a_bad_filter_is_told_with_its_place(shell: Shell) -> None:
    shell("run", "shop:greet", '["1"]', "--id", "g-1")
    refused = shell("list", "--where", "status = 'broken'")
    assert refused.code == 64
    assert "'broken' is no status" in refused.err
    assert refused.err.endswith("  status = 'broken'\n           ^\n")
    assert "give it with --param NAME=VALUE" in shell("list", "--where", "a = :b").err
    assert "give --where, too" in shell("list", "--param", "b=1").err
    assert "write tenant=acme" in shell("set", "g-1", "tenant").err
    assert "runs are not counted by 'tenant'" in shell("count", "--by", "tenant").err
    assert "write --param tenant=acme" in shell("list", "--where", "a = :b", "--param", "b").err


def test_the_last_events_are_shown_in_order(shell: Shell) -> None:
    shell("run", "shop:greet", '["1"]', "--id", "g-1")
    whole = shell("events", "g-1").json
    assert shell("events", "g-1", "--last", "2").json == whole[-2:]
    assert shell("events", "g-1", "--last", "99").json == whole
    shell("run", "shop:stumbles", "--id", "s-1")
    history = shell("events", "s-1").json
    assert len(history) == 3
    assert shell("events", "s-1", "--after", "2", "--last", "2").json == history[2:]
    for words in (("--last", "1"), ("--after", "2"), ("--after", "2", "--last", "3"), ("--after", "1", "--last", "1")):
        followed = shell("events", "s-1", "--follow", *words).out
        assert [json.loads(line) for line in followed.splitlines()] == history[2:], words


def test_wait_for_a_status_or_a_step(shell: Shell) -> None:
    shell.waits_for_approval("o-1")
    assert shell("wait", "o-1", "--for", "status=suspended|status=running").json["id"] == "o-1"
    late = shell("wait", "o-1", "--for", "step=nowhere", "--timeout", "0.2")
    assert (late.code, "perdure wait o-1 --for step=nowhere" in late.err) == (2, True)
    shell("run", "shop:declines", "--id", "d-1")
    ended = shell("wait", "d-1", "--for", "step=packing")
    assert (ended.code, "did not come to step packing" in ended.err) == (1, True)
    assert shell("wait", "d-1", "--for", "colour=red").code == 64
    assert "did not come to status timed_out" in shell("wait", "d-1", "--for", "status=Timed-Out").err
    assert shell("run", "shop:counts_down", "[1]", "--id", "c-1").code == 0
    first = shell("show", "c-1").json["continued_from"]
    assert shell("wait", first, "--for", "status=completed").json["status"] == "COMPLETED", "it waits for the whole"
    assert shell("wait", "d-1", "--for", "status=suspendet").code == 64
