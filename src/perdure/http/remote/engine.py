"""The engine over a server: the nouns that a client needs, each asked by HTTP.

In:   the address of a server, a key.
Out:  a client, views, namespaces; what needs the database itself says so.
"""

from typing import NoReturn

from perdure.clock import Clock
from perdure.engine.ports import Host
from perdure.errors import BadOption
from perdure.http.remote.client import NOT_OFFERED, RemoteClient
from perdure.http.remote.connection import Connection
from perdure.http.remote.transport import Transport
from perdure.http.remote.views import RemoteViews


class RemoteEngine:
    """Runs, kept by a server."""

    def __init__(self, url: str, transport: Transport, clock: Clock, key: str | None) -> None:
        self.clock = clock
        self._connection = connection = Connection(url, transport, clock, key)
        self.client = RemoteClient(connection)
        self.views = RemoteViews(connection)

    @property
    def url(self) -> str:
        """The server, as people name it."""
        return self._connection.url

    async def open(self, namespace: str, host: Host | None = None, queues: tuple[str, ...] = ()) -> None:
        """Look whether the server is there, and whether the key is good."""
        try:
            await self._connection.get("/v1/runs", namespace=namespace, limit=1)
        except BaseException:
            await self._connection.close()
            raise

    async def close(self) -> None:
        """Let go of all connections."""
        await self._connection.close()

    async def settle(self, patience_ms: int) -> None:
        """Everything that was asked for was answered."""

    def __getattr__(self, noun: str) -> NoReturn:
        if noun.startswith("_"):
            raise AttributeError(noun)
        raise BadOption(NOT_OFFERED)
