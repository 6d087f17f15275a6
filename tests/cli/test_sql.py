"""`perdure sql`: one statement that reads, and can do nothing else."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

import asyncpg
import pytest

from perdure import BadOption, Perdure, workflow
from perdure.diagnostics import statement
from perdure.stores.postgres.address import address_of
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


LONG = '"' + "x" * 2000 + '"'
# At 22:13:20.123 on 14 November 2023.
AT = 1_700_000_000_123
ROWS = (
    f"insert into events (namespace, run_id, seq, kind, place, at, body) values ('main', 'r', 2, 'A', 'p', {AT}, '1')",
    f"insert into events (namespace, run_id, seq, kind, place, at, body) values ('main', 'r', 3, 'A', 'q', {AT}, null)",
    f"insert into payloads (namespace, run_id, seq, body) values ('main', 'r', 3, '{LONG}')",
    (
        "insert into attempts (run_id, namespace, place, attempt, name, at, next_at, failure) "
        f"values ('r', 'main', 'p', 2, 'pay', {AT}, {AT + 1000}, '{{}}')"
    ),
)


def written(url: str, *statements: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
            for each in statements:
                db.execute(each)
        return

    async def execute() -> None:
        address = address_of(url)
        connection = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
        for each in statements:
            await connection.execute(each)
        await connection.close()

    asyncio.run(execute())


def shown(url: str, sql: str) -> list[tuple[str, ...]]:
    """Rows as texts; times to the millisecond, by UTC."""
    rows = statement.rows_of(url, sql, 100).rows
    return [
        tuple(f"{each:%Y-%m-%d %H:%M:%S.%f}"[:-3] if isinstance(each, datetime) else str(each) for each in row)
        for row in rows
    ]


def test_views_show_what_the_tables_hold(url: str) -> None:
    """They were read while they were empty: a wrong time, or the sum of others, was not seen."""
    written(url, *ROWS)
    at, next_at = "2023-11-14 22:13:20.123", "2023-11-14 22:13:21.123"
    found = shown(url, "select run_id, seq, kind, place, at, body from v_events where run_id = 'r' order by seq")
    assert found == [("r", "2", "A", "p", at, "1"), ("r", "3", "A", "q", at, LONG)]
    found = shown(url, "select run_id, place, attempt, name, at, next_at from v_attempts")
    assert found == [("r", "p", "2", "pay", at, next_at)]

    async def fill() -> None:
        async with Perdure(url, worker=False) as app:
            for n in range(3):
                await app.start(looked_at_with_sql.options(id=f"q-{n}", queue="slow"))
            await app.start(looked_at_with_sql.options(id="later", queue="slow", delay=3600))
            held = await app.start(looked_at_with_sql.options(id="held", queue="slow"))
            await held.pause("why not")
            await (await app.get("q-0")).signal("go", 1, id="once")

    asyncio.run(fill())
    queues = "select queue, open_runs, owned_runs, held_runs, ripe_runs, waiting_runs from v_queues"
    assert shown(url, queues) == [("slow", "5", "0", "1", "3", "1")]
    message = (
        "select id, message_id, kind, taken_by, v_messages.at > created_at from v_messages join v_runs using (run_id)"
    )
    ((id, message_id, kind, taken_by, is_later),) = shown(url, message.replace(">", ">="))
    assert (id, message_id, kind, taken_by, is_later in {"1", "True"}) == (
        "q-0",
        "signal:once",
        "SignalSent",
        "None",
        True,
    )
    written(url, f"update runs set delayed_until = {AT}, close_at = {AT}, begun_at = {AT} where workflow_id = 'later'")
    times = "select delayed_until, deadline_at, begun_at from v_runs where id = 'later'"
    assert shown(url, times) == [(at, at, at)]


def test_a_worker_is_shown_while_it_lives(url: str) -> None:
    async def look() -> list[tuple[str, ...]]:
        async with Perdure(url, queues=["slow"]):
            workers = "select namespace, queues, lease_until > started_at from v_workers"
            return await asyncio.to_thread(shown, url, workers)

    ((namespace, queues, lasts),) = asyncio.run(look())
    assert (namespace, queues, lasts in {"1", "True"}) == ("main", '["slow"]', True)


def test_as_many_rows_as_wanted_are_all_there_are(url: str) -> None:
    """Who is told that there are more looks for them."""
    assert not statement.rows_of(url, "select 1 union all select 2", 2).has_more
    assert statement.rows_of(url, "select 1 union all select 2", 1).has_more


def test_the_shape_of_a_file_can_be_looked_at(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "some.db")) as db:
        db.execute("create table runs (a int)")
        db.commit()
    found = statement.rows_of(f"sqlite:///{tmp_path}/some.db", "pragma table_info(runs)", 10)
    assert found.rows[0][1] == "a"


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


@pytest.mark.parametrize(
    "sql",
    [
        "select pg_cancel_backend(pid) from pg_stat_activity where false",
        "select 1 where PG_Terminate_Backend(0)",
        "select pg_notify('perdure', '')",
        "select pg_try_advisory_lock(1)",
        "select pg_stat_reset()",
    ],
)
def test_what_acts_on_the_server_without_writing_is_refused(empty_url: str, sql: str) -> None:
    """To end the sessions of all workers is not to read, though no table is written by it."""
    with pytest.raises(BadOption, match="does more than read"):
        statement.rows_of(empty_url, sql, 10)


@pytest.mark.parametrize(
    "value", ["'200000-01-01'::timestamp", "'24:00'::time", "'infinity'::interval", "most_common_vals"]
)
def test_a_value_without_its_like_here_is_to_be_asked_for_as_text(empty_url: str, value: str) -> None:
    """It is no lost connection, and to try again would not help."""
    with pytest.raises(BadOption, match="::text"):
        statement.rows_of(empty_url, f"select {value} from (select * from pg_stats limit 1) as s", 10)
    assert statement.rows_of(empty_url, f"select ({value})::text from (select * from pg_stats limit 1) as s", 10).rows


def test_a_statement_that_is_no_text_is_refused(url: str) -> None:
    with pytest.raises(BadOption, match="no text"):
        statement.rows_of(url, "select '\udcff'", 10)


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
    more = shell("sql", "select 1 as n union all select 2", "--limit", "1")
    assert (more.out, "more than 1 rows; --limit shows more" in more.err) == ('[\n  {\n    "n": 1\n  }\n]\n', True), (
        more
    )
    assert shell("sql", "select null as empty, x'00ff' as some_bytes").json[0]["empty"] is None
    seen = shell.at_terminal("sql", "select null as empty, 'a' || char(27) || 'b' as text")[1]
    assert seen.split() == ["empty", "text", "a?b"]
    done = shell("sql", "delete from runs")
    assert (done.code, done.out) == (64, "")
    assert "one statement that reads is taken" in done.err
