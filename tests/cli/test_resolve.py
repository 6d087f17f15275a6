"""`perdure resolve`: the value of a deferred, by run and name or by a token."""

from tests.cli.shell import Shell


def waits_for_decision(shell: Shell) -> None:
    """A run of `decides` that stands on disk, waiting for its deferred."""
    shell.run_until("TimerFired", "run", "shop:decides", "--id", "d-1")


def test_a_deferred_is_resolved_by_run_and_name(shell: Shell) -> None:
    waits_for_decision(shell)
    assert shell("resolve", "d-1", "decision", "true").json == {"id": "d-1", "deferred": "decision", "value": True}
    with shell.at_work():
        assert shell("wait", "d-1").json is True


def test_a_deferred_is_resolved_by_its_token(shell: Shell) -> None:
    waits_for_decision(shell)
    token = shell("show", "d-1").json["step"]
    assert shell("resolve", "--token", token, "false").json == {"value": False}
    changed = shell("resolve", "--token", f"{token}x", "false")
    assert (changed.code, "was changed" in changed.err) == (64, True)


def test_another_value_is_refused_and_the_same_one_is_not(shell: Shell) -> None:
    waits_for_decision(shell)
    assert shell("resolve", "d-1", "decision", "true").code == 0
    assert shell("resolve", "d-1", "decision", "true").code == 0
    refused = shell("resolve", "d-1", "decision", "--error", "too late")
    assert (refused.code, refused.out) == (1, "")
    assert "has its value already" in refused.err


def test_a_value_that_the_run_does_not_accept_is_not_given(shell: Shell) -> None:
    """It is written once, and could not be mended."""
    waits_for_decision(shell)
    done = shell("resolve", "d-1", "decision", '"yes"')
    assert (done.code, done.out) == (1, "")
    assert "expected boolean, got string" in done.err
    assert shell("resolve", "d-1", "decision", '"yes"', "--force").code == 0


def test_a_token_checks_the_value_as_well(shell: Shell) -> None:
    waits_for_decision(shell)
    token = shell("show", "d-1").json["step"]
    done = shell("resolve", "--token", token, '"yes"')
    assert (done.code, done.out) == (1, "")
    assert "run 'd-1' waits for 'decision' with another value: expected boolean, got string" in done.err
    assert shell("resolve", "--token", token, '"yes"', "--force").code == 0


def test_of_a_misspelt_deferred_the_awaited_ones_are_told(shell: Shell) -> None:
    waits_for_decision(shell)
    done = shell("resolve", "d-1", "decison", "true")
    assert done.code == 0
    assert done.err == 'warning: the run waits for: decision; "decison" is kept until it is waited for\n'


def test_an_error_without_its_text_names_the_help_of_the_command(shell: Shell) -> None:
    done = shell("resolve", "d-1", "decision", "--error")
    assert done.code == 64
    assert "see `perdure resolve --help`" in done.err


def test_one_word_is_not_told_of_as_several(shell: Shell) -> None:
    assert "1 word was given" in shell("resolve", "d-1").err


def test_too_few_words_are_a_mistake(shell: Shell) -> None:
    done = shell("resolve", "d-1", "decision")
    assert done.code == 64
    assert "resolve takes ID NAME VALUE; 2 words were given" in done.err
