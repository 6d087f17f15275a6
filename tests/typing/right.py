# pyright: strict
"""Right lines, and the types they give; both type checkers accept every one."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_type

from perdure import (
    Activity,
    Asked,
    At,
    Attempt,
    Backfilled,
    BoundCall,
    Bulk,
    BulkError,
    Change,
    Check,
    Cron,
    Decision,
    Deferred,
    DeferredInfo,
    DutyInfo,
    Every,
    Explanation,
    FailedAttempt,
    Info,
    KeyInfo,
    MadeKey,
    NamespaceDetail,
    NamespaceInfo,
    Namespaces,
    Page,
    Perdure,
    PerdureError,
    QueueInfo,
    Request,
    Retry,
    Run,
    RunEvent,
    RunInfo,
    ScheduleInfo,
    Schedules,
    Signal,
    Snapshot,
    Status,
    Stream,
    StreamItem,
    SyncKeys,
    SyncNamespaces,
    SyncPerdure,
    SyncRun,
    SyncSchedules,
    SyncWorkers,
    Undo,
    UndoInfo,
    UnreadMessage,
    WorkerInfo,
    Workflow,
    activity,
    at,
    attempt,
    continue_as_new,
    expose,
    heartbeat,
    info,
    interrupted,
    now,
    patched,
    resource,
    rng,
    select,
    set_attributes,
    side_effect,
    sleep,
    undo,
    unwind,
    uuid4,
    workflow,
)
from tests.typing.shop import Line, Pool, approved, charge, checkout, notify, pick, price, reserve, shipped

# Decorated functions have the names, the parameters and the results of what was decorated.


async def called() -> None:
    assert_type(await reserve("o-17"), str)
    assert_type(await charge("o-17", 4200), str)
    assert_type(await charge("o-17", cents=4200, currency="USD"), str)
    assert_type(await price("sku"), float)
    assert_type(await pick("o-17", 3), int)
    assert_type(await checkout("o-17", 4200, gift=True), str)
    assert_type(await checkout.fn("o-17", 4200), str)
    assert_type(await rate("a", stars=1), int)
    assert_type(await stamp(), bytes)
    assert_type(await rating("a"), int)
    assert_type(checkout.name, str)
    assert_type(charge.is_async, bool)


any_workflow: Workflow[..., object] = checkout
any_activity: Activity[..., object] = charge
exact_workflow: Workflow[[str, int], int] = pick
exact_activity: Activity[[str], float] = price


# Options keep the signature.


async def with_options() -> None:
    wanted = checkout.options(
        id="o-17",
        queue="night",
        timeout=timedelta(days=2),
        priority=3,
        entity_id="customer-4",
        correlation_id="c-1",
        attributes={"tenant": "acme", "lines": 3},
        delay=0.5,
        on_conflict="replace",
        on_parent_close="abandon",
    )
    assert_type(await wanted("o-17", 4200, gift=True), str)
    assert_type(await charge.options(retry=Retry(max_attempts=2), timeout=30)("o-17", 1), str)
    assert_type(await pick.options(id="p")("o-17", 1), int)


# Calls are values.

assert_type(pick.call("o-17", 3), BoundCall[int])
assert_type(notify.call([Line("a", 1)]), BoundCall[None])
calls: list[BoundCall[object]] = [pick.call("o-17", 3), checkout.call("o-17", cents=1)]


# Signals know their payload, said either way.

assert_type(approved, Signal[bool])
assert_type(shipped, Signal[Line])
assert_type(Signal("lines", list[Line]), Signal[list[Line]])
assert_type(Signal[int | None]("maybe"), Signal[int | None])
bare: Signal[None] = Signal("bare")

# So do deferreds; requests know their answers as well.
decision = Deferred("decision", Line)
add = Request("add", Line, int)
lines = Stream("lines", Line)
assert_type(decision, Deferred[Line])
assert_type(add, Request[Line, int])
assert_type(Request[str, bool]("is it there"), Request[str, bool])


@workflow
async def decides() -> int:
    assert_type(decision.token(), str)
    assert_type(await decision.wait(timeout=5), Line)
    assert_type(await interrupted(), str | None)
    async for asked in add:
        assert_type(asked, Asked[Line, int])
        assert_type(asked.value, Line)
        asked.answer(1)
        asked.refuse("no")
    return 1


# Decorators with options, on functions of both kinds.


@activity(name="rated", retry=Retry(non_retryable=(ValueError,)))
async def rate(sku: str, *, stars: int = 5) -> int:
    return stars


@activity(timeout=3)
def stamp() -> bytes:
    return b""


@workflow(name="rating")
async def rating(sku: str) -> int:
    return await rate(sku, stars=3)


# From outside.


async def channels(app: Perdure, run: Run[str]) -> None:
    await run.resolve(decision, Line("a", 1))
    await run.resolve(decision, error="no")
    await run.resolve("by-name", 7, connection=None)
    await app.resolve("token", {"any": "value"})
    assert_type(await run.ask(add, Line("a", 1), timeout=5, id="web-81"), int)
    assert_type(await run.ask("by-name", 7), object)
    assert_type(await run.query(), dict[str, object])
    assert_type(await run.query("progress"), object)
    assert_type(await run.snapshot(), Snapshot)
    async for item in run.stream(lines):
        assert_type(item, StreamItem[Line])
        assert_type(item.value, Line)
    async for named in run.stream("by-name", after=3):
        assert_type(named, StreamItem[object])
    assert_type(await run.deferreds(), list[DeferredInfo])


async def made_anew(run: Run[str]) -> None:
    assert_type(await run.retry(reason="again"), Run[str])
    assert_type(await run.fork(at="charge", id="o-18", input={"cents": 1}, results={"charge": "r"}), Run[str])


async def looks(app: Perdure, run: Run[object]) -> None:
    assert_type(await run.explain(), Explanation)
    assert_type(await app.stuck(after=timedelta(minutes=5)), Page)
    async for change in app.subscribe(where="tenant = :t", params={"t": "acme"}, after=None):
        assert_type(change, Change)
        assert_type((change.run, change.cursor, change.left), tuple[RunInfo, str, bool])
    assert_type(await app.check(checkout, "pick", where="true", limit=10), Check)


async def finds(app: Perdure, run: Run[str]) -> None:
    assert_type(await app.list(where="tenant = :t", params={"t": "acme"}), Page)
    assert_type(await app.count(where="tenant = :t", params={"t": "acme"}), int)
    assert_type(await app.count(by="status"), dict[object, int])
    await run.set_attributes(vip=True, note=None)
    assert_type([event async for event in run.events(newest_first=True, before=9, limit=5)], list[RunEvent])


async def under_keys(run: Run[str]) -> None:
    async with Perdure("sqlite://") as app:
        assert_type(await app.with_key("k", keep=60).start(checkout, "o-17", 4200), Run[str])
        assert_type(run.with_key("k", stale_after=timedelta(seconds=5)), Run[str])


async def outside(runs: list[Run[object]]) -> None:
    async with Perdure("sqlite://", workflows=[checkout, pick], resources=[Pool()], lease=timedelta(minutes=1)) as app:
        assert_type(app, Perdure)
        run = await app.start(checkout, "o-17", 4200)
        assert_type(run, Run[str])
        assert_type(run.id, str)
        assert_type(run.run_id, str)
        assert_type(run.workflow, str)
        assert_type(await run.result(), str)
        assert_type(await run.result(timeout=timedelta(seconds=3)), str)
        assert_type(await run, str)
        assert_type(await app.start(checkout.options(id="o-17"), "o-17", cents=4200, gift=True), Run[str])
        assert_type(await app.run(checkout, "o-17", 4200), str)
        assert_type(await app.run(notify, [Line("a", 1)]), None)
        assert_type(await asyncio.gather(run, app.run(pick, "o-17", 1)), tuple[str, int])
        runs.append(run)
        runs += [await app.start(pick, "o-17", 1), await app.start(notify, [])]

        many = await app.start_many(*(pick.call("o-17", shelf) for shelf in range(3)))
        assert_type(many, list[Run[int] | PerdureError])
        started = [each for each in many if not isinstance(each, PerdureError)]
        assert_type(started, list[Run[int]])
        assert_type(await asyncio.gather(*(each.result() for each in started)), list[int])
        mixed: list[Run[object] | PerdureError] = await app.start_many(*calls)
        assert_type(mixed[0], Run[object] | PerdureError)

        assert_type(await app.start_json("the-checkout", b'["o-17", 4200]', id="o-17"), Run[object])
        assert_type(await app.get("o-17"), Run[object])
        assert_type(await app.get(run_id="r"), Run[object])
        assert_type(await app.get("o-17", workflow=checkout), Run[str])
        assert_type(await app.get(run_id="r", workflow=pick), Run[int])

        page = await app.list(status=[Status.FAILED, "running"], workflow=checkout, limit=10, after=None)
        assert_type(page, Page)
        assert_type(page[0], RunInfo)
        assert_type(page[:2], list[RunInfo])
        assert_type(page.cursor, str | None)
        assert_type([each.status for each in page], list[Status])

        await run.signal(approved, True)
        await run.signal(shipped, Line("a", 1), id="once")
        await run.signal("by-name", {"any": "payload"})
        await run.cancel("enough", deadline=timedelta(minutes=1))
        await run.cancel(force=True)
        await run.terminate()
        assert_type(await run.describe(), RunInfo)
        assert_type((await run.describe()).attributes, dict[str, object])
        assert_type(run.events(follow=True), AsyncIterator[RunEvent])
        async for event in run.events(after=3):
            assert_type(event, RunEvent)
            assert_type(event.body, dict[str, object])
        assert_type(await run.children(limit=3), Page)
        assert_type(await run.attempts(), list[FailedAttempt])
        assert_type(await run.unread(), list[UnreadMessage])
        assert_type((await run.describe()).undo, tuple[UndoInfo, ...])


charge_elsewhere = charge.options(queue="bank", queue_timeout=timedelta(minutes=1), heartbeat=30, timeout=7200)


@activity(heartbeat=timedelta(seconds=30), at_most_once=True)
def letter(to: str) -> bytes:
    return to.encode()


# Inside a workflow.


def roll() -> int:
    return 4


async def roll_slowly() -> float:
    return 4.0


@workflow
async def everything(cursor: int = 0) -> list[int]:
    assert_type(await reserve("o-17"), str)
    assert_type(await charge("o-17", 4200), str)
    assert_type(await charge_elsewhere.options(at_most_once=True)("o-17", 4200), str)
    assert_type(await letter("Ann"), bytes)
    assert_type(await pick("o-17", 1), int)
    assert_type(await asyncio.gather(*(pick("o-17", shelf) for shelf in range(10))), list[int])
    assert_type(await asyncio.gather(pick("o-17", 1), price("a"), checkout("o-17", 1)), tuple[int, float, str])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(pick.options(on_parent_close="cancel")("o-17", 3))
    assert_type(task.result(), int)
    assert_type(await asyncio.wait_for(charge("o-17", 1), timeout=3), str)

    assert_type(await approved.receive(), bool)
    assert_type(await shipped.receive(timeout=timedelta(days=1)), Line)
    async for line in shipped:
        assert_type(line, Line)
        break
    assert_type(await select(first=pick("o-17", 1), second=pick("o-17", 2)), tuple[str, int])
    match await select(expire=sleep(30), answer=approved.receive()):
        case ("expire", None):
            pass
        case (_, answer):
            assert_type(answer, bool | None)

    assert_type(await side_effect(roll), int)
    assert_type(await side_effect(roll_slowly), float)
    assert_type(await side_effect(lambda: "text"), str)
    assert_type(now(), datetime)
    assert_type(rng(), random.Random)
    assert_type(uuid4(), uuid.UUID)
    assert_type(info(), Info)
    assert_type(patched("v2"), bool)
    at("packing")
    set_attributes(tenant="acme", lines=3, gone=None)
    await sleep(3)
    await sleep(timedelta(hours=1))
    assert_type(undo(charge, "o-17", cents=4200), Undo)
    assert_type(undo(checkout.options(id="o-17"), "o-17", 4200, gift=True), Undo)
    undo(reserve, "o-17").drop()
    expose("cursor", lambda: cursor)
    lines.publish(Line("a", 1))
    await unwind()
    if cursor > 100:
        continue_as_new(cursor + 1)
    if cursor > 10:
        continue_as_new(everything.call(cursor=3))
    return [cursor]


async def nouns(app: Perdure) -> None:
    assert_type(app.namespaces, Namespaces)
    assert_type(await app.keys.create("ci", role="reader"), MadeKey)
    assert_type(await app.keys.list(), list[KeyInfo])
    assert_type(await app.workers.list(), list[WorkerInfo])
    assert_type(await app.queues.list(), list[QueueInfo])
    assert_type(await app.namespaces.create("blue"), NamespaceInfo)
    assert_type(await app.namespaces.list(), list[NamespaceInfo])
    assert_type(await app.namespaces.get("blue"), NamespaceDetail)
    assert_type(app.schedules, Schedules)
    when = Every(timedelta(minutes=15), overlap="queue_one", jitter=30)
    assert_type(when.times(datetime.now(UTC), 5), list[datetime])
    assert_type(await app.schedules.create("eu", everything.options(queue="slow").call(7), when), ScheduleInfo)
    assert_type(await app.schedules.put("eu", everything.call(7), Cron("0 2 * * *", "Europe/Berlin")), ScheduleInfo)
    assert_type(await app.schedules.update("eu", catch_up="all", within=timedelta(hours=6)), ScheduleInfo)
    assert_type(await app.schedules.trigger("eu"), Run[object])
    assert_type(await app.schedules.backfill("eu", datetime.now(UTC), datetime.now(UTC)), Backfilled)
    assert_type((await app.schedules.get("eu")).decisions, tuple[Decision, ...])
    assert_type(await app.schedules.list(), list[ScheduleInfo])
    assert_type(await app.schedules.delete("eu"), bool)
    assert_type(await app.cancel_all(where="true", progress=print), Bulk)
    assert_type((await app.retry_all(where="true", reason="why")).errors, dict[str, BulkError])
    assert_type(await app.broadcast(approved, True, where="a = :a", params={"a": 1}, id="x", dry_run=True), Bulk)
    assert_type(await app.duties(), list[DutyInfo])


@workflow(schedule=At(datetime(2027, 1, 1, tzinfo=UTC)))
async def once() -> datetime | None:
    assert_type(info().schedule, str | None)
    return info().scheduled_for


# Inside an activity.


@activity
def looks_around() -> str:
    assert_type(attempt(), Attempt)
    assert_type(attempt().is_cancelled, bool)
    assert_type(attempt().details, object)
    heartbeat({"done": 3})
    heartbeat()
    assert_type(attempt().number, int)
    assert_type(resource(Pool), Pool)
    return attempt().key


# For code that does not await.


def blocking_nouns() -> None:
    with Perdure("sqlite://").sync() as app:
        assert_type(app.keys, SyncKeys)
        assert_type(app.keys.list(), list[KeyInfo])
        assert_type(app.workers, SyncWorkers)
        assert_type(app.queues.list(), list[QueueInfo])


def blocking(passed_on: Callable[[SyncRun[object]], None]) -> None:
    with Perdure("sqlite://").sync() as app:
        assert_type(app, SyncPerdure)
        run = app.start(checkout, "o-17", 4200)
        assert_type(run, SyncRun[str])
        assert_type(run.id, str)
        assert_type(run.result(), str)
        assert_type(run.result(timeout=3), str)
        assert_type(app.run(checkout.options(id="o-17"), "o-17", cents=4200), str)
        assert_type(app.with_key("k").start(checkout, "o-17", 4200), SyncRun[str])
        assert_type(run.with_key("k"), SyncRun[str])
        assert_type(app.start_many(pick.call("o-17", 1)), list[SyncRun[int] | PerdureError])
        assert_type(app.start_json("the-checkout", b"{}"), SyncRun[object])
        assert_type(app.get("o-17"), SyncRun[object])
        assert_type(app.get("o-17", workflow=checkout), SyncRun[str])
        assert_type(app.list(status="failed"), Page)
        assert_type(app.count(where="true"), int)
        assert_type(app.namespaces, SyncNamespaces)
        assert_type(app.namespaces.create("blue"), NamespaceInfo)
        assert_type(app.namespaces.list(), list[NamespaceInfo])
        assert_type(app.namespaces.get("blue"), NamespaceDetail)
        app.namespaces.delete("blue")
        assert_type(app.schedules, SyncSchedules)
        assert_type(app.schedules.trigger("eu"), SyncRun[object])
        assert_type(app.schedules.update("eu", interval=60), ScheduleInfo)
        assert_type(app.duties(), list[DutyInfo])
        assert_type(app.pause_all(where="true"), Bulk)
        assert_type(run.events(follow=True), Iterator[RunEvent])
        assert_type([event.kind for event in run.events()], list[str])
        assert_type(run.describe(), RunInfo)
        assert_type(run.explain(), Explanation)
        assert_type(app.stuck(), Page)
        assert_type(app.subscribe(where="true"), Iterator[Change])
        assert_type(run.children(), Page)
        assert_type(run.attempts(), list[FailedAttempt])
        assert_type(run.unread(), list[UnreadMessage])
        run.signal(approved, True)
        run.resolve(decision, Line("a", 1))
        app.resolve("token", error="no")
        assert_type(run.ask(add, Line("a", 1)), int)
        assert_type(run.ask("by-name", 7), object)
        assert_type(run.query(), dict[str, object])
        assert_type(run.query("progress"), object)
        assert_type(run.snapshot(), Snapshot)
        assert_type(run.stream(lines, after=3), Iterator[StreamItem[Line]])
        assert_type([item.value for item in run.stream("by-name")], list[object])
        run.cancel("enough")
        run.pause("a while")
        run.resume()
        run.terminate()
        passed_on(run)
