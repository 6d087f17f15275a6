"""Every command works on Postgres as it does on a file, and says what is wrong with a server in one line."""

import psycopg
import pytest

from tests.cli.shell import Shell, until

SECRET = "se-cret"


def test_a_run_is_started_signalled_and_awaited_across_processes(shell: Shell, postgres_url: str) -> None:
    """The way of an order through four commands and a worker, each a process of its own."""

    def perdure(*words: str) -> object:
        done = shell(*words, PERDURE_URL=postgres_url)
        assert done.code == 0, done.err
        return done.json if done.out else None

    started = shell("start", "shop:checkout", '["o-1"]', "--id", "o-1", PERDURE_URL=postgres_url)
    assert "no worker is alive" in started.err
    shell("start", "shop:checkout", '["o-2"]', "--id", "o-2", PERDURE_URL=postgres_url)
    with shell.at_work(PERDURE_URL=postgres_url):
        until(lambda: shell("events", "o-1", PERDURE_URL=postgres_url).out.count("TimerFired") == 1)
        perdure("signal", "o-1", "approved", "true")
        assert "hold-o-1" in str(perdure("wait", "o-1"))
        assert perdure("show", "o-2")
        perdure("cancel", "o-2", "--wait")
        listed = perdure("list")
        assert isinstance(listed, list)
        assert {run["workflow_id"]: run["status"] for run in listed} == {"o-1": "COMPLETED", "o-2": "CANCELLED"}
        shell("start", "shop:checkout", '["o-3"]', "--id", "o-3", PERDURE_URL=postgres_url)
        perdure("terminate", "o-3")
        assert perdure("resume", "--all") == []


def test_a_look_makes_no_tables(shell: Shell, postgres_url: str) -> None:
    """Who mistypes the name of a schema must not leave one behind."""
    for words in (["list"], ["show", "x"], ["wait", "x"], ["doctor"], ["audit"], ["migrate", "--print-sql"]):
        shell(*words, PERDURE_URL=postgres_url)
    done = shell("list", PERDURE_URL=postgres_url)
    assert (done.code, done.out) == (1, "")
    assert "has no runs of Perdure in this schema" in done.err


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://postgres:{secret}@127.0.0.1:1/postgres", "nobody listens there"),
        ("{server}/no_such_database", "create it (createdb)"),
        ("postgresql://nobody:{secret}@{place}/postgres", "name a role that may log in"),
        ("postgresql://postgres:{secret}@no.such.host.invalid/x", "the host is not known here"),
        ("postgresql://postgres:{secret}@127.0.0.1:port/x", "cannot be read; use postgresql://"),
        ("postgresql://postgres:{secret}/@[::1/x", "cannot be read; use postgresql://"),
        ("postgresql://postgres:a@{secret}@{place}/x", "write signs such as / @ ? # in a password"),
        ("{server}/postgres?sslmod=require", "correct the options of the URL"),
        ("postgresql://postgres:{secret}@{place}/postgres?sslmode=no", "correct the URL or the PG* variables"),
        ("postgresq://postgres:{secret}@{place}/postgres", "names no store"),
        ("{server}/postgres?notify=perhaps", "use notify=on or notify=off"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_without_the_password(
    shell: Shell, postgres: str, url: str, told: str
) -> None:
    """A line of a log is read by more people than may know the password."""
    place = postgres.partition("@")[2].partition("/")[0]
    server = f"postgresql://postgres:{SECRET}@{place}"
    url = url.format(secret=SECRET, place=place, server=server)
    for words in (["list"], ["doctor"], ["audit"], ["migrate"]):
        done = shell(*words, "--url", url)
        assert told in done.err + done.out, words
        assert done.code != 0, words
        assert SECRET not in done.err + done.out, words
        assert "Traceback" not in done.err, words
    assert len(shell("list", "--url", url).err.splitlines()) == 1


def test_who_may_only_read_is_told_so_once(shell: Shell, postgres_url: str) -> None:
    """An error that is told twice, once as a line of a log, is read as two errors."""
    schema = postgres_url.partition("schema=")[2]
    shell("start", "shop:checkout", '["o-1"]', "--id", "o-1", PERDURE_URL=postgres_url)
    with psycopg.connect(postgres_url.partition("?")[0]) as db:
        db.execute(
            f"create role {schema}_reader login; grant usage on schema {schema} to {schema}_reader;"
            f"grant select on all tables in schema {schema} to {schema}_reader".encode()
        )
    url = f"postgresql://{schema}_reader@{postgres_url.partition('@')[2]}"
    for words in (["start", "shop:greet", '["ann"]'], ["signal", "o-1", "approved", "true"], ["cancel", "o-1"]):
        done = shell(*words, PERDURE_URL=url)
        assert (done.code, done.out) == (1, ""), done.err
        assert done.err.startswith("error: "), done.err
        assert "permission denied" in done.err
        assert len(done.err.splitlines()) == 1, done.err


def test_a_worker_shows_no_password(shell: Shell, postgres_url: str) -> None:
    place = postgres_url.partition("@")[2]
    done = shell("run", "shop:checkout", '["o-1"]', "--wait", "0.1", "--url", f"postgresql://postgres:{SECRET}@{place}")
    assert done.code == 2
    assert "postgresql://postgres@" in done.err
    assert SECRET not in done.err


def test_without_the_driver_it_is_told_what_to_install(shell: Shell) -> None:
    """SQLite needs no driver, so it is an extra."""
    program = (
        "import sys; sys.modules['asyncpg'] = None; sys.stderr = sys.stdout\n"
        "from perdure.cli.entry import outcome\n"
        "print(outcome(['list', '--url', 'postgresql://localhost/x']))"
    )
    assert shell.python(program) == "error: Postgres needs the package asyncpg: pip install 'perdure[postgres]'\n64\n"
