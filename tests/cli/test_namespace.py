"""`perdure namespace`, and commands on a namespace that is not there."""

import re

from tests.cli.shell import Shell


def test_namespaces_are_made_listed_shown_and_deleted(shell: Shell) -> None:
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    assert shell("namespace", "create", "blue").json["name"] == "blue"
    assert [each["name"] for each in shell("namespace", "list").json] == ["blue", "main"]
    shown = shell("namespace", "show", "main").json
    assert (shown["runs"], shown["queues"], shown["workers"]) == ({"PENDING": 1}, ["default"], 0)
    assert re.search(r"runs +1 PENDING", shell.at_terminal("namespace", "show", "main")[1])
    assert re.search(r"^blue +\d{4}", shell.at_terminal("namespace", "list")[1], re.MULTILINE)
    full = shell("namespace", "delete", "main")
    assert (full.code, "always there" in full.err) == (64, True)
    assert shell("start", "shop:greet", '["ann"]', "--namespace", "blue").code == 0
    full = shell("namespace", "delete", "blue")
    assert (full.code, "it has 1 run(s)" in full.err) == (1, True)
    assert shell("namespace", "create", "green").code == 0
    assert shell("namespace", "delete", "green").json == {"name": "green", "deleted": True}


def test_a_command_on_a_namespace_that_is_not_there_names_the_nearest(shell: Shell) -> None:
    """An empty list would say that nothing is wrong."""
    assert shell("start", "shop:greet", '["ann"]', "--id", "g-1").code == 0
    assert shell("namespace", "create", "orders").code == 0
    for words in (["list"], ["show", "g-1"], ["start", "shop:greet", '["ann"]']):
        answer = shell(*words, "--namespace", "order")
        assert answer.code == 1
        assert "there is no namespace 'order' (did you mean 'orders'?)" in answer.err
        assert "`perdure namespace create order` makes it" in answer.err
    typed = shell("list", "--url", "sqlite:///perdure.db", "--namespace", "order").err
    assert "`perdure namespace create order --url sqlite:///perdure.db` makes it" in typed
    with shell.at_work(PERDURE_NAMESPACE="order"):
        assert shell("list", "--namespace", "order").json == []


def test_a_name_is_given_where_one_is_needed(shell: Shell) -> None:
    assert shell("start", "shop:greet", '["ann"]').code == 0
    assert shell("namespace", "list", "blue").code == 64
    assert "name the namespace: `perdure namespace create NAME`" in shell("namespace", "create").err
    assert shell("namespace", "paint", "blue").code == 64
