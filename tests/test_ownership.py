"""Ownership: one owner per run, fenced by its epoch; everything else only decides when."""

import asyncio
from pathlib import Path

import pytest

from perdure import Retry, Signal, activity, workflow
from perdure.stores.answers import Committed
from perdure.stores.operations import Batch, RaiseEpoch
from perdure.testing import Environment, VirtualClock

go = Signal("go", int)


@activity
async def add(a: int, b: int) -> int:
    return a + b


@workflow
async def adds_up(number: int) -> int:
    total = await add(number, 1)
    total = await add(total, await go.receive())
    return await add(total, 100)


gates: list["asyncio.Future[None]"] = []


@activity(retry=Retry(initial_interval=60))
async def fails_when_told() -> None:
    gates.append(asyncio.get_running_loop().create_future())
    await gates[-1]


@workflow
async def fails_late() -> None:
    await fails_when_told()


def worker_ids(env: Environment) -> str:
    return env.engine.worker_id


async def test_a_zombie_commits_nothing_and_begins_anew(tmp_path: Path) -> None:
    """A worker that was away for longer than its lease finds its runs finished by another."""
    path = str(tmp_path / "zombie.db")
    zombie, other = Environment(path, clock=VirtualClock()), Environment(path, clock=VirtualClock(), seed=2)
    async with zombie:
        run = await zombie.start(adds_up.options(id="run"), 1)
        await zombie.settle()
        old_id = worker_ids(zombie)
        async with other:
            await other.pass_time(40)
            theirs = await other.app.get("run")
            await theirs.signal(go, 10)
            assert await other.result(theirs) == 112
            history = await other.events("run")
            # Back to life: it still believes to own the run, and has something to say about it.
            await asyncio.gather(zombie.app.get("run"))
            zombie.clock.advance(60)
            zombie.worker._parking.hand_back(zombie.worker._live[run.run_id])
            await zombie.settle()
            assert await other.events("run") == history
            assert worker_ids(zombie) != old_id
            assert not zombie.worker.is_live(run.run_id)
        second = await zombie.start(adds_up.options(id="second"), 2)
        await second.signal(go, 20)
        assert await zombie.result(second) == 123


async def test_a_worker_whose_epoch_was_raised_goes_on_with_its_own_runs(env: Environment) -> None:
    """An unknown outcome raises the epoch; nothing else has happened, and nothing is lost."""
    async with env:
        run = await env.start(adds_up, 1)
        await env.settle()
        assert await env.elsewhere([RaiseEpoch(worker_ids(env), 1)]) == Committed({})
        with pytest.raises(TimeoutError):
            await env.result(run, patience=5)
        await env.pass_time(1)
        await run.signal(go, 10)
        assert await env.result(run) == 112


async def test_a_dead_workers_runs_are_taken_over_at_once(tmp_path: Path) -> None:
    """Its lock is free; nobody waits for the lease."""
    path = str(tmp_path / "dead.db")
    dead, heir = Environment(path), Environment(path, seed=2)
    async with heir:
        await dead.open()
        run = await dead.start(adds_up.options(id="run"), 1)
        await dead.settle()
        assert (await run.describe()).status == "RUNNING"
        dead.bury()
        await heir.pass_time(1.1)
        theirs = await heir.app.get("run")
        await theirs.signal(go, 10)
        assert await heir.result(theirs) == 112
        assert [row.worker_id for row in await heir.store.reads.workers()] == [worker_ids(heir)]


async def test_nothing_is_written_of_a_run_after_it_was_handed_back(env: Environment) -> None:
    """An attempt that fails just then would be counted beside those of the next owner."""
    async with env:
        run = await env.start(fails_late)
        await env.settle()
        live = env.worker._live[run.run_id]
        env.worker._parking.hand_back(live)
        live.running["fails_when_told"].end(ValueError("too late"), None)
        await env.settle()
        assert await env.store.reads.attempts(run.run_id) == []
        await env.pass_time(1)
        gates[-1].set_exception(ValueError("in time"))
        await env.settle()
        assert [failed.attempt for failed in await env.store.reads.attempts(run.run_id)] == [1]


async def test_two_workers_share_the_work_and_each_run_has_one_owner(tmp_path: Path) -> None:
    path = str(tmp_path / "two.db")
    clock = VirtualClock()
    first, second = Environment(path, clock=clock), Environment(path, clock=clock, seed=2)
    async with first, second:
        runs = [await env.start(adds_up, n) for n in range(10) for env in (first, second)]
        for number, run in enumerate(runs):
            # Each signalled through the other one's process.
            theirs = await (second if number % 2 == 0 else first).app.get(run_id=run.run_id)
            await theirs.signal(go, 10)
        for _ in range(10):
            clock.advance(60)
            await first.settle()
            await second.settle()
        results = [await first.result(run) if n % 2 == 0 else await second.result(run) for n, run in enumerate(runs)]
        assert results == [n + 111 for n in range(10) for _ in (first, second)]


async def test_callers_wait_when_the_queue_is_full(tmp_path: Path) -> None:
    """Back-pressure: a slow disk slows its callers down; it does not fill the memory."""
    async with Environment(str(tmp_path / "full.db"), max_live=1) as env:
        held: list[tuple[Batch, object]] = []
        real_commit = env.store.commit
        env.store.commit = lambda batch, done: held.append((batch, done))  # type: ignore[method-assign]  # a disk that hangs
        starts = [asyncio.ensure_future(env.app.start(adds_up, n)) for n in range(9000)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(env.engine.committer._queue) <= 8193
        env.store.commit = real_commit  # type: ignore[method-assign]  # it works again
        for batch, done in held:
            real_commit(batch, done)  # type: ignore[arg-type]  # as above
        assert len({run.run_id for run in await asyncio.gather(*starts)}) == 9000
