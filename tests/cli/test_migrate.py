"""`perdure migrate`: tables are made before any worker comes, or the SQL for it is printed."""

import sqlite3
from contextlib import closing

from perdure.stores.queries import migrations
from tests.cli.shell import Shell

SQLITE, POSTGRES = (len(migrations(database)) for database in ("sqlite", "postgres"))


def test_a_file_is_brought_up_to_date(shell: Shell) -> None:
    assert shell("migrate", "--url", "sqlite:///new.db").json == {"from": 0, "to": SQLITE}
    code, seen = shell.at_terminal("migrate", "--url", "sqlite:///new.db")
    assert (code, seen) == (0, f"{shell.folder / 'new.db'}: schema {SQLITE}, nothing was to be done\n")


def test_the_sql_for_a_file_is_printed_and_not_run(shell: Shell) -> None:
    """What is printed leads to the same tables."""
    printed = shell("migrate", "--print-sql", "--url", "sqlite:///not-there.db")
    assert not (shell.folder / "not-there.db").exists()
    with closing(sqlite3.connect(shell.folder / "by-hand.db")) as db:
        db.executescript(printed.out)
    assert shell("migrate", "--url", "sqlite:///by-hand.db").json == {"from": SQLITE, "to": SQLITE}
    assert shell("audit", "--url", "sqlite:///by-hand.db").json["ok"]
    again = shell("migrate", "--print-sql", "--url", "sqlite:///by-hand.db")
    assert again.out == f"-- Nothing is to be done: the schema is {SQLITE}, and this Perdure knows up to {SQLITE}.\n"


def test_a_schema_of_postgres_is_made(shell: Shell, postgres_url: str) -> None:
    printed = shell("migrate", "--print-sql", PERDURE_URL=postgres_url)
    assert printed.out.startswith("begin;")
    assert shell("migrate", PERDURE_URL=postgres_url).json == {"from": 0, "to": POSTGRES}
    code, seen = shell.at_terminal("migrate", PERDURE_URL=postgres_url)
    assert (code, seen) == (0, f"{postgres_url}: schema {POSTGRES}, nothing was to be done\n")
    assert shell("list", PERDURE_URL=postgres_url).json == []


def test_roles_are_printed_for_postgres_alone(shell: Shell, postgres_url: str) -> None:
    printed = shell("migrate", "--print-roles", PERDURE_URL=postgres_url)
    assert (printed.code, printed.out.count("perdure_worker") > 3) == (0, True)
    assert shell("migrate", "--print-roles").code == 64


def test_a_file_that_is_no_database_is_left_as_it_is(shell: Shell) -> None:
    (shell.folder / "text.db").write_text("a letter to somebody, which is longer than a hundred bytes" * 9)
    for words in (["migrate"], ["migrate", "--print-sql"]):
        done = shell(*words, "--url", "sqlite:///text.db")
        assert (done.code, done.out) == (1, "")
        assert "cannot be used as a database" in done.err
