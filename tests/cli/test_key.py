"""`perdure key`, and commands over a server."""

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from tests.cli.shell import Shell, command, environment


def test_keys_are_made_listed_and_revoked(shell: Shell) -> None:
    """As JSON the key stands alone, for scripts; the list never has it."""
    shell("start", "shop:checkout", '["o-1"]')
    admin = shell("key", "create", "--label", "root", "--role", "admin").json
    narrow = ("--scope", "read", "--entity", "npc-42", "--queue", "gpu", "--namespace", "main", "--expires", "30d")
    made = shell("key", "create", "--label", "ci", *narrow).json
    listed = shell("key", "list").json

    assert set(made) == {"key_id", "key"}
    assert [listed[1][name] for name in ("label", "scopes", "entity_id", "queues", "namespaces")] == [
        *("ci", ["read"], "npc-42", ["gpu"], ["main"])
    ]
    assert made["key"] not in str(listed)
    assert shell("key", "revoke", made["key_id"]).json == {"key_id": made["key_id"], "revoked": True}
    assert re.search(r"ci +read +main, gpu, npc-42 +revoked", shell.at_terminal("key", "list")[1])
    refused = shell("key", "revoke", admin["key_id"])
    assert (refused.code, "last" in refused.err) == (1, True)


def test_what_makes_no_sense_of_a_key_is_told(shell: Shell) -> None:
    shell("start", "shop:checkout", '["o-1"]')
    for words, told in (
        (("create", "--label", "x"), "give one of them"),
        (("create", "--label", "x", "--role", "reader", "--scope", "admin"), "give one of them"),
        (("create", "--label", "x", "--role", "king"), "no role is named 'king'"),
        (("create",), "--label"),
        (("revoke",), "KEY_ID"),
        (("revoke", "nobody"), "nobody"),
    ):
        found = shell("key", *words)
        assert found.code != 0
        assert told in found.err


NEED_THE_DATABASE = (
    ["sql", "select 1"],
    ["audit"],
    ["doctor"],
    ["migrate"],
    ["check", "shop"],
    ["replay", "o-9", "--module", "shop"],
    ["tick"],
    ["serve"],
    ["dev", "shop"],
)


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
        by_name = shell("start", "checkout", '["o-10"]', "--id", "o-10", "--queue", "slow", "--url", url, "--key", "k")
        assert (by_name.json["id"], by_name.json["workflow"]) == ("o-10", "checkout")
        again = shell("start", "checkout", '["o-10"]', "--id", "o-10", "--queue", "slow", "--url", url, "--key", "k")
        assert again.json["run_id"] == by_name.json["run_id"]
        unknown = shell("start", "chekout", '["o-10"]', "--url", url)
        assert (unknown.code, "did you mean checkout?" in unknown.err) == (64, True)
        unfit = shell("start", "checkout", '{"ordr": 1}', "--url", url)
        assert (unfit.code, "ordr" in unfit.err) == (64, True), unfit.err
        assert [run["workflow_id"] for run in shell("list", "--url", url).json] == ["o-10", "o-9"]
        assert shell("count", "--url", url).json == 2
        assert shell("cancel", "o-9", "--url", url).code == 0
        assert shell("show", "o-9", "--url", url).json["workflow"] == "checkout"
        code, seen = shell.at_terminal("show", "o-9", "--url", url)
        assert (code, "checkout" in seen) == (0, True), seen
        for needs_the_database in NEED_THE_DATABASE:
            refused = shell(*needs_the_database, "--url", url)
            assert refused.code != 0
            assert "the database itself" in refused.err
        server.send(signal.SIGTERM)
        assert server.wait() == 0
    assert shell("dev", "shop", "--listen", "0.0.0.0:0").code != 0


def test_a_port_that_was_picked_is_the_same_one_after_a_reload(folder: Path) -> None:
    """Whoever has the address open finds the server there."""
    words = command("dev", "trip", "--listen", "127.0.0.1:0")
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(words, cwd=folder, env=environment(), **how) as server:  # type: ignore[call-overload]
        try:
            lines = iter(server.stdout.readline, "")
            url = next(line for line in lines if line.startswith("serving on ")).split()[2]
            assert any(line.startswith("  queues") for line in lines)
            (folder / "trip.py").touch()
            assert next(line for line in lines if line.startswith("serving on ")).split()[2] == url
        finally:
            server.kill()


def test_who_comes_to_a_server_without_the_right_key_is_told_what_to_do(shell: Shell) -> None:
    """Where a key is looked for, and which commands need no worker's key."""
    shell("start", "shop:checkout", '["o-1"]')
    operator = shell("key", "create", "--label", "ops", "--role", "operator").json["key"]
    reader, writer = os.pipe()
    words = ("serve", "--listen", "127.0.0.1:0", "--grace", "5s", "--json")
    with os.fdopen(reader) as said, shell.begin(*words, files=[reader, writer, writer]) as server:
        os.close(writer)
        url = json.loads(said.readline())["url"]
        nobody = shell("list", "--url", url)
        worked = shell("run", "shop:checkout", '["o-2"]', "--url", url, PERDURE_KEY=operator)
        server.send(signal.SIGTERM)
        assert server.wait() == 0

    assert (nobody.code, "PERDURE_KEY" in nobody.err, "PERDURE_KEY_FILE" in nobody.err) == (1, True, True)
    assert worked.code == 1
    assert "has no right to work; use one with the scope work; `run` works the run itself" in worked.err
    assert "`perdure start` and `perdure wait`" in worked.err
    assert shell("serve", "--grace", "soon").code == 64


def test_what_is_said_of_a_server_is_so(shell: Shell) -> None:
    """Its prefix, its names, its pages, its limit and its port: each is lost quietly where nobody looks."""
    shell("start", "shop:checkout", '["o-1"]')
    operator = shell("key", "create", "--label", "ops", "--role", "operator").json["key"]
    reader, writer = os.pipe()
    words = ("--listen", "127.0.0.1:0", "--prefix", "/p", "--reuse-port", "--max-body", "2048", "--json")
    pages = ("--allow-host", "shop.example", "--allow-origin", "https://app.example")
    with os.fdopen(reader) as said, shell.begin("serve", *words, *pages, files=[reader, writer, writer]) as server:
        os.close(writer)
        url = json.loads(said.readline())["url"]
        headers = {"host": "shop.example", "origin": "https://app.example", "content-type": "application/json"}
        asked = urllib.request.Request(f"{url}/v1/session", b" " * 2049, headers)
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(asked)
        with refused.value as answer:
            told = (answer.status, answer.headers["access-control-allow-origin"])
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            other.bind(("127.0.0.1", urlsplit(url).port))
        listed = shell("list", "--url", url, PERDURE_KEY=operator)
        server.send(signal.SIGTERM)
        assert server.wait() == 0

    assert told == (413, "https://app.example")
    assert url.endswith("/p")
    assert [run["workflow"] for run in listed.json] == ["checkout"]
