"""Neighbours: what one run or one activity does wrong, or does a lot of, harms no other."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure import BadOption, Perdure, Retry, RunFailed, Signal, Status, StoreUnavailable, activity, workflow
from perdure.kernel.messages import Message, TerminateRequest
from perdure.stores.operations import Batch, ParkRun
from perdure.testing import Environment, VirtualClock
from perdure.worker.inbox import MOST_SEEN, Inbox
from perdure.worker.timers import Alarms

word = Signal("word", int)
other_word = Signal("other word", int)
log: list[object] = []


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    log.clear()


@activity
async def twice(number: int) -> int:
    return number * 2


@activity(retry=Retry(max_attempts=1))
async def raises_base(kind: str) -> int:
    raise asyncio.CancelledError(kind)


@activity(retry=Retry(max_attempts=3))
async def eats_its_list(items: list[int]) -> int:
    log.append(list(items))
    items.pop()
    raise ValueError("again")


class HostileError(Exception):
    @property
    def args(self) -> tuple[object, ...]:  # type: ignore[override]  # on purpose
        raise KeyError("no arguments for you")


@activity(retry=Retry(max_attempts=1))
async def raises_hostile() -> int:
    raise HostileError


@workflow
async def twice_twice(number: int) -> int:
    return await twice(await twice(number))


@workflow
async def listens(count: int) -> int:
    return sum([await word.receive() for _ in range(count)])


@workflow
async def breaks(how: str) -> object:
    match how:
        case "base":
            return await raises_base(how)
        case "hostile":
            return await raises_hostile()
        case "callback":
            task = asyncio.create_task(twice(1))
            task.add_done_callback(lambda _: 1 // 0)
            return await task
        case _:
            return await eats_its_list([1, 2, 3])


@workflow
async def many_twices(count: int) -> int:
    number = 0
    for _ in range(count):
        number = (await twice(number)) + 1 - number
    return number


async def test_a_backlog_of_signals_is_received_however_long(env: Environment) -> None:
    """One after another, not one inside the other."""
    async with env:
        count = 1500 if not env._replay_always else 60
        run = await env.start(listens.options(id="listens"), count + 1)
        await env.pass_time(30)
        await asyncio.gather(*(run.signal(other_word, 1) for _ in range(count)))
        await env.settle()
        await asyncio.gather(*(run.signal(word, number) for number in range(count)))
        await env.crash()
        found = await env.app.get("listens")
        await found.signal(word, 0)
        assert await env.result(found) == sum(range(count))


@pytest.mark.parametrize(("how", "expected"), [("base", None), ("hostile", None), ("callback", 2), ("list", None)])
async def test_what_user_code_raises_harms_no_other_run(env: Environment, how: str, expected: int | None) -> None:
    async with env:
        breaking = asyncio.ensure_future(env.app.start(breaks, how))
        runs = await asyncio.gather(*(env.app.start(twice_twice, n) for n in range(20)))
        broken = await breaking
        if expected is None:
            with pytest.raises(RunFailed):
                await env.result(broken)
        else:
            assert await env.result(broken) == expected
        assert [await env.result(run) for run in runs] == [n * 4 for n in range(20)]


async def test_every_attempt_gets_the_arguments_as_they_were(env: Environment) -> None:
    async with env:
        run = await env.start(breaks, "list")
        with pytest.raises(RunFailed, match="again"):
            await env.result(run)
        assert log == [[1, 2, 3]] * 3


async def test_thousands_of_runs_move_on_together(tmp_path: Path) -> None:
    """More than one batch holds, and many steps: settling one batch must not write the next inside it."""
    async with Perdure(f"sqlite:///{tmp_path}/many.db") as app:
        runs = await asyncio.gather(*(app.start(many_twices, 12) for _ in range(2500)))
        assert {await run.result() for run in runs} == {12}


async def test_runs_that_cannot_be_read_at_once_are_read_later(tmp_path: Path) -> None:
    """They are owned by then; nobody else would bring them to life."""
    async with Environment(str(tmp_path / "unread.db")) as env:
        run = await env.start(listens.options(id="one"), 1)
        await env.pass_time(30)
        assert (await run.describe()).status is Status.SUSPENDED
        load_runs, failures = env.store.reads.load_runs, iter([True, True])

        async def fails_twice(*args: object) -> object:
            if next(failures, False):
                raise StoreUnavailable("here", "cannot be read")
            return await load_runs(*args)  # type: ignore[arg-type]  # passed on

        env.store.reads.load_runs = fails_twice  # type: ignore[assignment,method-assign]  # a disk with a hiccup
        await run.signal(word, 7)
        assert await env.result(run) == 7


async def test_closing_does_not_wait_for_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "gone.db"
    async with asyncio.timeout(120):
        async with Perdure(f"sqlite:///{path}", grace=0.1) as app:
            await app.start(listens, 1)
            path.rename(tmp_path / "elsewhere.db")
    assert not path.exists()


async def test_one_who_comes_to_wait_as_the_run_ends_disturbs_nobody(tmp_path: Path) -> None:
    """The first has been told, but has not woken up yet, when the second puts itself down."""
    async with Perdure(f"sqlite:///{tmp_path}/test.db", grace=0) as app:
        run = await app.start(listens.options(id="o-1"), 1)
        found = await app.get("o-1")
        engine: Any = app._engine
        tell, second = engine.waiters.tell, []

        def tell_with_another_on_its_way(*args: object) -> None:
            second.append(asyncio.create_task(found.result()))
            tell(*args)

        engine.waiters.tell = tell_with_another_on_its_way
        first = asyncio.create_task(run.result())
        await run.signal(word, 3)
        assert await first == 3
        assert await second[0] == 3


async def test_the_same_object_can_be_opened_again_and_keeps_its_lease(tmp_path: Path) -> None:
    app = Perdure(f"sqlite:///{tmp_path}/again.db")
    for number in range(3):
        async with app:
            assert await app.run(twice_twice, number) == number * 4
            engine = app._opened
            assert app._store.presence.renew(engine.worker_id, 1, 2**50)


@pytest.mark.parametrize("number", [float("inf"), float("nan"), "1"])
def test_intervals_that_are_no_numbers_are_refused(number: float) -> None:
    with pytest.raises(BadOption, match="finite"):
        Retry(initial_interval=number)


async def test_callers_are_answered_while_the_disk_is_broken_and_runs_go_on_after(env: Environment) -> None:
    """No new epoch is to be had; whoever waits for one must not wait for ever, and neither must closing."""
    async with env:
        run = await env.start(doubles_on_signal.options(id="kept"))
        await env.settle()
        env.store.is_broken = True
        with pytest.raises(StoreUnavailable):
            await env.alive(env.app.start(doubles_on_signal))
        with pytest.raises(StoreUnavailable):
            await env.alive(run.signal(to_double, 1))
        env.store.is_broken = False
        await env.pass_time(2)
        await env.alive(run.signal(to_double, 4))
        assert await env.result(run) == 8
        env.store.is_broken = True


def test_an_inbox_forgets_numbers_but_not_those_of_unread_messages_nor_the_last_that_were_taken() -> None:
    """One that was taken a moment ago may be read once more before that is on disk, whatever its number is."""
    inbox = Inbox()
    stop = Message(0, "stop", TerminateRequest(None), 0)
    messages = [Message(n, str(n), TerminateRequest(None), 0) for n in range(1, 2 * MOST_SEEN + 10)]
    assert all(map(inbox.add, [stop, *messages]))
    assert inbox.take_stop() is stop
    assert not inbox.add(stop)
    assert not inbox.add(messages[-1])
    while inbox.take_stop() is not None:
        pass
    assert len(inbox._seen) == MOST_SEEN
    assert not inbox.add(messages[-1])


to_double = Signal("to_double", int)


@workflow
async def doubles_on_signal() -> int:
    return 2 * await to_double.receive()


def break_within(env: Environment, run_id: str) -> None:
    """Let whoever asks a live run what it waits for find something that cannot say it."""
    env.worker._live[run_id].program.pending["broken"] = object()  # type: ignore[assignment]  # that is what is wrong


def told_broken(caplog: pytest.LogCaptureFixture) -> set[str]:
    return {vars(record)["run_id"] for record in caplog.records if getattr(record, "event", "") == "broken"}


async def test_a_run_that_cannot_be_parked_keeps_no_other_from_it(
    quick_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One error in the look at quiet runs was the last look of the process."""
    async with Environment(str(quick_path / "test.db")) as env:
        broken, neighbour = await env.start(listens, 1), await env.start(listens, 1)
        await env.settle()
        break_within(env, broken.run_id)
        await env.pass_time(60)
        assert env.worker.is_live(broken.run_id)
        assert not env.worker.is_live(neighbour.run_id)
        assert told_broken(caplog) == {broken.run_id}

        del env.worker._live[broken.run_id].program.pending["broken"]
        await env.pass_time(60)
        assert not env.worker.is_live(broken.run_id)


async def test_a_run_that_cannot_be_handed_back_keeps_no_other_from_it(
    quick_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The runs after it were not handed back, and looked as if their process had died of them."""
    handed_back: list[str] = []

    async def note(batch: Batch) -> None:
        handed_back.extend(each.run_id for group in batch.groups for each in group if isinstance(each, ParkRun))

    async with Environment(str(quick_path / "test.db")) as env:
        broken, neighbour = await env.start(listens, 1), await env.start(listens, 1)
        await env.settle()
        break_within(env, broken.run_id)
        env.store.before_commit = note
    assert handed_back == [neighbour.run_id]
    assert told_broken(caplog) == {broken.run_id}


@dataclass
class Waiter:
    """A run and what it waits for, as alarms know them."""

    run_id: str
    is_gone: bool = False
    is_waiting: bool = True


def test_an_alarm_that_fails_keeps_no_other_from_ringing(caplog: pytest.LogCaptureFixture) -> None:
    """No alarm rang after one that had failed."""
    clock = VirtualClock()
    rung: list[str] = []

    def ring(live: Waiter, _: Waiter) -> None:
        rung.append(live.run_id)
        if live.run_id == "broken":
            raise RuntimeError("broken within")

    alarms = Alarms(clock, ring)
    for ms, run_id in ((1, "broken"), (1, "at once"), (1000, "later")):
        alarms.add(clock.now() + ms, Waiter(run_id), Waiter(run_id))
    with caplog.at_level(logging.ERROR, "perdure.worker"):
        clock.advance(1)
        clock.advance(1000)
    assert rung == ["broken", "at once", "later"]
    assert told_broken(caplog) == {"broken"}
