"""Requests: a running workflow is asked, and answers."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure import (
    AlreadyResolved,
    Asked,
    BadOption,
    BadValue,
    IdConflict,
    InboxFull,
    NotAnswered,
    NotInWorkflow,
    NotOpen,
    Perdure,
    PerdureError,
    Request,
    RequestRefused,
    RunClosed,
    Signal,
    continue_as_new,
    select,
    sleep,
    workflow,
)
from perdure.kernel.requests import LeftUnanswered
from perdure.testing import Environment


@dataclass
class Item:
    name: str
    quantity: int = 1


add = Request("add", Item, int)
ask_later = Request[str, str]("later")
done = Signal("done", bool)


@workflow(name="request_basket")
async def basket() -> list[str]:
    items: list[str] = []
    while True:
        match await select(add=add.receive(), done=done.receive()):
            case "add", Asked() as asked:
                if asked.value.quantity < 1:
                    asked.refuse("quantity must be at least 1")
                else:
                    items.append(asked.value.name)
                    asked.answer(len(items))
            case _:
                return items


@workflow(name="request_counts")
async def counts_requests(count: int) -> int:
    while True:
        match await select(add=add.receive(), done=done.receive()):
            case "add", Asked() as request:
                count += 1
                request.answer(count)
            case _, True:
                continue_as_new(count)


@workflow(name="request_one")
async def one() -> str:
    async for asked in add:
        asked.answer(asked.value.quantity)
        return asked.value.name
    return ""


@workflow(name="request_answers_twice")
async def answers_twice() -> str:
    asked = await add.receive()
    asked.answer(1)
    try:
        asked.refuse("too late")
    except AlreadyResolved as error:
        return str(error)
    return "nothing"


@workflow(name="request_answers_later")
async def answers_later() -> None:
    asked = await ask_later.receive()

    async def answer() -> None:
        await sleep(5)
        asked.answer(asked.value.upper())

    await asyncio.create_task(answer())
    await done.receive()


@workflow(name="request_forgets")
async def forgets(continues: bool) -> list[int]:
    await add.receive()
    await done.receive()
    if continues:
        continue_as_new(False)
    return []


@workflow(name="request_generations")
async def generations(left: int) -> list[str]:
    await done.receive()
    if left:
        asked = await add.receive()
        asked.answer(left)
        continue_as_new(left - 1)
    return [asked.value.name async for asked in taken(2)]


async def taken(count: int) -> AsyncIterator[Asked[Item, int]]:
    for number in range(count):
        asked = await add.receive()
        asked.answer(100 + number)
        yield asked


@workflow(name="request_is_patient")
async def is_patient() -> str:
    try:
        await add.receive(timeout=5)
    except TimeoutError as error:
        return str(error)
    return "asked"


@workflow(name="request_answers_wrong")
async def answers_wrong() -> str:
    asked = await add.receive()
    try:
        asked.answer("one")  # type: ignore[arg-type]  # that is the point
    except BadValue:
        asked.answer(1)
    return "done"


async def test_a_running_workflow_is_asked_and_answers(env: Environment) -> None:
    async with env:
        run = await env.app.start(basket)
        assert await run.ask(add, Item("book", 2)) == 1
        assert await run.ask("add", {"name": "pen", "quantity": 1}) == 2
        await run.signal(done, True)

        assert await run.result() == ["book", "pen"]


async def test_a_refusal_is_raised_where_the_caller_waits(env: Environment) -> None:
    async with env:
        run = await env.app.start(basket)

        with pytest.raises(RequestRefused, match="quantity must be at least 1"):
            await run.ask(add, Item("book", 0))


async def test_many_are_asked_at_once_and_each_is_received_once_in_order(env: Environment) -> None:
    async with env:
        run = await env.app.start(basket)
        counts = await asyncio.gather(*(run.ask(add, Item(str(number))) for number in range(120)))
        await run.signal(done, True)

        assert counts == list(range(1, 121))
        assert await run.result() == [str(number) for number in range(120)]


async def test_the_same_id_again_gets_the_same_answer_without_a_second_request(env: Environment) -> None:
    async with env:
        run = await env.app.start(basket)
        answers = await asyncio.gather(*(run.ask(add, Item("book"), id="web-81") for _ in range(3)))
        assert answers == [1, 1, 1]
        await run.signal(done, True)
        assert await run.result() == ["book"]

        assert await run.ask(add, Item("book"), id="web-81") == 1
        with pytest.raises(RunClosed):
            await run.ask(add, Item("book"), id="web-82")


async def test_another_value_under_a_used_id_is_refused(env: Environment) -> None:
    async with env:
        run = await env.app.start(basket)
        assert await run.ask(add, Item("book"), id="web-81") == 1
        with pytest.raises(IdConflict) as refused:
            await run.ask(add, Item("pen"), id="web-81")
        assert str(refused.value) == (
            f"id 'web-81' is taken by a request to run {run.id!r}, wanted for the request 'add': "
            "that one asked something else; use another id"
        )
        assert await run.ask(add, Item("book"), id="web-81") == 1


async def test_another_value_under_a_used_id_is_refused_after_the_end(env: Environment) -> None:
    async with env:
        run = await env.app.start(one)
        assert await run.ask(add, Item("book", 3), id="web-81") == 3
        await run.result()
        with pytest.raises(IdConflict):
            await run.ask(add, Item("book", 4), id="web-81")


async def test_a_refusal_is_the_same_again(env: Environment) -> None:
    async with env:
        run = await env.app.start(basket)
        for _ in range(2):
            with pytest.raises(RequestRefused):
                await run.ask(add, Item("book", 0), id="r")


async def test_the_last_answer_of_a_run_that_ends_with_it_reaches_its_caller(env: Environment) -> None:
    async with env:
        run = await env.app.start(one)

        assert await run.ask(add, Item("pen", 4)) == 4
        assert await run.result() == "pen"


async def test_answering_twice_raises_in_the_workflow(env: Environment) -> None:
    async with env:
        run = await env.app.start(answers_twice)

        assert await run.ask(add, Item("pen")) == 1
        assert "the request 'add'" in await run.result()


async def test_an_answer_may_come_later_from_another_branch(env: Environment) -> None:
    async with env:
        run = await env.app.start(answers_later)
        asking = asyncio.create_task(run.ask(ask_later, "hello"))
        await env.pass_time(6)

        assert await asking == "HELLO"


async def test_a_timeout_ends_the_waiting_and_not_the_request(env: Environment) -> None:
    async with env:
        run = await env.app.start(answers_later)
        with pytest.raises(TimeoutError, match="has not answered 'later' within 0.01"):
            await run.ask(ask_later, "hello", timeout=0.01, id="a")
        # Time passes as it is needed: on a slow machine the request may not be on disk yet.
        assert await env.alive(run.ask(ask_later, "hello", id="a")) == "HELLO"
        # Whoever has gone is not remembered for as long as the process lives.
        assert env.engine.waiters.askers.by_run == {}


@pytest.mark.parametrize("continues", [False, True])
async def test_every_caller_is_told_when_a_run_leaves_its_request_unanswered(env: Environment, continues: bool) -> None:
    async with env:
        run = await env.app.start(forgets, continues)
        askers = [asyncio.create_task(run.ask(add, Item("pen"), id="a")) for _ in range(2)]
        await env.settle()
        await run.signal(done, True)
        await env.settle()

        for asker in askers:
            with pytest.raises(NotAnswered, match="'add'"):
                await asker
        with pytest.raises(NotAnswered):
            await run.ask(add, Item("pen"), id="a")


@pytest.mark.parametrize("end", ["cancel", "terminate"])
async def test_every_caller_is_told_when_a_run_is_stopped(env: Environment, end: str) -> None:
    async with env:
        run = await env.app.start(forgets, False)
        asker = asyncio.create_task(run.ask(add, Item("pen")))
        unread = asyncio.create_task(run.ask("other", 1))
        await env.settle()
        await (run.cancel() if end == "cancel" else run.terminate())
        await env.settle()

        for each in (asker, unread):
            with pytest.raises(NotAnswered):
                await each


async def test_unread_requests_and_answered_ids_go_on_with_the_run(env: Environment) -> None:
    async with env:
        run = await env.app.start(generations, 1)
        first = asyncio.create_task(run.ask(add, Item("a"), id="first"))
        await env.settle()
        second = asyncio.create_task(run.ask(add, Item("b"), id="second"))
        await env.settle()
        await run.signal(done, True)
        await env.settle()
        assert await first == 1
        assert not second.done()

        assert await run.ask(add, Item("a"), id="first") == 1
        await run.signal(done, True)
        await env.pass_time(1)
        assert await second == 100
        assert await run.ask(add, Item("c")) == 101
        assert await run.result() == ["b", "c"]


@pytest.mark.parametrize("env", ["live", "postgres"], indirect=True)
@pytest.mark.parametrize("others", ["requests without an id", "signals with one"])
async def test_an_answered_id_goes_on_however_much_else_was_sent(env: Environment, others: str) -> None:
    """It was forgotten after a thousand others, and a request that was asked again was done again."""
    async with env:
        run = await env.app.start(counts_requests, 0)
        first = await asked(env, run.ask(add, Item("a"), id="first"))
        if others == "requests without an id":
            await asked(env, *(run.ask(add, Item("b")) for _ in range(1_001)))
        else:
            await asyncio.gather(*(run.signal(done, False, id=f"{number}") for number in range(1_001)))
        await run.signal(done, True)
        await env.settle()

        newest = await env.app.get(run.id)
        assert newest.run_id != run.run_id
        assert await asked(env, newest.ask(add, Item("a"), id="first")) == first == [1]


async def asked(env: Environment, *asking: Coroutine[object, object, int]) -> list[int]:
    """The answers to requests that are asked at once."""
    tasks = [asyncio.create_task(each) for each in asking]
    await env.settle()
    return [await task for task in tasks]


async def test_a_request_that_does_not_fit_is_refused_and_the_run_waits_on(env: Environment) -> None:
    async with env:
        run = await env.app.start(one)
        with pytest.raises(RequestRefused, match="the request 'add'"):
            await run.ask("add", 7)

        assert await run.ask(add, Item("pen", 4)) == 4


async def test_a_parked_run_wakes_and_answers(env: Environment) -> None:
    async with env:
        run = await env.app.start(one)
        await env.pass_time(30)
        (wait,) = (await run.describe()).waiting_for
        assert (wait.kind, wait.name, wait.accepts is not None) == ("request", "add", True)

        assert await run.ask(add, Item("pen", 3)) == 3


async def test_a_wait_for_a_request_may_take_too_long(env: Environment) -> None:
    async with env:
        run = await env.app.start(is_patient)
        await env.pass_time(6)

        assert await run.result() == "no request 'add' came within 5"


async def test_an_answer_of_another_type_is_refused_in_the_workflow(env: Environment) -> None:
    async with env:
        run = await env.app.start(answers_wrong)

        assert await run.ask(add, Item("pen")) == 1


async def test_bad_requests_are_refused_before_anything_is_written(env: Environment) -> None:
    async with env:
        run = await env.app.start(one)
        with pytest.raises(BadValue):
            await run.ask(add, "pen")  # type: ignore[misc]  # that is the point
        with pytest.raises(BadOption, match="is not a request"):
            await run.ask(done, True)  # type: ignore[call-overload]  # as above
        with pytest.raises(PerdureError):
            await run.ask(add, Item("pen"), id="")
        with pytest.raises(BadOption):
            await run.ask(add, Item("pen"), timeout=-1)
        with pytest.raises(NotInWorkflow):
            await add.receive()
        assert await run.unread() == []


async def test_a_full_inbox_takes_no_request(env: Environment) -> None:
    env._max_unread = 2
    async with env:
        run = await env.app.start(answers_later)
        for number in range(2):
            await run.signal("nobody", number)

        with pytest.raises(InboxFull):
            await run.ask("other", 1)


async def test_the_answer_reaches_a_caller_in_another_process(env: Environment) -> None:
    async with env, Environment(env.path, clock=env.clock, worker=False) as client:
        run = await env.app.start(basket)
        await env.settle()
        there = await client.app.get(run.id)
        asking = asyncio.create_task(there.ask(add, Item("pen")))
        while not asking.done():
            await client.settle()
            await env.pass_time(0.1)

        assert await asking == 1


async def test_a_caller_is_told_what_was_answered_elsewhere_before_its_run_came_here(quick_path: Path) -> None:
    """Looks leave out runs that live here: an answer of another process, which died of it, was never seen."""
    async with Environment(str(quick_path / "test.db")) as env:
        run = await env.app.start(basket)
        assert await asked(env, run.ask(add, Item("pen"), id="first")) == [1]
        env.worker._runs.evict(env.worker._live[run.run_id])
        asker = env.engine.waiters.askers.come(run.run_id, "request:first")
        asker.number = 1
        await env.engine.claimer.load([run.run_id])
        assert env.worker.is_live(run.run_id)

        await env.pass_time(1)
        assert asker.answer.done()


class ComparedId(str):
    """An id that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        ComparedId.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


async def test_telling_one_of_many_callers_looks_at_no_other(env: Environment) -> None:
    """Ten thousand that asked at once took three times as long as five thousand."""
    async with env:
        askers = env.engine.waiters.askers
        waiting = [askers.come("run", ComparedId(number)) for number in range(1_000)]
        for number, asker in enumerate(waiting):
            askers.tell("run", ComparedId(number), LeftUnanswered())
            askers.leave(asker)
        assert all(asker.answer.done() for asker in waiting)
        assert not askers.by_run
        assert ComparedId.compared < 10 * len(waiting)


async def test_an_app_that_closes_tells_its_callers(env: Environment) -> None:
    async with env:
        run = await env.app.start(forgets, False)
        asking = asyncio.create_task(run.ask(add, Item("pen")))
        await env.settle()
    with pytest.raises(NotOpen):
        await asking


def test_code_that_does_not_await_asks_as_well() -> None:
    with Perdure("sqlite://").sync() as app:
        run = app.start(one)
        assert run.ask(add, Item("pen", 3), timeout=30, id="a") == 3
        assert run.result() == "pen"
        assert run.ask("add", {"name": "pen", "quantity": 3}, id="a") == 3
