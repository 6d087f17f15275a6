"""Order, errors, and what is done about them."""

import asyncio
from contextvars import ContextVar, copy_context

from tests.programs.drawing import Part, ability
from tests.programs.performing import Broken, Scope, begun, perform, shape

remembered: ContextVar[str] = ContextVar("remembered", default="nothing")

ERRORS = {
    "Broken": Broken("broken"),
    "KeyError": KeyError("lost"),
    "TimeoutError": TimeoutError("late"),
    "CancelledError": asyncio.CancelledError(),
    "group": ExceptionGroup("both", [Broken("one"), KeyError("two")]),
}


@ability(lambda a: {"parts": a.parts(2, 4), "goes_on": a.coin(0.8)}, weight=3)
async def sequence(part: Part, scope: Scope) -> object:
    """One after another; errors, but not a cancellation, may be passed over."""
    value: object = None
    for each in part["parts"]:
        try:
            value = await perform(each, scope)
        except Exception as error:
            if not part["goes_on"]:
                raise
            scope.note(f"passed over {shape(error)}")
    return value


@ability(lambda a: {"turns": 1 + a.number(3)}, weight=4, is_leaf=True)
async def let_others_go(part: Part, scope: Scope) -> object:
    for _ in range(part["turns"]):
        await asyncio.sleep(0)
    return None


@ability(
    lambda a: {"error": a.one_of("Broken", "Broken", "KeyError", "TimeoutError", "group", "CancelledError")},
    weight=3,
    is_leaf=True,
)
async def fail(part: Part, scope: Scope) -> object:
    raise ERRORS[part["error"]].with_traceback(None)


@ability(lambda a: {"body": a.part(), "after": a.part()}, weight=4)
async def catch(part: Part, scope: Scope) -> object:
    try:
        return await perform(part["body"], scope)
    except Exception as error:  # noqa: BLE001 - that is what it is for
        scope.note(f"caught {shape(error)}")
        return await perform(part["after"], scope)


@ability(lambda a: {"body": a.part()}, weight=2)
async def catch_group(part: Part, scope: Scope) -> object:
    try:
        return await perform(part["body"], scope)
    except* (Broken, KeyError) as group:
        scope.note(f"caught {shape(group)}")
    return None


@ability(lambda a: {"body": a.part(), "after": a.part()}, weight=3)
async def clean_up(part: Part, scope: Scope) -> object:
    try:
        return await perform(part["body"], scope)
    finally:
        await perform(part["after"], scope)


@ability(lambda a: {"body": a.part(), "after": a.part(), "swallows": a.coin()}, weight=2)
async def feel_cancellation(part: Part, scope: Scope) -> object:
    try:
        return await perform(part["body"], scope)
    except asyncio.CancelledError:
        value = await perform(part["after"], scope)
        if not part["swallows"]:
            raise
        return value


@ability(lambda a: {"text": a.one_of("apple", "pear", None)}, is_leaf=True)
async def remember(part: Part, scope: Scope) -> object:
    """Context variables belong to their task."""
    if part["text"] is not None:
        remembered.set(part["text"])
    return remembered.get()


@ability(lambda a: {"parts": a.parts(2, 3)}, weight=1)
async def share_a_context(part: Part, scope: Scope) -> object:
    """Unless they are given one."""
    shared = copy_context()
    tasks = [asyncio.create_task(begun(each, scope), context=shared) for each in part["parts"]]
    return [shape(await asyncio.gather(*tasks, return_exceptions=True)), shared.get(remembered)]
