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
    assert "has not answered 'double' within 0.1 s" in late.err
    assert "the same command with --id a asks for its answer again" in late.err
    assert len(shell("show", "d-1").json["unread"]) == 1


def test_without_an_id_nobody_is_told_to_use_it(shell: Shell) -> None:
    waits_for_requests(shell)
    late = shell("ask", "d-1", "double", "4", "--timeout", "0.1")
    assert "its answer can be asked for again only if it has an --id" in late.err


def test_it_is_told_that_no_worker_could_answer(shell: Shell) -> None:
    waits_for_requests(shell)
    late = shell("ask", "d-1", "double", "4", "--timeout", "0.1")
    assert "warning: no worker is alive that could take the run" in late.err


def test_of_a_misspelt_request_the_awaited_ones_are_told(shell: Shell) -> None:
    waits_for_requests(shell)
    late = shell("ask", "d-1", "duble", "4", "--timeout", "0.1")
    assert 'warning: the run waits for: double; "duble" is kept until it is received' in late.err


def test_a_value_that_the_run_does_not_accept_is_not_asked(shell: Shell) -> None:
    waits_for_requests(shell)
    done = shell("ask", "d-1", "double", '"four"')
    assert (done.code, done.out) == (1, "")
    assert "expected integer, got string; nothing was asked" in done.err
