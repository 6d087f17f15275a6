"""`perdure signal`: a message for a run."""

import json
import re

from tests.cli.shell import Shell, until


def test_a_signal_that_nobody_waits_for_is_sent_with_a_warning(shell: Shell) -> None:
    """Most often its name was mistyped."""
    shell.waits_for_approval("o-1")
    done = shell("signal", "o-1", "aproved", "true")
    assert (done.code, json.loads(done.out)["signal"]) == (0, "aproved")
    assert done.err == 'warning: the run waits for: approved; "aproved" is kept until it is received\n'
    assert shell("signal", "o-1", "approved", "true").json["payload"] is True


def test_a_signal_that_was_set_aside_is_shown(shell: Shell) -> None:
    """It was sent well, and a moment later nothing but the worker's log knew of it."""
    shell.waits_for_approval("o-1")
    with shell.at_work():
        assert shell("signal", "o-1", "approved", '"yes"').code == 0
        until(lambda: shell("show", "o-1").json["unread"] == [])
        (aside,) = shell("show", "o-1").json["set_aside"]
        assert (aside["name"], aside["payload"]) == ("approved", "yes")
        seen = shell.at_terminal("show", "o-1")[1]
        assert re.search(r'^ *set aside +signal approved "yes", .*: not what the code waits for$', seen, re.MULTILINE)
