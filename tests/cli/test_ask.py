"""`perdure ask`: a running workflow is asked, and its answer printed."""

from tests.cli.shell import Shell


def waits_for_requests(shell: Shell) -> None:
    """A run of `doubles` that stands on disk, waiting to be asked."""
    shell.run_until("TimerFired", "run", "shop:doubles", "--id", "d-1")


def test_an_answer_is_printed(shell: Shell) -> None:
    waits_for_requests(shell)
    with shell.at_work():
        assert shell("ask", "d-1", "double", "21", "--id", "a").json == 42
        assert shell("ask", "d-1", "double", "21", "--id", "a").json == 42
        refused = shell("ask", "d-1", "double", "101")
    assert (refused.code, refused.err) == (1, "error: it is too large\n")


def test_waiting_for_an_answer_ends_and_the_request_stays(shell: Shell) -> None:
    waits_for_requests(shell)
    late = shell("ask", "d-1", "double", "4", "--id", "a", "--timeout", "0.1")
    assert (late.code, late.out) == (2, "")
    assert "has not answered 'double' within 0.1" in late.err
    assert len(shell("show", "d-1").json["unread"]) == 1


def test_a_value_that_the_run_does_not_accept_is_not_asked(shell: Shell) -> None:
    waits_for_requests(shell)
    done = shell("ask", "d-1", "double", '"four"')
    assert (done.code, done.out) == (1, "")
    assert "expected integer, got string; nothing was asked" in done.err
