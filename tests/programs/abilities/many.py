"""Many at once: gather, groups, wait, as_completed, workers on a queue."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.programs.drawing import Artist, Part, ability
from tests.programs.performing import Broken, Scope, begun, outcome, perform, requests_to_cancel, shape


@ability(weight=0)
async def branches(part: Part, scope: Scope) -> object:
    """The whole program; drawn once, as its root."""
    if part["how"] == "gather":
        return shape(await asyncio.gather(*(perform(each, scope) for each in part["parts"])))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(perform(each, scope)) for each in part["parts"]]
    return [outcome(task) for task in tasks]


def draw_gather(a: Artist) -> Part:
    turns = a.one_of(None, None, 0, 1, 3)
    return {"parts": a.parts(1, 4), "keeps_errors": a.coin(), "turns": turns, "is_doubled": a.coin(0.2)}


@ability(draw_gather, weight=8)
async def gather(part: Part, scope: Scope) -> object:
    """Coroutines, or tasks that may be done already; the same one twice."""
    members: list[Any] = [begun(each, scope) for each in part["parts"]]
    if part["turns"] is not None:
        members = [asyncio.create_task(each) for each in members]
        for _ in range(part["turns"]):
            await asyncio.sleep(0)
    if part["is_doubled"]:
        members += members[:1]
    gathering = asyncio.gather(*members, return_exceptions=part["keeps_errors"])
    scope.note(f"gathered already: {gathering.done()}")
    return shape(await gathering)


class Lazily:
    """Something to await that is no coroutine."""

    def __init__(self, part: Part, scope: Scope) -> None:
        self._part, self._scope = part, scope

    def __await__(self) -> Any:
        return perform(self._part, self._scope).__await__()


@ability(lambda a: {"parts": a.parts(1, 3)})
async def gather_awaitables(part: Part, scope: Scope) -> object:
    return shape(await asyncio.gather(*(Lazily(each, scope) for each in part["parts"])))


def draw_group(a: Artist) -> Part:
    return {"parts": a.parts(1, 4), "body": a.maybe(a.part), "late": a.maybe(a.part, 0.2), "catches": a.coin()}


@ability(draw_group, weight=8)
async def group(part: Part, scope: Scope) -> object:
    tasks: list[asyncio.Task[Any]] = []
    try:
        async with asyncio.TaskGroup() as together:
            tasks += [together.create_task(begun(each, scope)) for each in part["parts"]]
            if part["late"] is not None:
                tasks.append(together.create_task(_join_late(together, part["late"], scope)))
            if part["body"] is not None:
                await perform(part["body"], scope)
    except* Broken as errors:
        scope.note(f"asked to stop {requests_to_cancel()} times, with {shape(errors)}")
        if not part["catches"]:
            raise
    return [outcome(task) for task in tasks]


async def _join_late(together: asyncio.TaskGroup, part: Part, scope: Scope) -> None:
    await asyncio.sleep(0)
    work = begun(part, scope)
    try:
        together.create_task(work)
    except RuntimeError:
        work.close()
        scope.note("too late for the group")


def draw_wait(a: Artist) -> Part:
    parts = a.parts(1, 4)
    return {
        "parts": parts,
        "kinds": [a.one_of("task", "task", "shield", "gather", "future") for _ in parts],
        "when": a.one_of("FIRST_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED"),
        "timeout": a.maybe(a.seconds, 0.3),
        "of_set": a.coin(),
        "rest": a.one_of("cancel", "cancel", "await", "leave"),
    }


@ability(draw_wait, weight=9)
async def wait(part: Part, scope: Scope) -> object:
    """Over tasks and other futures; what is done and what is pending is gone through in the order of the sets."""
    members = [_member(kind, each, scope) for kind, each in zip(part["kinds"], part["parts"], strict=True)]
    numbers = {member: number for number, member in enumerate(members)}
    given = set(members) if part["of_set"] else members
    done, pending = await asyncio.wait(given, timeout=part["timeout"], return_when=getattr(asyncio, part["when"]))
    for member in done:
        scope.note(f"done {numbers[member]} {outcome(member)}")
    if part["rest"] == "cancel":
        for member in pending:
            scope.note(f"cancel {numbers[member]} {member.cancel()}")
    if part["rest"] != "leave":
        await asyncio.gather(*pending, return_exceptions=True)
    return [numbers[member] for member in pending]


def _member(kind: str, part: Part, scope: Scope) -> "asyncio.Future[Any]":
    task = scope.spawn(part)
    match kind:
        case "shield":
            return asyncio.shield(task)
        case "gather":
            return asyncio.gather(task, return_exceptions=True)
        case "future":
            future = asyncio.get_running_loop().create_future()
            task.add_done_callback(lambda _: None if future.done() else future.set_result("told"))
            return future
        case _:
            return task


def draw_as_completed(a: Artist) -> Part:
    return {
        "parts": a.parts(1, 4),
        "is_async": a.coin(),
        "of_tasks": a.coin(),
        "timeout": a.maybe(a.seconds, 0.3),
        "most": a.one_of(1, 2, 9, 9),
    }


@ability(draw_as_completed, weight=6)
async def as_completed(part: Part, scope: Scope) -> object:
    work: list[Any] = [scope.spawn(each) if part["of_tasks"] else begun(each, scope) for each in part["parts"]]
    came = asyncio.as_completed(work, timeout=part["timeout"])
    outcomes: list[object] = []
    async for each in (_futures if part["is_async"] else _results)(came):
        outcomes.append(each)
        scope.note(f"came {each}")
        if len(outcomes) >= part["most"]:
            break
    return outcomes


async def _futures(came: Any) -> AsyncIterator[object]:
    async for future in came:
        yield outcome(future)


async def _results(came: Any) -> AsyncIterator[object]:
    for result in came:
        try:
            yield shape(await result)
        except (Broken, KeyError) as error:
            yield shape(error)


@ability(lambda a: {"parts": a.parts(2, 5), "workers": 1 + a.number(2)}, weight=4)
async def pool(part: Part, scope: Scope) -> object:
    """Workers that share a queue."""
    work: asyncio.Queue[Part] = asyncio.Queue()
    workers = [asyncio.create_task(_worker(number, work, scope)) for number in range(part["workers"])]
    for each in part["parts"]:
        work.put_nowait(each)
    try:
        async with asyncio.timeout(60):
            await work.join()
    finally:
        for worker in workers:
            worker.cancel()
    return shape(await asyncio.gather(*workers, return_exceptions=True))


async def _worker(number: int, work: "asyncio.Queue[Part]", scope: Scope) -> None:
    while True:
        part = await work.get()
        try:
            await perform(part, scope)
        except Exception as error:  # noqa: BLE001 - the worker goes on
            scope.note(f"worker {number} caught {shape(error)}")
        finally:
            work.task_done()
