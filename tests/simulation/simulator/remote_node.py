"""A node over a server: a simulated process that has no database, and whose worker asks a server for everything."""

from typing import Any, cast

from perdure.app import Perdure
from perdure.app.internals import connect_by
from perdure.clock import SharedClock, ToldTime
from perdure.engine.ports import Engine
from perdure.http.remote.engine import RemoteEngine
from perdure.ids import RandomIds
from tests.simulation.simulator.network import Network, SimulatedTransport
from tests.simulation.simulator.node import Node
from tests.simulation.simulator.world import World

SERVER = "http://server:7373"


class RemoteNode(Node):
    """A simulated process that works over whichever server answers."""

    is_remote = True

    def __init__(self, world: World, number: int, options: dict[str, Any], resources: tuple[object, ...]) -> None:
        super().__init__(world, number, options, resources)
        self._network: Network = world.network

    def _new_app(self, seed: int) -> Perdure:
        app = Perdure(SERVER, resources=self.resources, grace=0, **self._options)
        told = self._told_time()
        app._clock = clock = SharedClock(told, self._monotonic_ns)
        app._ids = RandomIds(seed)
        app._shutdown = None
        transport = SimulatedTransport(self._network, self)
        connect_by(app, lambda url, key: cast("Engine", RemoteEngine(url, transport, clock, key, told)))
        return app

    def _told_time(self) -> ToldTime:
        """The time of servers; until one has told it, that of this process."""
        node = self

        class Told(ToldTime):
            def __call__(self) -> int:
                return node._wall_ns() if self._told is None else super().__call__()

            def latest(self) -> int:
                return node._wall_ns() if self._told is None else super().latest()

        return Told(self._monotonic_ns)
