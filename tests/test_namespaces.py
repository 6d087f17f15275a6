"""Namespaces are worlds apart in one database; who names one that is not there is told so."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from perdure import (
    BadId,
    BadOption,
    Log,
    NamespaceDetail,
    NamespaceExists,
    NamespaceNotEmpty,
    NamespaceNotFound,
    Perdure,
    RunNotFound,
    Signal,
    activity,
    workflow,
)
from perdure.stores.queries import migrations
from perdure.testing import Environment

nod = Signal("nod", int)


@activity(queue="parcels")
async def wrap_here(what: str) -> str:
    return f"wrapped {what}"


@workflow
async def waits_here() -> int:
    return await nod.receive()


@workflow
async def wraps_here(what: str) -> str:
    return await wrap_here(what)


def beside(env: Environment, namespace: str, *, worker: bool = True) -> Environment:
    """Another process on the same database, in a namespace."""
    return Environment(env.path, clock=env.clock, namespace=namespace, worker=worker)


async def test_namespaces_are_made_listed_looked_into_and_deleted(env: Environment) -> None:
    async with env:
        made = await env.app.namespaces.create("blue")
        assert [each.name for each in await env.app.namespaces.list()] == ["blue", "main"]
        assert await env.app.namespaces.get("blue") == NamespaceDetail("blue", made.created_at, {}, (), 0)
        await env.app.namespaces.delete("blue")
        assert [each.name for each in await env.app.namespaces.list()] == ["main"]


async def test_what_is_in_a_namespace_is_told_by_status_queue_and_worker(env: Environment) -> None:
    async with env, beside(env, "blue") as blue:
        run = await blue.start(waits_here)
        await blue.start(wraps_here.options(queue="idle"), "a book")
        await blue.settle()
        await run.terminate()
        found = await env.app.namespaces.get("blue")
        assert (found.runs, found.queues, found.workers) == ({"TERMINATED": 1, "PENDING": 1}, ("default", "idle"), 1)
        assert (await env.app.namespaces.get("main")).runs == {}


async def test_activities_on_a_queue_are_not_counted_as_runs(env: Environment) -> None:
    """Nobody has started them, and `list` does not show them either."""
    async with env:
        await env.start(wraps_here, "a book")
        await env.pass_time(20)
        found = await env.app.namespaces.get("main")
        assert sum(found.runs.values()) == 1
        assert found.queues == ("default", "parcels")


async def test_a_name_that_is_taken_or_not_there_is_told(env: Environment) -> None:
    async with env:
        await env.app.namespaces.create("orders")
        with pytest.raises(NamespaceExists, match="'orders' already"):
            await env.app.namespaces.create("orders")
        for ask in (env.app.namespaces.get, env.app.namespaces.delete):
            with pytest.raises(
                NamespaceNotFound, match=r"'order' \(did you mean 'orders'\?\); `perdure namespace create"
            ):
                await ask("order")
        with pytest.raises(NamespaceNotFound) as error:
            await env.app.namespaces.get("zzz")
        assert error.value.near is None


@pytest.mark.parametrize("name", ["", "x" * 300, "a\nb"])
async def test_a_bad_name_is_refused_before_anything_is_written(name: str) -> None:
    async with Environment() as env:
        asks: list[Callable[[str], Awaitable[object]]] = [env.app.namespaces.create, env.app.namespaces.get]
        for ask in [*asks, env.app.namespaces.delete]:
            with pytest.raises(BadId):
                await ask(name)
        assert [each.name for each in await env.app.namespaces.list()] == ["main"]


async def test_main_is_always_there() -> None:
    async with Environment() as env:
        with pytest.raises(BadOption, match="always there"):
            await env.app.namespaces.delete("main")
        with pytest.raises(NamespaceExists):
            await env.app.namespaces.create("main")


async def test_a_client_on_a_name_that_is_not_there_is_refused(env: Environment) -> None:
    """A mistyped name would look like a database without runs; a worker that opens on one makes it."""
    async with env:
        with pytest.raises(NamespaceNotFound, match="`perdure namespace create blue` makes it"):
            await beside(env, "blue", worker=False).open()
        async with beside(env, "blue"):
            pass
        async with beside(env, "blue", worker=False) as client:
            await client.start(waits_here)


async def test_a_namespace_with_runs_or_workers_is_not_deleted(env: Environment) -> None:
    """Also one whose runs have ended: what happened in it would be nowhere any more."""
    async with env:
        async with beside(env, "blue") as blue:
            with pytest.raises(NamespaceNotEmpty) as error:
                await env.app.namespaces.delete("blue")
            assert (error.value.runs, error.value.workers) == (0, 1)
            run = await blue.start(waits_here)
            await blue.settle()
            await run.terminate()
        with pytest.raises(NamespaceNotEmpty, match=r"it has 1 run\(s\), open or closed, 0 worker\(s\)"):
            await env.app.namespaces.delete("blue")


async def test_a_namespace_with_a_sink_is_not_deleted(env: Environment) -> None:
    """Whoever makes one of that name later would send what happens in it to a stranger."""
    async with env:
        await env.app.namespaces.create("blue")
        async with beside(env, "blue", worker=False) as blue:
            await blue.app.outbox.add("audit", Log(), events=("run.*",))
            with pytest.raises(NamespaceNotEmpty, match=r"0 schedule\(s\) and 1 sink\(s\)") as error:
                await env.app.namespaces.delete("blue")
            assert error.value.sinks == 1
            await blue.app.outbox.remove("audit")
        await env.app.namespaces.delete("blue")


async def test_a_worker_that_died_does_not_keep_its_namespace(env: Environment) -> None:
    """Its row stays behind until somebody looks; nobody works there who would."""
    async with env:
        gone = beside(env, "blue")
        await gone.open()
        assert (await env.app.namespaces.get("blue")).workers == 1
        gone.bury()
        found = await env.app.namespaces.get("blue")
        assert (found.workers, found.queues) == (0, ())
        await env.app.namespaces.delete("blue")
        assert [each.name for each in await env.app.namespaces.list()] == ["main"]


async def test_ids_queues_and_claims_stay_in_their_namespace(env: Environment) -> None:
    async with env, beside(env, "blue") as blue:
        here = await env.start(waits_here.options(id="same"))
        there = await blue.start(waits_here.options(id="same"))
        assert here.run_id != there.run_id
        await here.signal(nod, 1)
        await there.signal(nod, 2)
        assert (await env.result(here), await blue.result(there)) == (1, 2)
        assert [info.run_id for info in await env.app.list()] == [here.run_id]
        with pytest.raises(RunNotFound):
            await env.app.get(run_id=there.run_id)
        async with beside(env, "blue", worker=False) as client:
            waiting = await client.start(waits_here.options(queue="nobody"))
        async with Environment(env.path, clock=env.clock, queues=("nobody",)) as worker:
            await worker.pass_time(5)
            assert (await (await blue.app.get(run_id=waiting.run_id)).describe()).status == "PENDING"


def test_the_migration_makes_the_names_that_exist(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript("".join(migrations("sqlite")[:10]) + "update perdure_schema set version = 10;")
        db.execute(
            "insert into runs (run_id, namespace, workflow_id, workflow, queue, status, seed, created_at, updated_at)"
            " values ('r', 'blue', 'a', 'w', 'q', 'COMPLETED', 1, 5, 5)"
        )
    with Perdure(f"sqlite:///{path}", worker=False).sync() as app:
        assert next((each.name, each.created_at.timestamp()) for each in app.namespaces.list()) == ("blue", 0.005)
        assert [each.name for each in app.namespaces.list()] == ["blue", "main"]
        assert app.namespaces.get("blue").runs == {"COMPLETED": 1}
