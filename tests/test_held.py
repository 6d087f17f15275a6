"""Held runs are not waited for in silence: whoever waits, and whoever starts a worker, is told, and how to go on."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure import Run, Signal, Workflow, activity, workflow
from perdure.authoring.options import WorkflowOptions
from perdure.engine.ports import Hold
from perdure.kernel.quarantine import quarantine_report
from perdure.testing import Environment

nod = Signal("nod", int)


@activity
async def brew(what: str) -> str:
    return f"brewed {what}"


@activity
async def pour(what: str) -> str:
    return f"poured {what}"


@workflow
async def waits_for_a_nod() -> int:
    return await nod.receive()


async def brews(what: str) -> str:
    await brew(what)
    return str(await nod.receive())


async def pours(what: str) -> str:
    await pour(what)
    return str(await nod.receive())


def as_workflow(fn: Any) -> Workflow[..., Any]:
    """A version of the one workflow whose code changes."""
    return Workflow(fn, "serving", WorkflowOptions())


async def hold(env: Environment, run: Run[Any], reason: str = "quarantine") -> None:
    """What the worker does with a run that cannot go on."""
    live = env.worker._live[run.run_id]
    env.engine.owner.release(live.owned, Hold(reason, quarantine_report(run.id, ())), lambda _: None)
    env.worker._runs.evict(live)
    await env.settle()


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", None) == event]


async def test_whoever_waits_for_a_held_run_is_told_once_and_waits_on(caplog: pytest.LogCaptureFixture) -> None:
    """A result that never comes, without a word, looks like a bug of the caller."""
    async with Environment() as env:
        run = await env.start(waits_for_a_nod.options(id="t-1"))
        await env.settle()
        await hold(env, run)
        results = [asyncio.ensure_future(run.result()) for _ in range(2)]
        for _ in range(5):
            await env.pass_time(2)

        (record,) = told(caplog, "awaited_run_held")

        assert record.levelno == logging.WARNING
        assert record.name.startswith("perdure")
        assert record.run_id == run.run_id  # type: ignore[attr-defined]  # given as extra
        for word in ("'t-1'", "quarantine", "`perdure show t-1`", "`perdure resume t-1`", "`perdure terminate t-1`"):
            assert word in record.getMessage()
        await run.resume()
        await run.signal(nod, 7)
        assert [await env.alive(result) for result in results] == [7, 7]


async def test_whoever_waits_already_is_told_when_the_run_becomes_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait began long before anything was wrong."""
    path = str(tmp_path / "held.db")
    async with Environment(path, workflows=[as_workflow(brews)]) as env:
        await env.start(as_workflow(brews).options(id="s-1"), "tea")
        await env.settle()
    async with Environment(path, workflows=[as_workflow(pours)]) as env:
        run = await env.app.get("s-1")
        result = asyncio.ensure_future(run.result())
        await env.pass_time(2)
        assert told(caplog, "awaited_run_held") == []
        await run.signal(nod, 1)
        await env.pass_time(2)
        await env.pass_time(2)

        (record,) = told(caplog, "awaited_run_held")

        assert "'s-1' is held (mismatch)" in record.getMessage()
        result.cancel()


async def test_a_client_is_told_when_a_run_is_held_elsewhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Most who wait work nothing themselves."""
    path = str(tmp_path / "held.db")
    async with Environment(path) as env:
        run = await env.start(waits_for_a_nod.options(id="t-2"))
        await env.settle()
        async with Environment(path, worker=False, clock=env.clock) as client:
            result = asyncio.ensure_future((await client.app.get("t-2")).result())
            await env.pass_time(2)
            await hold(env, run)
            for _ in range(5):
                await env.pass_time(2)
                await client.settle()
            assert len(told(caplog, "awaited_run_held")) == 1
            result.cancel()


async def test_one_that_is_held_again_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    """It was resumed, and came no further."""
    async with Environment() as env:
        run = await env.start(waits_for_a_nod)
        await env.settle()
        result = asyncio.ensure_future(run.result())
        for count in (1, 2):
            await hold(env, run)
            await env.pass_time(2)
            assert len(told(caplog, "awaited_run_held")) == count
            await run.resume()
            await env.pass_time(2)
        result.cancel()


async def test_a_wait_that_took_too_long_says_that_the_run_is_held() -> None:
    """'It goes on' would be wrong: it does not, until somebody acts."""
    async with Environment() as env:
        run = await env.start(waits_for_a_nod.options(id="t-3"))
        await env.settle()
        with pytest.raises(TimeoutError, match=r"has no result after 0; it goes on"):
            await run.result(timeout=0)
        await hold(env, run)
        with pytest.raises(TimeoutError, match=r"held \(quarantine\).*`perdure show t-3`.*`perdure resume t-3`"):
            await run.result(timeout=0)


async def test_a_worker_that_starts_says_which_runs_are_held(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody looks for what nobody speaks of; the error of the moment they were held is long gone from the log."""
    path = str(tmp_path / "held.db")
    async with Environment(path, workflows=[waits_for_a_nod]) as env:
        runs = [await env.start(waits_for_a_nod) for _ in range(4)]
        await env.settle()
        for run, reason in zip(runs, ("quarantine", "mismatch", "quarantine"), strict=False):
            await hold(env, run, reason)
        assert told(caplog, "runs_held") == []
    async with Environment(path, workflows=[as_workflow(brews)]):
        (record,) = told(caplog, "runs_held")
        assert record.levelno == logging.WARNING
        assert record.getMessage() == (
            "3 runs are held (1 mismatch, 2 quarantine); see them with `perdure list --status held`"
        )
    caplog.clear()
    # One with the code gives those with a mismatch another try.
    async with Environment(path, workflows=[waits_for_a_nod]):
        (record,) = told(caplog, "runs_held")
        assert "2 runs are held (2 quarantine);" in record.getMessage()
    caplog.clear()
    async with Environment(path, worker=False), Environment(path, namespace="elsewhere"):
        assert told(caplog, "runs_held") == []


async def test_held_runs_are_found_by_status_and_by_reason() -> None:
    """The words people see in `describe()` are those they look for."""
    async with Environment() as env:
        runs = [await env.start(waits_for_a_nod) for _ in range(3)]
        await env.settle()
        await hold(env, runs[0], "quarantine")
        await hold(env, runs[1], "mismatch")

        async def found(*status: str) -> set[str]:
            return {info.run_id for info in await env.app.list(status=status)}

        assert await found("HELD") == {runs[1].run_id, runs[0].run_id}
        assert await found("quarantine") == {runs[0].run_id}
        assert await found("mismatch", "Running") == {runs[2].run_id, runs[1].run_id}
        assert await found("paused") == set()


async def test_a_worker_starts_although_it_cannot_count_what_is_held(tmp_path: Path) -> None:
    """A line for people is not worth a process that does not come up."""
    path = str(tmp_path / "held.db")
    async with Environment(path):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute("drop index runs_held")
    async with Environment(path) as env:
        run = await env.alive(env.start(waits_for_a_nod))
        await run.signal(nod, 3)
        assert await env.result(run) == 3
