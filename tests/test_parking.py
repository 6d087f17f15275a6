"""Parking: a run that waits is one row, and nothing that comes for it is lost."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from perdure import Retry, Signal, Status, activity, now, sleep, workflow
from perdure.kernel.messages import Message, SignalSent
from perdure.stores import rows
from perdure.stores.answers import Committed
from perdure.stores.operations import Batch, InsertRun, ParkRun, PostMessage, RecordAttempt
from perdure.testing import Environment, VirtualClock
from perdure.worker import parking, worker

approved = Signal("approved", str)


@activity
async def shout(text: str) -> str:
    return text.upper()


@workflow
async def waits_for_approval() -> str:
    before = await shout("asked")
    return f"{before} {await approved.receive()}"


@workflow
async def sleeps(days: int) -> str:
    await sleep(timedelta(days=days))
    return await shout("awake")


tries: list[str] = []


@activity(retry=Retry(max_attempts=3, initial_interval=20))
async def succeeds_next_time(key: str) -> str:
    tries.append(key)
    if tries.count(key) == 1:
        raise ConnectionError(key)
    return key


@workflow
async def tries_again(key: str) -> str:
    return await succeeds_next_time(key)


@workflow
async def collects(count: int) -> list[str]:
    return [await approved.receive() for _ in range(count)]


async def post_from_elsewhere(env: Environment, run_id: str, text: str) -> None:
    """What another process does when it sends a signal."""
    body = f'{{"name":"approved","payload":"{text}"}}'
    told = await env.elsewhere([PostMessage(run_id, f"m-{text}", "SignalSent", body, env.clock.now())])
    assert isinstance(told, Committed)


@pytest.mark.parametrize("when", ["before the park", "after the park"])
async def test_a_signal_that_lands_while_parking_wakes_the_run(env: Environment, when: str) -> None:
    """Between the last look and the park lies a gap; nothing may be lost in it."""
    async with env:
        run = await env.start(waits_for_approval)
        await env.settle()
        posted: list[str] = []

        async def post(batch: Batch) -> None:
            parks = any(isinstance(operation, ParkRun) for group in batch.groups for operation in group)
            if parks and not posted:
                posted.append(run.run_id)
                # Written at once, by another connection, on one side of the park's commit.
                await post_from_elsewhere(env, run.run_id, "ann")

        if when == "before the park":
            env.store.before_commit = post
        else:
            env.store.after_commit = post
        await env.pass_time(30)
        assert posted == [run.run_id]
        assert await env.result(run) == "ASKED ann"


async def test_a_signal_noticed_before_its_run_lives_is_not_lost(env: Environment) -> None:
    """Its start is on disk and another process has seen it; here that is not known yet."""
    async with env:

        async def post(batch: Batch) -> None:
            for group in batch.groups:
                if isinstance(group[0], InsertRun):
                    await post_from_elsewhere(env, group[0].run_id, "dan")
                    sent = SignalSent("approved", msgspec.Raw(b'"dan"'))
                    env.engine.arrivals.notice(group[0].run_id, Message(1, "m-dan", sent, 0), None)

        env.store.after_commit = post
        run = await env.start(waits_for_approval)
        await env.settle()
        assert await run.result() == "ASKED dan"
        assert env.engine.arrivals.early == {}


async def test_a_parked_run_is_one_row_and_comes_back_by_a_signal(env: Environment) -> None:
    async with env:
        run = await env.start(waits_for_approval)
        await env.pass_time(30)
        info = await run.describe()
        assert (info.status, [wait.kind for wait in info.waiting_for]) == (Status.SUSPENDED, ["signal"])
        assert not env.worker.is_live(run.run_id)

        await run.signal(approved, "bob")

        assert await env.result(run) == "ASKED bob"


async def test_a_parked_run_comes_back_when_its_time_has_come(env: Environment) -> None:
    async with env:
        run = await env.start(sleeps, 3)
        await env.pass_time(30)
        info = await run.describe()
        assert info.status is Status.SUSPENDED
        assert info.waiting_for[0].until is not None
        assert info.waiting_for[0].until - info.created_at == timedelta(days=3)
        await env.pass_time(timedelta(days=2, hours=23))
        assert (await run.describe()).status is Status.SUSPENDED
        await env.pass_time(timedelta(hours=1))
        assert await env.result(run) == "AWAKE"


async def test_signals_are_received_once_each_in_the_order_they_were_sent(env: Environment) -> None:
    """Some while it is live, some while it is parked, some from another process."""
    async with env:
        run = await env.start(collects, 6)
        await run.signal(approved, "1")
        await run.signal(approved, "2")
        await env.pass_time(30)
        await post_from_elsewhere(env, run.run_id, "3")
        await run.signal(approved, "4")
        await env.settle()
        await post_from_elsewhere(env, run.run_id, "5")
        await run.signal(approved, "6")
        assert await env.result(run) == ["1", "2", "3", "4", "5", "6"]


async def test_signals_nobody_waits_for_yet_are_kept(env: Environment) -> None:
    async with env:
        run = await env.start(sleeps, 1)
        await run.signal("approved", "early")
        await env.pass_time(30)
        await run.signal("approved", "later")
        await env.pass_time(timedelta(days=1))
        assert await env.result(run) == "AWAKE"
        unread = await env.store.reads.unread(run.run_id)
        assert [rows.message_body(message.body) for message in unread] == [
            '{"name":"approved","payload":"early"}',
            '{"name":"approved","payload":"later"}',
        ]


async def test_a_crowded_worker_parks_what_waits_and_runs_the_rest(tmp_path: Path) -> None:
    """More runs than fit into memory: all of them end."""
    env = Environment(str(tmp_path / "crowd.db"), max_live=5)
    async with env:
        runs = [await env.start(waits_for_approval.options(id=f"r-{n}")) for n in range(30)]
        for _ in range(40):
            await env.pass_time(1)
        for run in runs:
            await run.signal(approved, "go")
        assert [await env.result(run) for run in runs] == ["ASKED go"] * 30


async def test_a_parked_run_leaves_nothing_in_memory(tmp_path: Path) -> None:
    """No program, and no timer that would hold one until it is due."""
    async with Environment(str(tmp_path / "memory.db")) as env:
        for days in range(1, 51):
            await env.start(sleeps, days)
        await env.pass_time(30)
        await env.pass_time(2)
        assert (len(env.worker._live), len(env.worker._effects._alarms._heap)) == (0, 0)


async def test_no_more_runs_live_than_there_is_room_for(tmp_path: Path) -> None:
    """Also when they all start at once."""
    async with Environment(str(tmp_path / "burst.db"), max_live=5) as env:
        starts = [asyncio.ensure_future(env.app.start(waits_for_approval)) for _ in range(100)]
        starts.append(asyncio.ensure_future(env.app.start(waits_for_approval.options(id="same"))))
        await asyncio.gather(*starts)
        await env.app.start(waits_for_approval.options(id="same"))
        await env.settle()
        assert (len(env.worker._live), env.worker._expected) == (5, 0)


async def test_a_stopped_worker_leaves_its_runs_to_the_next(env: Environment) -> None:
    async with env:
        run = await env.start(waits_for_approval.options(id="left"))
        await env.settle()
    async with env:
        found = await env.app.get("left")
        assert found.run_id == run.run_id
        assert (await found.describe()).waiting_for[0].name == "approved"
        await found.signal(approved, "cat")
        assert await env.result(found) == "ASKED cat"
        assert len(await env.store.reads.workers()) == 1


@pytest.mark.parametrize("behind", [timedelta(0), timedelta(hours=1)])
async def test_a_signal_wakes_a_run_whose_delay_is_over_whatever_the_sender_takes_the_time_to_be(
    tmp_path: Path, behind: timedelta
) -> None:
    """A sender whose clock is behind must not take a run for delayed that has long begun, and let it sleep on."""
    path = str(tmp_path / "delayed.db")
    clock = VirtualClock()
    async with Environment(path, clock=clock) as worker:
        run = await worker.app.start(waits_for_approval.options(id="delayed", delay=5))
        await worker.pass_time(6)
        for _ in range(30):
            await worker.pass_time(1)
        assert (await run.describe()).status == Status.SUSPENDED
        sender = Environment(path, clock=VirtualClock(clock.now() - round(behind.total_seconds() * 1000)), worker=False)
        async with sender:
            await (await sender.app.get("delayed")).signal(approved, "late")

        assert await worker.result(run) == "ASKED late"


async def test_an_attempt_that_falls_due_while_its_run_is_being_parked_is_made(env: Environment) -> None:
    """A message keeps the run from being parked; nobody else will ring for the attempt a second time."""
    key = f"due while parking {env.path} {env._replay_always}"
    async with env:
        run = await env.start(tries_again, key)
        await env.settle()
        posted: list[str] = []

        async def post_and_wait(batch: Batch) -> None:
            parks = any(isinstance(operation, ParkRun) for group in batch.groups for operation in group)
            if parks and not posted:
                posted.append(run.run_id)
                await post_from_elsewhere(env, run.run_id, "ann")
                env.clock.advance(30_000)

        env.store.before_commit = post_and_wait
        await env.pass_time(12)
        assert posted == [run.run_id]
        assert await env.result(run) == key


@activity(retry=Retry(max_attempts=3, initial_interval=20))
async def succeeds_at_last(key: str) -> str:
    tries.append(key)
    if tries.count(key) < 3:
        raise ConnectionError(key)
    return key


@workflow
async def tries_twice_again(key: str) -> str:
    return await succeeds_at_last(key)


async def test_no_attempt_begins_while_its_run_is_being_parked(env: Environment) -> None:
    """The failure before is on disk late, when the next attempt is due and the run on its way out: what came of one
    that began now would be left to the next owner, and there is none when a message keeps the run from being parked."""
    key = f"begun while parking {env.path} {env._replay_always}"
    parked: list[str] = []

    async def hold_up(batch: Batch) -> None:
        operations = [operation for group in batch.groups for operation in group]
        if any(isinstance(operation, RecordAttempt) for operation in operations) and tries.count(key) == 1:
            env.clock.advance(12_000)
            env.clock.advance(12_000)
        for operation in operations:
            if isinstance(operation, ParkRun) and not parked:
                parked.append(key)
                await post_from_elsewhere(env, operation.run_id, "ann")

    async with env:
        env.store.before_commit = hold_up
        run = await env.start(tries_twice_again, key)
        assert await env.result(run) == key
    assert parked == [key]
    assert tries.count(key) == 3


async def test_where_many_runs_live_those_nobody_has_written_to_are_parked_as_soon_as_they_wait(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand that begin to wait for days would else all be in memory; those that are talked to stay there."""
    for module in (parking, worker):
        monkeypatch.setattr(module, "MANY", 4)
    async with env:
        talked_to = await env.start(collects, 3)
        await talked_to.signal(approved, "first")
        await env.settle()
        for _ in range(3):
            await env.start(waits_for_approval)
        await env.settle()
        assert len(env.worker._live) == 4
        await env.pass_time(0.06)
        assert list(env.worker._live) == [talked_to.run_id]


@workflow
async def waits_for_nothing_at_all() -> str:
    await shout("first")
    await asyncio.Event().wait()
    return "never"


async def test_a_worker_that_stops_leaves_a_run_ripe_that_waits_for_nothing(tmp_path: Path) -> None:
    """Ctrl-C may have met it in the middle of its code; parked like one that waits, nobody would ever wake it."""
    path = str(tmp_path / "nothing.db")
    async with Environment(path) as env:
        await env.app.start(waits_for_nothing_at_all.options(id="nothing"))
        await env.settle()
    async with Environment(path, worker=False) as again:
        assert (await (await again.app.get("nothing")).describe()).status == Status.PENDING


async def test_one_jump_over_a_timeout_ends_the_run_though_it_would_be_parked_as_well(env: Environment) -> None:
    """Whoever lets a day pass wants to see the day after, in whatever order the worker would look at its runs."""
    async with env:
        run = await env.start(waits_for_approval.options(timeout=60))
        await env.pass_time(timedelta(days=1))
        assert (await run.describe()).status is Status.TIMED_OUT


@workflow
async def ticks(hours: int) -> list[float]:
    began = now()
    seen = []
    for _ in range(hours):
        await sleep(3600)
        seen.append((now() - began).total_seconds())
    return seen


async def test_one_jump_fires_all_timers_that_are_due_by_then_in_their_order(env: Environment) -> None:
    """A timer that the one before leads to is due as well, at its own time."""
    async with env:
        run = await env.start(ticks, 5)
        await env.pass_time(timedelta(hours=4.5))
        assert (await run.describe()).closed_at is None
        await env.pass_time(timedelta(hours=0.5))
        assert (await run.describe()).status is Status.COMPLETED
        assert await run.result() == [3600.0, 7200.0, 10_800.0, 14_400.0, 18_000.0]
