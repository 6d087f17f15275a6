"""Subscriptions: runs that match, then each as it changes, at least once and without a gap."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import (
    BadFilter,
    BadOption,
    Change,
    CursorExpired,
    NotOpen,
    Perdure,
    Signal,
    activity,
    at,
    set_attributes,
    workflow,
)
from perdure.app.internals import engine_of
from perdure.engine.subscriptions import subscriptions
from perdure.engine.subscriptions.cursors import Cursor
from perdure.engine.subscriptions.matching import Selection
from perdure.engine.subscriptions.subscriber import ListPage, Subscriber
from perdure.kernel.filters import parse
from perdure.kernel.position import Position
from perdure.stores.operations import InsertRun
from perdure.stores.rules.filters import run_fields
from perdure.testing import Environment

go = Signal("go", str)


@workflow(name="watched")
async def watched(first: str) -> str:
    at(first)
    async for step in go:
        at(step)
        set_attributes(step=step)
        if step == "end":
            return step
        if step == "fail":
            raise ValueError(step)
    return ""


@workflow(name="other_watched")
async def other() -> None:
    await go.receive()


@activity
async def works() -> None:
    await asyncio.sleep(0)


@workflow(name="watched_parent")
async def parent() -> None:
    await asyncio.gather(works.options(queue="default")(), watched.options(id="child")("of a parent"))


class Watcher:
    """Somebody who subscribes, and what came so far."""

    def __init__(self, env: Environment, app: Perdure | None = None, **options: Any) -> None:
        self._env = env
        self._changes: AsyncIterator[Change] = (app or env.app).subscribe(**options)
        self.seen: list[Change] = []

    async def next(self, count: int = 1) -> list[tuple[str, str, bool]]:
        found = [await self._env.alive(anext(self._changes)) for _ in range(count)]
        self.seen += found
        return [told(change) for change in found]

    async def until(self, is_it: Callable[[Change], bool]) -> Change:
        """The first change that is so; a run that changes slowly may be told of in between."""
        while True:
            await self.next()
            if is_it(self.seen[-1]):
                return self.seen[-1]

    @property
    def cursor(self) -> str:
        return self.seen[-1].cursor

    async def close(self) -> None:
        await self._changes.aclose()  # type: ignore[attr-defined]


def told(change: Change) -> tuple[str, str, bool]:
    return change.run.id, change.run.step or change.run.status.value, change.left


@asynccontextmanager
async def watching(env: Environment, **options: Any) -> AsyncIterator[Watcher]:
    watcher = Watcher(env, **options)
    try:
        yield watcher
    finally:
        await watcher.close()


async def test_first_come_the_runs_that_match_and_then_each_that_changes(env: Environment) -> None:
    async with env:
        run = await env.start(watched.options(id="a", entity_id="npc-42"), "begin")
        await env.start(watched.options(id="b", entity_id="npc-43"), "begin")
        await env.settle()
        async with watching(env, where="entity_id = :npc", params={"npc": "npc-42"}) as watcher:
            assert await watcher.next() == [("a", "begin", False)]
            await run.signal(go, "middle")
            await watcher.until(lambda change: change.run.step == "middle")
            started = await env.start(watched.options(id="c", entity_id="npc-42"), "begin")
            await watcher.until(lambda change: change.run.id == "c")
            await started.signal(go, "end")
            last = await watcher.until(lambda change: change.run.closed_at is not None)
            assert (last.run.id, last.run.status, last.left) == ("c", "COMPLETED", False)
            assert last.run.attributes == {"step": "end"}
            assert {change.run.entity_id for change in watcher.seen} == {"npc-42"}


async def test_an_end_that_changes_nothing_else_is_told(env: Environment) -> None:
    """The last state of a run always comes, also when a look has just seen the state before it."""
    async with env:
        run = await env.start(other.options(id="quiet"))
        await env.settle()
        async with watching(env) as watcher:
            await watcher.next()
            # It has said what it waits for, and is not parked yet: nothing but its end follows.
            await env.pass_time(3)
            before = await env.store.reads.changelog.position()
            await run.signal(go, "again")
            await env.alive(run.result())
            _, changed = await env.store.reads.changelog.changed(before)
            last = await watcher.until(lambda change: change.run.closed_at is not None)
            assert (changed, last.run.status) == ([run.run_id], "COMPLETED")


async def test_attributes_from_outside_are_told(env: Environment) -> None:
    """Of open and closed runs, whoever works them."""
    async with env:
        run = await env.start(watched.options(id="a"), "begin")
        await env.settle()
        async with watching(env) as watcher:
            await watcher.next()
            await run.set_attributes(vip=True)
            assert (await watcher.until(lambda change: "vip" in change.run.attributes)).left is False
            await run.signal(go, "end")
            await watcher.until(lambda change: change.run.closed_at is not None)
            await run.set_attributes(vip=None)
            await watcher.until(lambda change: "vip" not in change.run.attributes)


async def test_a_run_that_matches_no_longer_has_left(env: Environment) -> None:
    async with env:
        run = await env.start(watched.options(id="a"), "begin")
        await env.start(other.options(id="b"))
        await env.settle()
        async with watching(env, where="status in ('running', 'suspended') and workflow = 'watched'") as watcher:
            assert await watcher.next() == [("a", "begin", False)]
            await run.signal(go, "fail")
            last = await watcher.until(lambda change: change.left)
            assert (last.run.id, last.run.status, last.run.error) == ("a", "FAILED", "ValueError: fail")


async def test_closed_runs_come_first_when_they_are_asked_for(env: Environment) -> None:
    async with env:
        for number in range(3):
            run = await env.start(watched.options(id=f"a{number}"), "begin")
            await run.signal(go, "fail")
            await env.pass_time(1)
        run = await env.start(watched.options(id="b"), "begin")
        async with watching(env, where="status = 'failed'") as watcher:
            assert [id for id, *_ in await watcher.next(3)] == ["a2", "a1", "a0"]
            await run.signal(go, "fail")
            assert await watcher.next() == [("b", "fail", False)]


async def test_closed_runs_do_not_come_first_unless_they_are_asked_for(env: Environment) -> None:
    """Of a million runs that have ended nobody wants to hear who watches what goes on."""
    async with env:
        open_still = await env.start(watched.options(id="a"), "begin")
        ended = await env.start(watched.options(id="b"), "begin")
        await ended.signal(go, "end")
        await env.pass_time(1)
        async with watching(env, where="workflow = 'watched'") as watcher:
            assert [id for id, *_ in await watcher.next()] == ["a"]
            await open_still.signal(go, "end")
            await watcher.until(lambda change: change.run.closed_at is not None)
            assert {change.run.id for change in watcher.seen} == {"a"}


async def test_a_cursor_goes_on_where_another_process_stopped(env: Environment) -> None:
    """Whatever happens while nobody looks is told to the next one who asks."""
    async with env:
        runs = [await env.start(watched.options(id=id), "begin") for id in "abc"]
        await env.settle()
        watcher = Watcher(env)
        assert sorted(await watcher.next(3)) == [(id, "begin", False) for id in "abc"]
        cursor = watcher.cursor
        await runs[0].signal(go, "end")
        await env.pass_time(15)
        await env.crash()
        await env.settle()
        late = await env.app.get("b")
        await late.signal(go, "middle")
        await env.pass_time(15)
        async with watching(env, after=cursor) as again:
            await again.until(lambda change: change.run.id == "a" and change.run.closed_at is not None)
        async with watching(env, after=cursor) as once_more:
            await once_more.until(lambda change: change.run.id == "b" and change.run.step == "middle")


async def test_a_cursor_within_the_first_list_goes_on_with_the_rest_of_it(env: Environment) -> None:
    async with env:
        for id in "abcd":
            await env.start(watched.options(id=id), "begin")
        await env.settle()
        async with watching(env) as watcher:
            first = {id for id, *_ in await watcher.next(2)}
        async with watching(env, after=watcher.cursor) as again:
            assert {id for id, *_ in await again.next(2)} == {*"abcd"} - first


async def test_a_run_that_is_forked_is_told_as_changed(env: Environment) -> None:
    """It names the newest run that has its past, which who follows it wants to know."""
    async with env:
        run = await env.start(watched.options(id="a"), "begin")
        await run.signal(go, "fail")
        await env.settle()
        async with watching(env, where="status = 'failed'") as watcher:
            assert await watcher.next() == [("a", "fail", False)]
            forked = await run.fork(at=1, id="b")
            await watcher.until(lambda change: change.run.id == "a" and change.run.forked_to == forked.run_id)


async def test_a_cursor_is_not_beyond_what_was_not_told_yet(env: Environment) -> None:
    """Several runs change at once, the reader dies after the first: the next reader is told of the others."""
    async with env:
        runs = [await env.start(watched.options(id=id), "begin") for id in "abc"]
        await env.settle()
        async with watching(env) as watcher:
            await watcher.next(3)
            for run in runs:
                await run.signal(go, "middle")
            await env.pass_time(15)
            change = await watcher.until(lambda change: change.run.step == "middle")
        async with watching(env, after=change.cursor) as again:
            await told_of(again, {*"abc"} - {change.run.id}, "middle")


async def test_what_came_since_a_cursor_does_not_hide_what_came_later(env: Environment) -> None:
    """While a subscriber catches up, the look of all tells it newer things: these stay, with a cursor before both."""
    async with env:
        engine = engine_of(env.app)
        assert engine is not None
        run = await env.start(watched.options(id="a"), "begin")
        await env.settle()
        old = await engine.reader.read("main", run.run_id)
        await run.signal(go, "middle")
        await env.pass_time(15)
        new = await engine.reader.read("main", run.run_id)
        early, late = Position(3), Position(5)
        wanted = Selection("main", parse("true", None, now=0))
        subscriber = Subscriber(wanted, env.clock, late, Cursor(early, 0))

        subscriber.offer(new, run_fields(new), late)
        subscriber.offer_first([(old, run_fields(old))], early)
        told_first = subscriber.cursor
        change = await subscriber.next(no_more_pages)

        assert change.row.step == "middle"
        assert Cursor.parse(told_first).position == early
        assert Cursor.parse(change.cursor).position == late


async def no_more_pages(_: Selection, after: str) -> ListPage:
    raise AssertionError(f"a page after {after!r}: it goes on after a cursor")


@pytest.mark.parametrize("count", [3, 4])
async def test_no_run_is_lost_between_two_pages(env: Environment, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first list, in the rest of it after a cursor, among changes, and among those that came meanwhile."""
    monkeypatch.setattr(subscriptions, "PAGE", 2)
    ids = {f"p{number}" for number in range(count)}
    async with env:
        runs = [await env.start(watched.options(id=id), "begin") for id in sorted(ids)]
        await env.settle()
        async with watching(env) as watcher:
            first, *others = [id for id, *_ in await watcher.next(count)]
            assert {first, *others} == ids
            for run in runs:
                await run.signal(go, "middle")
            await told_of(watcher, ids, "middle")
        async with watching(env, after=watcher.seen[0].cursor) as rest:
            assert {id for id, *_ in await rest.next(count - 1)} == ids - {first}
        for run in runs:
            await run.signal(go, "last")
        await env.pass_time(15)
        async with watching(env, after=watcher.cursor) as again:
            await told_of(again, ids, "last")


async def test_a_page_with_a_run_that_cannot_be_read_is_not_the_last_one(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has fewer runs than others, and those behind it would never be told."""
    monkeypatch.setattr(subscriptions, "PAGE", 2)
    path = str(quick_path / "test.db")
    async with Environment(path) as env:
        for number in range(5):
            await env.start(watched.options(id=f"p{number}"), "begin")
        await env.settle()
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("update runs set seed = 'spoilt' where workflow_id in ('p4', 'p2')")
        async with watching(env) as watcher:
            assert {id for id, *_ in await watcher.next(3)} == {"p0", "p1", "p3"}


async def told_of(watcher: Watcher, ids: set[str], step: str) -> None:
    """Until each of these was told to be there."""
    missing = set(ids)
    while missing:
        await watcher.next()
        if watcher.seen[-1].run.step == step:
            missing.discard(watcher.seen[-1].run.id)


async def test_what_left_while_nobody_looked_is_told(env: Environment) -> None:
    async with env:
        run = await env.start(watched.options(id="a", entity_id="e"), "begin")
        other_run = await env.start(watched.options(id="b", entity_id="f"), "begin")
        await env.settle()
        where = "entity_id = 'e' and status in ('running', 'suspended')"
        async with watching(env, where=where) as watcher:
            await watcher.next()
        await other_run.signal(go, "fail")
        await run.signal(go, "fail")
        await env.pass_time(15)
        async with watching(env, where=where, after=watcher.cursor) as again:
            assert await again.next() == [("a", "fail", True)]
            assert [change.run.id for change in again.seen] == ["a"], "the other one can never have matched"


async def test_what_left_is_told_although_the_clock_that_started_it_is_ahead(env: Environment) -> None:
    """By its time it is newer than the cursor; it may have been told of all the same, by another process."""
    async with env:
        run = await env.start(watched.options(id="a"), "begin")
        await env.settle()
        engine = engine_of(env.app)
        assert engine is not None
        row = await engine.reader.read("main", run.run_id)
        wanted = Selection("main", parse("step = 'elsewhere'", now=0))
        subscriber = Subscriber(wanted, env.clock, Position(2), Cursor(Position(1), row.created_at - 30_000))

        subscriber.offer(row, run_fields(row), Position(1))

        change = await asyncio.wait_for(subscriber.next(no_more_pages), 1)
        assert (change.row.workflow_id, change.left) == ("a", True)


async def test_a_cursor_that_is_too_old_says_so(env: Environment) -> None:
    async with env:
        await env.start(watched.options(id="a"), "begin")
        async with watching(env) as watcher:
            await watcher.next()
        # As long as the log is kept for them, and longer.
        await env.pass_time(timedelta(minutes=5))
        async with watching(env, after=watcher.cursor) as again:
            await env.start(watched.options(id="b"), "begin")
            await again.until(lambda change: change.run.id == "b")
        await env.pass_time(timedelta(minutes=25))
        async with watching(env, after=watcher.cursor) as late:
            with pytest.raises(CursorExpired, match="too old.*begin anew"):
                await late.next()


async def test_a_cursor_from_before_a_time_without_a_log_is_too_old(env: Environment) -> None:
    """Nothing was logged while nobody listened: that the log has not moved does not say that nothing happened."""
    async with env:
        run = await env.start(watched.options(id="a"), "begin")
        async with watching(env) as watcher:
            await env.pass_time(15)
            await watcher.until(lambda change: change.run.status == "SUSPENDED")
        await env.pass_time(timedelta(minutes=25))
        await run.signal(go, "fail")
        await env.settle()
        async with watching(env, after=watcher.cursor) as late:
            with pytest.raises(CursorExpired):
                await late.next()


async def test_old_changes_are_deleted_by_whoever_looks(env: Environment) -> None:
    """The log must not grow for ever, however short subscribers stay, and one that stays must lose nothing."""
    async with env:
        for number in range(4):
            await env.start(watched.options(id=f"a{number}"), "begin")
            async with watching(env, where="id = :id", params={"id": f"a{number}"}) as watcher:
                await watcher.next()
            if number == 0:
                first = watcher.cursor
            await env.pass_time(timedelta(minutes=7))
        async with watching(env, where="id = 'a3'") as watcher:
            await watcher.next()
        await env.settle()
        assert 1 <= len(await logged(env)) < 4
        async with watching(env, after=first) as late:
            with pytest.raises(CursorExpired):
                await late.next()


async def test_nothing_is_logged_while_nobody_listens(env: Environment) -> None:
    """Who does not subscribe pays for one look a batch, and no row."""
    async with env:
        run = await env.start(watched.options(id="a"), "begin")
        await env.settle()
        assert await logged(env) == []
        async with watching(env) as watcher:
            await watcher.next()
            await run.signal(go, "middle")
            await watcher.until(lambda change: change.run.step == "middle")
            assert await logged(env) != []
        await env.pass_time(timedelta(minutes=12))
        before = await logged(env)
        await run.signal(go, "end")
        await env.start(watched.options(id="b"), "begin")
        await env.pass_time(1)
        assert await logged(env) == before


async def logged(env: Environment) -> list[str]:
    return (await env.store.reads.changelog.changed(Position(0)))[1]


async def test_a_slow_reader_holds_one_entry_for_a_run(env: Environment) -> None:
    async with env:
        run = await env.start(watched.options(id="a"), "begin")
        await env.settle()
        async with watching(env) as slow:
            await slow.next()
            for number in range(20):
                await run.signal(go, str(number))
                await env.pass_time(1)
            (reader,) = env.engine.subscriptions._subscribers
            assert len(reader._waiting) == 1
            assert await slow.next() == [("a", "19", False)]


@pytest.mark.parametrize("spoilt", ["outcome = 'no JSON'", "outcome = '[1]'", "attributes = '[1]'"])
async def test_a_run_that_cannot_be_read_keeps_nobody_from_the_others(quick_path: Path, spoilt: str) -> None:
    """One damaged row, and no subscriber of the process would ever be told of any run again."""
    path = str(quick_path / "test.db")
    async with Environment(path) as env:
        bad = await env.start(watched.options(id="bad"), "a")
        good = await env.start(watched.options(id="good"), "a")
        await bad.signal(go, "fail")
        await env.settle()
        async with watching(env, where="workflow = 'watched' and error is null") as watcher:
            assert await watcher.next() == [("good", "a", False)]
            await bad.set_attributes(note=1)
            with closing(sqlite3.connect(path)) as db, db:
                db.execute(f"update runs set {spoilt} where workflow_id = 'bad'")
            await env.pass_time(1)
            await good.signal(go, "b")
            assert (await watcher.until(lambda change: change.run.step == "b")).run.id == "good"


async def test_many_subscribers_share_one_look(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    async with env:
        await env.start(watched.options(id="a"), "begin")
        await env.settle()
        watchers = [Watcher(env, where=f"entity_id = 'e{number}' or id = 'a'") for number in range(50)]
        for watcher in watchers:
            await watcher.next()
        asked = 0
        changelog = type(env.store.reads.changelog)
        changed = changelog.changed

        async def counted(self: Any, since: Any) -> Any:
            nonlocal asked
            asked += 1
            return await changed(self, since)

        monkeypatch.setattr(changelog, "changed", counted)
        await env.pass_time(1)
        assert 1 <= asked <= 11
        for watcher in watchers:
            await watcher.close()


async def test_changes_of_another_process_come(env: Environment) -> None:
    async with env, watching(env) as watcher:
        first = asyncio.ensure_future(watcher.next())
        await env.pass_time(1)
        now = env.clock.now()
        run = InsertRun("z", "main", "z", "wf", "nobody", "PENDING", None, now, 0, "{}", 7, now)
        await env.elsewhere([run])
        assert await env.alive(first) == [("z", "PENDING", False)]


async def test_namespaces_and_tasks_stay_apart(env: Environment) -> None:
    async with env, watching(env) as watcher, watching(env, where="workflow like 'task:%'") as of_tasks:
        first = asyncio.ensure_future(of_tasks.next())
        await env.pass_time(1)
        now = env.clock.now()
        await env.elsewhere([InsertRun("z", "foreign", "z", "wf", "q", "PENDING", None, now, 0, "{}", 7, now)])
        await env.start(parent.options(id="p"))
        await watcher.until(lambda change: change.run.id == "child")
        assert {change.run.workflow for change in watcher.seen} <= {"watched_parent", "watched"}
        await env.alive(first)
        assert of_tasks.seen[0].run.workflow == "task:works"


async def test_bad_input_is_refused_before_anything_is_asked(env: Environment) -> None:
    async with env:
        for options, error in [
            ({"where": "status ="}, BadFilter),
            ({"where": ""}, BadFilter),
            ({"where": "id = :id"}, BadFilter),
            ({"after": "nonsense"}, BadOption),
            ({"after": "1:2:3"}, BadOption),
            ({"after": 7}, BadOption),
        ]:
            async with watching(env, **options) as watcher:  # type: ignore[arg-type]
                with pytest.raises(error):
                    await watcher.next()
        assert await env.store.reads.changelog.listener("changes") is None


async def test_a_subscription_ends_when_its_perdure_is_closed(env: Environment) -> None:
    async with env:
        watcher = Watcher(env)
        waiting = asyncio.ensure_future(watcher.next())
        await env.settle()
    with pytest.raises(NotOpen):
        await waiting


def test_code_that_does_not_await_follows_runs_as_well(quick_path: Path) -> None:
    with Perdure(f"sqlite:///{quick_path / 'sync.db'}").sync() as app:
        run = app.start(watched.options(id="a"), "begin")
        changes = app.subscribe(where="id = 'a'")
        assert next(changes).run.id == "a"
        run.signal(go, "end")
        assert next(change for change in changes if change.run.closed_at is not None).run.status == "COMPLETED"
