"""The engine over a server: the nouns that a client needs, each asked by HTTP.

In:   the address of a server, a key.
Out:  a client, views, namespaces; what needs the database itself says so.
"""

from typing import NoReturn

from perdure.clock import Clock
from perdure.engine.ports import Host
from perdure.errors import BadOption
from perdure.http.remote.client import RemoteClient
from perdure.http.remote.connection import Connection
from perdure.http.remote.overview import RemoteChanges, RemoteDiagnoses, RemoteDuties, RemoteWorkers
from perdure.http.remote.schedules import RemoteSchedules
from perdure.http.remote.steering import RemoteBulk, RemoteForker
from perdure.http.remote.tenancy import RemoteAccessKeys, RemoteNamespaces
from perdure.http.remote.transport import Transport
from perdure.http.remote.views import RemoteViews

NOT_OFFERED = "a server does not give this; open a Perdure on the URL of the database itself"


class RemoteEngine:
    """Runs, kept by a server."""

    def __init__(self, url: str, transport: Transport, clock: Clock, key: str | None) -> None:
        self.clock = clock
        self._connection = connection = Connection(url, transport, clock, key)
        self.client = RemoteClient(connection)
        self.views = RemoteViews(connection)
        self.forker = RemoteForker(connection)
        self.bulk_by_text = RemoteBulk(connection)
        self.changes_by_text = RemoteChanges(connection)
        self.diagnoses = RemoteDiagnoses(connection)
        self.worker_views = RemoteWorkers(connection)
        self.duties = RemoteDuties(connection)
        self.schedules = self.schedule_views = RemoteSchedules(connection)
        self.namespaces = RemoteNamespaces(connection)
        self.access_keys = RemoteAccessKeys(connection)

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
