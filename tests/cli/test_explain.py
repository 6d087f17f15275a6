"""`perdure explain`: why a run does not move, for people and for programs."""

from tests.cli.shell import Shell


def test_programs_get_the_cause_and_people_the_sentence(shell: Shell) -> None:
    shell("start", "shop:checkout", "--id", "e-1", '{"order": "e-1"}')
    told = shell("explain", "e-1").json
    assert (told["id"], told["cause"]) == ("e-1", "no_worker")
    assert told["summary"] == "no living worker works its queue, default"
    assert told["advice"].startswith("start one: `perdure worker MODULE")


def test_a_run_that_is_not_there_is_told_with_a_near_one(shell: Shell) -> None:
    shell("start", "shop:checkout", "--id", "e-1", '{"order": "e-1"}')
    done = shell("explain", "e-2")
    assert (done.code, done.out) == (1, "")
    assert "did you mean e-1?" in done.err
