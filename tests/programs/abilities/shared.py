"""Queues, locks and the like, shared by all parts of a program."""

import asyncio

from tests.programs.drawing import Artist, Part, ability
from tests.programs.performing import Scope, perform


@ability(lambda a: {"queue": a.number(2), "item": a.number(99), "seconds": a.mostly_seconds()}, weight=4, is_leaf=True)
async def put(part: Part, scope: Scope) -> object:
    queue = scope.queues[part["queue"]]
    await asyncio.wait_for(queue.put(part["item"]), part["seconds"])
    return queue.qsize()


@ability(lambda a: {"queue": a.number(2), "seconds": a.mostly_seconds()}, weight=4, is_leaf=True)
async def get(part: Part, scope: Scope) -> object:
    queue = scope.queues[part["queue"]]
    async with asyncio.timeout(part["seconds"]):
        item = await queue.get()
    queue.task_done()
    return item


@ability(lambda a: {"event": a.number(1), "clears": a.coin(0.3)}, weight=3, is_leaf=True)
async def set_event(part: Part, scope: Scope) -> object:
    event = scope.events[part["event"]]
    event.set()
    if part["clears"]:
        event.clear()
    return event.is_set()


@ability(lambda a: {"event": a.number(1), "seconds": a.mostly_seconds()}, weight=3, is_leaf=True)
async def wait_for_event(part: Part, scope: Scope) -> object:
    return await asyncio.wait_for(scope.events[part["event"]].wait(), part["seconds"])


@ability(lambda a: {"lock": a.number(1), "body": a.part()}, weight=5)
async def with_lock(part: Part, scope: Scope) -> object:
    async with scope.locks[part["lock"]]:
        return await perform(part["body"], scope)


def draw_with_permits(a: Artist) -> Part:
    return {"semaphore": a.number(2), "permits": a.one_of(1, 1, 2), "body": a.part(), "seconds": a.maybe(a.seconds)}


@ability(draw_with_permits, weight=6)
async def with_permits(part: Part, scope: Scope) -> object:
    """Permits of a semaphore, taken one by one and given back all at once."""
    semaphore = scope.semaphores[part["semaphore"]]
    taken = 0
    try:
        for _ in range(part["permits"]):
            await asyncio.wait_for(semaphore.acquire(), part["seconds"])
            taken += 1
        return await perform(part["body"], scope)
    finally:
        for _ in range(taken):
            semaphore.release()


@ability(lambda a: {"condition": a.number(1), "count": a.one_of(1, 1, 2, 0)}, weight=4, is_leaf=True)
async def notify(part: Part, scope: Scope) -> object:
    number, count = part["condition"], part["count"]
    async with scope.conditions[number]:
        scope.stock[number] += count
        if count:
            scope.conditions[number].notify(count)
        else:
            scope.conditions[number].notify_all()
    return scope.stock[number]


def draw_wait_for_condition(a: Artist) -> Part:
    return {"condition": a.number(1), "has_predicate": a.coin(0.7), "seconds": a.mostly_seconds()}


@ability(draw_wait_for_condition, weight=5, is_leaf=True)
async def wait_for_condition(part: Part, scope: Scope) -> object:
    number = part["condition"]
    condition = scope.conditions[number]
    async with asyncio.timeout(part["seconds"]), condition:
        if part["has_predicate"]:
            await condition.wait_for(lambda: scope.stock[number] > 0)
            scope.stock[number] -= 1
        else:
            await condition.wait()
    return scope.stock[number]


@ability(lambda a: {"seconds": a.seconds(), "resets": a.coin(0.2)}, is_leaf=True)
async def meet(part: Part, scope: Scope) -> object:
    """At the barrier."""
    if part["resets"]:
        await scope.barrier.reset()
    async with asyncio.timeout(part["seconds"]):
        return await scope.barrier.wait()
