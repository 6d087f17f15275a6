"""Hints: commands that are shown to be copied."""

import re

import pytest

from perdure.cli.output.errors import tell
from perdure.errors import StoreUnavailable
from tests.cli.shell import Shell


def test_hints_name_the_database_that_was_typed(shell: Shell) -> None:
    """A hint is there to be copied; without the URL it would speak of another database."""
    url = ("--url", "sqlite:///my shop.db")
    for id in ("d-1", "d-2"):
        failed = shell("run", "shop:declines", "--id", id, *url)
    _, listed = shell.at_terminal("list", "--limit", "1", "--status", "failed", "--workflow", "declines", *url)
    _, shown = shell.at_terminal("show", "d-1", *url)
    _, without = shell.at_terminal("show", "d-1", PERDURE_URL=url[1])
    late = shell("run", "shop:checkout", '["o-1"]', "--id", "o-1", "--wait", "0.3", *url)
    _, followed = shell.at_terminal("run", "shop:checkout", '["o-1"]', "--id", "o-1", "--wait", "1", *url)

    assert "`perdure show d-2 --url 'sqlite:///my shop.db'` tells where\n" in failed.err
    more = (
        r"more: perdure list --status failed --workflow declines --limit 1 --after \S+ --url 'sqlite:///my shop.db'\n"
    )
    assert re.search(more, listed)
    assert "every step: perdure events d-1 --url 'sqlite:///my shop.db'\n" in shown
    assert "every step: perdure events d-1\n" in without
    assert "--id o-1 --url 'sqlite:///my shop.db'\n" in late.err
    assert "send it: perdure signal o-1 approved PAYLOAD --url 'sqlite:///my shop.db'" in followed
    assert "`perdure list --url 'sqlite:///my shop.db'` shows the runs" in shell("show", "nope", *url).err


@pytest.mark.parametrize(
    ("typed", "copied"),
    [
        ("postgresql://ann:secret@127.0.0.1:1/shop", "postgresql://ann@127.0.0.1:1/shop"),
        ("postgresql://ann:s@:/cret@127.0.0.1:1/shop?schema=x", "'postgresql://ann@127.0.0.1:1/shop?schema=x'"),
        ("postgresql://127.0.0.1:1/shop?user=ann&password=secret", "'postgresql://127.0.0.1:1/shop?user=ann'"),
        ("postgresql://127.0.0.1:1/shop?password=secret&user=ann", "'postgresql://127.0.0.1:1/shop?user=ann'"),
    ],
)
def test_a_command_to_be_copied_has_no_password_and_no_stars(shell: Shell, typed: str, copied: str) -> None:
    """Stars for the password were refused by the server when the command was pasted."""
    done = shell("list", "--url", typed)
    assert f"`perdure doctor --url {copied}` looks closer" in done.err
    assert "cret" not in done.err
    known = shell("list", "--url", typed, PERDURE_URL=typed)
    assert "`perdure doctor` looks closer" in known.err


def test_a_server_that_does_not_answer_is_not_said_to_be_looked_at_by_doctor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`perdure doctor` needs the database itself, and would only say so."""
    assert tell(StoreUnavailable("http://127.0.0.1:1", "the server does not answer: connection refused")) == 1
    assert capsys.readouterr().err == (
        "error: http://127.0.0.1:1: the server does not answer: connection refused; does `perdure serve` run there?\n"
    )
