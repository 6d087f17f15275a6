"""Orphans: runs whose owner has no row that could be taken over. Only a hand in the database brings that about."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure import Signal, Status, workflow
from perdure.kernel.messages import TerminateRequest
from perdure.stores.answers import Applied, Committed, Outcome
from perdure.stores.operations import Batch, FreeOrphans, HoldRun, InsertRun, RegisterWorker
from perdure.stores.sqlite.store import SqliteStore
from perdure.testing import Environment

word_to_orphans = Signal("word_to_orphans", int)


@workflow
async def may_be_orphaned() -> int:
    return await word_to_orphans.receive()


def spoil(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "delete from workers",
        "update workers set epoch = 'x'",
        "update workers set worker_id = 'other'",
        "update workers set worker_id = '../../a'",
        "update workers set worker_id = printf('%.*c', 100000, 'x')",
        "update runs set owner = 'nobody'",
        "update runs set owner = x'ff'",
        "update runs set owner = 7",
    ],
)
async def test_a_run_whose_owner_is_no_worker_goes_on_elsewhere(tmp_path: Path, sql: str) -> None:
    """Nobody would ever see such an owner gone, and its runs would be stranded for good."""
    path = tmp_path / "orphans.db"
    dead = Environment(str(path))
    await dead.open()
    run = await dead.start(may_be_orphaned.options(id="orphan"))
    await dead.settle()
    dead.bury()
    spoil(path, sql)
    async with Environment(str(path), clock=dead.clock) as env:
        await env.pass_time(60)
        theirs = await env.app.get("orphan")
        await theirs.signal(word_to_orphans, 7)
        assert await env.result(theirs) == 7
        assert theirs.run_id == run.run_id


async def test_the_runs_of_a_worker_with_a_row_are_left_to_it(tmp_path: Path) -> None:
    """What was read may be out of date by the time somebody acts on it."""
    store = SqliteStore(None)
    await store.open()

    def write(*operations: object) -> Outcome:
        told: list[Outcome] = []
        store.commit(Batch([operations], None, 0), told.append)  # type: ignore[list-item]  # operations, all of them
        return told[0]

    write(RegisterWorker("w", "main", 9000, ("default",), "host", 1, 1000))
    write(InsertRun("r", "main", "r", "wf", "default", "RUNNING", "w", None, 0, "{}", 7, 1000))
    assert write(FreeOrphans("w", 1000, 10)) == Committed({0: Applied(0)})
    assert await store.reads.owners() == ["w"]
    store.transactions.db.execute("delete from workers")
    assert write(FreeOrphans("w", 1000, 10)) == Committed({0: Applied(1)})
    assert await store.reads.owners() == []
    await store.close()


async def test_a_run_that_is_held_while_it_is_told_to_end_is_ended_all_the_same(env: Environment) -> None:
    """Its owner read no more messages; whoever asked was told that all is well, and the run stayed open for ever."""
    async with env:
        run = await env.start(may_be_orphaned)
        await env.settle()
        live = env.worker._live[run.run_id]
        # From now on it reads no messages.
        live.is_leaving = True
        ending = asyncio.create_task(run.terminate("enough"))
        await env.settle()
        env.worker._runs.evict(live)
        hold = HoldRun(run.run_id, env.engine.worker_id, "quarantine", "{}", env.clock.now())
        told: list[Outcome] = []
        env.store.commit(Batch([[hold]], None, 0), told.append)
        await env.pass_time(10)
        await ending
        assert (await run.describe()).status is Status.TERMINATED


async def test_whoever_ends_a_run_whose_row_cannot_be_read_is_not_told_that_it_failed(tmp_path: Path) -> None:
    """The request is on disk, and its owner does as it is told; a look at the row afterwards spoils no answer."""
    path = tmp_path / "row.db"
    async with Environment(str(path)) as env:
        run = await env.start(may_be_orphaned.options(id="spoilt"))
        await env.settle()
        # Its owner is busy with something else.
        env.worker._live[run.run_id].is_leaving = True
        spoil(path, "update runs set created_at = 'x'")
        ending = asyncio.create_task(run.terminate("enough"))
        await env.pass_time(10)
        await ending
        assert [message.body for message in await env.store.reads.unread(run.run_id)] == [TerminateRequest("enough")]
