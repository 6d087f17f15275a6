"""The engine over a server: the nouns that a client needs, each asked by HTTP.

In:   the address of a server, a key.
Out:  a client, views, namespaces; what needs the database itself says so.
"""

import copy
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from perdure.clock import Clock, ToldTime
from perdure.engine.ports import KEEP_MS, STALE_MS, CommandKey, Host, StartedRun, StartRequest
from perdure.errors import BadOption
from perdure.http.remote.client import RemoteClient
from perdure.http.remote.connection import Connection
from perdure.http.remote.outbox import RemoteOutbox
from perdure.http.remote.overview import RemoteChanges, RemoteDiagnoses, RemoteDuties, RemoteWorkers
from perdure.http.remote.schedules import RemoteSchedules
from perdure.http.remote.steering import RemoteBulk, RemoteForker
from perdure.http.remote.tenancy import RemoteAccessKeys, RemoteNamespaces
from perdure.http.remote.transport import Transport
from perdure.http.remote.views import RemoteViews
from perdure.http.remote.worker.parts import WorkerParts

NOT_OFFERED = "a server does not give this; open a Perdure on the URL of the database itself"


class RemoteEngine:
    """Runs, kept by a server."""

    once: "RemoteOnce | None" = None

    def __init__(
        self, url: str, transport: Transport, clock: Clock, key: str | None, told: ToldTime | None = None
    ) -> None:
        connection = Connection(url, transport, clock, key)
        self._worker = worker = WorkerParts(connection, clock, told)
        self.reader, self.claimer, self.owner = worker.reader, worker.claimer, worker.owner
        self.outputs, self.announcements, self.transactor = worker.outputs, worker.announcements, worker.transactor
        self._speak_over(connection)

    def _speak_over(self, connection: Connection) -> None:
        self.clock = connection.clock
        self._connection = connection
        self.client = RemoteClient(connection)
        self.views = RemoteViews(connection)
        self.forker = RemoteForker(connection)
        self.bulk_by_text = RemoteBulk(connection)
        self.changes_by_text = RemoteChanges(connection)
        self.diagnoses = RemoteDiagnoses(connection)
        self.worker_views = RemoteWorkers(connection)
        self.duties = RemoteDuties(connection)
        self.outbox = self.sink_views = RemoteOutbox(connection)
        self.schedules = self.schedule_views = RemoteSchedules(connection, self._worker.lease.declare)
        self.namespaces = RemoteNamespaces(connection)
        self.access_keys = RemoteAccessKeys(connection)

    def with_key(self, key: CommandKey) -> "RemoteEngine":
        """The same engine, whose commands the server does once under this key."""
        if (key.keep_ms, key.stale_ms) != (KEEP_MS, STALE_MS):
            raise BadOption("how long a key is kept is decided by the server; leave keep= and stale_after= away")
        twin = self.plain_with(key.text)
        twin.once = RemoteOnce(self, key.text)
        return twin

    def plain_with(self, key: str) -> "RemoteEngine":
        """The same engine, which shows a key with every change."""
        twin = copy.copy(self)
        twin._speak_over(self._connection.with_key(key))
        return twin

    @property
    def url(self) -> str:
        """The server, as people name it."""
        return self._connection.url

    async def open(self, namespace: str, host: Host | None = None, queues: tuple[str, ...] = ()) -> None:
        """Look whether the server is there, and whether the key is good; with a host, become a worker."""
        try:
            if host is not None:
                await self._worker.lease.begin(namespace, queues, host)
            else:
                await self._connection.get("/v1/runs", namespace=namespace, limit=1)
        except BaseException:
            await self._connection.close()
            raise

    async def close(self) -> None:
        """Hand back what this worker has, and let go of all connections."""
        try:
            await self._worker.close()
        finally:
            await self._connection.close()

    def abandon(self) -> None:
        """Stop at once and say nothing more, as if the process had died."""
        self._worker.abandon()

    async def settle(self, patience_ms: int) -> None:
        """Until everything asked for so far is written; while the server is away, not for longer than this."""
        await self._worker.settle(patience_ms)

    @property
    def worker_id(self) -> str:
        """The id of this process's worker; empty when it is none."""
        return self._worker.lease.worker_id

    @property
    def requests(self) -> int:
        """How many requests told the server what runs want."""
        return self._worker.writes.requests

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being told to the server."""
        return self._worker.is_idle

    @property
    def is_stalled(self) -> bool:
        """Whether the server was away, and only time can help."""
        return self._worker.is_stalled

    def __getattr__(self, noun: str) -> NoReturn:
        if noun.startswith("_"):
            raise AttributeError(noun)
        raise BadOption(NOT_OFFERED)


class RemoteOnce:
    """What is asked of a server under a key."""

    is_replayed = replies = False

    def __init__(self, engine: RemoteEngine, key: str) -> None:
        self._engine = engine
        self._key = key

    async def start(self, _: StartRequest, within: object, begin: Callable[[Any], Awaitable[StartedRun]]) -> StartedRun:
        """Start a run once, by this function of an engine."""
        if within is not None:
            raise BadOption("a key does not go with connection=: what is in your transaction is done when you commit")
        return await begin(self._engine.plain_with(self._key))

    def keep_reply(self, text: str) -> None:
        """The server does."""

    async def kept_reply(self) -> None:
        """The server answers with it."""

    def about(self, *_: object) -> RemoteEngine:
        """The server itself tells what a command is asked with."""
        return self._engine.plain_with(self._key)

    def numbered(self, number: int) -> RemoteEngine:
        """The engine for one of the commands that are asked together under the key."""
        return self._engine.plain_with(f"{self._key}#{number}")
