"""Hot tables: a snapshot that somebody holds open keeps every dead row, and claims must not walk over all of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from perdure import Perdure
from perdure.stores.answers import Applied, Committed
from perdure.stores.operations import Batch, ClaimRuns, Operation, RegisterWorker
from perdure.stores.postgres import scan_floor
from perdure.stores.postgres.address import address_of
from perdure.stores.postgres.checks import vacuum_blockers
from perdure.stores.postgres.connections import Connection
from perdure.stores.postgres.store import PostgresStore
from tests.postgres.test_conformance import told
from tests.processes.nodes import until
from tests.test_store_contract import a_ripe_run

WORKER = "w-1"
NOW = 1_800_000_000_000


@asynccontextmanager
async def hot_store(url: str) -> AsyncIterator[PostgresStore]:
    """A store with a worker."""
    store = PostgresStore(url)
    await store.open()
    await write(store, [[RegisterWorker(WORKER, "main", 99_000, ("default",), "host", 1, 1000)]], worker=None)
    yield store
    await store.close()


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[Connection]:
    """Somebody else's report, which sees the database as it is now for as long as it is open."""
    address = address_of(url)
    report = await asyncpg.connect(address.dsn, server_settings={"application_name": "report"})
    await report.execute("begin isolation level repeatable read; select 1")
    yield report
    await report.close()


async def write(
    store: PostgresStore, groups: Sequence[Sequence[Operation]], worker: str | None = WORKER
) -> dict[int, object]:
    outcome = await told(store, Batch(groups, worker, 1))
    assert isinstance(outcome, Committed), outcome
    return {**outcome.answers}


async def claim(store: PostgresStore, now: int, limit: int = 10) -> list[str]:
    answers = await write(store, [[ClaimRuns(WORKER, "main", ("default",), ("wf",), now, limit)]])
    found = answers[0]
    assert isinstance(found, Applied)
    assert isinstance(found.value, list)
    return found.value


async def start(store: PostgresStore, run_id: str, wake_at: int, **traits: object) -> None:
    await write(store, [[a_ripe_run(run_id)._replace(wake_at=wake_at, **traits)]], worker=None)  # type: ignore[arg-type]  # a test's shorthand


@pytest.fixture
def floors(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every look counts as slow, and the next begins where its first run was."""
    monkeypatch.setattr(scan_floor, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(scan_floor, "LEAST_SECONDS", 0.1)
    return monkeypatch


async def test_claims_from_a_floor_find_what_comes_after_it(postgres_url: str, floors: pytest.MonkeyPatch) -> None:
    """What a floor leaves out must be dead: runs that are new, left over, of another priority or to come are not."""
    async with hot_store(postgres_url) as store:
        for number in range(4):
            await start(store, f"r{number}", NOW + number)
        assert await claim(store, NOW + 10, 2) == ["r0", "r1"]
        assert await claim(store, NOW + 10, 1) == ["r2"]
        await start(store, "urgent", NOW + 5, priority=7)
        await start(store, "humble", NOW + 5, priority=-7)
        await start(store, "later", NOW + 5000)
        assert await claim(store, NOW + 10, 2) == ["urgent", "r3"]
        assert await claim(store, NOW + 10) == ["humble"]
        assert await claim(store, NOW + 10) == []
        assert await store.reads.next_wake("main", ["default"], ["wf"]) == NOW + 5000
        assert await claim(store, NOW + 5000) == ["later"]


async def test_a_run_that_appears_before_the_floor_is_found_by_the_next_look_from_the_start(
    postgres_url: str, floors: pytest.MonkeyPatch
) -> None:
    """A start inside a transaction of the caller's has its time from before, however late that commits."""
    async with hot_store(postgres_url) as store:
        await start(store, "first", NOW)
        assert await claim(store, NOW) == ["first"]
        await start(store, "a-bit-late", NOW - scan_floor.LATE_MS + 1)
        assert await claim(store, NOW) == ["a-bit-late"]
        await start(store, "far-too-late", NOW - 60_000)
        assert await claim(store, NOW) == []
        async with asyncio.timeout(120):
            while (found := await claim(store, NOW)) == []:
                # As the engine does all the time.
                store.changes.has_changed()
        assert found == ["far-too-late"]


async def test_quick_looks_begin_at_the_start(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nobody holds a snapshot nothing is left out for a moment."""
    monkeypatch.setattr(scan_floor, "SLOW_SECONDS", 60.0)
    async with hot_store(postgres_url) as store:
        await start(store, "first", NOW)
        assert await claim(store, NOW) == ["first"]
        await start(store, "far-too-late", NOW - 60_000)
        assert await claim(store, NOW) == ["far-too-late"]


async def test_a_worker_names_once_who_holds_a_snapshot(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody finds the one session among hundreds that makes everything slow, and the log says what ends it."""
    monkeypatch.setattr(vacuum_blockers, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(vacuum_blockers, "LONG_SECONDS", 0.3)

    def told_of(event: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if getattr(record, "event", None) == event]

    async with Perdure(postgres_url), snapshot(postgres_url) as report:
        pid = report.get_server_pid()
        await until(lambda: any(f"process {pid} " in said for said in told_of("snapshot_held")), "it is named")
        (said,) = [said for said in told_of("snapshot_held") if f"process {pid} " in said]
        assert f"process {pid} (report) of " in said
        assert "which is idle in transaction" in said
        assert f"`select pg_terminate_backend({pid})`" in said
        terminator = await asyncpg.connect(address_of(postgres_url).dsn)
        await terminator.execute(f"select pg_terminate_backend({pid})")
        await terminator.close()
        await until(lambda: any(f"process {pid} " in said for said in told_of("snapshot_held_over")), "it is over")
        assert sum(f"process {pid} " in said for said in told_of("snapshot_held")) == 1


async def test_who_holds_a_snapshot_is_seen_by_a_role_that_may_see_little(postgres_url: str) -> None:
    """Workers have no right to read statistics, and the report that is in their way is somebody else's."""
    dsn = address_of(postgres_url).dsn
    owner = await asyncpg.connect(dsn)
    await owner.execute("create role sees_little")
    await owner.execute("set role sees_little")
    async with snapshot(postgres_url) as report:
        (seen,) = [row for row in await owner.fetch(vacuum_blockers.HOLDERS) if "(report)" in row["holder"]]
        assert seen["holder"].startswith(f"process {report.get_server_pid()} (report) of ")
    await owner.execute("reset role")
    await owner.execute("drop role sees_little")
    await owner.close()
