"""`perdure query`: what a run shows of itself, without a worker."""

from tests.cli.shell import Shell


def shows(shell: Shell, size: int = 0) -> None:
    """A run of `shows` that stands on disk."""
    shell.run_until("TimerFired", "run", "shop:shows", "--id", "s-1", f'{{"size": {size}}}')


def test_a_value_is_printed_alone(shell: Shell) -> None:
    shows(shell)
    assert shell("query", "s-1", "progress").json == {"done": 1, "of": 2}


def test_everything_is_printed_with_its_errors(shell: Shell) -> None:
    shows(shell)
    found = shell("query", "s-1").json
    assert found["values"] == {"progress": {"done": 1, "of": 2}, "text": ""}
    assert found["errors"] == {"bad": "ZeroDivisionError: integer division or modulo by zero"}


def test_a_name_that_is_not_there_is_refused_with_those_that_are(shell: Shell) -> None:
    shows(shell)
    done = shell("query", "s-1", "weight")
    assert (done.code, done.out) == (1, "")
    assert "shows no 'weight'; there are 'progress', 'text'" in done.err


def test_show_tells_of_streams_and_of_much_that_is_shown(shell: Shell) -> None:
    shows(shell, 120_000)
    found = shell("show", "s-1").json
    assert found["streams"] == {"counted": 2}
    assert found["shown_bytes"] > 120_000
