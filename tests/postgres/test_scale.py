"""What every process asks once a second costs the same however many runs there are, whatever the planner knows."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import asyncpg
import pytest

from perdure.ids import RandomIds
from perdure.stores.dialects import Prepared, literal, prepare, prepared
from perdure.stores.listing import POSTGRES, listing
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.connections import BY_KEYS, Connection
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.records import RunFilter
from tests.test_scale import (
    ASKED_OF_OUTBOX,
    FAR_AWAY,
    FEW_BEFORE,
    LISTS,
    LOOKS,
    MANY_IN_COMMON,
    NOW,
    OUTBOX_LOOKS,
    SINKS,
    STATUSES,
    WAITING,
    check_lists,
    led,
)
from tools import servers

MANY = 20_000
# Of a table or an index: some questions go down several of them, a walk over all runs would need a thousand.
MOST_PAGES = 60
# Half of the runs have ended; the others wait, all for the same time, one after the other.
MANY_RUNS = """
insert into {schema}.runs (run_id, namespace, workflow_id, workflow, queue, status, wake_at, priority, input, seed,
                           created_at, updated_at, closed_at, outcome)
select 'run-' || md5(n::text), 'main', n::text, 'sleeper', 'default',
       case when n % 2 = 0 then 'SUSPENDED' else 'COMPLETED' end,
       case when n % 2 = 0 then {wake_at} + n end, {priority}, '{{}}', 7, 1, 1,
       case when n % 2 = 1 then 1 end, case when n % 2 = 1 then '1' end
  from generate_series({first}, {last}) as n
"""
# Each has two events, a failed attempt, and a signal that nobody has asked for yet.
WHAT_BELONGS_TO_THEM = """
insert into {schema}.events (namespace, run_id, seq, kind, place, at, body)
select 'main', run_id, seq, 'ActivityCompleted', 'a#1', 1, '1'
  from {schema}.runs, generate_series(2, 3) as seq;
insert into {schema}.attempts (namespace, run_id, place, attempt, name, failure, at)
select 'main', run_id, 'a#1', 1, 'a', '{{}}', 1
  from {schema}.runs;
insert into {schema}.inbox (namespace, run_id, message_id, kind, body, at)
select 'main', run_id, 'm', 'Signal', '{{}}', 1
  from {schema}.runs
"""
ASKED: dict[str, object] = {
    "namespace": "main",
    "queue": "default",
    "queues": ["default"],
    "priority": 0,
    "priorities": [0, 7],
    "above": [-1],
    "below": [1],
    "most_levels": 16,
    "window": 100,
    "workflow_id": "w",
    "worker_id": "w",
    "run_ids": ["a", "b"],
    "few_ids": ["a", "b"],
    "run_id": "a",
    "most": 500,
    "now": NOW,
    "since": 0,
    "limit": 25,
    "last": 10,
    "epoch": 1,
    "losses": 2,
}
ASKED_OF_POSTGRES = {"levels_between", "suspects_like_it", "claim_runs", "claim_ripest", "next_wakes_of_all"}
ASKED_FOR_A_CLAIM = {
    *("ripe_levels", "levels_between", "ripest", "ripest_of", "ripest_below", "first_suspect", "next_wakes"),
    "next_wakes_of_all",
}
# When a worker opens; the planner knows of the runs as soon as the server has looked at them, within a minute.
ASKED_ONCE = {"held_counts", "free_mismatches"}


@pytest.fixture(scope="module")
def older() -> Iterator[str]:
    """A server that plans as those before the newest do."""
    server = servers.Server(servers.folder(in_memory=True), servers.binaries_of(16)).make().start()
    try:
        yield server.url
    finally:
        server.end()


@pytest.fixture(params=["newest", "older"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "newest":
        return str(request.getfixturevalue("empty_url"))
    return f"{request.getfixturevalue('older')}?schema=scale_{RandomIds().token()}"


@asynccontextmanager
async def filled(url: str, wake_at: int, known: str, priority: str = "0") -> AsyncIterator[Connection]:
    """Many runs, and what the planner knows of them: nothing, of the first few, or of all."""
    store = PostgresStore(url)
    await store.open()
    await store.close()
    address = address_of(url)
    runs = partial(_runs, address.schema, wake_at, priority)
    db = await asyncpg.connect(address.dsn, server_settings=BY_KEYS | {"search_path": address.schema})
    try:
        for table in ("runs", "events", "attempts", "inbox"):
            await db.execute(f"alter table {table} set (autovacuum_enabled = false)")
        if known == "a few":
            await db.execute(runs(1, 10))
            await db.execute("analyze runs")
        await db.execute(runs(11, MANY))
        await db.execute(WHAT_BELONGS_TO_THEM.format(schema=address.schema))
        if known == "all":
            await db.execute("analyze runs, events, attempts, inbox")
        yield db
    finally:
        await db.close()


def _runs(schema: str, wake_at: int, priority: str, first: int, last: int) -> str:
    return MANY_RUNS.format(schema=schema, wake_at=wake_at, priority=priority, first=first, last=last)


async def pages_of(db: Connection, asked: Prepared, parameters: dict[str, object]) -> int:
    """How many pages are looked at for an answer."""
    values = ", ".join(_literal(parameters[name]) for name in asked.names)
    await db.execute(f"prepare question as {asked.sql}")
    await db.execute("begin")
    execute = f"execute question({values})" if values else "execute question"
    (found,) = json.loads(await db.fetchval(f"explain (analyze, buffers, format json) {execute}"))
    await db.execute("rollback; deallocate question")
    pages: int = found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"]
    return pages


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"array[{', '.join(map(_literal, value))}]"
    return literal(value) if isinstance(value, str) else str(value)


async def too_dear(
    url: str, wake_at: int, known: str, workflow: str, names: set[str], priority: str = "0"
) -> dict[tuple[str, str], int]:
    """Which of these questions look at more than a few pages, however they are planned; and at how many."""
    pages = {}
    async with filled(url, wake_at, known, priority) as db:
        # What came since the last look.
        after = await db.fetchval("select pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        asked = ASKED | {"workflows": [workflow, "a third"], "workflow": workflow, "after": after}
        for mode in ("force_custom_plan", "force_generic_plan"):
            await db.execute(f"set plan_cache_mode = {mode}")
            for name in names:
                pages[name, mode] = await pages_of(db, prepared(name, address_of(url).schema), asked)
    return {which: count for which, count in pages.items() if count > MOST_PAGES}


@pytest.mark.parametrize("known", ["nothing", "a few", "all"])
@pytest.mark.parametrize("workflow", ["sleeper", "another"])
async def test_a_look_costs_the_same_however_many_runs_are_parked(url: str, workflow: str, known: str) -> None:
    """One that walks over a million of them takes half a minute, and nothing is claimed meanwhile."""
    names = {*LOOKS, *ASKED_OF_POSTGRES} - (ASKED_ONCE if known == "nothing" else set())

    assert not await too_dear(url, NOW + FAR_AWAY, known, workflow, names)


@pytest.mark.parametrize("known", ["nothing", "a few", "all"])
async def test_a_look_costs_the_same_however_many_runs_of_others_are_due(url: str, known: str) -> None:
    """A backlog that nobody works off must not slow down those on the same queue who have other work."""
    assert not await too_dear(url, NOW - FAR_AWAY, known, "another", ASKED_FOR_A_CLAIM)


@pytest.mark.parametrize("known", ["nothing", "a few", "all"])
@pytest.mark.parametrize("workflow", ["sleeper", "another"])
@pytest.mark.parametrize("wake_at", [NOW + FAR_AWAY, NOW - FAR_AWAY], ids=["asleep", "due"])
async def test_a_look_costs_the_same_however_many_priorities_there_are(
    url: str, known: str, workflow: str, wake_at: int
) -> None:
    """A priority made of a deadline is another one for each run; from one to the next each claim took long."""
    # Where there are more priorities than a few, times are looked at without them.
    names = ASKED_FOR_A_CLAIM - {"next_wakes"}

    pages = await too_dear(url, wake_at, known, workflow, names, "n - 10000")
    # Of so many priorities two ways down an index; or so many runs, on as many pages.
    assert all(count <= 2 * MOST_PAGES for count in pages.values()), pages


@pytest.mark.parametrize("known", ["nothing", "all"])
async def test_a_sink_costs_the_same_however_much_waits_for_another(url: str, known: str) -> None:
    """One that is paused or down must slow down neither the other sinks nor those who write."""
    pages = {}
    async with filled(url, NOW, known) as db:
        await db.execute("alter table outbox set (autovacuum_enabled = false)")
        await db.execute(SINKS)
        numbers = f"generate_series(1, {MANY}) as n"
        await db.execute(WAITING.format(overriding="overriding system value", numbers=numbers))
        await db.execute("analyze outbox" if known == "all" else "select 1")
        # As the function has it that writes batches.
        await db.execute("set enable_seqscan = off")
        for mode in ("force_custom_plan", "force_generic_plan"):
            await db.execute(f"set plan_cache_mode = {mode}")
            for name in OUTBOX_LOOKS:
                pages[name, mode] = await pages_of(db, prepared(name, address_of(url).schema), ASKED_OF_OUTBOX)
    assert {which: count for which, count in pages.items() if count > MOST_PAGES} == {}


@pytest.mark.parametrize("known", ["nothing", "a few", "all"])
async def test_telling_sinks_of_a_run_does_not_walk_through_all_others(url: str, known: str) -> None:
    """Each transaction that writes does it as soon as there is a sink: runs became slower with each one before them."""
    pages = {}
    async with filled(url, NOW, known) as db:
        await db.execute(SINKS)
        run_id = await db.fetchval("select run_id from runs limit 1")
        told: dict[str, object] = {"rows": json.dumps([[run_id, 1, "run.started", 1, 1, None, None]])}
        await db.execute("set enable_seqscan = off")
        for mode in ("force_custom_plan", "force_generic_plan"):
            await db.execute(f"set plan_cache_mode = {mode}")
            # The first time the catalog is read as well.
            for _ in range(2):
                pages[mode] = await pages_of(db, prepared("queue_events", address_of(url).schema), told)
    assert max(pages.values()) <= MOST_PAGES, pages


async def with_many_in_common(url: str, many: int) -> Connection:
    """So many runs that have all in common, and a few before them; a connection there."""
    store = PostgresStore(url)
    await store.open()
    await store.close()
    address = address_of(url)
    db = await asyncpg.connect(address.dsn, server_settings=BY_KEYS | {"search_path": address.schema})
    await db.execute("alter table runs set (autovacuum_enabled = false); truncate runs")
    numbers = f"generate_series(1, {many}) as n"
    await db.execute(MANY_IN_COMMON.format(numbers=numbers, wake_at=NOW + FAR_AWAY, is_latest="n % 2 = 0"))
    pairs = f"unnest(array{STATUSES}) as status, generate_series(1, 3) as n"
    await db.execute(FEW_BEFORE.format(statuses=pairs, is_latest="n <> 1"))
    return db


@pytest.mark.parametrize("known", ["nothing", "all"])
async def test_a_list_by_any_filter_costs_the_same_however_many_runs_there_are(url: str, known: str) -> None:
    """Whoever is told that three of a million have failed looks at those three, and whoever is paged has no time."""
    pages: dict[tuple[RunFilter, str], list[int]] = {}
    # That few runs are held the planner learns as soon as the server has looked at them, within a minute.
    lists = [wanted for wanted in LISTS if known == "all" or not wanted.held]
    for many in (1000, MANY):
        db = await with_many_in_common(url, many)
        store = PostgresStore(url)
        try:
            await db.execute("analyze runs" if known == "all" else "select 1")
            for mode in ("force_custom_plan", "force_generic_plan"):
                await db.execute(f"set plan_cache_mode = {mode}")
                for wanted in lists:
                    sql, parameters = listing(wanted, POSTGRES, await led(store, wanted))
                    found = await pages_of(db, prepare(sql, address_of(url).schema), parameters)
                    pages.setdefault((wanted, mode), []).append(found)
        finally:
            await store.close()
            await db.close()

    assert {which: found for which, found in pages.items() if found[1] > 3 * found[0]} == {}


async def test_a_list_by_any_filter_finds_what_a_walk_over_all_runs_finds(empty_url: str) -> None:
    db = await with_many_in_common(empty_url, 500)
    await db.close()
    store = PostgresStore(empty_url)
    await store.open()
    try:
        await check_lists(store)
    finally:
        await store.close()
