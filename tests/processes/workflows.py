"""What the worker processes of these tests run: short workflows whose every step leaves a line in a file.

A step appends "pid key number" to the file named by EFFECTS, so that a test can tell
which process executed what, and in which order. Each result names all its steps.
"""

import asyncio
import os
import sqlite3
from datetime import timedelta
from functools import cache
from pathlib import Path

import asyncpg

from perdure import Retry, Signal, activity, attempt, continue_as_new, resource, sleep, undo, workflow

EFFECTS = "PERDURE_TEST_EFFECTS"
FAR_FUTURE = timedelta(days=3)
STEPS = 5

poke = Signal("poke", str)


@cache
def _effects() -> int:
    return os.open(os.environ[EFFECTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def _done(key: str, number: int) -> str:
    os.write(_effects(), f"{os.getpid()} {key} {number}\n".encode())
    return f"{key}:{number}"


@activity
async def step(key: str, number: int) -> str:
    return _done(key, number)


@activity
async def slow_step(key: str, number: int) -> str:
    await asyncio.sleep(0.02)
    return _done(key, number)


@activity(retry=Retry(max_attempts=3, initial_interval=0.01))
async def stumbling_step(key: str, number: int) -> str:
    if attempt().number == 1:
        raise OSError("the first attempt stumbles")
    return _done(key, number)


@activity
def thread_step(key: str, number: int) -> str:
    return _done(key, number)


@activity(transaction=True)
def kept_step(key: str, number: int) -> str:
    """Leaves a row beside the runs, on SQLite."""
    resource(sqlite3.Connection).execute("insert into kept values (?, ?)", (key, number))
    return _done(key, number)


@activity(transaction=True)
async def kept_step_on_postgres(key: str, number: int) -> str:
    """The same on Postgres."""
    await resource(asyncpg.Connection).execute("insert into kept values ($1, $2)", key, number)
    return _done(key, number)


@workflow
async def keeps(key: str, *, on_postgres: bool = False) -> list[str]:
    keep = kept_step_on_postgres if on_postgres else kept_step
    return [await keep(key, number) for number in range(STEPS)]


@workflow
async def plain(key: str) -> list[str]:
    return [await step(key, number) for number in range(5)]


@workflow
async def timed(key: str) -> list[str]:
    done = [await step(key, 0)]
    await sleep(0.03)
    done.append(await slow_step(key, 1))
    await asyncio.sleep(0.05)
    done.append(await thread_step(key, 2))
    await sleep(0.04)
    return [*done, await step(key, 3), await slow_step(key, 4)]


@workflow
async def gathered(key: str) -> list[str]:
    first = await step(key, 0)
    middle = await asyncio.gather(slow_step(key, 1), thread_step(key, 2), slow_step(key, 3))
    return [first, *middle, await step(key, 4)]


@workflow
async def signalled(key: str) -> list[str]:
    done = [await step(key, 0), await poke.receive(), await slow_step(key, 1), await poke.receive()]
    return [*done, *[await step(key, number) for number in range(2, 5)]]


@workflow
async def member(key: str, number: int) -> str:
    return await slow_step(key, number)


@workflow
async def family(key: str) -> list[str]:
    first = await step(key, 0)
    middle = await asyncio.gather(*(member(key, number) for number in (1, 2, 3)))
    return [first, *middle, await step(key, 4)]


@workflow
async def stumbling(key: str) -> list[str]:
    return [await (stumbling_step if number % 2 else step)(key, number) for number in range(5)]


@workflow
async def generations(key: str, done: tuple[str, ...] = ()) -> tuple[str, ...]:
    done = (*done, await step(key, len(done)))
    if len(done) < STEPS:
        continue_as_new(key, done)
    return done


@workflow
async def cancelled(key: str) -> None:
    try:
        await sleep(FAR_FUTURE)
    finally:
        for number in range(STEPS):
            await slow_step(key, number)


@workflow
async def ticking(key: str, pause: float) -> list[str]:
    done = []
    for number in range(5):
        done.append(await step(key, number))
        await sleep(pause)
    return done


@workflow
async def plodding(key: str, steps: int) -> list[str]:
    return [await slow_step(key, number) for number in range(steps)]


@workflow
async def hurrying(key: str, steps: int) -> list[str]:
    return [await step(key, number) for number in range(steps)]


@workflow
async def gated(key: str) -> list[str]:
    done = [await step(key, 0)]
    await poke.receive()
    return [*done, *[await step(key, number) for number in range(1, 5)]]


@workflow
async def collecting(key: str, count: int) -> list[str]:
    await step(key, 0)
    return [await poke.receive() for _ in range(count)]


@workflow
async def sleeping(key: str) -> list[str]:
    await step(key, 0)
    await sleep(FAR_FUTURE)
    return [await step(key, 1)]


@workflow
async def awaiting(key: str) -> list[str]:
    await step(key, 0)
    return [await poke.receive(timeout=FAR_FUTURE), await step(key, 1)]


def mended() -> Path:
    """The file that says that the code of `deadly` is mended."""
    return Path(os.environ[EFFECTS]).with_name("mended")


@activity
async def deadly_step(key: str, number: int, delay: float) -> str:
    await asyncio.sleep(delay)
    if not mended().exists():
        os._exit(137)
    return _done(key, number)


@activity
async def dawdle(key: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return _done(key, 0)


@workflow
async def dawdling(key: str, seconds: float) -> list[str]:
    return [await dawdle(key, seconds)]


@workflow
async def deadly(key: str, delay: float = 0.0) -> list[str]:
    return [await step(key, 0), await deadly_step(key, 1, delay), await step(key, 2)]


@workflow
async def undoing(key: str, steps: int) -> None:
    for number in range(steps):
        undo(slow_step, key, number)
    raise ValueError(f"{key} is to be undone")
