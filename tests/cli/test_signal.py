"""`perdure signal`: a message for a run."""

import json

from tests.cli.shell import Shell


def test_a_signal_that_nobody_waits_for_is_sent_with_a_warning(shell: Shell) -> None:
    """Most often its name was mistyped."""
    shell.waits_for_approval("o-1")
    done = shell("signal", "o-1", "aproved", "true")
    assert (done.code, json.loads(done.out)["signal"]) == (0, "aproved")
    assert done.err == 'warning: the run waits for: approved; "aproved" is kept until it is received\n'
    assert shell("signal", "o-1", "approved", "true").json["payload"] is True
