"""Filters in SQL: what a database finds is what the evaluator says, whatever is asked of whatever runs."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from perdure.kernel.failure import Failure
from perdure.kernel.filters import EVERYTHING, Filter, RunFields, matches, parse, to_text
from perdure.kernel.status import OPEN, Status
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.queries import VERSION, tables
from perdure.stores.records import FoundRuns, RunQuery, RunRow
from perdure.stores.rules.filters import attribute_rows, run_fields
from perdure.stores.sqlite.store import SqliteStore
from tests.test_filters import filters, runs

# Each draws some runs, and ten filters.
EXAMPLES = int(os.environ.get("PERDURE_FILTER_EXAMPLES", "25"))
COLUMNS = (
    *("run_id", "namespace", "workflow_id", "workflow", "queue", "status", "held", "priority", "parent_id"),
    *("entity_id", "correlation_id", "attributes", "step", "input", "outcome", "seed", "last_seq", "created_at"),
    *("updated_at", "closed_at"),
)
PAYLOADS = ("run_id", "seq", "namespace", "body")
ATTRIBUTES = ("run_id", "namespace", "name", "n", "kind", "text", "number", "whole")
TABLES = [table for table in tables("sqlite") if table != VERSION]


def outcome_of(run: RunFields) -> str | None:
    if run.status in OPEN:
        return None
    if run.status == Status.FAILED:
        return msgspec.json.encode(Failure(run.error or "builtins.ValueError", run.step or "")).decode()
    return msgspec.json.encode({"reason": run.error, "run_id": "next"}).decode()


class Rows:
    """Drawn runs as they stand in tables."""

    def __init__(self, drawn: Sequence[RunFields]) -> None:
        self.runs: list[tuple[object, ...]] = []
        self.payloads: list[tuple[object, ...]] = []
        self.attributes: list[tuple[object, ...]] = []
        for n, run in enumerate(drawn):
            # Most have ids of their time; a few were made at another one.
            run_id = f"{max(run.created_at, 0):011x}{n}" if n % 3 else f"{run.run_id}{n}"
            attributes = msgspec.json.encode(dict(run.attributes)).decode() if run.attributes else None
            outcome = outcome_of(run)
            if outcome is not None and n % 2:
                self.payloads.append((run_id, 9, "main", outcome))
                outcome = None
            closed_at = None if run.status in OPEN else run.closed_at or 1
            self.runs.append(
                (
                    *(run_id, "other" if n % 7 == 6 else "main", f"{run.id}{n}", run.workflow, run.queue, run.status),
                    *(run.held, run.priority, run.parent_id, run.entity_id, run.correlation_id, attributes, run.step),
                    *("{}", outcome, 7, 9, run.created_at, run.updated_at, closed_at),
                )
            )
            self.attributes += attribute_rows(run_id, "main", attributes)

    def statements(self, mark: str) -> list[tuple[str, list[tuple[object, ...]]]]:
        given = [("runs", COLUMNS, self.runs), ("payloads", PAYLOADS, self.payloads)]
        return [
            (f"insert into {table} ({', '.join(columns)}) values ({', '.join(marks(mark, len(columns)))})", rows)
            for table, columns, rows in [*given, ("attributes", ATTRIBUTES, self.attributes)]
        ]


def marks(mark: str, count: int) -> Iterator[str]:
    return (mark if mark == "?" else f"{mark}{n}" for n in range(1, count + 1))


class Both:
    """The two databases with the same runs, and a loop that outlives them."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self.sqlite = SqliteStore(None, threads=False)
        self.postgres = PostgresStore(url)
        self._runner.run(self._open())

    async def _open(self) -> None:
        await self.sqlite.open()
        await self.postgres.open()
        schema = self.postgres.address.schema
        self._db = await asyncpg.connect(self.postgres.address.dsn, server_settings={"search_path": schema})

    def compare(self, drawn: Sequence[RunFields], wanted: Sequence[Filter]) -> None:
        self._runner.run(self._compare(drawn, wanted))

    async def _compare(self, drawn: Sequence[RunFields], wanted: Sequence[Filter]) -> None:
        await self._fill(Rows(drawn))
        everything = await self.sqlite.reads.matching.page(RunQuery("main", EVERYTHING, limit=1000))
        rows = [row for row in everything.rows if isinstance(row, RunRow)]
        assert len(rows) == sum(n % 7 != 6 for n in range(len(drawn)))
        assert (await self.postgres.reads.matching.page(RunQuery("main", EVERYTHING, limit=1000))).rows == rows
        for each in wanted:
            matching = [row for row in rows if matches(each, run_fields(row))]
            for store in (self.sqlite, self.postgres):
                await check(store, each, matching)

    async def _fill(self, rows: Rows) -> None:
        await self._db.execute("; ".join(f"delete from {table}" for table in TABLES))
        for statement, filled in rows.statements("$"):
            await self._db.executemany(statement, filled)
        db = self.sqlite.transactions.db
        for table in TABLES:
            db.execute(f"delete from {table}")
        for statement, filled in rows.statements("?"):
            db.executemany(statement, filled)

    def fill(self, drawn: Sequence[RunFields]) -> None:
        self._runner.run(self._fill(Rows(drawn)))

    def spoil(self, id: str, outcome: str) -> None:
        self._runner.run(self._db.execute("update runs set outcome = $2 where workflow_id = $1", id, outcome))
        self.sqlite.transactions.db.execute("update runs set outcome = ?2 where workflow_id = ?1", (id, outcome))

    def found(self, store: SqliteStore | PostgresStore, where: str) -> list[str]:
        """The ids of the runs that match, those that cannot be read among them."""
        return self.found_by(store, parse(where, now=FIRST))

    def found_by(self, store: SqliteStore | PostgresStore, wanted: Filter) -> list[str]:
        page = self._runner.run(store.reads.matching.page(RunQuery("main", wanted, limit=1000)))
        assert all(matches(wanted, run_fields(row)) for row in page.rows if isinstance(row, RunRow)), to_text(wanted)
        return sorted(row.workflow_id if isinstance(row, RunRow) else row.id for row in page.rows)

    def close(self) -> None:
        self._runner.run(self._db.close())
        self._runner.run(self.sqlite.close())
        self._runner.run(self.postgres.close())
        self._runner.close()


async def check(store: SqliteStore | PostgresStore, wanted: Filter, matching: list[RunRow]) -> None:
    """Whether the pages of a filter, and the numbers, are those of the evaluator."""
    ids, told = [row.run_id for row in matching], to_text(wanted)
    reads = store.reads.matching
    assert [row.run_id for row in (await reads.page(RunQuery("main", wanted, limit=1000))).rows] == ids, told
    pages: list[str] = []
    while True:
        page = await reads.page(RunQuery("main", wanted, pages[-1] if pages else None, 2))
        pages += [row.run_id for row in page.rows]
        if len(page.rows) < 2:
            break
    assert pages == ids, told
    assert await reads.count(RunQuery("main", wanted)) == {None: len(ids)}, told
    assert await reads.count(RunQuery("main", wanted), "status") == Counter(row.status for row in matching), told
    assert await reads.count(RunQuery("main", wanted), "step") == Counter(row.step for row in matching), told


@pytest.fixture(scope="module")
def both(postgres: str) -> Iterator[Both]:
    found = Both(f"{postgres}?schema=filters_{os.getpid()}_{random.getrandbits(32)}")
    yield found
    found.close()


@settings(
    max_examples=EXAMPLES,
    derandomize="PERDURE_FILTER_EXAMPLES" not in os.environ,
    database=None,
    deadline=None,
    # What fails is told as a text; to look for a smaller one takes minutes.
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(st.lists(runs, min_size=5, max_size=12), st.lists(filters, min_size=10, max_size=10))
def test_databases_find_what_the_evaluator_says(both: Both, drawn: list[RunFields], wanted: list[Filter]) -> None:
    """Whoever watches a filter and whoever lists it must see the same runs, on any database."""
    both.compare(drawn, wanted)


def failed(id: str, error: str) -> RunFields:
    nothing = dict.fromkeys(("step", "held", "entity_id", "correlation_id", "parent_id"))
    times = dict.fromkeys(("created_at", "updated_at", "closed_at"), 1)
    named = {"id": id, "run_id": id, "workflow": "work", "queue": "default", "priority": 0, "attributes": {}}
    return msgspec.convert({**nothing, **times, **named, "status": "FAILED", "error": error}, RunFields)


def test_a_spoilt_outcome_breaks_no_filter_on_errors(both: Both) -> None:
    """One row that no database can read must not hide all the runs that somebody looks for."""
    both.fill([failed("a", "builtins.ValueError"), failed("b", "builtins.ValueError"), failed("c", "shop.Declined")])
    for spoilt in ('{"type": "builtins.Val', "", "[1]", "no JSON"):
        both.spoil("b1", spoilt)
        for store in (both.sqlite, both.postgres):
            assert both.found(store, "error like 'ValueError%'") == ["a0"], spoilt
            assert both.found(store, "error = 'shop.Declined' or error is null") == ["b1", "c2"], spoilt


LIKE = [("a\\b", r"a\b"), ("a%b", "a%b"), ("a*b", "a*b"), ("a?b", "a?b"), ("a[b", "a[_"), ("ä😀", "__")]


def test_only_two_characters_of_a_pattern_have_a_meaning(both: Both) -> None:
    """Others have one in the pattern language of one database or the other."""
    texts = [text for text, _ in LIKE]
    both.fill([failed(str(n), text) for n, text in enumerate(texts)])
    for text, pattern in LIKE:
        wanted = parse("error like :pattern", {"pattern": pattern}, now=FIRST)
        expected = sorted(f"{n}{n}" for n, each in enumerate(texts) if matches(wanted, failed("x", each)))
        assert f"{texts.index(text)}{texts.index(text)}" in expected
        for store in (both.sqlite, both.postgres):
            assert both.found_by(store, wanted) == expected, pattern


@pytest.mark.parametrize("skew", [-1000, -999, 999, 1000])
def test_a_run_whose_id_is_of_another_moment_is_found_by_its_time(both: Both, skew: int) -> None:
    """Ids lead to times of creation; a clock may have gone on in between, or back."""
    run = msgspec.structs.replace(failed("a", "E"), created_at=FIRST, run_id=f"{FIRST + skew:011x}")
    both.fill([run])
    for store in (both.sqlite, both.postgres):
        assert both.found(store, "created_at = '2023-11-14T22:13:20Z'") == ["a0"]


# What it costs

FIRST = 1_700_000_000_000
MANY_RUNS = """
insert into runs (run_id, namespace, workflow_id, workflow, queue, status, entity_id, attributes, input, seed,
                  created_at, updated_at, closed_at, outcome, last_seq)
select printf('%011x', {first} + n * 1000) || 'a', 'main', 'id-' || n, 'work', 'default',
       case when n % {rare} = 7 then 'FAILED' else 'COMPLETED' end, 'e-' || (n % {rare}), '{{}}', '{{}}', 7,
       {first} + n * 1000, {first} + n * 1000, {first} + n * 1000, '{{"type":"E","message":""}}', 2
  from numbers
"""
MANY_ATTRIBUTES = """
insert into attributes (run_id, namespace, name, n, kind, text, number, whole)
select printf('%011x', {first} + n * 1000) || 'a', 'main', name.value, 0,
       case name.value when 'tier' then 'number' else 'text' end,
       case name.value when 'tenant' then 't-' || (n % {rare}) when 'everywhere' then 'yes' end,
       case name.value when 'tier' then n % {rare} end, case name.value when 'tier' then n % {rare} end
  from numbers, json_each('["tenant", "tier", "everywhere"]') as name
"""
SERVED = [
    "tenant = 't-3'",
    "tier = 3",
    "tier > {most}",
    "entity_id = 'e-3'",
    "entity_id in ('e-3', 'nobody')",
    "status = 'failed'",
    "tenant = 't-3' and everywhere = 'yes' and status = 'completed'",
    "created_at >= '{from_}' and created_at < '{to}'",
    "created_at >= '{from_}' and created_at < '{to}' and status = 'completed'",
    # Broad ones: of these the first page is read.
    "true",
    "everywhere = 'yes'",
    "status = 'completed'",
    "priority < 5 and tenant != 't-3'",
]


def steps_for(store: SqliteStore, ask: Coroutine[Any, Any, FoundRuns]) -> tuple[int, FoundRuns]:
    """How much SQLite does to answer, in steps of its virtual machine."""
    steps, db = 0, store._reader.db

    def count() -> None:
        nonlocal steps
        steps += 1

    db.set_progress_handler(count, 1)
    try:
        found = asyncio.run(ask)
    finally:
        db.set_progress_handler(None, 1)
    return steps, found


def filled(many: int) -> SqliteStore:
    """A store with so many runs; of ten each has what filters look for."""
    store = SqliteStore(None, threads=False)
    asyncio.run(store.open())
    db = store.transactions.db
    counted = f"select 0 as n union all select n + 1 from numbers where n < {many} - 1"
    for insert in (MANY_RUNS, MANY_ATTRIBUTES):
        into, select = insert[: insert.index("select")], insert[insert.index("select") :]
        sql = f"with recursive numbers (n) as ({counted}) {into} {select}"
        db.execute(sql.format(first=FIRST, rare=many // 10))
    return store


def test_a_filter_that_an_index_serves_costs_the_same_however_many_runs_there_are() -> None:
    """Whoever looks for the ten runs of a customer waits for ten runs, not for a million."""
    steps: dict[str, list[int]] = {where: [] for where in SERVED}
    for many in (1000, 20_000):
        store = filled(many)
        for where in SERVED:
            moments = [datetime.fromtimestamp(FIRST / 1000 + second, UTC).isoformat() for second in (100, 110)]
            meant = parse(where.format(most=many // 10 - 2, from_=moments[0], to=moments[1]), now=FIRST)
            taken, found = steps_for(store, store.reads.matching.page(RunQuery("main", meant, limit=20)))
            steps[where].append(taken)
            assert len(found.rows) in {9, 10, 20}, where
        asyncio.run(store.close())
    assert {where: found for where, found in steps.items() if found[1] > 1.5 * found[0] + 200} == {}


def test_it_is_told_how_many_runs_were_read() -> None:
    store = filled(3000)
    meant = parse("closed_at = '2023-11-14T22:13:21Z'", now=FIRST)
    _, found = steps_for(store, store.reads.matching.page(RunQuery("main", meant)))
    assert (len(found.rows), found.read) == (1, 3000)
    asyncio.run(store.close())
