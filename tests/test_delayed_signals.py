"""Signals that come later: on disk at once, received when they are due, never earlier, whoever works then."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from perdure import Signal, Status, continue_as_new, now, select, workflow
from perdure.errors import BadOption, KeyConflict, RunClosed
from perdure.kernel.messages import Message, SignalSent
from perdure.testing import Environment
from perdure.worker.inbox import Inbox

later = Signal("later", str)
other = Signal("other_later", str)
HOUR = timedelta(hours=1)


@workflow
async def receives_later(count: int = 1) -> list[tuple[str, datetime]]:
    return [(await later.receive(), now()) for _ in range(count)]


@workflow
async def receives_either_later(count: int) -> list[str]:
    found = []
    for _ in range(count):
        _, value = await select(one=later.receive(), two=other.receive())
        found.append(str(value))
    return found


@workflow
async def receives_in_the_next(generation: int) -> tuple[str, datetime]:
    if generation == 1:
        await other.receive()
        continue_as_new(2)
    return await later.receive(), now()


@workflow
async def fails_before_later() -> tuple[str, datetime]:
    await other.receive()
    if not healed:
        raise ValueError("not yet")
    return await later.receive(), now()


healed: list[bool] = []


def at(env: Environment) -> datetime:
    return datetime.fromtimestamp(env.clock.now() / 1000, UTC)


@pytest.mark.parametrize("is_parked", [False, True])
async def test_a_signal_is_received_when_its_delay_is_over(env: Environment, is_parked: bool) -> None:
    """A reminder in two hours must not depend on a process that sleeps for two hours."""
    async with env:
        run = await env.start(receives_later)
        await env.settle()
        if is_parked:
            await env.pass_time(30)
            assert (await run.describe()).status == Status.SUSPENDED
        sent_at = at(env)
        await run.signal(later, "ann", delay=2 * HOUR)
        (unread,) = await run.unread()
        assert (unread.name, unread.payload, unread.due_at) == ("later", "ann", sent_at + 2 * HOUR)
        await env.pass_time(2 * HOUR - timedelta(milliseconds=1))
        assert len(await run.unread()) == 1
        (received,) = await env.result(run)
        assert received[0] == "ann"
        assert timedelta(0) <= received[1] - sent_at - 2 * HOUR <= timedelta(seconds=1)


@pytest.mark.parametrize("is_parked", [False, True])
async def test_many_runs_are_sent_a_signal_that_comes_later(env: Environment, is_parked: bool) -> None:
    """All of them when it is due, each once, however often it was sent under its id or key."""
    async with env:
        runs = [await env.start(receives_later) for _ in range(2)]
        await env.pass_time(30 if is_parked else 0)
        sent_at = at(env)
        for _ in range(2):
            await env.app.with_key("k").broadcast(later, "ann", where="workflow = 'receives_later'", delay=HOUR)
        with pytest.raises(KeyConflict):
            await env.app.with_key("k").broadcast(later, "ann", where="workflow = 'receives_later'")
        assert [each.due_at for run in runs for each in await run.unread()] == [sent_at + HOUR] * 2
        await env.pass_time(HOUR - timedelta(milliseconds=1))
        assert [len(await run.unread()) for run in runs] == [1, 1]
        for run in runs:
            ((value, received_at),) = await env.result(run)
            assert value == "ann"
            assert timedelta(0) <= received_at - sent_at - HOUR <= timedelta(seconds=1)
        with pytest.raises(BadOption):
            await env.app.broadcast(later, "ann", where="true", delay=-1)


async def test_a_delayed_signal_goes_through_restarts_and_takeovers(env: Environment) -> None:
    """It is in the database alone: whoever has the run next has it too."""
    async with env:
        run = await env.start(receives_later)
        await env.settle()
        sent_at = at(env)
        await run.signal(later, "bob", delay=HOUR, id="once")
        await env.crash()
        await env.pass_time(60)
        # Sent again under its id it counts once, and keeps its time.
        run = await env.app.get(run.id, workflow=receives_later)
        await run.signal(later, "bob", delay=3 * HOUR, id="once")
        await run.signal(later, "bob", id="once")
        assert len(await run.unread()) == 1
        await env.crash()
        await env.pass_time(HOUR - timedelta(seconds=70))
        run = await env.app.get(run.id, workflow=receives_later)
        assert (await run.describe()).status in {Status.SUSPENDED, Status.RUNNING}
        (received,) = await env.result(run)
        assert received[0] == "bob"
        assert timedelta(0) <= received[1] - sent_at - HOUR <= timedelta(seconds=2)


async def test_signals_are_received_in_the_order_of_the_times_they_are_due(env: Environment) -> None:
    """Among those of one name and of several, live or read from disk."""
    for parks in (False, True):
        async with env:
            run = await env.start(receives_either_later, 5)
            await env.pass_time(30 if parks else 0)
            await run.signal(later, "second", delay=20)
            await run.signal(other, "first", delay=10)
            await run.signal(later, "zero")
            await env.pass_time(40)
            await run.signal(other, "fourth")
            await run.signal(later, "fifth")
            assert await env.result(run) == ["zero", "first", "second", "fourth", "fifth"]


async def test_what_came_due_while_no_worker_was_there_stands_at_its_time(env: Environment) -> None:
    """All of it is read at once then, and its numbers are those of the sending."""
    env._is_worker = False
    async with env:
        run = await env.start(receives_either_later, 4)
        await run.signal(later, "third", delay=20)
        await run.signal(other, "second", delay=10)
        await run.signal(later, "first")
        await env.pass_time(40)
        await run.signal(other, "fourth")
    env._is_worker = True
    async with env:
        run = await env.app.get(run.id, workflow=receives_either_later)
        assert await env.result(run) == ["first", "second", "third", "fourth"]


async def test_one_that_is_due_sooner_than_the_others_is_not_kept_until_these_are_due(env: Environment) -> None:
    async with env:
        run = await env.start(receives_later, 2)
        await env.settle()
        sent_at = at(env)
        await run.signal(later, "second", delay=8)
        await run.signal(later, "first", delay=3)
        found = await env.result(run)
        assert [text for text, _ in found] == ["first", "second"]
        assert found[0][1] - sent_at < timedelta(seconds=5)


def inbox_of(*messages: tuple[int, int, int | None]) -> list[int]:
    """The order in which the messages of one name are taken, all of them due: number, time, and when due."""
    inbox = Inbox()
    for number, sent_at, due_at in messages:
        inbox.add(Message(number, str(number), SignalSent("s", msgspec.Raw(b"1"), due_at), sent_at))
    if inbox.delayed is not None:
        inbox.release(lambda _: True)
    return [message.number for message in inbox.unread["signal(s)"]]


@pytest.mark.parametrize(
    ("messages", "order"),
    [
        ([(1, 10, None), (2, 11, None)], [1, 2]),
        ([(1, 10, None), (2, 11, 50)], [1, 2]),
        ([(1, 10, 50), (2, 40, None), (3, 60, None)], [2, 1, 3]),
        ([(1, 10, 90), (2, 11, 50), (3, 40, None)], [3, 2, 1]),
        ([(1, 10, 50), (2, 11, 50), (3, 60, None)], [1, 2, 3]),
        # A clock that is behind changes nothing in the order of ordinary ones.
        ([(1, 10, None), (2, 100, 150), (3, 5, None), (4, 200, None)], [1, 3, 2, 4]),
    ],
)
def test_a_delayed_message_stands_among_the_others_by_its_time(
    messages: list[tuple[int, int, int | None]], order: list[int]
) -> None:
    assert inbox_of(*messages) == order


async def test_a_run_that_continues_takes_what_is_due_later_with_it(env: Environment) -> None:
    async with env:
        run = await env.start(receives_in_the_next, 1)
        await env.settle()
        sent_at = at(env)
        await run.signal(later, "cleo", delay=HOUR)
        await run.signal(other, "go on")
        await env.pass_time(60)
        newest = await env.app.get(run.id)
        assert newest.run_id != run.run_id
        assert [each.due_at for each in await newest.unread()] == [sent_at + HOUR]
        text, received_at = await env.result(run)
        assert text == "cleo"
        assert received_at >= sent_at + HOUR


async def test_a_retry_has_what_is_due_later(env: Environment) -> None:
    healed.clear()
    async with env:
        run = await env.start(fails_before_later)
        await env.settle()
        sent_at = at(env)
        await run.signal(later, "dora", delay=HOUR)
        await run.signal(other, "now")
        await env.settle()
        assert (await run.describe()).status == Status.FAILED
        with pytest.raises(RunClosed):
            await run.signal(later, "late", delay=HOUR)
        healed.append(True)
        again = await run.retry()
        await env.settle()
        assert (await again.describe()).status == Status.RUNNING
        text, received_at = await env.result(again)
        assert text == "dora"
        assert received_at >= sent_at + HOUR


async def test_a_fork_has_what_is_due_later_and_what_it_has_not_received_yet(env: Environment) -> None:
    """Each of the two runs receives the signal, and the fork not earlier than the run it was made from."""
    async with env:
        run = await env.start(receives_later)
        await env.settle()
        sent_at = at(env)
        await run.signal(later, "eve", delay=HOUR)
        early = await run.fork(1, id="forked before its time")
        await env.pass_time(HOUR / 2)
        assert [each.due_at for each in await early.unread()] == [sent_at + HOUR]
        for each in (run, early):
            (received,) = await env.result(each)
            assert received[0] == "eve"
            assert received[1] >= sent_at + HOUR
        late = await run.fork(1, id="forked after its time")
        forked_at = at(env)
        (received,) = await env.result(late)
        assert received[0] == "eve"
        assert received[1] - forked_at <= timedelta(seconds=1)


@pytest.mark.parametrize("is_parked", [False, True])
async def test_a_delayed_signal_for_a_run_that_was_terminated_is_dropped(env: Environment, is_parked: bool) -> None:
    """Its time comes and goes: nothing wakes, and the run stays as it ended."""
    async with env:
        run = await env.start(receives_later)
        await env.pass_time(30 if is_parked else 0)
        await run.signal(later, "fay", delay=HOUR)
        await run.terminate("enough")
        await env.settle()
        ended = await run.describe()
        assert ended.status == Status.TERMINATED
        before = await env.events(run.id)
        await env.pass_time(2 * HOUR)
        assert await run.describe() == ended
        assert await env.events(run.id) == before
        assert env.app.worker_stats().live == 0
        with pytest.raises(RunClosed):
            await run.signal(later, "gus", delay=HOUR)


async def test_a_delayed_signal_does_not_begin_a_run_earlier(env: Environment) -> None:
    async with env:
        begins_at = at(env) + HOUR
        run = await env.app.start(receives_later.options(delay=HOUR), 1)
        await run.signal(later, "early", delay=60)
        await env.pass_time(600)
        assert (await run.describe()).status == Status.PENDING
        (received,) = await env.result(run)
        assert received[1] >= begins_at


async def test_a_bad_delay_is_refused(env: Environment) -> None:
    async with env:
        run = await env.start(receives_later)
        for wrong in (-1, "soon", float("nan"), timedelta(days=-1)):
            with pytest.raises(BadOption, match="delay"):
                await run.signal(later, "x", delay=wrong)  # type: ignore[arg-type]
        assert await run.unread() == []
