"""`perdure key`, and commands over a server."""

import os
import re
import signal

from tests.cli.shell import Shell


def test_keys_are_made_listed_and_revoked(shell: Shell) -> None:
    """As JSON the key stands alone, for scripts; the list never has it."""
    shell("start", "shop:checkout", '["o-1"]')
    admin = shell("key", "create", "--label", "root", "--role", "admin").json
    made = shell("key", "create", "--label", "ci", "--scope", "read", "--entity", "npc-42", "--expires", "30d").json
    listed = shell("key", "list").json

    assert set(made) == {"key_id", "key"}
    assert [(each["label"], each["scopes"], each["entity_id"]) for each in listed][1] == ("ci", ["read"], "npc-42")
    assert made["key"] not in str(listed)
    assert shell("key", "revoke", made["key_id"]).json == {"key_id": made["key_id"], "revoked": True}
    assert re.search(r"ci +read +npc-42 +revoked", shell.at_terminal("key", "list")[1])
    refused = shell("key", "revoke", admin["key_id"])
    assert (refused.code, "last" in refused.err) == (1, True)


def test_what_makes_no_sense_of_a_key_is_told(shell: Shell) -> None:
    shell("start", "shop:checkout", '["o-1"]')
    for words, told in (
        (("create", "--label", "x"), "give one of them"),
        (("create", "--label", "x", "--role", "king"), "no role is named 'king'"),
        (("create",), "--label"),
        (("revoke",), "KEY_ID"),
        (("revoke", "nobody"), "nobody"),
    ):
        found = shell("key", *words)
        assert found.code != 0
        assert told in found.err


def test_a_server_for_developers_answers_without_a_key_and_works(shell: Shell) -> None:
    """What it says to try can be tried, and other commands reach it by its address."""
    reader, writer = os.pipe()
    words = ("dev", "shop", "--listen", "127.0.0.1:0", "--queue", "default", "--queue", "slow")
    with os.fdopen(reader) as said, shell.begin(*words, files=[reader, writer, writer]) as server:
        os.close(writer)
        lines = iter(said.readline, "")
        first = next(line for line in lines if line.startswith("serving on "))
        tried = next(lines)
        url = first.split()[2]

        assert "/docs" in first
        assert "curl" in tried
        assert f"{url}/v1/runs" in tried
        started = shell("start", "shop:checkout", '["o-9"]', "--id", "o-9", "--url", url)
        assert started.json["id"] == "o-9"
        assert [run["workflow_id"] for run in shell("list", "--url", url).json] == ["o-9"]
        assert shell("count", "--url", url).json == 1
        assert shell("cancel", "o-9", "--url", url).code == 0
        for needs_the_database in (["sql", "select 1"], ["audit"], ["doctor"], ["migrate"], ["show", "o-9"]):
            refused = shell(*needs_the_database, "--url", url)
            assert refused.code != 0
            assert "the database itself" in refused.err
        server.send(signal.SIGTERM)
        assert server.wait() == 0
    assert shell("dev", "shop", "--listen", "0.0.0.0:0").code != 0
