"""The nouns together, and the time between opening and closing."""

from typing import Protocol

from perdure.clock import Clock
from perdure.engine.ports.access_keys import AccessKeys
from perdure.engine.ports.announcements import Announcements
from perdure.engine.ports.bulk import BulkActions
from perdure.engine.ports.claimer import Claimer
from perdure.engine.ports.client import Client
from perdure.engine.ports.forker import Forker
from perdure.engine.ports.host import Host
from perdure.engine.ports.inspector import Inspector
from perdure.engine.ports.keys import CommandKey, Once
from perdure.engine.ports.namespaces import NamespaceRegistry
from perdure.engine.ports.outbox import OutboxKeeper
from perdure.engine.ports.outputs import Outputs
from perdure.engine.ports.owner import Owner
from perdure.engine.ports.reader import Reader
from perdure.engine.ports.remote_registry import RemoteWorkerRegistry
from perdure.engine.ports.schedules import ScheduleKeeper
from perdure.engine.ports.subscriptions import Subscriptions
from perdure.engine.ports.transactor import Transactor
from perdure.stores.records import DutyRow


class DutyList(Protocol):
    """Who does what for all workers of a namespace."""

    async def all(self, namespace: str) -> list[DutyRow]:
        """The duties that somebody has or had, by name."""


class Engine(Protocol):
    """The nouns together, and the time between opening and closing; `url` names the database to people."""

    clock: Clock

    @property
    def url(self) -> str: ...

    @property
    def worker_id(self) -> str:
        """The id of this process's worker; empty when it is none."""

    @property
    def client(self) -> Client: ...

    @property
    def reader(self) -> Reader: ...

    @property
    def claimer(self) -> Claimer: ...

    @property
    def owner(self) -> Owner: ...

    @property
    def forker(self) -> Forker: ...

    @property
    def outputs(self) -> Outputs: ...

    @property
    def inspector(self) -> Inspector: ...

    @property
    def access_keys(self) -> AccessKeys: ...

    @property
    def announcements(self) -> Announcements: ...

    @property
    def subscriptions(self) -> Subscriptions: ...

    @property
    def remote(self) -> RemoteWorkerRegistry: ...

    @property
    def schedules(self) -> ScheduleKeeper: ...

    @property
    def outbox(self) -> OutboxKeeper: ...

    @property
    def duties(self) -> DutyList: ...

    @property
    def transactor(self) -> Transactor: ...

    @property
    def bulk(self) -> BulkActions: ...

    @property
    def namespaces(self) -> NamespaceRegistry: ...

    @property
    def once(self) -> Once | None:
        """What is asked is done once, under a key; None when there is none."""

    def with_key(self, key: CommandKey) -> "Engine":
        """The same engine, whose commands are done once under this key, and answered alike each time."""

    async def open(self, namespace: str, host: Host | None = None, queues: tuple[str, ...] = ()) -> None:
        """Begin, and see to the ends by the clock in a namespace; with a host, become a worker for its queues."""

    async def close(self) -> None:
        """Write what is left, and let go of everything."""

    async def settle(self, patience_ms: int) -> None:
        """Until everything asked for so far is on disk; while the database is unavailable, not for longer than this."""
