"""Waiting to be told to stop."""

import asyncio

import perdure
from tests.programs.drawing import Part, ability
from tests.programs.performing import Scope, begun


@ability(lambda a: {"body": a.part()}, weight=4)
async def until_stopped(part: Part, scope: Scope) -> object:
    name, value = await perdure.select(stop=perdure.interrupted(), way=begun(part["body"], scope))
    return [name, value]


@ability(lambda a: {"seconds": a.seconds()}, is_leaf=True)
async def wait_to_be_stopped(part: Part, scope: Scope) -> object:
    return await asyncio.wait_for(perdure.interrupted(), part["seconds"])
