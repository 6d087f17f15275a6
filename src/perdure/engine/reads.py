"""What everybody can ask of an engine over a store: to read, and to wait for the end of a run."""

import asyncio
from collections.abc import Sequence

from perdure.clock import Clock
from perdure.engine.awaited import Awaited
from perdure.engine.endings import ending_of
from perdure.engine.held import Holds
from perdure.engine.hindrances import Hindered
from perdure.engine.ports import Ending, Host, OwnedRun
from perdure.errors import NotOpen, RunNotFound, RunUnreadable
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.kernel.status import Status
from perdure.stores.port import Store
from perdure.stores.records import Attempt, RunFilter, RunRow
from perdure.stores.rows import Garbled


class ReadingEngine:
    """Reads runs, and tells of their ends."""

    def __init__(self, store: Store, clock: Clock, namespace: str) -> None:
        self.clock = clock
        self.namespace = namespace
        self._store = store
        self._host: Host | None = None
        self._waiters: dict[str, list[asyncio.Future[Ending]]] = {}
        self._awaited = Awaited(self._waiters, self._is_live)
        self._holds = Holds()
        self._hindered = Hindered()
        self._is_closed = False

    @property
    def url(self) -> str:
        return self._store.url

    async def read(self, run_id: str) -> RunRow:
        """A run's row; RunNotFound."""
        if self._is_closed:
            raise NotOpen
        row = await self._store.run(self.namespace, run_id)
        if row is None:
            raise RunNotFound(run_id, self.namespace)
        return row

    async def find(self, workflow_id: str) -> RunRow:
        """The newest run of a workflow_id; RunNotFound."""
        row = await self._store.latest_run(self.namespace, workflow_id)
        if row is None:
            raise RunNotFound(workflow_id, self.namespace)
        return row

    async def _newest(self, run_id: str) -> RunRow:
        """The run itself, or the one that continues it by now."""
        row = await self.read(run_id)
        while row.status == Status.CONTINUED:
            row = await self.read(str(self._ending_of(row).next_run_id))
        return row

    def _ending_of(self, row: RunRow) -> Ending:
        """How a closed run ended; RunUnreadable."""
        try:
            return ending_of(row)
        except Garbled as error:
            raise RunUnreadable(self._store.url, row.run_id, row.workflow_id, str(error)) from None

    async def list_runs(self, wanted: RunFilter) -> list[RunRow | RunUnreadable]:
        """Runs, newest first; those that cannot be read are in their places."""
        return await self._store.list_runs(wanted)

    async def held_counts(self) -> dict[str, int]:
        """How many runs are held, by reason."""
        return await self._store.held_counts(self.namespace)

    async def events(self, run_id: str, after: int, limit: int) -> list[Event]:
        """A run's history."""
        return await self._store.events(await self.read(run_id), after, limit)

    async def last_event_at(self, run_id: str) -> int | None:
        """When a run's last event was."""
        return await self._store.last_event_at(run_id)

    async def attempts(self, run_id: str) -> Sequence[Attempt]:
        """A run's failed attempts."""
        return await self._store.attempts(run_id)

    async def unread(self, run_id: str) -> Sequence[Message]:
        """The messages a run has not taken yet."""
        return await self._store.unread(run_id)

    async def misfits(self, run_id: str) -> Sequence[Message]:
        """The signals that were set aside, for they are not what a run's code waits for."""
        return await self._store.set_aside(run_id)

    async def wait(self, run_id: str, owned: OwnedRun | None = None) -> Ending:
        """Until the run has ended; `owned` is its handle, if it was started here."""
        if owned is not None and owned.ending is not None:
            return owned.ending
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        # Registered before the look, so that an end in between is not missed.
        self._waiters.setdefault(run_id, []).append(future)
        try:
            if not self._is_live(run_id):
                self._awaited.come()
                row = await self.read(run_id)
                if row.closed_at is not None:
                    return self._ending_of(row)
                if row.held is not None:
                    self._holds.tell(row)
                self._hindered.tell_rest(row, self.clock.now())
            return await future
        finally:
            self._forget_waiter(run_id, future)

    def _forget_waiter(self, run_id: str, future: "asyncio.Future[Ending]") -> None:
        waiters = self._waiters.get(run_id)
        # One that was told is not among those that came since.
        if waiters is not None and future in waiters:
            waiters.remove(future)
            if not waiters:
                del self._waiters[run_id]

    def _ended_or_held(self, found: RunRow | RunUnreadable) -> None:
        """A run that somebody waits for was seen to have ended, or to be held."""
        if isinstance(found, RunRow) and found.closed_at is None:
            self._holds.tell(found)
        else:
            self._tell_end(found)

    def _tell_waiters(self, run_id: str, ending: Ending) -> None:
        self._holds.forget(run_id)
        for waiter in self._waiters.pop(run_id, ()):
            if not waiter.done():
                waiter.set_result(ending)

    def _tell_end(self, found: RunRow | RunUnreadable) -> None:
        """A run that is waited for has ended elsewhere; one whose end cannot be read is not waited for any longer."""
        try:
            if isinstance(found, RunUnreadable):
                raise found
            self._tell_waiters(found.run_id, self._ending_of(found))
        except RunUnreadable as error:
            for waiter in self._waiters.pop(error.run_id, ()):
                if not waiter.done():
                    waiter.set_exception(error)

    def _is_live(self, run_id: str) -> bool:
        return self._host is not None and self._host.is_live(run_id)

    async def pause(self, ms: int) -> None:
        """Wait by the engine's clock."""
        woken = asyncio.Event()
        alarm = self.clock.call_at(self.clock.now() + ms, woken.set)
        try:
            await woken.wait()
        finally:
            alarm.cancel()
