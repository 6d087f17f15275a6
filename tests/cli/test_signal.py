"""`perdure signal`: a message for a run."""

import json
import re
from datetime import datetime, timedelta

from tests.cli.shell import Shell, until


def test_a_signal_that_nobody_waits_for_is_sent_with_a_warning(shell: Shell) -> None:
    """Most often its name was mistyped."""
    shell.waits_for_approval("o-1")
    done = shell("signal", "o-1", "aproved", "true")
    assert (done.code, json.loads(done.out)["signal"]) == (0, "aproved")
    assert done.err == 'warning: the run waits for: approved; "aproved" is kept until it is received\n'
    assert shell("signal", "o-1", "approved", "true").json["payload"] is True


def test_a_payload_that_the_run_does_not_accept_is_not_sent(shell: Shell) -> None:
    """It would be set aside, and the run would wait on; whoever typed it believes that it was approved."""
    shell.waits_for_approval("o-1")
    done = shell("signal", "o-1", "approved", '"true"')
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "error: run 'o-1' waits for 'approved' with another payload: expected boolean, got string; "
        "nothing was sent, --force sends it all the same\n"
    )
    assert shell("show", "o-1").json["unread"] == []
    assert shell("signal", "o-1", "approved", '"true"', "--force").json["payload"] == "true"
    assert len(shell("show", "o-1").json["unread"]) == 1


def test_a_signal_with_a_delay_is_shown_with_its_time(shell: Shell) -> None:
    """Whoever sees it unread would wonder why."""
    shell.waits_for_approval("o-1")
    assert shell("signal", "o-1", "approved", "true", "--delay", "3h").code == 0
    (unread,) = shell("show", "o-1").json["unread"]
    waits = datetime.fromisoformat(unread["due_at"]) - datetime.fromisoformat(unread["at"])
    assert round(waits / timedelta(hours=1)) == 3
    assert "due in 3 h" in shell.at_terminal("show", "o-1")[1]
    assert shell("signal", "o-1", "approved", "true", "--delay", "soon").code == 64
    many = ("signal", "approved", "true", "--delay", "5h", "--where", "id = 'o-1'", "--yes")
    assert shell(*many).json["done"] == 1
    assert "due in 5 h" in shell.at_terminal("show", "o-1")[1]


def test_a_signal_that_was_set_aside_is_shown(shell: Shell) -> None:
    """It was sent well, and a moment later nothing but the worker's log knew of it."""
    shell.waits_for_approval("o-1")
    with shell.at_work():
        assert shell("signal", "o-1", "approved", '"yes"', "--force").code == 0
        until(lambda: shell("show", "o-1").json["unread"] == [])
        (aside,) = shell("show", "o-1").json["set_aside"]
        assert (aside["name"], aside["payload"]) == ("approved", "yes")
        seen = shell.at_terminal("show", "o-1")[1]
        assert re.search(r'^ *set aside +signal approved "yes", .*: not what the code waits for$', seen, re.MULTILINE)


def test_a_run_that_drowns_in_messages_is_sent_no_more(shell: Shell) -> None:
    """The signal was not sent, and who sent it learns that, why, and what to do."""
    shell.waits_for_approval("o-1")
    shell.python(FILL)
    done = shell("signal", "o-1", "approved", "true")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: run 'o-1' has 100,000 unread messages and takes no more signals")
    assert "`perdure show o-1`" in done.err
    assert "and 99,980 more" in shell.at_terminal("show", "o-1")[1]
    shown = shell("show", "o-1").json
    assert (len(shown["unread"]), shown["unread_count"]) == (1000, 100_000)
    assert shell("cancel", "o-1").code == 0


# What a hundred thousand signals leave; to send them would take longer.
FILL = '''
import sqlite3
db = sqlite3.connect("perdure.db")
db.execute("""
    with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 100000)
    insert into inbox (namespace, run_id, message_id, kind, body, at)
    select namespace, run_id, n, 'SignalSent', '{"name":"other","payload":1}', 1 from runs, numbers
""")
db.execute("update runs set messages = messages + 100000")
db.commit()
'''
