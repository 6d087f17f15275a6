"""`perdure sql`: one statement that reads, and can do nothing else."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure import BadOption, Perdure, workflow
from perdure.diagnostics import statement
from tests.cli.shell import Shell

VIEWS = ("v_runs", "v_events", "v_messages", "v_attempts", "v_workers", "v_queues")
WRITES = (
    "insert into workers (worker_id) values ('x')",
    "update runs set status = 'FAILED'",
    "delete from runs",
    "drop table runs",
    "create table mine (a int)",
    "select 1; delete from runs",
    "",
    "nonsense",
)


@workflow
async def looked_at_with_sql() -> int:
    return 7


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with one run that has ended."""
    found = str(request.getfixturevalue("empty_url")) if request.param == "postgres" else f"sqlite:///{tmp_path}/sql.db"

    async def fill() -> None:
        async with Perdure(found) as app:
            await app.run(looked_at_with_sql.options(id="s-1"))

    asyncio.run(fill())
    return found


@pytest.mark.parametrize("view", VIEWS)
def test_views_can_be_read(url: str, view: str) -> None:
    found = statement.rows_of(url, f"select * from {view}", 10)
    assert found.columns
    assert len(found.rows) == (view == "v_runs")


def test_times_are_readable_and_names_are_those_of_filters(url: str) -> None:
    found = statement.rows_of(url, "select id, workflow, status, created_at, closed_at from v_runs", 10)
    id, workflow, status, *times = found.rows[0]
    assert (id, workflow, status) == ("s-1", "looked_at_with_sql", "COMPLETED")
    assert all(str(at).startswith("20") for at in times)


def test_no_more_rows_are_read_than_are_wanted(url: str) -> None:
    many = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 1000) select i from n"
    found = statement.rows_of(url, many, 3)
    assert (found.columns, found.rows, found.has_more) == (("i",), [(1,), (2,), (3,)], True)


@pytest.mark.parametrize("sql", WRITES)
def test_what_does_not_read_is_refused_by_the_database(url: str, sql: str) -> None:
    with pytest.raises(BadOption):
        statement.rows_of(url, sql, 10)
    assert statement.rows_of(url, "select count(*) from runs where status = 'COMPLETED'", 1).rows == [(1,)]


@pytest.mark.parametrize(
    "sql",
    [
        "pragma user_version = 3",
        "pragma journal_mode = delete",
        "attach database ':memory:' as other",
        "vacuum",
        "begin immediate",
        "select load_extension('x')",
        "select secret from perdure_schema",
        "explain delete from runs",
    ],
)
def test_what_could_do_harm_in_a_file_is_refused(tmp_path: Path, sql: str) -> None:
    with closing(sqlite3.connect(tmp_path / "some.db")) as db:
        db.execute("create table perdure_schema (version int, secret blob)")
        db.execute("create table runs (a int)")
        db.commit()
    with pytest.raises(BadOption, match="the database refuses this statement"):
        statement.rows_of(f"sqlite:///{tmp_path}/some.db", sql, 10)


@pytest.mark.parametrize(
    "sql",
    [
        "with gone as (delete from runs returning 1) select * from gone",
        "select set_config('transaction_read_only', 'off', false)",
        "select * from runs for update",
        "select nextval(pg_get_serial_sequence('events', 'id'))",
    ],
)
def test_what_writes_behind_a_select_is_refused_on_postgres(empty_url: str, sql: str) -> None:
    async def make() -> None:
        async with Perdure(empty_url, worker=False):
            pass

    asyncio.run(make())
    with pytest.raises(BadOption, match="the database refuses this statement"):
        statement.rows_of(empty_url, sql, 10)


@pytest.mark.parametrize(
    "sql",
    [
        "select secret from perdure_schema",
        "select 1 where exists (select 1 from perdure_schema where get_byte(secret, 0) > 100)",
        "with s as materialized (select * from perdure_schema) select count(*) from v_runs, s",
        "select query_to_xml('select secret from perdure_schema', true, false, '')",
        "select (select t::text from perdure_schema t) from v_runs",
        "select * from table_to_xml('perdure_schema', true, false, '')",
        "select pg_read_file('postgresql.conf')",
    ],
)
def test_the_secret_of_tokens_is_not_read_on_postgres(empty_url: str, sql: str) -> None:
    """Who can read the database by this command cannot resolve what waits for a token."""

    async def make() -> None:
        async with Perdure(empty_url, worker=False):
            pass

    asyncio.run(make())
    with pytest.raises(BadOption, match="not shown|tell beforehand"):
        statement.rows_of(empty_url, sql, 10)


def test_a_statement_that_has_no_plan_is_told_so(empty_url: str) -> None:
    """The server would tell of a mistake in what nobody has typed."""

    async def make() -> None:
        async with Perdure(empty_url, worker=False):
            pass

    asyncio.run(make())
    for sql in ("explain select 1", "show statement_timeout"):
        with pytest.raises(BadOption, match="only a select, or a with, table or values, is run here"):
            statement.rows_of(empty_url, sql, 10)


def test_a_refusal_says_what_can_be_read(url: str) -> None:
    with pytest.raises(BadOption, match="v_runs, v_events"):
        statement.rows_of(url, "select * from run", 10)


def test_a_statement_that_takes_too_long_is_ended(url: str) -> None:
    endless = "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n"
    with pytest.raises(BadOption, match=r"longer than|timeout"):
        statement.rows_of(url, endless, 1, 0.05)


def test_commands_print_json_and_tell_what_is_refused(shell: Shell) -> None:
    shell("run", "shop:greet", '{"name": "Ann"}', "--id", "g-1")
    assert shell("sql", "select id, status from v_runs").json == [{"id": "g-1", "status": "COMPLETED"}]
    assert shell("sql", "select id from v_runs", "--limit", "1").code == 0
    done = shell("sql", "delete from runs")
    assert (done.code, done.out) == (64, "")
    assert "one statement that reads is taken" in done.err
