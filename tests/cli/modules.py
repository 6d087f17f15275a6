"""Modules as users write them: what the commands are given."""

SHOP = """
import asyncio
import os
from pathlib import Path
from perdure import Deferred, Request, Retry, Signal, Stream, activity, at, continue_as_new, expose, sleep, undo
from perdure import workflow

approved = Signal("approved", bool)

def trace(what):
    with Path("trace.log").open("a") as file:
        file.write(what + "\\n")

@activity
async def reserve(order: str) -> str:
    trace("reserve")
    return f"hold-{order}"

@activity
async def refuse() -> None:
    raise ValueError("the card [bold]was[/] declined")

@activity(retry=Retry(max_attempts=2, initial_interval=0.01))
async def stumble() -> int:
    if not Path("stumbled").exists():
        Path("stumbled").touch()
        raise ConnectionError("no route")
    return 7

@activity
def drag() -> str:
    trace("drag begins")
    while not Path("let-go").exists():
        pass
    trace("drag ends")
    return "dragged"

@workflow
async def greet(name: str, times: int = 1) -> str:
    return " ".join(["hello", *[name] * times])

@workflow
async def checkout(order: str) -> dict:
    hold = await reserve(order)
    await sleep(0.01)
    return {"hold": hold, "ok": await approved.receive()}

decision = Deferred("decision", bool)

@workflow
async def decides() -> bool:
    at(decision.token())
    await sleep(0.01)
    return await decision.wait()

counted = Stream("counted", int)

@workflow
async def shows(size: int = 0) -> None:
    expose("progress", lambda: {"done": 1, "of": 2})
    expose("text", lambda: "x" * size)
    expose("bad", lambda: 1 // 0)
    counted.publish(1)
    counted.publish(2)
    await sleep(0.01)
    await approved.receive()

double = Request("double", int, int)

@workflow
async def doubles() -> None:
    await sleep(0.01)
    async for asked in double:
        if asked.value > 100:
            asked.refuse("it is too large")
        else:
            asked.answer(2 * asked.value)

@workflow
async def declines() -> None:
    await refuse.options(retry=Retry(max_attempts=1))()

@workflow
async def stumbles() -> int:
    return await stumble()

@workflow
async def drags() -> str:
    return await drag()

@workflow
async def groups() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(refuse.options(retry=Retry(max_attempts=1))())

@workflow
async def waits_a_day(order: str) -> bool:
    await reserve(order)
    await reserve(order)
    return await approved.receive(timeout=86_400)

@activity
async def release(hold: str) -> None:
    raise LookupError(f"no {hold}")

@workflow
async def books(order: str) -> None:
    undo(reserve, order)
    undo(release.options(retry=Retry(max_attempts=1)), await reserve(order))
    raise ValueError("no money")

@workflow
async def greets_all(names: list[str]) -> list[str]:
    return await asyncio.gather(*(greet(name) for name in names))

@workflow
async def counts_down(count: int) -> str:
    if count:
        continue_as_new(counts_down.call(count - 1))
    return "lift-off"

@activity
async def tidy() -> None:
    trace("tidied")

@workflow
async def tidies() -> None:
    try:
        await sleep(86_400)
    finally:
        await tidy()

def plain() -> None: ...
"""

TRIP = """
from perdure import Signal, activity, workflow

@activity
async def book_train(to: str) -> str:
    return to

@activity
async def book_flight(to: str) -> str:
    return to

@workflow
async def trip(to: str) -> str:
    await book_train(to)
    await Signal("go").receive()
    return "there"
"""

FILM = """
from perdure import workflow
from gpu import render

@workflow
async def makes_film(scene: str) -> str:
    return await render(scene)
"""

GPU = """
from perdure import activity

@activity(queue="gpu")
async def render(scene: str) -> str:
    return f"rendered {scene}"
"""
