"""The one workflow that performs any drawn program, and what the program's parts share.

In:   a program.
Out:  its value, and the notes its parts made of what they saw, in order.

What a replay must repeat beyond its durable calls is what is noted: whatever an ability
wants to be compared goes through `Scope.note`.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from perdure import Deferred, Request, Signal, Stream, activity, continue_as_new, workflow
from perdure.authoring.requests import Asked
from tests.programs.drawing import Part, abilities

# A program that hangs is cancelled after so long.
LONGEST_SECONDS = 3600

signals = [Signal("first-signal", int), Signal("second-signal", int), Signal("third-signal", int)]
deferreds = [Deferred("first-deferred", int), Deferred("second-deferred", int)]
requests = [Request("first-request", int, int), Request("second-request", int, int)]
streams = [Stream("first-stream", list[int]), Stream("second-stream", list[int])]

# Steps that were run; there must be none, since the world answers for them.
really_run: list[int] = []


class Broken(Exception):  # noqa: N818 - it names the trouble
    """What parts and activities raise."""


@activity
async def drawn_step(number: int) -> int:
    really_run.append(number)
    return number


@activity
def other_drawn_step(number: int, text: str = "") -> str:
    really_run.append(number)
    return text


@activity(at_most_once=True)
async def step_made_once(number: int) -> int:
    really_run.append(number)
    return number


@activity(transaction=True)
def drawn_entry(number: int) -> int:
    really_run.append(number)
    return number


@workflow
async def drawn_child(number: int) -> int:
    really_run.append(number)
    return number


class Scope:
    """What the parts of one program share."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.held: list[object] = []
        self.locks = [asyncio.Lock(), asyncio.Lock()]
        self.semaphores = [asyncio.Semaphore(1), asyncio.Semaphore(3), asyncio.BoundedSemaphore(2)]
        self.queues: list[asyncio.Queue[int]] = [asyncio.Queue(), asyncio.Queue(1), asyncio.PriorityQueue()]
        self.events = [asyncio.Event(), asyncio.Event()]
        self.conditions = [asyncio.Condition(), asyncio.Condition()]
        self.stock = [0, 0]
        self.asked: list[Asked[int, int]] = []
        self.barrier = asyncio.Barrier(2)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def spawn(self, part: Part) -> "asyncio.Task[Any]":
        return asyncio.create_task(begun(part, self))

    def task(self, number: int) -> "asyncio.Task[Any] | None":
        """One of the background tasks, if there are any."""
        return self.tasks[number % len(self.tasks)] if self.tasks else None


def begun(part: Part, scope: Scope) -> Coroutine[Any, Any, Any]:
    """The part as a coroutine; a step or a child is one by itself, whose branch then has its name."""
    match part:
        case {"do": "step", "number": int(number)}:
            return drawn_step(number)
        case {"do": "child", "number": int(number)}:
            return drawn_child(number)
        case _:
            return perform(part, scope)


async def perform(part: Part, scope: Scope) -> object:
    """Do a part, and note how it went."""
    name = f"{part['do']}{part['id']}"
    scope.note(f"{name} begins")
    try:
        value = await abilities[part["do"]].run(part, scope)
    except BaseException as error:
        scope.note(f"{name} raises {shape(error)}")
        raise
    scope.note(f"{name} gives {shape(value)}")
    return value


def shape(value: object) -> object:
    """What is compared of a value: errors by type, groups with all they hold."""
    match value:
        case BaseExceptionGroup():
            return f"group({', '.join(str(shape(error)) for error in value.exceptions)})"
        case BaseException():
            return type(value).__name__
        case list() | tuple():
            return [shape(each) for each in value]
        case _:
            return value


def outcome(future: "asyncio.Future[Any]") -> object:
    """What became of a future that is done."""
    return "cancelled" if future.cancelled() else shape(future.exception() or future.result())


def requests_to_cancel() -> int:
    """How often the task that runs was asked to stop."""
    task = asyncio.current_task()
    return -1 if task is None else task.cancelling()


@workflow
async def drawn_program(program: dict[str, Any]) -> dict[str, Any]:
    scope = Scope()
    try:
        async with asyncio.timeout(LONGEST_SECONDS):
            value = shape(await perform(program, scope))
    except (Exception, asyncio.CancelledError) as error:
        if program["fails"]:
            raise
        value = shape(error)
    if program["continues"]:
        continue_as_new({"value": value, "notes": scope.notes})
    return {"value": value, "notes": scope.notes}
