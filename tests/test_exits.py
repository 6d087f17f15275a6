"""Exits: code that ends itself ends nothing else, and a signal that ends the process is nobody's failure."""

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from perdure import Perdure, Retry, RunFailed, Signal, activity, sleep, workflow
from perdure.testing import Environment
from perdure.worker.loop.exits import is_for_the_process

word = Signal("word", int)
tries: list[str] = []


@pytest.fixture(autouse=True)
def afresh() -> None:
    tries.clear()


def leave(how: str) -> None:
    if how == "exits":
        sys.exit("enough")
    raise KeyboardInterrupt("enough")


@activity(retry=Retry(max_attempts=1))
async def leaves_at_once(how: str) -> None:
    leave(how)


@activity(retry=Retry(max_attempts=1))
async def leaves_in_a_task(how: str) -> None:
    await asyncio.sleep(0)
    leave(how)


@activity(retry=Retry(max_attempts=1))
def leaves_in_a_thread(how: str) -> None:
    leave(how)


@activity(retry=Retry(max_attempts=3, initial_interval=1))
async def exits_twice(keys: list[str]) -> int:
    tries.append("x")
    await asyncio.sleep(0)
    if len(tries) < 3:
        sys.exit(3)
    return len(tries)


@workflow
async def exits(where: str, how: str) -> int:
    match where:
        case "at once":
            await leaves_at_once(how)
        case "in a task":
            await leaves_in_a_task(how)
        case "in a thread":
            await leaves_in_a_thread(how)
        case "in the workflow":
            leave(how)
        case "after a wait":
            await sleep(1)
            leave(how)
        case "in a task of the workflow":
            await asyncio.gather(leaves(how))
    return await exits_twice([])


@workflow
async def waits_for_a_word() -> int:
    return await word.receive()


async def leaves(how: str) -> None:
    await sleep(1)
    leave(how)


@pytest.mark.parametrize("how", ["exits", "interrupts"])
@pytest.mark.parametrize(
    "where", ["at once", "in a task", "in a thread", "in the workflow", "after a wait", "in a task of the workflow"]
)
async def test_code_that_ends_itself_fails_like_any_other(env: Environment, where: str, how: str) -> None:
    """A script that is called as an activity ends with sys.exit(); the worker and its other runs must not."""
    async with env:
        bystander = await env.start(waits_for_a_word)
        with pytest.raises(RunFailed, match=r"(SystemExit|KeyboardInterrupt): enough"):
            await env.run(exits, where, how)
        await bystander.signal(word, 1)
        assert await env.result(bystander) == 1


async def test_an_activity_that_exits_is_tried_again(env: Environment) -> None:
    async with env:
        assert await env.run(exits, "not", "") == 3


# Signals


def strike(number: int) -> None:
    """A signal comes just now, the first time."""
    tries.append("struck")
    if len(tries) == 1:
        os.kill(os.getpid(), number)  # perdure: ok


@activity(retry=Retry(max_attempts=1))
async def is_struck_at_once(number: int) -> str:
    strike(number)
    return "done"


@activity(retry=Retry(max_attempts=1))
async def is_struck_in_a_task(number: int) -> str:
    await asyncio.sleep(0)
    strike(number)
    return "done"


@workflow
async def is_struck(where: str, number: int) -> str:
    if where == "at once":
        return await is_struck_at_once(number)
    if where == "in a task":
        return await is_struck_in_a_task(number)
    if where == "after a wait":
        await sleep(0.001)
    strike(number)
    return "done"


def raises(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


class Ending:
    """A handler with a state."""

    def end(self, code: int, number: int, frame: FrameType | None) -> None:
        raise SystemExit(code)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(number)


def steps_back(number: int, frame: FrameType | None) -> None:
    """The next signal ends the process in any case."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(number)


def takes_anything(*arguments: object) -> None:
    sys.exit(1)


@pytest.fixture(
    params=[
        raises,
        functools.partial(Ending().end, 7),
        Ending(),
        steps_back,
        takes_anything,
        signal.default_int_handler,
    ],
    ids=["function", "method", "object", "steps back", "takes anything", "Python's own"],
)
def handled(request: pytest.FixtureRequest) -> Iterator[int]:
    """The number of a signal whose handler ends the process."""
    number = signal.SIGINT if request.param is signal.default_int_handler else signal.SIGTERM
    before = signal.signal(number, request.param)
    yield number
    signal.signal(number, before)


def ends_with(main: Callable[[], object]) -> type[BaseException] | None:
    try:
        main()
    except (SystemExit, KeyboardInterrupt) as error:
        return type(error)
    return None


@pytest.mark.parametrize("where", ["at once", "in a task", "in the workflow", "after a wait"])
def test_a_signal_that_ends_the_process_is_nobodys_failure(tmp_path: Path, handled: int, where: str) -> None:
    """It strikes whatever code runs at that moment; the next process goes on as if that had not begun."""
    url = f"sqlite:///{tmp_path}/test.db"

    async def one_life() -> str:
        async with Perdure(url, grace=0) as app:
            return await (await app.start(is_struck.options(id="a"), where, int(handled))).result()

    loop = asyncio.new_event_loop()
    try:
        if handled == signal.SIGINT:
            # asyncio.run() has a handler of its own, which cancels the main task; this is the bare way.
            task = loop.create_task(one_life())
            assert ends_with(lambda: loop.run_until_complete(task)) is KeyboardInterrupt
            task.cancel()
            loop.run_until_complete(asyncio.wait([task]))
        else:
            assert ends_with(lambda: asyncio.run(one_life())) is SystemExit
        assert loop.run_until_complete(one_life()) == "done"
        assert tries == ["struck", "struck"]
    finally:
        loop.close()


def test_whose_exit_it_is() -> None:
    """Only what a handler of this process has raised."""

    def caught(raise_it: Callable[[], object]) -> BaseException:
        try:
            raise_it()
        except BaseException as error:  # noqa: BLE001 - looked at
            return error
        raise AssertionError

    assert not is_for_the_process(caught(lambda: leave("exits")))
    assert not is_for_the_process(caught(lambda: leave("interrupts")))
    assert not is_for_the_process(caught(lambda: raises(15, None)))
    assert not is_for_the_process(SystemExit())
    assert not is_for_the_process(ValueError())
    before = signal.signal(signal.SIGTERM, raises)
    try:
        assert is_for_the_process(caught(lambda: os.kill(os.getpid(), signal.SIGTERM)))
    finally:
        signal.signal(signal.SIGTERM, before)
