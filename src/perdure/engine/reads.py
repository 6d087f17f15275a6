"""What everybody may read of runs.

In:   namespaces, ids, filters.
Out:  rows, events, messages; an error that names what is not there, or cannot be read.
"""

from perdure.engine.background import Background
from perdure.engine.endings import ending_of
from perdure.engine.leasing.living import LivingWorkers
from perdure.engine.ports import Ending
from perdure.errors import NotOpen, RunNotFound, RunUnreadable
from perdure.kernel.events import Event
from perdure.kernel.status import Status
from perdure.stores.port import Store
from perdure.stores.records import RunRow
from perdure.stores.rows import Garbled

# So many runs it is remembered of where their generations begin or end.
MOST_REMEMBERED = 10_000


class StoreReader:
    """Reads runs from a store; the Reader of an engine."""

    def __init__(self, store: Store, living: LivingWorkers, background: Background) -> None:
        self._store = store
        self._background = background
        # Where generations were found, so that nobody walks through all of them again and again.
        self._newest: dict[str, str] = {}
        self._first: dict[str, str] = {}
        # What is answered as it is known.
        self.list_runs = store.reads.list_runs
        self.find_runs = store.reads.matching.page
        self.matching = store.reads.matching
        self.count_runs = store.reads.matching.count
        self.held_counts = store.reads.held_counts
        self.last_event = store.reads.last_event
        self.attempts = store.reads.attempts
        self.progress = store.reads.progress
        self.unread = store.reads.unread
        self.unread_page = store.reads.unread_page
        self.count_unread = store.reads.count_unread
        self.deferreds = store.reads.channels.deferreds
        self.misfits = store.reads.set_aside
        self.serving = living.serving

    async def read(self, namespace: str, run_id: str) -> RunRow:
        """A run's row; RunNotFound."""
        if self._background.is_closed:
            raise NotOpen
        row = await self._store.reads.run(namespace, run_id)
        if row is None:
            raise RunNotFound(run_id, namespace)
        return row

    async def find(self, namespace: str, workflow_id: str) -> RunRow:
        """The newest run of a workflow_id; RunNotFound."""
        row = await self._store.reads.latest_run(namespace, workflow_id)
        if row is None:
            raise RunNotFound(workflow_id, namespace)
        return row

    async def newest(self, namespace: str, run_id: str) -> RunRow:
        """The run itself, or the one that continues it by now."""
        row = await self.read(namespace, self._newest.get(run_id, run_id))
        while row.status == Status.CONTINUED:
            row = await self.read(namespace, str(self.ending_of(row).next_run_id))
        _remember(self._newest, run_id, row.run_id)
        return row

    async def first(self, row: RunRow) -> RunRow:
        """The run itself, or the first of those that it continues."""
        found = row
        while (before := self._first.get(found.run_id, found.continued_from)) is not None:
            found = await self.read(row.namespace, before)
        _remember(self._first, row.run_id, found.run_id)
        return found

    async def heir(self, namespace: str, run_id: str) -> RunRow | None:
        """The newest run under the id of this one, if it has its past from that or continues it."""
        row = await self.read(namespace, run_id)
        heir = before = await self.find(namespace, row.workflow_id)
        while before.run_id != run_id:
            origin = before.forked_from or before.continued_from
            if origin is None:
                return None
            before = await self.read(namespace, origin)
        return None if heir.run_id == run_id else heir

    def ending_of(self, row: RunRow) -> Ending:
        """How a closed run ended; RunUnreadable."""
        try:
            return ending_of(row)
        except Garbled as error:
            raise RunUnreadable(self._store.url, row.run_id, row.workflow_id, str(error)) from None

    async def events(self, namespace: str, run_id: str, after: int, limit: int) -> list[Event]:
        """A run's history after an event's number."""
        return await self._store.reads.events(await self.read(namespace, run_id), after, limit)


def _remember(known: dict[str, str], run_id: str, found: str) -> None:
    """Note where a run led, if it led anywhere; the oldest note makes room."""
    if run_id == found:
        return
    if len(known) >= MOST_REMEMBERED:
        known.pop(next(iter(known)))
    known[run_id] = found
