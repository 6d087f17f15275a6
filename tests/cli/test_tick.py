"""`perdure tick`: maintenance once, and ripe runs."""

from tests.cli.shell import Shell


def test_a_tick_prints_what_it_did_and_works_ripe_runs(shell: Shell) -> None:
    assert shell("start", "shop:checkout", '{"order": "o-1"}', "--id", "o-1").code == 0
    done = shell("tick")
    assert (done.code, done.json["errors"], done.json["counts"]["rescued"]) == (0, {}, 0)
    done = shell("tick", "shop", "--max-jobs", "5", "--budget", "10s")
    assert (done.code, done.json["counts"]["processed"], done.json["counts"]["suspended"]) == (0, 1, 1)
    assert "scheduled" in shell.at_terminal("tick")[1]


def test_what_cannot_be_is_refused(shell: Shell) -> None:
    assert shell("tick", "--max-jobs", "5").code == 64
    done = shell("tick", "shop", "--budget", "0")
    assert done.code != 0
    assert "budget" in done.err
    assert shell("worker", "shop", "--preset", "fast").code == 64
