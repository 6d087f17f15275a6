"""`perdure pause`, and `perdure resume` of what it paused."""

from tests.cli.shell import Shell


def test_a_paused_run_waits_until_it_is_resumed(shell: Shell) -> None:
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    paused = shell("pause", "g-1", "--reason", "the bank is down")
    assert (paused.json["status"], paused.json["held"]) == ("SUSPENDED", "paused")
    # One that was paused before it began is as healthy as others.
    assert shell("audit").code == 0
    with shell.at_work():
        assert shell("show", "g-1").json["held_report"]["reason"] == "the bank is down"
        assert "the bank is down" in shell.at_terminal("show", "g-1")[1]
        assert shell("resume", "g-1").json["held"] is None
        assert shell("wait", "g-1", "--timeout", "120").json == "hello ann"
    ended = shell("pause", "g-1")
    assert (ended.code, "has ended (COMPLETED)" in ended.err) == (1, True)
