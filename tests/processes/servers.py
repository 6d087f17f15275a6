"""Two servers on one port and three workers over them, killed in turn; the database is seen by the servers alone.

In:   a ground, and how often to kill.
Out:  nothing that was acknowledged is lost, nothing that was recorded is done again.
"""

import asyncio
import os
import random
import socket

from perdure import Perdure
from tests.processes.clients import Client, Oracle, Witness
from tests.processes.grounds import Ground
from tests.processes.nodes import Node, until

SERVERS, WORKERS = 2, 3
IN_FLIGHT = 40


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Crew:
    """The processes, any of which can be killed: another one takes its place."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self._address}"
        self.nodes: list[tuple[Node, bool]] = []

    async def begin(self, *, is_server: bool) -> None:
        self.nodes.append((await self._prepared(is_server=is_server).begin(), is_server))

    def _prepared(self, *, is_server: bool) -> Node:
        if is_server:
            return self._ground.node("--client", "--serve", self._address)
        return self._ground.node_at(self.url)

    async def replace(self, index: int) -> None:
        """Kill one, and let another begin."""
        node, is_server = self.nodes.pop(index)
        successor = await self._prepared(is_server=is_server).prepare()
        node.kill()
        successor.go()
        await successor.hears("ready")
        self.nodes.append((successor, is_server))

    async def leave(self) -> None:
        """Workers first: they hand back what they have. The servers stay until they have seen to those that were
        killed, which takes as long as a lease when no stream told them."""
        for node, is_server in self.nodes:
            if not is_server:
                assert await node.leave() == 0, node.log.read_text()
        await until(lambda: self._ground.rows("select * from workers where remote > 0") == [], "killed workers go")
        for node, is_server in self.nodes:
            if is_server:
                assert await node.leave() == 0, node.log.read_text()


async def kill_in_turn(ground: Ground, kills: int) -> None:
    """Servers and workers die while runs are started, signalled, cancelled and worked over HTTP."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed {seed}")
    chance = random.Random(seed)
    oracle = Oracle()
    witness = Witness(ground, oracle)
    crew = Crew(ground)
    for is_server in [True] * SERVERS + [False] * WORKERS:
        await crew.begin(is_server=is_server)
    async with Perdure(crew.url, worker=False) as app:
        client = Client(app, ground, oracle, chance, in_flight=IN_FLIGHT, is_patient=True)
        feeding = asyncio.create_task(client.feed())
        for number in range(kills):
            # The moment of the kill is chance, not synchronisation.
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            await crew.replace(0 if number % 2 else chance.randrange(len(crew.nodes)))
            assert not feeding.done(), feeding.exception()
            witness.look()
        client.is_closing = True
        await feeding
        await client.finish()
        await ground.until_all_ended()
    await crew.leave()
    witness.check()
    assert ground.rows("select * from workers") == []
    print(f"{kills} kills, {len(oracle.read('start'))} runs, {len(ground.effects())} steps executed")
