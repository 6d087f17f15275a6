"""Time limits and shields."""

import asyncio

from tests.programs.drawing import Artist, Part, ability
from tests.programs.performing import Scope, begun, perform, requests_to_cancel


def draw_timeout(a: Artist) -> Part:
    seconds = a.one_of(a.seconds(), a.seconds(), a.seconds(), 0)
    return {"body": a.part(), "seconds": seconds, "how": a.one_of("in", "at", "later", "never"), "catches": a.coin(0.7)}


@ability(draw_timeout, weight=8)
async def timeout(part: Part, scope: Scope) -> object:
    when = asyncio.get_running_loop().time() + part["seconds"]
    match part["how"]:
        case "in":
            limit = asyncio.timeout(part["seconds"])
        case "at":
            limit = asyncio.timeout_at(when)
        case "later":
            limit = asyncio.timeout(part["seconds"] / 2)
        case _:
            limit = asyncio.timeout(None)
    try:
        async with limit:
            if part["how"] == "later":
                limit.reschedule(when)
            return await perform(part["body"], scope)
    except TimeoutError:
        scope.note(f"expired {limit.expired()}, asked to stop {requests_to_cancel()} times")
        if not part["catches"]:
            raise
        return "late"


def draw_wait_for(a: Artist) -> Part:
    seconds = a.one_of(a.seconds(), a.seconds(), a.seconds(), 0, None)
    return {"body": a.part(), "seconds": seconds, "of_task": a.coin(0.3), "catches": a.coin(0.7)}


@ability(draw_wait_for, weight=7)
async def wait_for(part: Part, scope: Scope) -> object:
    work = scope.spawn(part["body"]) if part["of_task"] else begun(part["body"], scope)
    try:
        return await asyncio.wait_for(work, part["seconds"])
    except TimeoutError:
        if not part["catches"]:
            raise
        return "late"


@ability(lambda a: {"body": a.part(), "seconds": a.seconds(), "joins": a.coin()}, weight=5)
async def shield(part: Part, scope: Scope) -> object:
    task = scope.spawn(part["body"])
    try:
        async with asyncio.timeout(part["seconds"]):
            return await asyncio.shield(task)
    except TimeoutError:
        if part["joins"]:
            await asyncio.wait([task], timeout=30)
        return f"left {task.done()}"
