"""Floods: many messages for one run cost the same each, and let other runs go on."""

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from perdure import InboxFull, Run, RunCancelled, RunTerminated, Signal, Status, activity, workflow
from perdure.errors import RunUnreadable
from perdure.kernel.messages import CancelRequest, Message, SignalSent, TerminateRequest
from perdure.stores import rows
from perdure.stores.answers import Applied, Committed, Posted
from perdure.stores.operations import Batch, EndRun, PostMessage, TakeMessage
from perdure.stores.records import UNREAD_PAGE, LoadedRun
from perdure.testing import Environment
from perdure.testing.faults import Fault
from perdure.worker.inbox import MESSAGES_SLICE, MOST_SEEN, Inbox
from perdure.worker.replay import REPLAY_SLICE

tick = Signal("tick", int)
stop = Signal("stop", int)


@workflow
async def counts(count: int) -> list[int]:
    return [await tick.receive() for _ in range(count)]


@workflow
async def waits_for_another() -> int:
    return await stop.receive()


@activity
async def passes_on(number: int) -> int:
    return number


@workflow
async def passes_some_on(count: int) -> list[int]:
    received = []
    for place in range(count):
        number = await tick.receive()
        received.append(await passes_on(number) if place % 7 == 0 else number)
    return received


@workflow
async def three_steps(number: int) -> int:
    for _ in range(3):
        number = await passes_on(number)
    return number


@workflow
async def one_child(number: int) -> int:
    return await passes_on(number)


@workflow
async def parent(children: int) -> int:
    child = one_child.options(queue="children")
    return sum(await asyncio.gather(*(child(1) for _ in range(children))))


def ticks(env: Environment, run_id: str, numbers: Sequence[int], name: str = "tick") -> list[list[PostMessage]]:
    body, now = '{{"name":"{}","payload":{}}}', env.clock.now()
    return [
        [PostMessage(run_id, f"{name}-{number}", "SignalSent", body.format(name, number), now)] for number in numbers
    ]


async def a_backlog(env: Environment, count: int, *, then: str | None = None) -> str:
    """A run that nobody works for, and so many signals that wait for it; the last one is another, if so wanted."""
    client = Environment(env.path, clock=env.clock, worker=False)
    async with client:
        run = await client.start(
            (waits_for_another if then else counts).options(id="flooded"), *([] if then else [count])
        )
        groups = ticks(env, run.run_id, range(count - (then is not None)))
        if then is not None:
            groups += ticks(env, run.run_id, [count], then)
        for first in range(0, len(groups), 1000):
            await client.elsewhere(*groups[first : first + 1000])
    return run.run_id


async def a_flood(env: Environment, count: int) -> Run[list[int]]:
    """A run that lives here, and so many signals that another process has sent it; nobody here knows of them yet."""
    run = await env.start(counts.options(id="flooded"), count)
    await env.settle()
    await env.elsewhere(*ticks(env, run.run_id, range(count)))
    return run


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """How many calls this thread makes: of Python functions, and by them."""
    counted = [0]

    def count(_frame: object, event: str, _of: object) -> None:
        if event in {"call", "c_call"}:
            counted[0] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield counted
    finally:
        sys.setprofile(before)


async def calls_to_receive(path: Path, count: int) -> float:
    env = Environment(str(path / f"{count}.db"))
    await a_backlog(env, count)
    with counted_calls() as calls:
        async with env:
            assert await env.result(await env.app.get("flooded", workflow=counts)) == list(range(count))
    return calls[0] / count


async def calls_to_ignore(path: Path, count: int) -> float:
    env = Environment(str(path / f"{count}.db"))
    await a_backlog(env, count, then="stop")
    with counted_calls() as calls:
        async with env:
            assert await env.result(await env.app.get("flooded", workflow=waits_for_another)) == count
    return calls[0] / count


async def calls_to_hear_of_children(path: Path, count: int) -> float:
    env = Environment(str(path / f"{count}.db"))
    async with env:
        await env.start(parent.options(id="flooded"), count)
        await env.settle()
    async with Environment(env.path, clock=env.clock, queues=("children",)) as workers:
        await workers.settle()
    with counted_calls() as calls:
        async with env:
            assert await env.result(await env.app.get("flooded", workflow=parent)) == count
    return calls[0] / count


@pytest.mark.parametrize("calls", [calls_to_receive, calls_to_ignore, calls_to_hear_of_children])
async def test_a_message_costs_the_same_however_many_there_are(
    quick_path: Path, calls: Callable[[Path, int], Awaitable[float]]
) -> None:
    """A backlog that costs its square stops a worker: 2,000 signals took it two seconds, 10,000 a hundred."""
    few, many = await calls(quick_path, 1000), await calls(quick_path, 4000)

    assert many <= 1.2 * few, f"{few:.0f} calls for one of 1,000, {many:.0f} for one of 4,000"


def opcodes_of(work: Callable[[], object]) -> int:
    """How much the interpreter does for this."""
    counted = 0

    def count(frame: object, event: str, _: object) -> object:
        nonlocal counted
        counted += event == "opcode"
        frame.f_trace_opcodes = True  # type: ignore[attr-defined]  # frames have it
        return count

    before = sys.gettrace()
    sys.settrace(count)  # type: ignore[arg-type]  # as above
    try:
        work()
    finally:
        sys.settrace(before)
    return counted


def test_a_message_is_put_into_a_full_inbox_as_quickly_as_into_an_empty_one() -> None:
    """One that walks over all that are there takes minutes for a hundred thousand."""
    numbers = itertools.count(1)

    def add(inbox: Inbox, count: int) -> None:
        for number in itertools.islice(numbers, count):
            inbox.add(Message(number, str(number), SignalSent("tick", msgspec.Raw(b"1")), 0))

    empty, full = Inbox(), Inbox()
    add(full, 3 * MOST_SEEN)

    assert opcodes_of(lambda: add(full, 100)) <= opcodes_of(lambda: add(empty, 100)) + 100


async def test_a_flood_is_read_in_slices_between_which_other_runs_go_on(env: Environment) -> None:
    """Everything else in the process would wait until the last of a hundred thousand is read."""
    count = 6 * MESSAGES_SLICE
    taken: list[int] = []
    ended: list[str] = []

    async def look(batch: Batch) -> None:
        operations = [operation for group in batch.groups for operation in group]
        taken.append(sum(isinstance(operation, TakeMessage) for operation in operations))
        ended.extend(operation.run_id for operation in operations if isinstance(operation, EndRun))

    async with env:
        flooded = await a_flood(env, count)
        env.store.after_commit = look
        # It looks for what others have sent, and the others begin with the first slice.
        env.clock.advance(1000)
        others = await asyncio.gather(*(env.start(three_steps, number) for number in range(5)))
        assert await env.result(flooded) == list(range(count))
        assert [await env.result(other) for other in others] == list(range(5))

    assert sum(taken) == count
    # The first slice is noticed one by one, and the second one does not wait until that is on disk.
    assert max(taken) <= 2 * MESSAGES_SLICE
    assert ended[-1] == flooded.run_id, "others wait for the end of the flood"


async def test_messages_that_come_between_two_slices_keep_their_order(env: Environment) -> None:
    """Whoever sends one after the other is answered in that order, however many are before them."""
    before, later = 3 * MESSAGES_SLICE, 60
    client = Environment(env.path, clock=env.clock, worker=False)
    async with client:
        run = await client.start(passes_some_on.options(id="flooded"), before + later)
        await client.elsewhere(*ticks(env, run.run_id, range(before)))
    async with env:
        flooded = await env.app.get("flooded", workflow=passes_some_on)
        for number in range(before, before + later):
            if number % 3:
                await flooded.signal(tick, number)
            else:
                await env.elsewhere(*ticks(env, run.run_id, [number]))
        assert await env.result(flooded) == list(range(before + later))


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_IN])
async def test_a_flood_survives_a_fault_in_any_of_its_slices(env: Environment, fault: Fault) -> None:
    """Between two slices a run is half read: nothing of it may be lost, or come twice."""
    count = 4 * MESSAGES_SLICE + 1
    await a_backlog(env, count)
    for commit in range(1, 8):
        await env.open((commit, fault))
        await env.settle()
        if not env.has_died:
            break
        env.bury()
    else:
        await env.open()
    flooded = await env.app.get("flooded", workflow=counts)
    assert await env.result(flooded) == list(range(count))
    assert len(await env.events("flooded")) == count + 2
    await env.__aexit__()


async def test_a_worker_that_ends_between_two_slices_hands_the_rest_to_the_next(env: Environment) -> None:
    """A deploy in the middle of a flood loses nothing, and does not wait for its end."""
    count = 6 * MESSAGES_SLICE
    slices: list[int] = []
    resting = asyncio.Event()

    async def look(batch: Batch) -> None:
        slices.append(sum(isinstance(operation, TakeMessage) for group in batch.groups for operation in group))
        if sum(slices) >= 2 * MESSAGES_SLICE:
            resting.set()

    async with env:
        await a_flood(env, count)
        env.store.after_commit = look
        env.clock.advance(1000)
        await resting.wait()
    assert 2 * MESSAGES_SLICE <= sum(slices) < count
    async with env:
        assert await env.result(await env.app.get("flooded", workflow=counts)) == list(range(count))


async def test_a_run_that_rests_between_two_slices_is_not_parked(env: Environment) -> None:
    """It only waits for signals, as it seems; but those it waits for are there, and nobody would wake it for them."""
    count = 4 * MESSAGES_SLICE

    swept: list[bool] = []

    async def sweep(_: Batch) -> None:
        worker = env.worker
        resting = [live for live in worker._live.values() if live.inbox is not None and live.inbox.is_resting]
        if resting:
            swept.append(worker._parking.sweep(resting, env.clock.now(), is_crowded=True))

    async with env:
        flooded = await a_flood(env, count)
        env.store.after_commit = sweep
        assert await env.result(flooded) == list(range(count))
        env.store.after_commit = lambda _: None
    assert len(swept) >= 3


@pytest.mark.parametrize(
    ("request_to_stop", "end"), [(CancelRequest("enough"), RunCancelled), (TerminateRequest("enough"), RunTerminated)]
)
async def test_a_request_to_stop_is_heard_in_the_middle_of_a_flood(
    env: Environment, request_to_stop: CancelRequest | TerminateRequest, end: type[Exception]
) -> None:
    """Who wants to stop a run that drowns in messages must not wait until it has read them all."""
    count = 8 * MESSAGES_SLICE
    sent: list[int] = []

    async def stop_it(batch: Batch) -> None:
        if sent or not any(isinstance(operation, TakeMessage) for group in batch.groups for operation in group):
            return
        kind, body = type(request_to_stop).__name__, rows.message_body(request_to_stop)
        told = await env.elsewhere([PostMessage(flooded.run_id, "stop", kind, body, env.clock.now())])
        assert isinstance(told, Committed)
        answer = told.answers[0]
        assert isinstance(answer, Applied)
        assert isinstance(answer.value, Posted)
        sent.append(answer.value.number)
        env.engine.arrivals.notice(flooded.run_id, Message(sent[0], "stop", request_to_stop, env.clock.now()), None)

    async with env:
        flooded = await a_flood(env, count)
        env.store.after_commit = stop_it
        with pytest.raises(end):
            await env.result(flooded)
        assert len(await env.events("flooded")) <= 3 * MESSAGES_SLICE + 3


async def test_signals_that_do_not_fit_are_set_aside_in_slices_too(env: Environment) -> None:
    """A thousand wrong payloads are somebody's mistake, and not everybody's."""
    wrong = 3 * MESSAGES_SLICE
    taken: list[int] = []

    async def look(batch: Batch) -> None:
        taken.append(sum(isinstance(operation, TakeMessage) for group in batch.groups for operation in group))

    async with env:
        flooded = await env.start(counts, 1)
        await env.settle()
        body = '{"name":"tick","payload":"one"}'
        groups = [[PostMessage(flooded.run_id, f"w-{n}", "SignalSent", body, env.clock.now())] for n in range(wrong)]
        await env.elsewhere(*groups, *ticks(env, flooded.run_id, [7]))
        env.store.after_commit = look
        assert await env.result(flooded) == [7]
        assert len(await flooded.set_aside()) == wrong
    assert max(taken) < wrong


async def test_a_full_inbox_is_read_in_pages_and_in_order(env: Environment) -> None:
    """All of it is there before the code goes on: no timer that is due comes before a message that was there."""
    # To replay each step from the start costs the square of them, as it is meant to.
    count = UNREAD_PAGE + 10
    run_id = await a_backlog(env, count)
    async with Environment(env.path, clock=env.clock, worker=False) as client:
        unread = await (await client.app.get("flooded")).unread()
        assert [message.payload for message in unread] == list(range(count))
        page, had = await client.store.reads.unread_page(run_id, 0, 10)
        assert ([message.message_id for message in page], had) == ([f"tick-{n}" for n in range(10)], count)
        page, had = await client.store.reads.unread_page(run_id, page[-1].number, count)
        assert ([message.message_id for message in page], had) == ([f"tick-{n}" for n in range(10, count)], count)
        assert await client.store.reads.unread_page(run_id, page[-1].number, 10) == ([], count)
    async with env:
        assert await env.result(await env.app.get("flooded", workflow=counts)) == list(range(count))


async def passes_until(env: Environment, is_so: Callable[[], bool]) -> None:
    """Let time pass until it is so; a server that is slow to answer needs some more of it."""
    for _ in range(100):
        await env.pass_time(2)
        if is_so():
            return
    raise AssertionError("it never came to that")


async def parked_in_the_middle(env: Environment, received: int) -> Run[list[int]]:
    """A run that has received so many, waits for one more, and is parked."""
    run = await env.start(counts.options(id="parked"), received + 1)
    await env.elsewhere(*ticks(env, run.run_id, range(received)))
    while len(await env.events("parked")) < received + 1:
        await env.pass_time(1)
    await passes_until(env, lambda: not env.worker.is_live(run.run_id))
    return run


async def test_a_cancel_that_comes_while_a_long_history_is_read_is_heard(env: Environment) -> None:
    """Its code has not begun again by then; it must not be taken for code that cannot go on."""
    async with env:
        run = await parked_in_the_middle(env, REPLAY_SLICE + 10)
        read = env.store.reads.load_runs

        async def load_runs(run_ids: Sequence[str], worker_id: str) -> list[LoadedRun | RunUnreadable]:
            found = await read(run_ids, worker_id)
            await run.cancel("enough")
            return found

        env.store.reads.load_runs = load_runs  # type: ignore[method-assign]  # something happens in between
        await env.elsewhere(*ticks(env, run.run_id, [0], "stop"))
        with pytest.raises(RunCancelled):
            await env.result(run)


async def test_a_run_whose_message_came_while_it_was_read_is_parked_again(env: Environment) -> None:
    """Its row was read before the message, its inbox after it: what it counts is one behind, and is put right."""
    async with env:
        run = await parked_in_the_middle(env, 3)
        read = env.store.reads.load_runs

        async def load_runs(run_ids: Sequence[str], worker_id: str) -> list[LoadedRun | RunUnreadable]:
            (found,) = await read(run_ids, worker_id)
            assert isinstance(found, LoadedRun)
            row = msgspec.structs.replace(found.row, messages=found.row.messages - 1)
            return [msgspec.structs.replace(found, row=row)]

        env.store.reads.load_runs = load_runs  # type: ignore[method-assign]  # as above
        await env.elsewhere(*ticks(env, run.run_id, [0], "stop"))
        await passes_until(env, lambda: env.worker.is_live(run.run_id))
        await passes_until(env, lambda: not env.worker.is_live(run.run_id))
        assert (await run.describe()).status == Status.SUSPENDED
        await run.signal(tick, 3)
        assert await env.result(run) == [0, 1, 2, 3]


# The limit of an inbox


async def test_a_full_inbox_refuses_signals_until_some_are_read(env: Environment) -> None:
    """Who sends faster than a run can read must learn of it before the disk is full; what was taken is not lost."""
    env._max_unread = 3
    async with env:
        run = await env.start(waits_for_another.options(id="o-17"))
        await env.settle()
        sent = await asyncio.gather(*(run.signal(tick, number) for number in range(5)), return_exceptions=True)
        assert [type(each) for each in sent] == [type(None)] * 3 + [InboxFull] * 2
        with pytest.raises(InboxFull, match="'o-17' has 3 unread messages.* can only be cancelled or terminated"):
            await run.signal(stop, 1)
        await run.cancel("enough")
        with pytest.raises(RunCancelled):
            await env.result(run)
        assert [message.payload for message in await run.unread()] == [0, 1, 2]


async def test_a_run_that_reads_is_sent_as_many_signals_as_anybody_likes(env: Environment) -> None:
    """The limit is one of messages that wait, not of those a run has had."""
    env._max_unread = 3
    async with env:
        run = await env.start(counts, 20)
        for number in range(20):
            await run.signal(tick, number)
            await env.settle()
        assert await env.result(run) == list(range(20))


async def test_a_full_inbox_takes_signals_again_a_moment_after_it_was_read(env: Environment) -> None:
    """That it was full is remembered for a tenth of a second, so that who sends on and on keeps nobody waiting."""
    env._max_unread = 3
    async with Environment(env.path, clock=env.clock, worker=False, max_unread=3) as client:
        run = await client.start(counts.options(id="flooded"), 4)
        for number in range(3):
            await run.signal(tick, number)
        with pytest.raises(InboxFull):
            await run.signal(tick, 3)
        commits = client.store.commits
        with pytest.raises(InboxFull):
            await run.signal(tick, 3)
        assert client.store.commits == commits
        async with env:
            await env.settle()
            await env.pass_time(1)
            await run.signal(tick, 3)
            assert await env.result(await env.app.get("flooded", workflow=counts)) == [0, 1, 2, 3]


async def test_a_signal_that_was_taken_is_taken_again_also_when_the_inbox_is_full(env: Environment) -> None:
    """Who sends one again because the answer was lost must not be told that it cannot be sent."""
    async with Environment(env.path, worker=False, max_unread=2) as client:
        run = await client.start(waits_for_another.options(id="full"))
        for number in range(2):
            await run.signal(tick, number, id=f"n-{number}")
        with pytest.raises(InboxFull):
            await run.signal(tick, 2, id="n-2")
        await run.signal(tick, 1, id="n-1")
        assert [message.payload for message in await run.unread()] == [0, 1]


async def test_a_full_inbox_keeps_no_other_run_from_being_sent_signals(env: Environment) -> None:
    """That one is full, and remembered to be, says nothing of all the others."""
    async with Environment(env.path, worker=False, max_unread=2) as client:
        full, other = [await client.start(waits_for_another.options(id=id)) for id in ("full", "other")]
        for number in range(2):
            await full.signal(tick, number)
        for number in range(2):
            with pytest.raises(InboxFull, match="'full'"):
                await full.signal(tick, 2)
            await other.signal(tick, number)
        assert [message.payload for message in await other.unread()] == [0, 1]


async def test_the_ends_of_children_come_into_a_full_inbox(env: Environment) -> None:
    """A parent that drowns in signals still learns what became of its children."""
    env._max_unread = 2
    async with env:
        run = await env.start(parent, 3)
        await env.settle()
        for number in range(2):
            await run.signal(tick, number)
        with pytest.raises(InboxFull):
            await run.signal(tick, 2)
        async with Environment(env.path, clock=env.clock, queues=("children",)) as workers:
            await workers.settle()
        assert await env.result(run) == 3


async def test_an_inbox_is_counted_once_in_as_many_signals_as_it_has_room_for(quick_path: Path) -> None:
    """A look at each signal for a run that has had many would cost as much as there are unread ones."""
    env = Environment(str(quick_path / "test.db"), max_unread=20)
    counted: list[str] = []
    async with env:
        run = await env.start(counts, 100)
        await env.settle()
        env.store.inner.transactions.db.set_trace_callback(
            lambda sql: counted.append(sql) if "count(*)" in sql else None
        )
        for number in range(100):
            await run.signal(tick, number)
            await env.settle()
        env.store.inner.transactions.db.set_trace_callback(None)
        assert await env.result(run) == list(range(100))
    assert len(counted) <= 5
