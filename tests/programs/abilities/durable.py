"""Durable calls, and the plain ones that must replay."""

import asyncio

import perdure
from tests.programs.drawing import Part, ability
from tests.programs.performing import Scope, begun, drawn_child, drawn_step, other_drawn_step, signals


@ability(lambda a: {"number": a.number(99), "times": a.one_of(1, 1, 1, 2)}, weight=30, is_leaf=True)
async def step(part: Part, scope: Scope) -> object:
    value: object = await drawn_step(part["number"])
    for again in range(part["times"] - 1):
        value = await other_drawn_step(again, text=str(value))
    return value


@ability(lambda a: {"seconds": a.seconds()}, weight=5, is_leaf=True)
async def sleep(part: Part, scope: Scope) -> object:
    return await asyncio.sleep(part["seconds"], "slept")


@ability(lambda a: {"seconds": a.seconds()}, weight=5, is_leaf=True)
async def our_sleep(part: Part, scope: Scope) -> object:
    await perdure.sleep(part["seconds"])
    return "slept"


@ability(lambda a: {"signal": a.number(2), "timeout": a.maybe(a.seconds, 0.6)}, weight=4, is_leaf=True)
async def receive(part: Part, scope: Scope) -> object:
    return await signals[part["signal"]].receive(timeout=part["timeout"])


@ability(lambda a: {"number": a.number(99)}, is_leaf=True)
async def side_effect(part: Part, scope: Scope) -> object:
    number: int = part["number"]

    def effect() -> int:
        return number

    return await perdure.side_effect(effect)


@ability(is_leaf=True)
async def chance(part: Part, scope: Scope) -> object:
    time = asyncio.get_running_loop().time()
    return [perdure.rng().randrange(100), str(perdure.uuid4()), str(perdure.now()), time]


@ability(lambda a: {"number": a.number(99)}, weight=5, is_leaf=True)
async def child(part: Part, scope: Scope) -> object:
    return await drawn_child(part["number"])


@ability(lambda a: {"key": a.one_of("oven", "fridge"), "seconds": a.seconds()}, is_leaf=True)
async def sleep_by_key(part: Part, scope: Scope) -> object:
    await perdure.sleep(part["seconds"], key=part["key"])
    return str(perdure.now())


@ability(lambda a: {"key": a.one_of("oven", "fridge"), "number": a.number(99)}, is_leaf=True)
async def step_by_key(part: Part, scope: Scope) -> object:
    return await drawn_step.options(key=part["key"])(part["number"])


@ability(lambda a: {"parts": a.parts(2, 4)}, weight=4)
async def select(part: Part, scope: Scope) -> object:
    choices = {f"way{number}": begun(each, scope) for number, each in enumerate(part["parts"])}
    name, value = await perdure.select(**choices)
    return [name, value]


@ability(lambda a: {"change": a.number(3)}, is_leaf=True)
async def ask_for_a_change(part: Part, scope: Scope) -> object:
    return perdure.patched(f"change-{part['change']}")


@ability(lambda a: {"number": a.number(99), "is_child": a.coin(0.2), "drops": a.coin(0.2)}, weight=3, is_leaf=True)
async def register_undo(part: Part, scope: Scope) -> object:
    handle = perdure.undo(drawn_child if part["is_child"] else drawn_step, part["number"])
    if part["drops"]:
        handle.drop()
    return handle.state


@ability(is_leaf=True)
async def unwind(part: Part, scope: Scope) -> object:
    await perdure.unwind()
    return "unwound"
