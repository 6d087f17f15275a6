"""Bugs of others, about stopping: cancels that race, attempts that outlive their turn.

The numbers in the docstrings are those of docs/bugs-of-others.md.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure import Retry, RunCancelled, RunClosed, RunTerminated, Signal, Status, activity, sleep, workflow
from perdure.stores.operations import Batch, EndRun
from perdure.testing import Environment

last_word = Signal("last word", str)
seen: list[str] = []
gates: dict[str, threading.Event] = {}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()
    gates.clear()


@activity(retry=Retry(max_attempts=5, initial_interval=10))
async def fails_when_it_is_let(name: str) -> str:
    seen.append(name)
    raise ConnectionError(name)


@activity(timeout=5, retry=Retry(max_attempts=3, initial_interval=1, backoff=1))
def blocks_in_a_thread(name: str) -> str:
    number = len(seen)
    seen.append(name)
    gate = gates.setdefault(f"{name} {number}", threading.Event())
    gate.wait(20)
    return f"attempt {number}"


@activity(timeout=5, retry=Retry(max_attempts=3, initial_interval=1, backoff=1))
async def hangs_in_a_task(name: str) -> str:
    number = sum(not word.endswith("cancelled") for word in seen)
    seen.append(f"{number}")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append(f"{number} cancelled")
        raise
    return name


@workflow
async def ends_with_a_word() -> str:
    return await last_word.receive()


@workflow
async def tries_in_vain(name: str) -> str:
    return await fails_when_it_is_let(name)


@workflow
async def waits_for_a_thread(name: str) -> str:
    return await blocks_in_a_thread(name)


@workflow
async def waits_for_a_task(name: str) -> str:
    return await hangs_in_a_task(name)


@workflow
async def never_lets_go() -> str:
    try:
        return await last_word.receive()
    finally:
        await sleep(1_000_000)


async def until_seen(env: Environment, is_there: Callable[[], bool]) -> None:
    """Turn the loop until a thread has got somewhere; time does not pass meanwhile."""
    async with asyncio.timeout(120):
        while not is_there():  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)


@pytest.mark.parametrize("first", ["cancel", "end"])
async def test_a_cancel_that_races_the_end_is_told_who_won(env: Environment, first: str) -> None:
    """R11: the run completed a moment before; the cancel was answered with success, and nothing came of it."""
    async with env:
        run = await env.start(ends_with_a_word)
        await env.settle()
        answers: list[asyncio.Task[None]] = []

        def cancel(batch: Batch) -> None:
            ends = any(isinstance(operation, EndRun) for group in batch.groups for operation in group)
            if ends and not answers:
                answers.append(asyncio.ensure_future(run.cancel("enough")))

        if first == "end":
            # Asked while the end is on its way to disk.
            env.store.before_commit = cancel
            await run.signal(last_word, "done")
            assert await env.result(run) == "done"
            with pytest.raises(RunClosed, match="COMPLETED"):
                await env.alive(answers[0])
        else:
            await run.cancel("enough")
            with contextlib.suppress(RunClosed):
                await run.signal(last_word, "done")
            with pytest.raises(RunCancelled, match="enough"):
                await env.result(run)
        kinds = [event.kind for event in await env.events(run.id)]
        assert sum(kind in {"RunCompleted", "RunCancelled"} for kind in kinds) == 1


async def test_who_stops_waiting_leaves_nothing_behind(env: Environment) -> None:
    """R12: a waiter that was cancelled stayed in the map, and took the wake-up meant for the next one."""
    async with env:
        run = await env.start(ends_with_a_word)
        waiters = [asyncio.ensure_future(run.result()) for _ in range(5)]
        await env.settle()
        for waiter in waiters[:4]:
            waiter.cancel()
        await asyncio.gather(*waiters[:4], return_exceptions=True)
        with pytest.raises(TimeoutError):
            await env.alive(run.result(timeout=1))
        await run.signal(last_word, "heard")
        assert await env.alive(waiters[4]) == "heard"
        assert not any(env.engine.waiters.by_run.values())


@pytest.mark.parametrize("how", ["cancel", "terminate"])
async def test_what_a_thread_says_after_its_run_was_stopped_is_not_written(env: Environment, how: str) -> None:
    """R30: work in an executor cannot be interrupted; its late answer must find nobody."""
    async with env:
        run = await env.start(waits_for_a_thread, "late")
        await until_seen(env, lambda: "late 0" in gates)
        if how == "cancel":
            await run.cancel("not needed", force=True)
        else:
            await run.terminate("not needed")
        assert (await run.describe()).status in {Status.CANCELLED, Status.TERMINATED}
        history = await env.events(run.id)
        gates["late 0"].set()
        await until_seen(env, lambda: env.worker._runner.in_threads == 0)
        await env.settle()
        assert await env.events(run.id) == history


async def test_an_attempt_that_timed_out_has_no_say_any_more(tmp_path: Path) -> None:
    """R49: the attempt that had timed out ran on, ended as well, and both moved the run on."""
    async with Environment(str(tmp_path / "late.db")) as env:
        run = await env.start(waits_for_a_thread, "slow")
        await until_seen(env, lambda: "slow 0" in gates)
        env.clock.advance(5000)
        for _ in range(20):
            await asyncio.sleep(0)
        env.clock.advance(1000)
        await until_seen(env, lambda: "slow 1" in gates)
        gates["slow 0"].set()
        await until_seen(env, lambda: env.worker._runner.in_threads == 1)
        assert (await run.describe()).status is Status.RUNNING
        gates["slow 1"].set()
        assert await env.result(run) == "attempt 1"
        outcomes = [event for event in await env.events(run.id) if event.kind == "ActivityCompleted"]
        assert [event.body["attempts"] for event in outcomes] == [2]


async def test_a_cancel_during_a_back_off_is_the_end_of_the_attempts(env: Environment) -> None:
    """R51: the failure that came after the cancel was taken for a reason to try again."""
    async with env:
        run = await env.start(tries_in_vain, "once")
        await env.settle()
        assert seen == ["once"]
        await run.cancel("stop trying")
        with pytest.raises(RunCancelled, match="stop trying"):
            await env.result(run)
        await env.pass_time(600)
        assert seen == ["once"]


async def test_a_cancel_reaches_the_attempt_that_is_running(env: Environment) -> None:
    """R52, R31: aimed at the number of the newest attempt, the cancel missed the one that ran."""
    async with env:
        run = await env.start(waits_for_a_task, "twice")
        await env.pass_time(5)
        await env.pass_time(1)
        assert seen == ["0", "0 cancelled", "1"]
        await run.cancel("enough")
        with pytest.raises(RunCancelled, match="enough"):
            await env.result(run)
        await env.pass_time(60)
        assert seen == ["0", "0 cancelled", "1", "1 cancelled"]


async def test_a_run_replaced_during_its_back_off_does_not_run_on(env: Environment) -> None:
    """R54: superseded while it waited for its next attempt, it ran once more afterwards."""
    async with env:
        old = await env.start(tries_in_vain.options(id="one"), "old")
        await env.settle()
        new = await env.alive(env.start(tries_in_vain.options(id="one", on_conflict="terminate"), "new"))
        assert new.run_id != old.run_id
        with pytest.raises(RunTerminated):
            await env.result(await env.app.get(run_id=old.run_id))
        await env.pass_time(600)
        assert seen.count("old") == 1
        assert seen.count("new") > 1


async def test_code_that_will_not_end_does_not_keep_its_place(tmp_path: Path) -> None:
    """R27: an eviction that failed took a slot away for ever; after some of them the worker took nothing more."""
    async with Environment(str(tmp_path / "slots.db"), max_live=1) as env:
        for _ in range(5):
            stubborn = await env.start(never_lets_go)
            await env.settle()
            await env.alive(stubborn.terminate("go"))
        quick = await env.start(ends_with_a_word)
        await quick.signal(last_word, "here")
        assert await env.result(quick) == "here"
