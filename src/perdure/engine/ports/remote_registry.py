"""Workers that work over a server: how they begin, stay and leave."""

from typing import Protocol

from perdure.engine.ports.remote_runs import RemoteRuns
from perdure.engine.ports.remote_workers import Registration, RemoteLease, RemoteTasks, RemoteWorker, Renewal


class RemoteWorkerRegistry(Protocol):
    """Workers that work over a server."""

    @property
    def tasks(self) -> RemoteTasks: ...

    @property
    def runs(self) -> RemoteRuns: ...

    async def register(self, namespace: str, worker: Registration) -> RemoteLease:
        """Begin a worker."""

    async def renew(self, worker: RemoteWorker) -> Renewal:
        """Prolong a lease; LeaseLost."""

    async def leave(self, worker: RemoteWorker) -> None:
        """Hand everything back, and end a worker."""

    async def wait_for_work(self, worker: RemoteWorker, *, are_tasks: bool) -> None:
        """Until there may be something to claim."""
