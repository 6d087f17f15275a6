"""Activities in full: on a queue, begun in time or not at all, made at most once, in a transaction."""

from tests.programs.drawing import Part, ability
from tests.programs.performing import Scope, drawn_entry, drawn_step, step_made_once


@ability(lambda a: {"number": a.number(99), "seconds": a.maybe(a.seconds)}, weight=4, is_leaf=True)
async def step_on_a_queue(part: Part, scope: Scope) -> object:
    return await drawn_step.options(queue="far", queue_timeout=part["seconds"])(part["number"])


@ability(lambda a: {"number": a.number(99)}, weight=3, is_leaf=True)
async def step_at_most_once(part: Part, scope: Scope) -> object:
    return await step_made_once(part["number"])


@ability(lambda a: {"number": a.number(99)}, weight=3, is_leaf=True)
async def step_in_a_transaction(part: Part, scope: Scope) -> object:
    return await drawn_entry(part["number"])
