"""Workers that work over a server: how they begin, stay and leave."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from perdure.engine.ports.announcements import AnnouncedWorkflow
from perdure.engine.ports.remote_runs import RemoteRuns, WorkerNews
from perdure.engine.ports.remote_workers import Registration, RemoteLease, RemoteTasks, RemoteWorker, Renewal
from perdure.stores.records import UnreadPage


class WorkWait(Protocol):
    """A worker that waits for something to claim."""

    async def comes(self) -> bool:
        """Until there may be something, and after the first time something new; LeaseLost. Always true."""


class WorkHint(msgspec.Struct, frozen=True):
    """What a worker may want to know: `work`; a `message` for a run, or that a run or a task is to stop, `cancel`."""

    kind: str
    run_id: str | None = None


class WorkerHints(Protocol):
    """What one worker is told while it listens; `after` is where the next listening begins."""

    after: int

    async def next(self) -> WorkHint:
        """The next one; LeaseLost."""

    def close(self) -> None:
        """Nobody listens any more."""


class RemoteListening(Protocol):
    """What workers that own runs in full are told, and tell of themselves."""

    async def hear(self, worker: RemoteWorker, after: int, seen: int, *, waits: bool) -> WorkerNews:
        """What has come for its runs since, or that there may be more to claim, as soon as there is; LeaseLost."""

    async def announce(
        self, worker: RemoteWorker, names: Sequence[str] | None, workflows: Sequence[AnnouncedWorkflow]
    ) -> tuple[str, ...]:
        """Let its row say what it has code for by now, and others know of its workflows; its queues. LeaseLost."""

    async def unread(self, worker: RemoteWorker, run_id: str, after: int) -> UnreadPage:
        """What one of its runs has not read, after a number; RunNotOwned."""


class RemoteWorkerRegistry(Protocol):
    """Workers that work over a server; `lease_ms` is how long they have what they take without a word."""

    lease_ms: int

    @property
    def tasks(self) -> RemoteTasks: ...

    @property
    def runs(self) -> RemoteRuns: ...

    @property
    def listening(self) -> RemoteListening: ...

    async def register(self, namespace: str, worker: Registration) -> RemoteLease:
        """Begin a worker."""

    async def renew(self, worker: RemoteWorker, holding: Sequence[str] | None = None) -> Renewal:
        """Prolong a lease; LeaseLost."""

    async def leave(self, worker: RemoteWorker) -> None:
        """Hand everything back, and end a worker."""

    def waiting(self, worker: RemoteWorker, *, are_tasks: bool | None) -> AbstractContextManager[WorkWait]:
        """Wait for something to claim: activities on queues, or runs, or both."""

    async def hints(self, worker: RemoteWorker, after: int) -> WorkerHints:
        """Tell a worker what it may want to know, messages after a number; LeaseLost."""

    def stream_broke(self, worker: RemoteWorker) -> None:
        """A worker does not listen any more, and did not say so: take it over soon, unless it shows life."""
