"""`perdure check` and `perdure replay`: a deploy tried on the runs there are, from a shell."""

import json

from tests.cli.shell import Shell


def test_a_deploy_that_fits_ends_well_and_one_that_does_not_ends_with_one(shell: Shell) -> None:
    shell.waits_for_approval("o-1")
    done = shell("check", "shop")
    assert (done.code, done.json["ok"]) == (0, True)
    (found,) = done.json["workflows"]
    assert (found["workflow"], found["fit"], found["misfits"]) == ("checkout", 1, [])
    module = shell.folder / "shop.py"
    module.write_text(module.read_text().replace("def checkout(", "def another_name("))
    done = shell("check", "shop")
    told = json.loads(done.out)
    assert (done.code, told["ok"], told["workflows"][0]["no_code"]) == (1, False, 1)


def test_a_check_can_be_of_some_runs(shell: Shell) -> None:
    for number in range(3):
        assert shell("start", "shop:greet", '["ann"]', "--id", f"g-{number}").code == 0
    assert shell("check", "shop", "--limit", "2").json["workflows"][0]["checked"] == 2
    some = shell("check", "shop", "--where", "id != :id", "--param", "id=g-1", "--limit", "9").json
    assert some["workflows"][0]["checked"] == 2
    assert shell("check", "shop", "--where", "id = 'nobody'").json == {"ok": True, "workflows": []}


def test_a_replay_shows_lines_and_where_the_code_waits(shell: Shell) -> None:
    shell.waits_for_approval("o-1")
    told = shell("replay", "o-1", "--module", "shop").json
    assert told["trouble"] is None
    assert told["waits"][0]["line"].rpartition("/")[2].startswith("shop.py:")
    assert shell("replay", "o-1").code == 64
