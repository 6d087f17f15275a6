"""Subscriptions on Postgres: transactions commit in any order, and nothing that they changed is missed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
import pytest

from perdure import Change, Perdure, Signal, activity, resource, workflow
from perdure.engine.subscriptions import subscriptions
from perdure.stores.postgres.address import address_of

go = Signal("go", str)
SOON = 20


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "LOOK_MS", 5)


@workflow(name="watched_on_postgres")
async def watched() -> str:
    return await go.receive()


@activity(transaction=True)
async def writes() -> str:
    return str(await resource(asyncpg.Connection).fetchval("select 'written'"))


@workflow(name="writes_on_postgres")
async def writing() -> str:
    await go.receive()
    return await writes()


@asynccontextmanager
async def guest(url: str) -> AsyncIterator[Any]:
    """A connection of the application's own."""
    address = address_of(url)
    db = await asyncpg.connect(address.dsn, server_settings={"search_path": address.schema})
    try:
        yield db
    finally:
        await db.close()


class Seen:
    """What a subscriber was told, and a way to wait for more."""

    def __init__(self, app: Perdure, **options: Any) -> None:
        self._changes = cast("Any", app.subscribe(**options))
        self.all: list[Change] = []

    async def until(self, *ids: str) -> list[str]:
        """Until each of these was told of; all that was told since."""
        told: list[str] = []
        async with asyncio.timeout(SOON):
            while not {*ids} <= {*told}:
                self.all.append(await anext(self._changes))
                told.append(self.all[-1].run.id)
        return told

    async def close(self) -> None:
        await self._changes.aclose()


async def test_a_late_commit_is_told_although_later_ones_were_before(empty_url: str) -> None:
    """By numbers alone the reader would be past it, and would never look back."""
    async with Perdure(empty_url, worker=False) as app, guest(empty_url) as db:
        seen = Seen(app)
        await app.start(watched.options(id="first"))
        await seen.until("first")
        transaction = db.transaction()
        await transaction.start()
        await app.start_within(db, watched.options(id="late"))
        for id in ("a", "b", "c"):
            await app.start(watched.options(id=id))
            await seen.until(id)
        cursor = seen.all[-1].cursor
        await transaction.commit()
        await seen.until("late")
        # The same from the cursor of another process, which was made while the transaction was open.
        other = Seen(app, after=cursor)
        await other.until("late")
        assert {change.run.id for change in other.all} == {"late"}
        for each in (seen, other):
            await each.close()


async def test_nobody_waits_for_a_transaction_that_stays_open(empty_url: str) -> None:
    """An order held back by the oldest transaction would stand still for as long as anybody's does."""
    async with Perdure(empty_url, worker=False) as app, guest(empty_url) as db:
        await db.execute("create table if not exists elsewhere (id text)")
        async with db.transaction():
            await db.execute("insert into elsewhere values ('long')")
            seen = Seen(app)
            await app.start(watched.options(id="a"))
            await seen.until("a")
            await app.start(watched.options(id="b"))
            await seen.until("b")
            await seen.close()


async def test_what_was_under_way_before_anybody_listened_is_told_when_it_commits(empty_url: str) -> None:
    """It looked for listeners when there were none, and nothing of it is in the log."""
    async with Perdure(empty_url, worker=False) as app, guest(empty_url) as db:
        await app.start(watched.options(id="first"))
        transaction = db.transaction()
        await transaction.start()
        await app.start_within(db, watched.options(id="late"))
        seen = Seen(app)
        await seen.until("first")
        await app.start(watched.options(id="a"))
        await seen.until("a")
        other = Seen(app, after=seen.all[-1].cursor)
        await transaction.commit()
        await seen.until("late")
        await other.until("late")
        for each in (seen, other):
            await each.close()


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_transaction_with_an_old_snapshot_is_told(empty_url: str, isolation: Any) -> None:
    """It cannot see that somebody has begun to listen since."""
    async with Perdure(empty_url, worker=False) as app, guest(empty_url) as db:
        transaction = db.transaction(isolation=isolation)
        await transaction.start()
        await db.fetchval("select count(*) from runs")
        seen = Seen(app)
        await app.start(watched.options(id="first"))
        await seen.until("first")
        await app.start_within(db, watched.options(id="late"))
        await transaction.commit()
        await seen.until("late")
        await seen.close()


async def test_what_is_undone_is_not_told(empty_url: str) -> None:
    async with Perdure(empty_url, worker=False) as app, guest(empty_url) as db:
        seen = Seen(app)
        transaction = db.transaction()
        await transaction.start()
        await app.start(watched.options(id="first"))
        await app.start_within(db, watched.options(id="undone"))
        await seen.until("first")
        await transaction.rollback()
        await app.start(watched.options(id="second"))
        assert "undone" not in await seen.until("second")
        await seen.close()


async def test_a_transactional_activity_is_told_with_the_end_of_its_run(empty_url: str) -> None:
    async with Perdure(empty_url) as app:
        seen = Seen(app)
        run = await app.start(writing.options(id="w"))
        # A subscriber begins with the runs that are open, and this one would soon have ended.
        await seen.until("w")
        await run.signal(go, "on")
        while not seen.all or seen.all[-1].run.closed_at is None:
            await seen.until("w")
        assert seen.all[-1].run.status == "COMPLETED"
        await seen.close()


async def test_two_processes_see_what_the_other_does(empty_url: str) -> None:
    async with Perdure(empty_url) as one, Perdure(empty_url, worker=False) as other:
        seen = Seen(other)
        run = await one.start(watched.options(id="a"))
        await seen.until("a")
        await run.signal(go, "end")
        async with asyncio.timeout(SOON):
            while seen.all[-1].run.status != "COMPLETED":
                await seen.until("a")
        await seen.close()


async def test_old_changes_are_forgotten_but_not_those_of_a_transaction_that_was_open(empty_url: str) -> None:
    """It commits after the log was said to begin later, and nobody was told of it yet."""
    async with Perdure(empty_url) as app, guest(empty_url) as db:
        seen = Seen(app, where="workflow = 'watched_on_postgres'")
        await app.start(watched.options(id="old"))
        await seen.until("old")
        engine: Any = app._opened
        async with db.transaction():
            late = await app.start_within(db, watched.options(id="late"))
            await app.start(watched.options(id="between"))
            since = await engine.subscriptions._changelog.position()
        assert since.open, "the transaction was still under way"

        await engine.subscriptions._forget(since)

        assert await db.fetchval("select count(*) from changes where run_id = $1", late.run_id)
        await seen.until("late")
        await seen.close()
