"""A durable call of this test's own: one class is all that a new kind takes, on every store and in the simulator."""

import asyncio
from typing import Any

import msgspec
import pytest

from perdure import Perdure, Signal, Status, workflow
from perdure.authoring.runtime import answered, required
from perdure.kernel.commands import RecordOutcome
from perdure.kernel.events import Event, SignalReceived, ValueRecorded
from perdure.testing import Environment
from perdure.worker.calls.call import AwaitedCall, CallingCode, CallingRun, CallServices, unexpected
from tests.simulation.simulator import MemoryDatabase, Node, SqliteDatabase, State, Tape, World

by_mail, by_web = Signal("by-mail", str), Signal("by-web", str)
CLOSES_AFTER_MS = 600_000
MOST_STEPS = 5000


class BallotCall(AwaitedCall, kind="ballot"):
    """Waits for the first of several signals; when the time is over, for nothing more."""

    __slots__ = ("closes_at", "names")

    closes_at: int
    names: tuple[str, ...]

    @classmethod
    def ask(cls, runtime: CallingCode, *names: str) -> "BallotCall":
        call = cls(runtime, runtime.place("ballot()"))
        call.names = names
        call.closes_at = runtime.loop.now + CLOSES_AFTER_MS
        runtime.add(call)
        for key in call.listens_to():
            runtime.listen(call, key)
        return call

    def listens_to(self) -> tuple[str, ...]:
        return tuple(f"signal({name})" for name in self.names)

    def answer(self, event: Event, restored: object) -> None:
        match event.fact:
            case SignalReceived(name, payload):
                self.future.set_result(f"{name}: {msgspec.json.decode(payload)}")
            case ValueRecorded(value):
                self.future.set_result(msgspec.json.decode(value))
            case _:
                raise unexpected(event, self.runtime)

    def start(self, live: CallingRun, services: CallServices) -> None:
        services.ring_at(self.closes_at, live, self)

    def ring(self, live: CallingRun, services: CallServices) -> None:
        services.advance(live, RecordOutcome(self.place, ValueRecorded(msgspec.Raw(b'"nobody"'))))

    def is_waiting_outside(self, live: CallingRun) -> bool:
        return True

    def wake_at(self, live: CallingRun, now: int) -> int | None:
        return self.closes_at

    def shown(self, live: CallingRun) -> dict[str, object]:
        return super().shown(live) | {"name": " or ".join(self.names), "until": self.closes_at}


async def ballot(*signals: Signal[Any]) -> str:
    """The authoring face of the call."""
    runtime = required("ballot()", "ask people elsewhere")
    return str(await answered(runtime.calls["ballot"](runtime, *(signal.name for signal in signals))))


@workflow
async def counts_votes() -> list[str]:
    return [await ballot(by_mail, by_web), await ballot(by_web)]


async def test_a_call_of_a_new_kind_is_answered_by_its_messages(env: Environment) -> None:
    async with env:
        run = await env.start(counts_votes)
        await run.signal(by_web, "ann")
        await run.signal(by_web, "bob")

        assert await env.result(run) == ["by-web: ann", "by-web: bob"]


async def test_a_call_of_a_new_kind_is_replayed(env: Environment) -> None:
    """What was answered is answered again, and what waits finds its message."""
    async with env:
        run = await env.start(counts_votes)
        await run.signal(by_mail, "ann")
        await env.settle()

        await env.crash()
        await (await env.app.get(run.id)).signal(by_web, "bob")

        assert await env.result(await env.app.get(run.id)) == ["by-mail: ann", "by-web: bob"]


async def test_a_call_of_a_new_kind_parks_its_run_and_wakes_it(env: Environment) -> None:
    """By a message, and when its own time has come; what it waits for is shown meanwhile."""
    async with env:
        run = await env.start(counts_votes)
        await env.pass_time(30)
        parked = await run.describe()

        assert parked.status is Status.SUSPENDED
        assert [(wait.kind, wait.name) for wait in parked.waiting_for] == [("ballot", "by-mail or by-web")]
        await run.signal(by_mail, "ann")
        assert await env.result(run) == ["by-mail: ann", "nobody"]


@pytest.mark.parametrize("database", [SqliteDatabase, MemoryDatabase])
def test_a_call_of_a_new_kind_lives_in_the_simulator(database: type[SqliteDatabase | MemoryDatabase]) -> None:
    """With a process that dies while it waits, and another one that goes on from the database."""
    world = World(Tape(7), database())
    nodes = [
        Node(world, number, {"workflows": [counts_votes], "park_after": 1, "lease": 30}, ()) for number in range(2)
    ]
    for node in nodes:
        world.add(node)
    _until(world, lambda: all(node.state is State.UP for node in nodes))
    _ask(world, nodes[0], _start(nodes[0].app))
    world.kill(nodes[0])
    _ask(world, nodes[1], _vote(nodes[1].app))

    assert _ask(world, nodes[1], _result(nodes[1].app)) == ["by-web: ann", "nobody"]
    for node in nodes:
        node.bury()


async def _start(app: Perdure) -> None:
    await app.start(counts_votes.options(id="v"))


async def _vote(app: Perdure) -> None:
    await (await app.get("v")).signal(by_web, "ann")


async def _result(app: Perdure) -> object:
    return await (await app.get("v")).result()


def _ask(world: World, node: Node, question: Any) -> Any:
    """What a process answers, however many steps of the world that takes."""
    told: list[asyncio.Task[Any]] = []
    node.spawn(question, told.append)
    _until(world, lambda: bool(told))
    return told[0].result()


def _until(world: World, is_so: Any) -> None:
    while not is_so():
        world.step()
        assert world.steps < MOST_STEPS
