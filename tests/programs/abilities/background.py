"""Background tasks, callbacks, and cancelling."""

import asyncio

from tests.programs.drawing import Part, ability
from tests.programs.performing import Scope, outcome, perform, shape


@ability(lambda a: {"body": a.part(), "then": a.maybe(a.part, 0.3)}, weight=7)
async def background(part: Part, scope: Scope) -> object:
    task = scope.spawn(part["body"])
    scope.tasks.append(task)
    if part["then"] is not None:
        task.add_done_callback(lambda _: scope.tasks.append(scope.spawn(part["then"])))
    return None


@ability(lambda a: {"number": a.number(9), "seconds": a.mostly_seconds(), "shields": a.coin()}, weight=4, is_leaf=True)
async def join(part: Part, scope: Scope) -> object:
    task = scope.task(part["number"])
    if task is None or task is asyncio.current_task():
        return None
    if part["shields"]:
        async with asyncio.timeout(part["seconds"]):
            return shape(await asyncio.shield(task))
    done, _ = await asyncio.wait([task], timeout=part["seconds"])
    return [outcome(each) for each in done]


@ability(lambda a: {"number": a.number(9), "turns": a.number(2)}, weight=5, is_leaf=True)
async def cancel(part: Part, scope: Scope) -> object:
    task = scope.task(part["number"])
    if task is None:
        return None
    is_taken = task.cancel("by a part")
    for _ in range(part["turns"]):
        await asyncio.sleep(0)
    return [is_taken, task.done(), task.cancelling()]


@ability(lambda a: {"body": a.part()}, weight=1)
async def cancel_itself(part: Part, scope: Scope) -> object:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return await perform(part["body"], scope)


@ability(lambda a: {"nth": 2 + a.number(3)}, weight=2, is_leaf=True)
async def cancel_many(part: Part, scope: Scope) -> object:
    """Every so manieth of all tasks, in the order of the set."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks[part["nth"] :: part["nth"]]:
        task.cancel()
    return len(tasks)


@ability(lambda a: {"body": a.part(), "seconds": a.maybe(a.seconds), "is_cancelled": a.coin(0.2)})
async def callback(part: Part, scope: Scope) -> object:
    def call() -> None:
        scope.note("called back")
        scope.tasks.append(scope.spawn(part["body"]))

    loop = asyncio.get_running_loop()
    handle = loop.call_soon(call) if part["seconds"] is None else loop.call_later(part["seconds"], call)
    if part["is_cancelled"]:
        await asyncio.sleep(0)
        handle.cancel()
    return handle.cancelled()
