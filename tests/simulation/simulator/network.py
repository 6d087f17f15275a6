"""The network between simulated processes: requests to servers and their answers, on their way as long as it takes.

In:   requests of processes that work over a server; the applications of those that are servers.
Out:  answers, and parts of streams; ConnectionError where one is lost, or its server is gone.

A request goes to any server that runs. It may be lost, or its answer may; it may arrive twice, or long after the one
who sent it has given it up. A stream may be cut between two of its parts.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from enum import Enum
from functools import partial
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from perdure.http.problems import error_of
from perdure.http.remote.transport import HttpAnswer
from tests.simulation.simulator.faults import DEADLY, Fault
from tests.simulation.simulator.node import Node, State
from tests.simulation.simulator.tape import Tape

# As the transport that programs use has it.
ANSWER_SECONDS = 90.0
OK, BROKEN, UNAVAILABLE = 200, 500, 503

Action = tuple[Callable[..., None], tuple[Any, ...]]


class Mishap(Enum):
    """What happens to a request."""

    NONE = "nothing"
    LOST = "a request was lost"
    UNHEARD = "the answer to a request was lost"
    TWICE = "a request arrived twice"
    LATE = "a request arrived when it was given up"
    CUT = "a stream was cut"


MISHAPS = (Mishap.LOST, Mishap.UNHEARD, Mishap.TWICE, Mishap.LATE)
# What a fault that strikes with a commit is for who commits by asking a server.
_MISHAPS = {
    Fault.LOST_ANSWER: Mishap.UNHEARD,
    Fault.LOST_COMMIT: Mishap.LOST,
    Fault.REFUSED: Mishap.LATE,
}


class Surroundings(Protocol):
    """What the network knows of its world."""

    now_ms: int
    nodes: list[Node]
    tape: Tape

    def plan(self, after_ms: int, what: Callable[[], None]) -> None:
        """Do this later."""

    def freeze(self, node: Node) -> None:
        """Stop a process as a whole, and let it go on later."""

    def reach(self, what: str) -> None:
        """Count that this happened."""

    def say(self, text: Callable[[], str]) -> None:
        """Tell what happens, if anybody listens."""

    def _after(self, node: Node) -> None:
        """Something happened in a process: it may be dead now."""


class Exchange:
    """One request and its answer; `parts` are on their way to who has asked, `heard` are there."""

    def __init__(self, client: Node, server: Node, scope: dict[str, Any], body: bytes) -> None:
        self.client, self.client_boots = client, client.boots
        self.server, self.server_boots = server, server.boots
        self.scope = scope
        self.body = body
        self.mishap = Mishap.NONE
        self.due_ms = 0
        self.is_served = False
        # Whether the server has nothing more to say.
        self.is_over = False
        self.has_left = False
        self.gone = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: deque[bytes] = deque()
        # Who wants to know: a future for each time that something comes.
        self.arrived: asyncio.Future[None] | None = None
        self.heard: deque[bytes] = deque()
        self.has_ended = False
        self.error: ConnectionError | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for the answer still."""
        return self.client.is_alive and self.client.boots == self.client_boots and not self.has_left

    @property
    def is_served_still(self) -> bool:
        """Whether the server that it went to is there."""
        return self.server.is_alive and self.server.boots == self.server_boots

    @property
    def is_stream(self) -> bool:
        return bool(self.scope["is_stream"])

    @property
    def is_marked(self) -> bool:
        """Whether it changes nothing, or has a key under which it is done once."""
        return self.scope["method"] == "GET" or any(name == b"idempotency-key" for name, _ in self.scope["headers"])

    @property
    def name(self) -> str:
        return f"{self.scope['method']} {self.scope['path'].rsplit('/', 1)[-1]}"


class Network:
    """Requests on their way."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self.exchanges: list[Exchange] = []
        # How many of a thousand requests meet with a mishap.
        self.per_mille = 0

    # What processes do

    def ask(self, client: Node, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Exchange:
        """Send a request; it is lost at once where no server runs."""
        world = self._world
        up = [node for node in world.nodes if node.is_server and node.state is State.UP and node.is_alive]
        if not up:
            raise ConnectionError("simulated: no server is there")
        server = up[world.tape.choose(len(up))] if len(up) > 1 else up[0]
        exchange = Exchange(client, server, _scope(method, path, headers), body or b"")
        self._befall(exchange)
        if exchange.mishap is not Mishap.NONE:
            world.reach(exchange.mishap.value)
        world.say(lambda: f"node {client.number} asks node {server.number}: {exchange.name}, {exchange.mishap.name}")
        self.exchanges.append(exchange)
        return exchange

    def _befall(self, exchange: Exchange) -> None:
        """Decide what becomes of a request."""
        world, client = self._world, exchange.client
        is_change = exchange.scope["method"] != "GET" and not exchange.scope["path"].endswith("/listen")
        if client.armed is not None and is_change:
            self._strike(exchange, client, client.armed)
        elif self.per_mille and not exchange.is_stream and world.tape.happens(self.per_mille):
            exchange.mishap = world.tape.one_of(*MISHAPS)
            if exchange.mishap is Mishap.TWICE and not exchange.is_marked:
                # Nobody on the way repeats a change that is not marked as one that may be repeated.
                exchange.mishap = Mishap.UNHEARD
        if exchange.mishap is Mishap.LATE:
            exchange.due_ms = world.now_ms + world.tape.one_of(100, 3000, 15_000)

    def _strike(self, exchange: Exchange, client: Node, fault: Fault) -> None:
        """A fault that waits for a commit strikes with the request that asks for one."""
        client.armed = None
        self._world.reach(f"{fault.name} over HTTP")
        exchange.mishap = _MISHAPS.get(fault, Mishap.NONE)
        if fault is Fault.FREEZE_AT:
            self._world.freeze(client)
            exchange.due_ms = self._world.now_ms + self._world.tape.one_of(0, 15_000, 40_000)
        elif fault is Fault.CRASH_BEFORE:
            client.is_alive = False
            exchange.mishap = Mishap.LOST
        elif fault in DEADLY:
            client.is_alive = False

    # What the world does

    def actions(self, now: int) -> list[Action]:
        """What can happen next on the network."""
        return [(act, (exchange,)) for exchange in self.exchanges if (act := self._next_of(exchange, now)) is not None]

    def _next_of(  # noqa: PLR0911 - a line for each
        self, exchange: Exchange, now: int
    ) -> Callable[[Exchange], None] | None:
        if exchange.is_wanted:
            if not exchange.client.is_hearing:
                return None
            if exchange.mishap in {Mishap.LOST, Mishap.LATE}:
                return self._fail
            if exchange.is_over or (exchange.parts and exchange.is_stream):
                return self._come_back
        if exchange.is_over or not exchange.is_served_still or exchange.mishap is Mishap.LOST:
            return self._fail if exchange.is_wanted else self._drop
        if not exchange.server.is_hearing:
            return None
        if not exchange.is_served:
            return self._arrive if exchange.due_ms <= now else None
        return None if exchange.is_wanted or exchange.gone.is_set() else self._leave

    def due(self) -> list[int]:
        """When something is to arrive that is late."""
        return [each.due_ms for each in self.exchanges if each.due_ms > self._world.now_ms]

    def _arrive(self, exchange: Exchange) -> None:
        exchange.is_served = True
        server = exchange.server
        assert server.asgi is not None
        self._world.say(lambda: f"node {server.number} gets {exchange.name} of node {exchange.client.number}")
        server.spawn(server.asgi(exchange.scope, *_ends(exchange)), partial(self._served, exchange))
        if exchange.mishap is Mishap.TWICE:
            # What the other one is answered, nobody hears.
            exchange.mishap = Mishap.NONE
            twin = Exchange(exchange.client, server, exchange.scope, exchange.body)
            twin.has_left = True
            self.exchanges.append(twin)
        self._world._after(server)

    def _served(self, exchange: Exchange, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if not exchange.is_served_still:
            return
        if task.cancelled() or isinstance(error, ConnectionError):
            exchange.error = ConnectionError("simulated: the answer broke off")
        elif error is not None:
            exchange.server.loop.troubles.append(f"{exchange.name} broke: {error!r}")
        if exchange.status >= BROKEN and exchange.status != UNAVAILABLE:
            exchange.server.loop.troubles.append(f"{exchange.name} was answered {exchange.status}")
        exchange.is_over = True

    def _come_back(self, exchange: Exchange) -> None:
        world, is_good_stream = self._world, exchange.is_stream and exchange.status == OK
        if is_good_stream and self.per_mille and world.tape.happens(self.per_mille):
            world.reach(Mishap.CUT.value)
            self._fail(exchange)
            return
        if exchange.mishap is Mishap.UNHEARD or exchange.error is not None:
            self._fail(exchange)
            return
        if exchange.parts:
            exchange.heard.append(exchange.parts.popleft())
        if exchange.is_over and not exchange.parts:
            exchange.has_ended = True
            self.exchanges.remove(exchange)
        world.say(lambda: f"node {exchange.client.number} is answered {exchange.status}: {exchange.name}")
        self._tell(exchange)

    def _fail(self, exchange: Exchange) -> None:
        """The one who has asked is told that no answer comes; the server may not know that yet."""
        exchange.error = ConnectionError("simulated: no answer")
        self._world.say(lambda: f"node {exchange.client.number} gets no answer: {exchange.name}")
        self._tell(exchange)
        exchange.has_left = True

    def _drop(self, exchange: Exchange) -> None:
        self.exchanges.remove(exchange)

    def _leave(self, exchange: Exchange) -> None:
        exchange.server.loop.run(exchange.gone.set)
        self._world._after(exchange.server)

    def _tell(self, exchange: Exchange) -> None:
        client, arrived = exchange.client, exchange.arrived
        if arrived is not None and not arrived.done():
            client.loop.run(arrived.set_result, None)
        self._world._after(client)


class SimulatedTransport:
    """The way of one process to the servers."""

    def __init__(self, network: Network, client: Node) -> None:
        self._network = network
        self._client = client

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        if not self._client.is_alive:
            # What it wants while it is being unwound, nobody hears.
            await self._client.loop.create_future()
        exchange = self._network.ask(self._client, method, path, headers, body)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while not exchange.has_ended:
                    await self._next(exchange)
        except TimeoutError:
            raise ConnectionError("simulated: no answer in time") from None
        finally:
            exchange.has_left = not exchange.has_ended
        return HttpAnswer(exchange.status, exchange.headers, b"".join(exchange.heard))

    async def lines(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        exchange = self._network.ask(self._client, "GET", path, headers, None)
        try:
            while True:
                while exchange.heard:
                    data = exchange.heard.popleft()
                    if exchange.status != OK:
                        raise error_of(msgspec.json.decode(data))
                    for line in data.split(b"\n"):
                        yield line + b"\n"
                if exchange.has_ended:
                    return
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._next(exchange)
        except TimeoutError:
            raise ConnectionError("simulated: nothing came in time") from None
        finally:
            exchange.has_left = not exchange.has_ended

    async def _next(self, exchange: Exchange) -> None:
        """Until more of the answer is here."""
        if exchange.error is None:
            exchange.arrived = self._client.loop.create_future()
            await exchange.arrived
        if exchange.error is not None:
            raise exchange.error

    async def close(self) -> None:
        pass


def _scope(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    parts = urlsplit(path)
    return {
        "type": "http",
        "method": method,
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "root_path": "",
        "query_string": parts.query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "is_stream": "text/event-stream" in headers.get("accept", ""),
    }


def _ends(exchange: Exchange) -> tuple[Any, Any]:
    """What an application gets a request by, and answers it."""
    messages = [{"type": "http.request", "body": exchange.body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if messages:
            return messages.pop()
        await exchange.gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            exchange.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message["body"]:
            exchange.parts.append(message["body"])

    return receive, send
