"""Namespaces: made and deleted, and what is in them.

In:   names.
Out:  rows and counts, after the commit; an error that names the nearest one when there is none of a name.
What is asked of a namespace is not checked against this with every call: a client is, when it opens.
"""

from difflib import get_close_matches

import msgspec

from perdure.clock import Clock
from perdure.engine.background import Background
from perdure.engine.committer import Committer, refusal_of
from perdure.engine.leasing.living import dead_among
from perdure.engine.leasing.takeover import Takeover
from perdure.engine.ports import NamespaceContent
from perdure.errors import BadOption, NamespaceExists, NamespaceNotEmpty, NamespaceNotFound, NotOpen
from perdure.stores.answers import Applied, Moved, Remaining
from perdure.stores.operations import CreateNamespace, DeleteNamespace
from perdure.stores.port import Store
from perdure.stores.records import NamespaceRow, WorkerRow
from perdure.stores.rules.namespaces import MOST_COUNTED

# Always there.
MAIN = "main"


class StoreNamespaceRegistry:
    """The namespaces of a store."""

    def __init__(
        self, store: Store, committer: Committer, clock: Clock, takeover: Takeover, background: Background
    ) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._takeover = takeover
        self._background = background

    async def create(self, name: str) -> NamespaceRow:
        """Make a namespace; NamespaceExists."""
        self._check_open()
        row = NamespaceRow(name, self._clock.now())
        answer = await self._committer.apply(CreateNamespace(*row))
        if isinstance(answer, Moved):
            raise NamespaceExists(name)
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._store.url)
        return row

    async def all(self) -> list[NamespaceRow]:
        """All of them, by name."""
        self._check_open()
        return await self._store.reads.namespaces.all()

    async def look(self, name: str) -> NamespaceContent:
        """One of them and what is in it; NamespaceNotFound."""
        row = await self.find(name)
        runs, queues = await self._store.reads.namespaces.census(name, MOST_COUNTED + 1)
        workers = await self._workers(name)
        dead = await dead_among(self._store, workers)
        living = [worker for worker in workers if worker.worker_id not in dead]
        worked = {queue for worker in living for queue in msgspec.json.decode(worker.queues, type=list[str])}
        return NamespaceContent(row, runs, tuple(sorted(worked | {*queues})), len(living))

    async def delete(self, name: str) -> None:
        """Forget a namespace that nothing is left in; NamespaceNotFound, NamespaceNotEmpty."""
        self._check_open()
        if name == MAIN:
            raise BadOption(f"the namespace {MAIN!r} is always there and cannot be deleted")
        for worker in await self._workers(name):
            # One that died leaves its row behind until another process finds it.
            await self._takeover.is_free(worker.worker_id)
        answer = await self._committer.apply(DeleteNamespace(name))
        if isinstance(answer, Moved):
            raise await self._not_found(name)
        if isinstance(answer, Remaining):
            raise NamespaceNotEmpty(name, answer.runs, answer.workers, answer.schedules, answer.sinks)
        if not isinstance(answer, Applied):
            raise refusal_of(answer, self._store.url)

    async def find(self, name: str) -> NamespaceRow:
        """The namespace of this name; NamespaceNotFound, with the nearest."""
        for row in await self.all():
            if row.name == name:
                return row
        raise await self._not_found(name)

    async def _not_found(self, name: str) -> NamespaceNotFound:
        near = get_close_matches(name, [row.name for row in await self.all()], 1)
        return NamespaceNotFound(name, near[0] if near else None)

    async def _workers(self, name: str) -> list[WorkerRow]:
        return [worker for worker in await self._store.reads.workers() if worker.namespace == name]

    def _check_open(self) -> None:
        if self._background.is_closed:
            raise NotOpen
