"""Async generators, closed in time or left to the collector."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from tests.programs.drawing import Artist, Part, ability
from tests.programs.performing import Broken, Scope, begun, perform, shape


def draw_generate(a: Artist) -> Part:
    return {
        "parts": a.parts(1, 3),
        "after": a.maybe(a.part, 0.7),
        "inside": a.one_of(None, None, "group", "timeout"),
        "how": a.one_of("for", "for", "closing", "local", "held", "failing", "raced"),
        "most": a.one_of(1, 1, 2, 9),
    }


@ability(draw_generate, weight=6)
async def generate(part: Part, scope: Scope) -> object:
    stream = _stream(part, scope)
    if part["how"] == "for":
        return await _first(part["most"], stream)
    if part["how"] == "closing":
        async with contextlib.aclosing(stream):
            return shape(await anext(stream, "end"))
    if part["how"] == "raced":
        return await _race(part, stream)
    if part["how"] == "held":
        scope.held.append(stream)
    value = shape(await anext(stream, "end"))
    if part["how"] == "failing":
        raise Broken
    return value


async def _first(most: int, stream: AsyncGenerator[object]) -> object:
    came: list[object] = []
    async for value in stream:
        came.append(shape(value))
        if len(came) >= most:
            break
    return came


async def _race(part: Part, stream: AsyncGenerator[object]) -> object:
    """Its next value against the clock, in a task of its own."""
    task = asyncio.ensure_future(stream.__anext__())
    if part["most"] > 1:
        await asyncio.wait([task], timeout=part["most"])
    task.cancel()
    return shape(await asyncio.gather(task, return_exceptions=True))


async def _stream(part: Part, scope: Scope) -> AsyncGenerator[object]:
    try:
        match part["inside"]:
            case "group":
                async with asyncio.TaskGroup() as group:
                    for each in part["parts"]:
                        group.create_task(begun(each, scope))
                        yield "begun"
            case "timeout":
                async with asyncio.timeout(5):
                    for each in part["parts"]:
                        yield await perform(each, scope)
            case _:
                for each in part["parts"]:
                    yield await perform(each, scope)
    finally:
        scope.note("stream ends")
        if part["after"] is not None:
            await perform(part["after"], scope)
