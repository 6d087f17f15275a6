"""The environment's clock stands still while an activity waits for something that no clock of ours can hurry."""

import asyncio
import logging
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from perdure import activity, sleep, workflow
from perdure.testing import Environment, real_work

# By the machine's clock: long enough for a virtual clock to run away by hours, if it does.
A_WHILE = 0.05
calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@pytest.fixture
def pipe() -> Iterator[tuple[socket.socket, socket.socket]]:
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


def later(call: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(A_WHILE, call)


async def in_a_thread() -> None:
    over = threading.Event()
    later(over.set)
    await asyncio.to_thread(over.wait)


async def in_a_task_group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(in_a_thread())
        tasks.create_task(asyncio.sleep(0))


async def in_a_wait() -> None:
    await asyncio.wait([asyncio.ensure_future(in_a_thread())], timeout=3600)


async def in_a_process() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    assert await process.wait() == 0


async def in_a_process_with_pipes() -> None:
    process = await asyncio.create_subprocess_exec(shutil.which("cat") or "cat", stdin=-1, stdout=-1)
    assert process.stdin is not None
    later(process.stdin.close)
    await process.communicate()


async def on_a_socket() -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        later(partial(there.send, b"x"))
        assert await asyncio.get_running_loop().sock_recv(here, 1) == b"x"


async def on_a_stream() -> None:
    here, there = socket.socketpair()
    with there:
        later(partial(there.send, b"x\n"))
        reader, writer = await asyncio.open_connection(sock=here)
        assert await reader.readline() == b"x\n"
        writer.close()
        await writer.wait_closed()


WAYS: dict[str, Callable[[], Any]] = {
    "a thread": in_a_thread,
    "threads in gather": lambda: asyncio.gather(in_a_thread(), in_a_thread()),
    "a thread in wait_for": lambda: asyncio.wait_for(in_a_thread(), 3600),
    "a thread in a task group": in_a_task_group,
    "a thread in wait": in_a_wait,
    "a shielded thread": lambda: asyncio.shield(in_a_thread()),
    "a process": in_a_process,
    "a process with pipes": in_a_process_with_pipes,
    "a socket": on_a_socket,
    "a stream": on_a_stream,
}


@activity
async def really_waits(way: str) -> str:
    calls.append(way)
    await WAYS[way]()
    return way


@workflow
async def waits_really(way: str) -> str:
    return await really_waits(way)


@pytest.mark.parametrize("way", WAYS)
async def test_an_activity_that_really_waits_is_not_timed_out_by_virtual_time(env: Environment, way: str) -> None:
    """It was "out of time after 300 s" three times within a third of a second."""
    async with env:
        assert await env.run(waits_really, way) == way
        assert calls == [way]


async def test_time_that_is_to_pass_waits_for_what_is_really_under_way(env: Environment) -> None:
    async with env:
        run = await env.start(waits_really, "a thread")
        await env.settle()
        began = env.clock.now()
        await env.pass_time(3600)
        assert await env.result(run) == "a thread"
        events = await env.events(run.id)
        assert events[-1].at.timestamp() * 1000 == began


@activity(timeout=60)
async def waits_for_nothing(way: str) -> None:
    calls.append(way)
    if way == "an event":
        await asyncio.Event().wait()
    elif way == "a queue":
        await asyncio.wait_for(asyncio.Queue[int]().get(), 3600)
    else:
        await asyncio.gather(asyncio.sleep(3600), asyncio.Lock().acquire())


@workflow
async def waits_in_vain(way: str) -> str:
    try:
        await waits_for_nothing(way)
    except TimeoutError as error:
        return str(error)
    return "waited"


@pytest.mark.parametrize("way", ["an event", "a queue", "a sleep"])
async def test_what_merely_awaits_objects_of_asyncio_is_timed_out_by_virtual_time(
    env: Environment, pipe: tuple[socket.socket, socket.socket], way: str
) -> None:
    """A connection that lies idle in some pool is no reason to wait for ever."""
    asyncio.get_running_loop().add_reader(pipe[0], lambda: None)
    try:
        async with env:
            assert "60 s" in await env.run(waits_in_vain, way)
            assert len(calls) == 3
    finally:
        asyncio.get_running_loop().remove_reader(pipe[0])


@activity
def plain(over: float) -> str:
    started.wait(over)
    return "plain"


started = threading.Event()


@workflow
async def waits_plainly() -> str:
    await sleep(1)
    return await plain(60)


@pytest.mark.parametrize(
    ("kind", "words"), [("a task", "really_waits() waits for a"), ("a thread", "a thread in wait")]
)
async def test_what_the_clock_stands_still_for_is_told_after_a_while(
    env: Environment, kind: str, words: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that hangs says where to look."""
    started.clear()
    monkeypatch.setattr(real_work, "PATIENCE_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING, "perdure.testing"):
        async with env:
            later(started.set)
            await (env.run(waits_really, "a socket") if kind == "a task" else env.run(waits_plainly))
    told = [record.getMessage() for record in caplog.records if "stands still" in record.getMessage()]
    assert any(words in text and ".py:" in text for text in told), told
