"""Workers that work over a server: what they register with, take, and say of what they have taken."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from perdure.engine.ports.announcements import AnnouncedWorkflow
from perdure.kernel.failure import Failure


class RemoteWorker(msgspec.Struct, frozen=True):
    """Who a remote worker is, as it says with every call; `namespace` and `queues` are what its key allows."""

    namespace: str
    worker_id: str
    epoch: int
    # No queues means every one.
    queues: tuple[str, ...] = ()
    # Whether its key may start runs for any entity; else children are of the entity of their parents, or of none.
    names_entities: bool = True


class Registration(msgspec.Struct, frozen=True):
    """What a remote worker begins with: a name for people, its queues, and what it has code for."""

    name: str
    queues: tuple[str, ...]
    workflows: tuple[AnnouncedWorkflow, ...] = ()
    activities: tuple[str, ...] = ()


class RemoteLease(msgspec.Struct, frozen=True):
    """A lease that was given, in milliseconds, and the time by the engine."""

    worker_id: str
    epoch: int
    lease_ms: int
    now: int


class Renewal(msgspec.Struct, frozen=True):
    """A lease that was prolonged; what of the worker's is to stop, and what it has and does not hold."""

    lease_ms: int
    now: int
    cancelled: tuple[str, ...] = ()
    unheld: tuple[str, ...] = ()


class RemoteTask(msgspec.Struct, frozen=True):
    """An attempt of an activity that a remote worker is to make; values are JSON, times seconds."""

    task_id: str
    activity: str
    arguments: msgspec.Raw
    attempt: int
    max_attempts: int
    timeout: float
    heartbeat: float | None
    details: msgspec.Raw
    idempotency_key: str
    run: str | None


class PublishedValue(msgspec.Struct, frozen=True):
    """A value for a stream of the run that called an activity."""

    stream: str
    value: msgspec.Raw


class RemoteTasks(Protocol):
    """Activities on queues, for remote workers."""

    async def claim(self, worker: RemoteWorker, limit: int, holding: Sequence[str] | None) -> list[RemoteTask]:
        """Take tasks; first those that it has and does not hold, if it says what it holds."""

    async def complete(self, worker: RemoteWorker, task_id: str, attempt: int, result: msgspec.Raw) -> None:
        """The attempt has returned; said twice, it counts once."""

    async def fail(
        self, worker: RemoteWorker, task_id: str, attempt: int, failure: Failure, *, may_retry: bool = True
    ) -> None:
        """The attempt has failed: it is tried again, or fails for good, as its caller said."""

    async def heartbeat(
        self,
        worker: RemoteWorker,
        task_id: str,
        attempt: int,
        details: msgspec.Raw | None,
        published: Sequence[PublishedValue],
    ) -> bool:
        """The attempt goes on; answers whether nobody waits for it any more."""
