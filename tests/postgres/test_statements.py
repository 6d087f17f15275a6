"""Every statement is one that Postgres takes, also the oldest one there is at hand."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import msgspec
import pytest

from perdure import Perdure, workflow
from perdure.errors import BadOption
from perdure.stores.dialects import prepared, prepared_together, quoted
from perdure.stores.operations import Batch
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.executor import answer
from perdure.stores.postgres.migration import migrated
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.queries import queries
from perdure.stores.records import LoadedRun
from perdure.stores.rows import body_of
from perdure.stores.rules.claims import LOOKS_FOR_A_CLAIM
from perdure.stores.rules.questions import Found, Several, Steps
from perdure.stores.rules.reads import PARTS_OF_RUNS
from perdure.stores.rules.runs import LONGEST_IN_ROW
from tests.postgres.test_conformance import told
from tests.test_store_contract import WORKER, a_run, an_event
from tools import servers

# Refuses to be part of anything larger.
TOO_MUCH_AT_ONCE = """
create function {schema}.large() returns text language plpgsql as $$
begin
    if current_query() like '%json_agg%' then
        raise program_limit_exceeded;
    end if;
    return 'all of it';
end $$
"""
OLDEST_AT_HAND = next((each for n in (14, 15) if (each := Path(f"/usr/lib/postgresql/{n}/bin")).is_dir()), None)


@pytest.fixture(scope="module")
def oldest() -> Iterator[str]:
    if OLDEST_AT_HAND is None:
        pytest.skip("no Postgres 14 or 15 is installed")
    server = servers.Server(servers.folder(in_memory=True), OLDEST_AT_HAND).make().start()
    try:
        yield server.url
    finally:
        server.end()


async def test_every_statement_can_be_prepared_by_an_old_server(oldest: str) -> None:
    """A subquery without a name, for one, is taken since Postgres 16 only: `perdure list` failed on all before."""
    await migrated(oldest)
    db = await asyncpg.connect(address_of(oldest).dsn)
    refused = {}
    # What Postgres cannot hold nobody has to hold.
    for name in queries("postgres").keys() - {"hold_unclaimable"}:
        try:
            await db.prepare(prepared(name, "perdure").sql)
        except asyncpg.PostgresError as error:
            refused[name] = str(error)
    for names in (PARTS_OF_RUNS, LOOKS_FOR_A_CLAIM):
        await db.prepare(prepared_together(names, "perdure").sql)
    await db.close()
    assert refused == {}


async def test_several_questions_that_are_too_much_at_once_are_asked_one_by_one(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What several find is one value each, which has an end at a gigabyte; who has such a history must go on."""
    await migrated(postgres_url)
    address = address_of(postgres_url)
    db = await asyncpg.connect(address.dsn)
    await db.execute(TOO_MUCH_AT_ONCE.format(schema=quoted(address.schema)))
    large = f"select {quoted(address.schema)}.large() as body"
    monkeypatch.setitem(queries("postgres"), "large", large)
    monkeypatch.setitem(queries("postgres"), "small", "select number from generate_series(1, :limit::bigint) as number")

    def asking() -> Steps[object]:
        return (yield Several(("large", "small"), {"limit": 3}))

    found = await answer(db, address.schema, asking())
    await db.close()
    assert isinstance(found, Found)
    assert [[tuple(row) for row in rows] for rows in found.rows] == [[("all of it",)], [(1,), (2,), (3,)]]


@workflow
async def adds_one(number: int) -> int:
    return number + 1


@workflow
async def has_one_added(number: int) -> int:
    return await adds_one(number)


@pytest.mark.parametrize("schema", ["returning_x", " :limit", 'From "runs"', "a%b", "Ü"])
async def test_a_schema_may_be_called_what_stands_for_something_else_in_a_query(postgres: str, schema: str) -> None:
    """One that was called after a word of SQL had its runs held: what was changed could not be counted."""
    db = await asyncpg.connect(postgres)
    try:
        async with Perdure(f"{postgres}?schema={quote(schema)}") as app:
            assert await app.run(has_one_added, 1) == 2
    finally:
        await db.execute(f"drop schema if exists {quoted(schema)} cascade")
        await db.close()


@pytest.mark.parametrize("schema", ["", "a$$b", "{function}", "x" * 64])
def test_a_schema_that_cannot_be_named_is_refused(schema: str) -> None:
    with pytest.raises(BadOption, match="is no name for one"):
        address_of(f"postgresql:///shop?schema={quote(schema)}")


async def test_what_is_too_large_for_its_row_is_not_read_as_json(postgres_url: str) -> None:
    """A hundred and sixty histories of four megabytes took 26 seconds so, not 2, and what takes 30 is never loaded."""
    large = msgspec.json.encode("\\\u2028\n" * LONGEST_IN_ROW).decode()
    body = f'{{"name":"a","arguments":[],"result":{large},"started_at":1}}'
    store = PostgresStore(postgres_url)
    await store.open()
    try:
        await told(store, Batch([[a_run("r")]], None, 0))
        await told(store, Batch([[an_event("r", 2), an_event("r", 3)._replace(body=body)]], None, 0))
        (loaded,) = await store.reads.load_runs(["r"], WORKER)
    finally:
        await store.close()

    assert "payloads" not in prepared_together(PARTS_OF_RUNS, "perdure").sql
    assert isinstance(loaded, LoadedRun)
    assert [body_of(event.fact) == body for event in loaded.events] == [False, True]


async def test_engine_time_lies_around_that_of_the_server_whatever_an_answer_took(empty_url: str) -> None:
    """Never ahead, or what another worker waits for would come early here; at the latest, never behind."""
    store = PostgresStore(empty_url)
    await store.open()
    clock = store.clock()
    db = await asyncpg.connect(store.address.dsn)
    try:
        for _ in range(20):
            before = clock.now()
            server_us = await db.fetchval("select (extract(epoch from clock_timestamp()) * 1000000)::bigint")
            assert before <= server_us // 1000 <= clock.latest()
            await store.time.ask_again(store.readers.links)
    finally:
        await db.close()
        await store.close()
