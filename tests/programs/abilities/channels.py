"""Deferreds and requests, which the world resolves and asks; streams and what is shown, which it looks at."""

import perdure
from tests.programs.drawing import Artist, Part, ability
from tests.programs.performing import Scope, deferreds, requests, streams


@ability(lambda a: {"deferred": a.number(1), "timeout": a.maybe(a.seconds, 0.6)}, weight=4, is_leaf=True)
async def wait_for_deferred(part: Part, scope: Scope) -> object:
    return await deferreds[part["deferred"]].wait(timeout=part["timeout"])


@ability(lambda a: {"deferred": a.number(1)}, is_leaf=True)
async def make_token(part: Part, scope: Scope) -> object:
    return deferreds[part["deferred"]].token()


def draw_be_asked(a: Artist) -> Part:
    how = a.one_of("answer", "answer", "refuse", "later", "twice")
    return {"request": a.number(1), "timeout": a.maybe(a.seconds, 0.6), "how": how}


@ability(draw_be_asked, weight=4, is_leaf=True)
async def be_asked(part: Part, scope: Scope) -> object:
    """Take a request, and answer it at once, or leave that to another part."""
    asked = await requests[part["request"]].receive(timeout=part["timeout"])
    if part["how"] == "later":
        scope.asked.append(asked)
    elif part["how"] == "refuse":
        asked.refuse(f"not {asked.value}")
    else:
        asked.answer(asked.value + 1)
    if part["how"] == "twice":
        asked.answer(0)
    return [asked.id, asked.value]


@ability(weight=3, is_leaf=True)
async def answer_what_was_left(part: Part, scope: Scope) -> object:
    left, scope.asked = scope.asked, []
    for asked in left:
        asked.answer(-asked.value)
    return len(left)


@ability(lambda a: {"stream": a.number(1), "numbers": a.number(3)}, weight=4, is_leaf=True)
async def publish(part: Part, scope: Scope) -> object:
    for number in range(part["numbers"]):
        streams[part["stream"]].publish([part["id"], number, len(scope.notes)])
    return None


@ability(lambda a: {"name": a.one_of("first", "second")}, is_leaf=True)
async def show(part: Part, scope: Scope) -> object:
    perdure.expose(part["name"], lambda: [part["id"], len(scope.notes), *scope.stock])
    return None
