"""`perdure doctor` on Postgres: what is wrong is told with who is to blame, and what to do."""

import asyncio
import re
from typing import Any
from uuid import uuid4

import asyncpg
import msgspec
import pytest

from perdure.diagnostics.findings import Finding, State
from perdure.diagnostics.postgres import findings_of
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.checks.health import Hot, Open, health_of
from perdure.stores.postgres.migration import migrated
from perdure.stores.queries import VERSION, migrations, tables
from tests.cli.shell import Shell

SCHEMA = len(migrations("postgres"))


def checks(shell: Shell, url: str) -> dict[str, dict[str, Any]]:
    done = shell("doctor", PERDURE_URL=url)
    assert done.err == ""
    return {check["check"]: check for check in Answered(done.out).checks}


class Answered:
    def __init__(self, out: str) -> None:
        self.checks: list[dict[str, Any]] = msgspec.json.decode(out)["checks"]


async def execute(url: str, *statements: str) -> None:
    address = address_of(url)
    db = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    for statement in statements:
        await db.execute(statement)
    await db.close()


def test_a_healthy_database_is_well_and_its_worker_is_seen(shell: Shell, postgres_url: str) -> None:
    with shell.at_work(PERDURE_URL=postgres_url):
        code, seen = shell.at_terminal("doctor", PERDURE_URL=postgres_url, COLUMNS="200")
    assert code == 0, seen
    assert "warning" not in seen
    for line in (
        r"server +PostgreSQL \d+",
        r"settings +every commit is synced \(synchronous_commit = on\)",
        rf"schema +{SCHEMA}",
        r"connections +\d+ of \d+ in use",
        r"notify +what one connection says is heard by another",
        r"workers +1 worker alive \(process \d+ on .*, 0 runs\)",
        r"server clock +\d+ ms between",
        r"dead rows +events 0",
        r"audit +everything fits together",
    ):
        assert re.search(rf"^ok +{line}", seen, re.MULTILINE), (line, seen)


def test_a_killed_worker_is_told(shell: Shell, postgres_url: str) -> None:
    with shell.at_work(PERDURE_URL=postgres_url) as worker:
        worker.send(9)
        worker.wait()
    found = checks(shell, postgres_url)
    assert found["workers"]["found"] == "none is alive"
    assert "the server does not hold its lock" in found["worker"]["found"]


def test_a_database_without_tables_stays_without(shell: Shell, postgres_url: str) -> None:
    for _ in range(2):
        assert checks(shell, postgres_url)["schema"]["found"] == "no tables of Perdure"


@pytest.mark.parametrize(
    ("statement", "state", "told"),
    [
        ("drop index runs_ripe", "trouble", f"{SCHEMA}, but the index runs_ripe is missing"),
        ("alter table runs drop column step cascade", "trouble", f"{SCHEMA}, but the column runs.step is missing"),
        ("drop table attempts cascade", "trouble", f"{SCHEMA}, but the table attempts is missing"),
    ],
)
def test_tables_that_are_not_ours_any_more_are_told(
    shell: Shell, postgres_url: str, statement: str, state: str, told: str
) -> None:
    asyncio.run(migrated(postgres_url))
    asyncio.run(execute(postgres_url, statement))
    found = checks(shell, postgres_url)["schema"]
    assert found["state"] == state
    assert found["found"].startswith(told)


def test_settings_under_which_commits_are_lost_are_trouble(shell: Shell, postgres_url: str) -> None:
    asyncio.run(migrated(postgres_url))
    found = checks(shell, f"{postgres_url}&synchronous_commit=off")["settings"]
    assert (found["state"], found["found"]) == (
        "trouble",
        "synchronous_commit = off: what was answered with success may be lost",
    )


def test_notices_that_are_off_are_no_trouble(shell: Shell, postgres_url: str) -> None:
    asyncio.run(migrated(postgres_url))
    assert checks(shell, f"{postgres_url}&notify=off")["notify"]["state"] == "ok"


async def test_who_has_a_transaction_open_is_named(postgres_url: str) -> None:
    """Nobody finds the one session among hundreds that keeps all dead rows alive."""
    await migrated(postgres_url)
    address = address_of(postgres_url)
    lunch = await asyncpg.connect(address.dsn, server_settings={"application_name": "lunch"})
    async with lunch.transaction():
        await lunch.execute("select 1")
        health = await health_of(postgres_url, long_seconds=0.0)
    await lunch.close()
    assert any(re.match(r"process \d+ \(lunch\) of postgres", each.holder) for each in health.open_long)
    assert {each.state for each in health.open_long if "lunch" in each.holder} == {"idle in transaction"}


async def test_dead_rows_are_counted(postgres_url: str) -> None:
    await migrated(postgres_url)
    await execute(
        postgres_url,
        "alter table workers set (autovacuum_enabled = off)",
        """insert into workers (worker_id, namespace, epoch, lease_until, queues, host, pid, started_at, remote)
           select n::text, 'x', 1, 1, '[]', 'h', 1, 1, 0 from generate_series(1, 100) as n""",
        "update workers set epoch = 2",
        "update workers set epoch = 3",
        "select pg_stat_force_next_flush()",
    )
    health = await health_of(postgres_url)
    (workers,) = [each for each in health.hot if each.table == "workers"]
    assert workers.dead >= 100


@pytest.mark.parametrize(
    ("fields", "check", "state", "told"),
    [
        ({"is_standby": True}, "server", State.TROUBLE, "a standby that only reads"),
        ({"major": 13}, "server", State.TROUBLE, "is too old"),
        ({"connections": 290, "most_connections": 297}, "connections", State.WARNING, "290 of 297 in use"),
        ({"hears": False}, "notify", State.WARNING, "is not heard by another"),
        ({"behind_ms": -90_000}, "server clock", State.WARNING, "is 90.0 s ahead of the server's"),
        (
            {"open_long": (Open("process 7 (lunch)", 4000, "idle in transaction"),)},
            "transactions",
            State.WARNING,
            "(lunch)",
        ),
        ({"hot": (Hot("runs", 10, 20_000, None),)}, "dead rows", State.WARNING, "runs has 20000 beside 10 live ones"),
    ],
)
async def test_what_was_seen_is_judged(
    postgres_url: str, fields: dict[str, Any], check: str, state: State, told: str
) -> None:
    """Some of it cannot be had on one server in a moment."""
    await migrated(postgres_url)
    health = msgspec.structs.replace(await health_of(postgres_url), **fields)
    found: list[Finding] = [each for each in findings_of(postgres_url, health) if each.check == check]
    assert [each.state for each in found] == [state]
    assert told in found[0].found
    assert found[0].remedy


def test_runs_that_could_go_on_with_no_worker_alive_are_trouble(shell: Shell, postgres_url: str) -> None:
    """A monitor asks for the exit code; all workers of a service dead for minutes is what it is there for."""
    start = ("start", "shop:greet", '["ann"]', "--queue", "slow")
    assert shell(*start, PERDURE_URL=postgres_url).code == 0
    asyncio.run(execute(postgres_url, "update runs set wake_at = wake_at - 30000"))
    assert checks(shell, postgres_url)["runs"]["state"] == "warning"
    made = shell("schedule", "create", "often", "shop:greet", '["ann"]', "--every", "1h", PERDURE_URL=postgres_url)
    assert "no worker is alive in the namespace main" in made.err
    schedules = checks(shell, postgres_url)["schedules"]
    assert (schedules["state"], "none has the duty `schedules`" in schedules["found"]) == ("warning", True)
    asyncio.run(execute(postgres_url, "update runs set wake_at = wake_at - 60000"))
    found = checks(shell, postgres_url)["runs"]
    assert found["state"] == "trouble"
    assert "no worker takes them (1 of greet on the queue slow)" in found["found"]
    assert "`perdure worker MODULE --queue slow`" in found["remedy"]
    assert shell("doctor", PERDURE_URL=postgres_url).code == 1
    asyncio.run(execute(postgres_url, "update runs set queue = 'strange'"))
    with shell.at_work(PERDURE_URL=postgres_url):
        assert checks(shell, postgres_url)["runs"]["state"] == "warning"


async def test_a_role_that_may_only_read_is_told_what_it_lacks(shell: Shell, postgres_url: str) -> None:
    """Everything looks well to who may look at everything; the first start would be refused."""
    await migrated(postgres_url)
    schema, role = address_of(postgres_url).schema, f"reader_{uuid4().hex}"
    await execute(
        postgres_url,
        f"create role {role} login",
        f"grant usage on schema {schema} to {role}",
        f"grant select on all tables in schema {schema} to {role}",
        f"grant insert on all tables in schema {schema} to {role}",
        f"revoke execute on all functions in schema {schema} from public",
    )
    mine = re.sub(r"//[^@]*@", f"//{role}@", postgres_url)
    found = (await asyncio.to_thread(checks, shell, mine))["rights"]
    await execute(postgres_url, f"drop owned by {role}", f"drop role {role}")
    assert found["state"] == "warning"
    assert f"update on {', '.join(sorted({*tables('postgres')} - {VERSION}))}; " in found["found"]
    assert "execute on write_batch_" in found["found"]
    assert "insert" not in found["found"]
    assert "`perdure migrate --print-roles`" in found["remedy"]
    assert (await asyncio.to_thread(checks, shell, postgres_url))["rights"]["state"] == "ok"


def told(shell: Shell, url: str) -> tuple[str, str]:
    done = shell("doctor", PERDURE_URL=url)
    assert done.code == 1
    (found,) = [each for each in msgspec.json.decode(done.out)["checks"] if each["check"] == "database"]
    assert found["state"] == "trouble"
    return found["found"], found["remedy"]


def test_what_helps_depends_on_why_there_is_nothing_to_look_at(shell: Shell, postgres_url: str) -> None:
    """To let the server be reached helps nobody whom it has answered."""
    asyncio.run(migrated(postgres_url))
    found, remedy = told(shell, re.sub(r"/[^/?]*\?", "/no_such_database?", postgres_url))
    assert found.endswith('database "no_such_database" does not exist')
    assert remedy == "create it (createdb), or name another one in the URL"
    found, remedy = told(shell, re.sub(r"//[^@]*@", "//no_such_role@", postgres_url))
    assert remedy == "name a role that may log in, or see to pg_hba.conf"
    role = f"stranger_{uuid4().hex}"
    asyncio.run(execute(postgres_url, f"create role {role} login connection limit 2"))
    stranger = re.sub(r"//[^@]*@", f"//{role}@", postgres_url)
    found, remedy = told(shell, stranger)
    assert "permission denied" in found
    assert remedy == "`perdure migrate --print-roles` shows what a role must be granted"
    asyncio.run(execute(postgres_url, f"alter role {role} connection limit 0"))
    found, remedy = told(shell, stranger)
    asyncio.run(execute(postgres_url, f"drop role {role}"))
    assert found.endswith(f'too many connections for role "{role}"')
    assert remedy == "give the server or the role more connections, or use fewer processes"
    _, remedy = told(shell, "postgresql://nobody@127.0.0.1:1/shop")
    assert remedy == "let the server be reached, or name another one with --url"
    asyncio.run(execute(postgres_url, "update perdure_schema set version = 99"))
    found, remedy = told(shell, postgres_url)
    assert "has schema 99, this Perdure knows up to " in found
    assert remedy.startswith("upgrade perdure")
