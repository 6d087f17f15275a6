"""Bugs of others, about recovery: who takes over what, and what is left of a crash.

The numbers in the docstrings are those of docs/bugs-of-others.md.
"""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from perdure import Signal, Status, StoreUnavailable, activity, workflow
from perdure.stores.answers import Committed, Fenced, Outcome
from perdure.stores.operations import (
    AppendEvent,
    Batch,
    ClaimRuns,
    DeleteWorker,
    FreeRuns,
    NoteCancel,
    RaiseEpoch,
)
from perdure.testing import Environment, VirtualClock
from perdure.testing.faults import Crash, Fault

proceed = Signal("proceed", int)
executed: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    executed.clear()


@activity
async def log_step(name: str) -> str:
    executed.append(name)
    return name


@workflow
async def two_logged_steps(name: str) -> str:
    return await log_step(f"{name} one") + await log_step(f"{name} two")


@workflow
async def waits_between_steps(name: str) -> int:
    await log_step(f"{name} one")
    number = await proceed.receive()
    await log_step(f"{name} two")
    return number


def operations_of(batch: Batch) -> list[object]:
    return [operation for group in batch.groups for operation in group]


async def test_two_rescuers_with_the_same_list_rescue_once(tmp_path: Path) -> None:
    """R01: both have read that the worker is dead; only the one whose update changed a row may act."""
    path, clock = str(tmp_path / "two.db"), VirtualClock()
    one, other, dead = (Environment(path, clock=clock, seed=seed) for seed in (1, 2, 3))
    async with one, other:
        await dead.open()
        await dead.start(waits_between_steps.options(id="orphan"), "orphan")
        await dead.settle()
        gone = next(row for row in await one.store.reads.workers() if row.worker_id == dead.engine.worker_id)
        dead.store.has_crashed = True
        dead._died.set()
        freed = [await env.alive(env.engine.takeover.take_over(gone)) for env in (one, other)]
        assert freed == [1, 0]
        one.worker.look_around()
        run = await one.app.get("orphan")
        await run.signal(proceed, 5)
        assert await one.result(run) == 5
        assert executed.count("orphan two") == 1
        dead.bury()


async def test_a_process_that_is_started_again_is_somebody_else(tmp_path: Path) -> None:
    """R02, R71: the same host, the same program, the same file: what the old one still does must not look like ours."""
    async with Environment(str(tmp_path / "again.db")) as env:
        ids = [env.engine.worker_id]
        for _ in range(5):
            await env.crash()
            ids.append(env.engine.worker_id)
        assert len(set(ids)) == 6


async def test_a_worker_that_stops_claims_nothing_more(tmp_path: Path) -> None:
    """R02: an old process took back what it had just handed over, and died with it."""
    path, clock = str(tmp_path / "drain.db"), VirtualClock()
    old, new = Environment(path, clock=clock, seed=1), Environment(path, clock=clock, seed=2)
    await old.open()
    run = await old.start(waits_between_steps.options(id="handed over"), "handed over")
    await old.settle()
    claimed: list[object] = []
    worker = old.worker

    def look_around(batch: Batch) -> None:
        claimed.extend(operation for operation in operations_of(batch) if isinstance(operation, ClaimRuns))
        # There is a ripe run now: the very one that was handed back.
        worker.look_around()

    old.store.after_commit = look_around
    await old.alive(old.app.__aexit__(None, None, None))
    assert claimed == []
    async with new:
        theirs = await new.app.get("handed over")
        await theirs.signal(proceed, 3)
        assert await new.result(theirs) == 3
    assert run.run_id == theirs.run_id


async def test_a_rescue_that_fails_is_done_by_the_next_look(tmp_path: Path) -> None:
    """R03, R62: the database went away inside the recovery loop, and nobody ever looked again."""
    path = str(tmp_path / "sweep.db")
    heir, dead = Environment(path, seed=1), Environment(path, seed=2)
    async with heir:
        await dead.open()
        await dead.start(waits_between_steps.options(id="orphan"), "orphan")
        await dead.settle()
        dead.bury()
        refused: list[object] = []

        def refuse(batch: Batch) -> None:
            rescues = [o for o in operations_of(batch) if isinstance(o, FreeRuns)]
            if rescues and len(refused) < 2:
                refused.extend(rescues)
                heir.store.fail_at(1, Fault.REFUSED)

        heir.store.before_commit = refuse
        reads = heir.store.reads.workers
        hiccups = iter([True])

        async def workers() -> object:
            if next(hiccups, False):
                raise StoreUnavailable("here", "the database restarts")
            return await reads()

        heir.store.reads.workers = workers  # type: ignore[assignment,method-assign]  # a database that restarts
        run = await heir.app.get("orphan")
        await heir.alive(run.signal(proceed, 4))
        for _ in range(6):
            await heir.pass_time(1)
        assert len(refused) == 2
        assert await heir.result(run) == 4


@pytest.mark.parametrize("number", range(1, 7))
async def test_a_worker_with_room_for_one_run_goes_on_after_a_kill_between_steps(tmp_path: Path, number: int) -> None:
    """R04: a recovered run hung between two finished steps, and held the only slot for ever."""
    async with Environment(str(tmp_path / "slot.db"), max_live=1) as env:
        env.store.fail_at(number, Fault.CRASH_AFTER)
        with contextlib.suppress(Crash):
            for name in ("a", "b"):
                await env.alive(env.start(two_logged_steps.options(id=name), name))
            await env.settle()
        if env.has_died:
            await env.crash()
        for name in ("a", "b"):
            run = await env.alive(env.start(two_logged_steps.options(id=name), name))
            assert await env.result(run) == f"{name} one{name} two"


@pytest.mark.parametrize("position", range(5))
async def test_a_row_that_cannot_be_brought_to_life_strands_no_other(tmp_path: Path, position: int) -> None:
    """R06: one exception while a claimed batch was handed out left the rest of it claimed by nobody who knew."""
    path = tmp_path / "poison.db"
    async with Environment(str(path)) as env:
        for number in range(5):
            await env.start(waits_between_steps.options(id=f"run {number}"), f"{number}")
        await env.settle()
        env.bury()
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute("update runs set input = '{not json' where workflow_id = ?", (f"run {position}",))
        await env.open()
        await env.settle()
        for number in range(5):
            run = await env.app.get(f"run {number}")
            if number == position:
                info = await run.describe()
                assert info.status in {Status.SUSPENDED, Status.FAILED}
            else:
                await run.signal(proceed, number)
                assert await env.result(run) == number


async def test_what_has_ended_is_not_queued_again_by_a_restart(tmp_path: Path) -> None:
    """R08: recovery put finished runs back into the queue."""
    async with Environment(str(tmp_path / "ended.db")) as env:
        run = await env.start(two_logged_steps.options(id="ended"), "ended")
        await env.result(run)
        history = await env.events("ended")
        for _ in range(3):
            await env.crash()
            await env.pass_time(60)
        assert executed == ["ended one", "ended two"]
        assert await env.events("ended") == history
        assert not env.worker._live
        assert await env.store.reads.next_wake("main", ("default",), ("two_logged_steps",)) is None


async def test_a_lease_lost_after_the_end_changes_no_result(env: Environment) -> None:
    """R67: a run that had finished was marked as crashed by a renewal that failed late."""
    async with env:
        run = await env.start(two_logged_steps.options(id="done"), "done")
        assert await env.result(run) == "done onedone two"
        history = await env.events("done")
        worker_id = env.engine.worker_id
        outcome = await env.elsewhere([RaiseEpoch(worker_id, 1)], [FreeRuns(worker_id, 0, 500)])
        assert isinstance(outcome, Committed)
        await env.pass_time(60)
        again = await env.app.get("done")
        assert (await again.describe()).status is Status.COMPLETED
        assert await env.events("done") == history


async def test_a_worker_whose_row_is_gone_learns_of_it_and_goes_on(env: Environment) -> None:
    """R50, R42: work stayed with a worker that heard of nothing any more."""
    async with env:
        run = await env.start(waits_between_steps.options(id="kept"), "kept")
        await env.settle()
        worker_id = env.engine.worker_id
        await env.elsewhere([RaiseEpoch(worker_id, 1), FreeRuns(worker_id, 0, 500)], [DeleteWorker(worker_id)])
        await env.alive(run.signal(proceed, 8))
        assert await env.result(run) == 8
        assert env.engine.worker_id != worker_id
        assert executed == ["kept one", "kept two"]


async def test_a_batch_applied_group_by_group_is_fenced_once_more(tmp_path: Path) -> None:
    """R42: between the transaction that met a broken group and the one that leaves it out, the lease may be lost."""
    path = tmp_path / "fence.db"
    async with Environment(str(path)) as env:
        worker_id, rolled_back = env.engine.worker_id, env.store.inner.transactions.roll_back

        def lose_the_lease() -> None:
            rolled_back()
            with contextlib.closing(sqlite3.connect(path)) as db, db:
                db.execute("update workers set epoch = epoch + 1 where worker_id = ?", (worker_id,))

        env.store.inner.transactions.roll_back = lose_the_lease  # type: ignore[method-assign]  # in between
        run = AppendEvent("main", "nobody", 2, "TimerFired", "t#1", 0, "{}")
        told: list[Outcome] = []
        env.store.commit(Batch([[run], [run], [NoteCancel("nobody", None, None, 0)]], worker_id, 1), told.append)
        assert told == [Fenced()]
        env.store.inner.transactions.roll_back = rolled_back  # type: ignore[method-assign]  # as it was


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST_ANSWER, Fault.LOST_COMMIT])
async def test_room_that_was_made_for_a_start_is_given_back_when_it_fails(tmp_path: Path, fault: Fault) -> None:
    """R68: an error that was swallowed leaked a slot; after some of them nothing ran any more."""
    async with Environment(str(tmp_path / "slots.db"), max_live=1) as env:
        for number in range(3):
            env.store.fail_at(1, fault)
            start = two_logged_steps.options(id=f"run {number}")
            if fault is Fault.REFUSED:
                with pytest.raises(StoreUnavailable):
                    await env.start(start, "x")
            run = await env.alive(env.start(start, "x"))
            assert await env.result(run) == "x onex two"
        assert env.worker._expected == 0
        assert not env.worker._live


async def test_messages_are_found_by_looking_when_nothing_tells_of_them(tmp_path: Path) -> None:
    """R13: with the notifier down every receive waited for its timeout."""
    path, clock = str(tmp_path / "deaf.db"), VirtualClock()
    owner, sender = Environment(path, clock=clock, seed=1), Environment(path, clock=clock, seed=2, worker=False)
    async with owner, sender:
        run = await owner.start(waits_between_steps.options(id="deaf"), "deaf")
        await owner.settle()
        owner.store.changes.has_changed = lambda: False  # type: ignore[method-assign]  # a notifier that is down
        theirs = await sender.app.get("deaf")
        await sender.alive(theirs.signal(proceed, 6))
        clock.advance(1000)
        await asyncio.gather(owner.settle(), sender.settle())
        assert await owner.result(run, patience=2) == 6
