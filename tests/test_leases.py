"""Leases are observed: a worker is gone when its row stands still for us, whatever time its own clock shows."""

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from perdure import Signal, activity, sleep, workflow
from perdure.clock import SystemClock
from perdure.stores.operations import Batch, RaiseEpoch
from perdure.testing import Environment, VirtualClock
from perdure.testing.clock import FIRST_MS

HOUR_MS = 3_600_000
proceed = Signal("proceed", int)


@activity
async def doubled(number: int) -> int:
    return number * 2


@workflow
async def doubles_thrice(number: int) -> int:
    for _ in range(3):
        number = await doubled(number)
        await sleep(20)
    return number


@workflow
async def doubles_when_told(number: int) -> int:
    return await doubled(number + await proceed.receive())


def worker_rows(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("select worker_id, epoch from workers order by worker_id").fetchall()


@pytest.mark.parametrize("apart_ms", [HOUR_MS, -HOUR_MS, 0])
async def test_workers_whose_clocks_differ_share_a_database_in_peace(tmp_path: Path, apart_ms: int) -> None:
    """One was started before the machine's clock was set; they used to take each other's runs for ever."""
    path = tmp_path / "apart.db"
    async with AsyncExitStack() as stack:
        envs = [
            await stack.enter_async_context(Environment(str(path), clock=VirtualClock(FIRST_MS + number * apart_ms)))
            for number in range(2)
        ]
        workers = worker_rows(path)
        runs = [(env, n, await env.start(doubles_thrice, n)) for n in range(5) for env in envs]
        for _ in range(150):
            for env in envs:
                await env.pass_time(1)
        assert [await env.result(run) for env, _, run in runs] == [8 * n for _, n, _ in runs]
        assert worker_rows(path) == workers
        assert len(workers) == 2


@pytest.mark.parametrize("apart_ms", [HOUR_MS, -HOUR_MS, 0])
async def test_one_that_hangs_is_taken_over_after_its_own_lease(tmp_path: Path, apart_ms: int) -> None:
    """Not sooner because its clock is slow, and not an hour later because it is fast."""
    path = tmp_path / "hangs.db"
    hangs, heir = Environment(str(path)), Environment(str(path), clock=VirtualClock(FIRST_MS + apart_ms))
    async with hangs:
        run = await hangs.start(doubles_when_told.options(id="run"), 1)
        await hangs.settle()
        async with heir:
            for _ in range(30):
                await heir.pass_time(1)
            assert await heir.store.reads.owned_runs(hangs.engine.worker_id) == [run.run_id]
            await heir.pass_time(1.1)
            assert await heir.store.reads.owned_runs(heir.engine.worker_id) == [run.run_id]
            theirs = await heir.app.get("run")
            await theirs.signal(proceed, 1)
            assert await heir.result(theirs) == 4


async def test_one_that_renews_just_before_it_is_taken_over_keeps_its_runs(tmp_path: Path) -> None:
    """Between the look and the takeover lies a gap; a rescue holds only for what it has read."""
    path = tmp_path / "late.db"
    late, other = Environment(str(path)), Environment(str(path), seed=2)
    async with late:
        run = await late.start(doubles_when_told.options(id="run"), 1)
        await late.settle()
        async with other:
            renewals = []

            def renew_first(batch: Batch) -> None:
                if any(isinstance(operation, RaiseEpoch) for group in batch.groups for operation in group):
                    renewals.append(late.store.presence.renew(late.engine.worker_id, 1, late.clock.now() + HOUR_MS))

            other.store.before_commit = renew_first
            await other.pass_time(31)
            assert renewals == [True]
            assert await other.store.reads.owned_runs(late.engine.worker_id) == [run.run_id]


async def test_each_worker_is_given_the_time_of_its_own_lease(tmp_path: Path) -> None:
    """Ours may be shorter; it still has twenty seconds until it has to renew."""
    path = tmp_path / "own.db"
    hasty = Environment(str(path))
    async with Environment(str(path)) as patient:
        run = await patient.start(doubles_when_told.options(id="run"), 1)
        await patient.settle()
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("update workers set lease_ms = 90000")
        async with hasty:
            await hasty.pass_time(80)
            assert await hasty.store.reads.owned_runs(patient.engine.worker_id) == [run.run_id]
            await hasty.pass_time(11)
            assert await hasty.store.reads.owned_runs(hasty.engine.worker_id) == [run.run_id]


async def test_a_renewal_changes_the_row_also_when_the_clock_was_set_back(tmp_path: Path) -> None:
    """The change is all that others go by."""
    path = tmp_path / "back.db"
    async with Environment(str(path)) as env:
        seen = []
        for _ in range(4):
            env.clock.set_by(-HOUR_MS)
            await env.pass_time(11)
            with closing(sqlite3.connect(path)) as db:
                seen += db.execute("select lease_until from workers").fetchone()
        assert sorted(set(seen)) == seen


async def test_terminate_ends_a_run_of_a_worker_that_hangs_once_it_was_seen_to_for_a_lease(tmp_path: Path) -> None:
    """A client that has just come cannot know; its request waits on disk, and the next owner keeps it."""
    path = tmp_path / "terminate.db"
    hangs, client = Environment(str(path)), Environment(str(path), worker=False)
    async with hangs:
        for number in range(2):
            await hangs.start(doubles_when_told.options(id=f"run-{number}"), 1)
        await hangs.settle()
        async with client:
            first, second = [await client.app.get(f"run-{number}") for number in range(2)]
            await client.alive(first.terminate())
            assert (await first.describe()).closed_at is None
            await client.pass_time(31)
            await client.alive(second.terminate())
            assert (await second.describe()).status == "TERMINATED"


async def test_the_system_clock_runs_on_the_sources_it_is_given() -> None:
    """A simulator drives the real one: set back, engine time goes on from where it was."""
    wall, steady = [5_000_000_000], [1_000_000_000]
    clock = SystemClock(lambda: wall[0], lambda: steady[0])
    assert (clock.now(), clock.monotonic()) == (5000, 1000)
    wall[0] -= 3_000_000_000
    assert clock.now() == 5000
    wall[0] += 7_000_000
    steady[0] += 7_000_000
    assert (clock.now(), clock.monotonic()) == (5007, 1007)
    assert SystemClock().monotonic() <= SystemClock().monotonic()


async def test_virtual_time_can_be_set_without_any_passing() -> None:
    """What is due comes after as much time as there was to go, as on a real loop."""
    clock, calls = VirtualClock(), list[str]()
    clock.call_at(clock.now() + 100, lambda: calls.append("due"))
    before = clock.monotonic()
    clock.set_by(HOUR_MS)
    await asyncio.sleep(0)
    assert (clock.now(), clock.monotonic(), calls) == (FIRST_MS + HOUR_MS, before, [])
    clock.set_by(-2 * HOUR_MS)
    clock.advance(99)
    assert calls == []
    clock.advance(1)
    assert (calls, clock.monotonic()) == (["due"], before + 100)
