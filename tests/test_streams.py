"""Streams: what workflows and activities publish, read in order by anybody."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from perdure import (
    BadValue,
    NotInActivity,
    Retry,
    Run,
    RunFailed,
    Signal,
    Stream,
    StreamFull,
    StreamItem,
    activity,
    attempt,
    continue_as_new,
    sleep,
    workflow,
)
from perdure.stores.answers import Committed
from perdure.stores.operations import PublishValues
from perdure.stores.records import StreamHead
from perdure.testing import Environment

words = Stream("words", str)
numbers = Stream[int]("numbers")
go = Signal("go", int)


@workflow(name="stream_counts")
async def counts(until: int) -> None:
    for number in range(until):
        numbers.publish(number)
        numbers.publish(-number)
        await go.receive()
    words.publish("end")


@activity
async def says(text: str) -> int:
    for word in text.split():
        words.publish(word)
        await asyncio.sleep(0)
    return len(text)


@activity
def says_in_a_thread(count: int) -> None:
    for number in range(count):
        numbers.publish(number)


@activity
async def says_at_once(count: int) -> None:
    for number in range(count):
        numbers.publish(number)


@activity(retry=Retry(max_attempts=2, initial_interval=0))
async def fails_once() -> None:
    words.publish(f"attempt {attempt().number}")
    if attempt().number == 1:
        raise ConnectionError


@workflow(name="stream_calls")
async def calls(text: str) -> int:
    return await says(text)


@workflow(name="stream_calls_thread")
async def calls_thread(count: int) -> None:
    await says_in_a_thread(count)


@workflow(name="stream_calls_at_once")
async def calls_at_once(count: int) -> None:
    await says_at_once(count)


@workflow(name="stream_fails_once")
async def tries_again() -> None:
    await fails_once()


@workflow(name="stream_of_both")
async def of_both(text: str) -> None:
    await says(text)
    await go.receive()
    words.publish("end")


@workflow(name="stream_of_a_task")
async def of_a_task(text: str) -> int:
    return await says.options(queue="default")(text)


@workflow(name="stream_goes_on")
async def goes_on(round: int) -> int:
    numbers.publish(round)
    await go.receive()
    numbers.publish(round)
    if round < 3:
        continue_as_new(round + 1)
    return round


@workflow(name="stream_too_many")
async def too_many(count: int) -> int:
    await go.receive()
    for number in range(count):
        numbers.publish(number)
    await go.receive()
    return count


async def collected(values: AsyncIterator[StreamItem[Any]]) -> list[Any]:
    return [item.value async for item in values]


async def read(env: Environment, run: Run[Any], stream: Stream[Any] | str, after: int = 0) -> list[StreamItem[Any]]:
    async def all_of_it() -> list[StreamItem[Any]]:
        return [item async for item in run.stream(stream, after)]

    return await env.alive(all_of_it())


async def first_of(env: Environment, run: Run[Any], stream: Stream[Any], count: int) -> list[Any]:
    async def some() -> list[Any]:
        found: list[Any] = []
        async with aclosing(run.stream(stream)) as values:  # type: ignore[type-var]
            async for item in values:
                found.append(item.value)
                if len(found) == count:
                    break
        return found

    return await env.alive(some())


async def test_a_workflow_publishes_each_value_once(env: Environment) -> None:
    async with env:
        run = await env.start(counts, 3)
        for number in range(3):
            await env.settle()
            await run.signal(go, number)
        items = await read(env, run, numbers)
        assert [item.value for item in items] == [0, 0, 1, -1, 2, -2]
        assert [item.n for item in items] == [1, 2, 3, 4, 5, 6]
        assert [item.value for item in await read(env, run, "words")] == ["end"]
        assert [item.n for item in await read(env, run, numbers, after=4)] == [5, 6]


async def test_a_reader_gets_values_while_the_run_goes_on(env: Environment) -> None:
    async with env:
        run = await env.start(counts, 2)
        assert await first_of(env, run, numbers, 2) == [0, 0]
        reading = asyncio.ensure_future(first_of(env, run, numbers, 4))
        await env.settle()
        await run.signal(go, 1)
        assert await env.alive(reading) == [0, 0, 1, -1]


async def test_a_replay_publishes_nothing_twice(env: Environment) -> None:
    async with env:
        run = await env.start(counts, 3)
        await run.signal(go, 1)
        await env.pass_time(15)
        await env.crash()
        await env.settle()
        again = await env.app.get(run.id)
        for number in range(2):
            await again.signal(go, number)
            await env.pass_time(15)
        assert [item.value for item in await read(env, again, numbers)] == [0, 0, 1, -1, 2, -2]


async def test_what_an_activity_has_published_is_not_taken_for_the_workflows_own(env: Environment) -> None:
    """A replay leaves out as many values as its workflow has published, and no more."""
    async with env:
        run = await env.start(of_both, "to be")
        await env.pass_time(15)
        await env.crash()
        await env.settle()
        again = await env.app.get(run.id)
        await again.signal(go, 1)
        assert [item.value for item in await read(env, again, words)] == ["to", "be", "end"]


async def test_an_activity_publishes_before_its_end(env: Environment) -> None:
    async with env:
        run = await env.start(calls, "to be or not")
        assert await env.result(run) == 12
        items = await read(env, run, words)
        assert [item.value for item in items] == ["to", "be", "or", "not"]
        assert {item.attempt for item in items} == {1}


@pytest.mark.parametrize("workflow", [calls_thread, calls_at_once])
async def test_threads_and_quick_activities_publish(env: Environment, workflow: Any) -> None:
    async with env:
        run = await env.start(workflow, 500)
        await env.result(run)
        assert [item.value for item in await read(env, run, numbers)] == [*range(500)]


async def test_values_of_a_failed_attempt_stay_and_the_next_ones_say_so(env: Environment) -> None:
    async with env:
        run = await env.start(tries_again)
        await env.result(run)
        assert [(item.value, item.attempt) for item in await read(env, run, words)] == [
            ("attempt 1", 1),
            ("attempt 2", 2),
        ]


@activity
async def says_and_waits() -> None:
    words.publish("hello")
    await asyncio.sleep(5)


@workflow(name="stream_loses_an_attempt")
async def loses_an_attempt() -> None:
    await says_and_waits()


async def test_values_of_a_lost_attempt_stay_and_the_next_one_has_a_higher_number(env: Environment) -> None:
    """An attempt that was lost is not counted as a failure; its values must be told from those of the next."""
    async with env:
        run = await env.start(loses_an_attempt)
        for _ in range(2):
            await env.settle()
            await env.crash()
        await env.settle()
        again = await env.app.get(run.id)
        found = await first_of(env, again, words, 3)
        assert found == ["hello"] * 3
        page = await env.engine.outputs.stream_page(run.run_id, "words", 0, 9)
        assert [value.attempt for value in page] == [1, 2, 3]


async def test_a_queued_activity_publishes_in_the_run_that_called_it(env: Environment) -> None:
    async with env:
        run = await env.start(of_a_task, "a b c")
        assert await env.result(run) == 5
        assert [item.value for item in await read(env, run, words)] == ["a", "b", "c"]


async def test_numbers_go_on_in_the_run_that_continues(env: Environment) -> None:
    async with env:
        run = await env.start(goes_on, 1)
        for number in range(3):
            await env.settle()
            await run.signal(go, number)
        assert await env.result(run) == 3
        newest = await env.app.get(run.id)
        assert newest.run_id != run.run_id
        for handle in (run, newest):
            items = await read(env, handle, numbers)
            assert [(item.n, item.value) for item in items] == [*zip(range(1, 7), [1, 1, 2, 2, 3, 3], strict=True)]
            assert [item.n for item in await read(env, handle, numbers, after=3)] == [4, 5, 6]


async def test_more_than_ten_thousand_values_between_two_waits_are_refused(env: Environment) -> None:
    async with env:
        right = await env.start(too_many, 10_000)
        wrong = await env.start(too_many, 10_001)
        for run in (right, wrong):
            await run.signal(go, 1)
            await env.settle()
        await right.signal(go, 2)
        assert await env.result(right) == 10_000
        with pytest.raises(RunFailed) as caught:
            await env.result(wrong)
        assert isinstance(caught.value.__cause__, StreamFull)
        items = await read(env, right, numbers)
        assert [item.value for item in items] == [*range(10_000)]


async def test_an_activity_that_never_waits_is_told_when_too_much_is_unwritten(env: Environment) -> None:
    async with env:
        run = await env.start(calls_at_once, 10_001)
        with pytest.raises(RunFailed) as caught:
            await env.result(run)
        assert isinstance(caught.value.__cause__, StreamFull)


async def test_a_thread_waits_until_what_it_published_is_on_disk(env: Environment) -> None:
    async with env:
        run = await env.start(calls_thread, 25_000)
        await env.result(run)
        assert [item.value for item in await read(env, run, numbers)] == [*range(25_000)]


@workflow(name="stream_publishes_wrongly")
async def publishes_wrongly() -> str:
    try:
        words.publish(7)  # type: ignore[arg-type]
    except BadValue as error:
        return str(error)
    return "accepted"


async def test_wrong_values_are_refused_where_they_are_published(env: Environment) -> None:
    async with env:
        assert "the stream 'words'" in await env.run(publishes_wrongly)
    with pytest.raises(
        NotInActivity, match="only inside a workflow or an activity that a worker runs; elsewhere there"
    ):
        words.publish("x")


async def test_a_value_that_is_not_of_the_readers_type_is_told(env: Environment) -> None:
    async with env:
        run = await env.start(calls, "a")
        await env.result(run)
        with pytest.raises(BadValue, match="a value of the stream 'words'"):
            await read(env, run, Stream("words", int))


@workflow(name="stream_sleeps")
async def sleeps() -> None:
    for number in range(5):
        numbers.publish(number)
        await sleep(1)


async def test_a_reader_in_another_process_follows(env: Environment) -> None:
    """It has no part in what the worker writes, and looks for itself."""
    async with env:
        run = await env.start(sleeps)
        client = Environment(env.path, clock=env.clock, worker=False)
        async with client:
            there = await client.app.get(run.id)
            reading = asyncio.ensure_future(collected(there.stream(numbers)))
            await env.pass_time(10)
            await client.settle()
            await env.pass_time(1)
            assert await client.alive(reading) == [0, 1, 2, 3, 4]


@workflow(name="stream_of_two_processes")
async def of_two_processes(text: str) -> int:
    words.publish("begin")
    length = await says.options(queue="elsewhere")(text)
    words.publish("end")
    return length


async def test_an_activity_in_another_process_publishes_in_its_callers_run(env: Environment) -> None:
    """Its worker does not own the run that the values go to."""
    elsewhere = Environment(env.path, clock=env.clock, queues=("elsewhere",))
    async with env, elsewhere:
        run = await env.start(of_two_processes, "a b c")
        for _ in range(20):
            await env.settle()
            await elsewhere.pass_time(0.1)
        assert await env.result(run) == 5
        items = await read(env, run, words)
        assert [(item.n, item.value) for item in items] == [(1, "begin"), (2, "a"), (3, "b"), (4, "c"), (5, "end")]


async def test_what_a_task_publishes_after_its_caller_has_ended_is_dropped(env: Environment) -> None:
    """A reader has been told by then that there is no more."""
    async with env:
        run = await env.start(counts, 1)
        await run.signal(go, 1)
        await env.result(run)
        late = PublishValues(run.run_id, "main", "numbers", "another run", "its activity", 1, 1, ("7",))
        assert isinstance(await env.elsewhere([late]), Committed)
        assert [item.value for item in await read(env, run, numbers)] == [0, 0]


async def test_readers_of_one_process_share_one_look(env: Environment) -> None:
    async with env:
        run = await env.start(counts, 2)
        await env.settle()
        looks = 0
        heads = env.engine._store.reads.channels.heads

        async def counting(run_ids: Sequence[str]) -> dict[str, list[StreamHead]]:
            nonlocal looks
            looks += 1
            return await heads(run_ids)

        env.engine._store.reads.channels.heads = counting  # type: ignore[method-assign]
        readers = [asyncio.ensure_future(collected(run.stream(numbers))) for _ in range(20)]
        await env.pass_time(1)
        assert 5 <= looks <= 12
        for number in range(2):
            await run.signal(go, number)
            await env.settle()
        assert [await env.alive(reader) for reader in readers] == [[0, 0, 1, -1]] * 20


async def test_followers_of_histories_share_one_look(env: Environment) -> None:
    """A thousand of them over HTTP asked the database twenty thousand times a second, and nothing else went on."""
    async with env:
        run = await env.start(counts, 2)
        await env.settle()
        looks = 0
        channels = env.engine._store.reads.channels
        look = channels.open_histories

        async def counting(run_ids: Sequence[str]) -> dict[str, int]:
            nonlocal looks
            looks += 1
            return await look(run_ids)

        channels.open_histories = counting  # type: ignore[method-assign]  # counts and asks

        async def followed() -> list[int]:
            return [event.seq async for event in run.events(follow=True)]

        followers = [asyncio.ensure_future(followed()) for _ in range(20)]
        await env.pass_time(1)
        assert 5 <= looks <= 12
        for number in range(2):
            await run.signal(go, number)
            await env.settle()
        assert [await env.alive(each) for each in followers] == [[event.seq async for event in run.events()]] * 20
