"""Living workers: what they have code for, by namespace and queue.

In:   the rows of workers, and which of them are dead.
Out:  what was served a moment ago; read anew when that is too long ago.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress

import msgspec

from perdure.clock import Clock
from perdure.engine.hindrances import Served, served_by
from perdure.engine.leasing.lease import Lease
from perdure.stores.port import Store
from perdure.stores.records import WorkerRow

# What workers have code for is asked again after so long.
SERVED_MS = 1000


async def dead_among(store: Store, workers: Iterable[WorkerRow]) -> set[str]:
    """Those whose lock is free; a remote worker has none, and is judged by its lease alone."""
    return await store.presence.dead_among([worker.worker_id for worker in workers if not worker.remote])


class LivingWorkers:
    """Remembers who was alive at the last look."""

    def __init__(self, store: Store, clock: Clock, lease: Lease) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._alive: list[WorkerRow] = []
        # What they have code for by namespace; and for which of these that was found out since the last look.
        self._served: dict[str, Served] = {}
        self._known: set[str] = set()
        self._good_until = -1

    def note(self, workers: Iterable[WorkerRow], dead: Collection[str]) -> None:
        """Remember what a look has found."""
        self._good_until = self._clock.monotonic() + SERVED_MS
        self._alive = [worker for worker in workers if worker.worker_id not in dead]
        self._known.clear()

    def look_again(self) -> None:
        """What was found is out of date: ask the database before the next answer."""
        self._good_until = -1

    def served(self, namespace: str) -> Served:
        """What living workers had code for at the last look, by queue."""
        if namespace not in self._known:
            self._known.add(namespace)
            # A row of another version, or one that was spoilt, is no reason to warn of anything.
            with suppress(msgspec.DecodeError, msgspec.ValidationError):
                self._served[namespace] = served_by(self._alive, namespace)
        return self._served.get(namespace, {})

    async def serving(self, namespace: str) -> Served:
        """The same as of a moment ago."""
        if self._clock.monotonic() >= self._good_until:
            workers = await self._store.reads.workers()
            others = [worker for worker in workers if worker.worker_id != self._lease.worker_id]
            self.note(workers, await dead_among(self._store, others))
        return self.served(namespace)
