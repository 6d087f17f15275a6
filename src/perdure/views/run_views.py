"""Run views: everything that people and programs outside may see of runs, as a port.

In:   a namespace and a run, filters.
Out:  views.
An engine over a store is looked at here; one over HTTP asks the server, which looks there.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from perdure.codec import ValueType
from perdure.engine.ports import Engine
from perdure.errors import RunUnreadable
from perdure.stores.records import RunFilter, RunRow
from perdure.views.finding import count_where, page_of
from perdure.views.outputs import Snapshot, StreamItem, snapshot_of, stream_of
from perdure.views.run import (
    DeferredInfo,
    FailedAttempt,
    Page,
    RunEvent,
    RunInfo,
    UnreadMessage,
    attempt_view,
    deferred_views,
    message_view,
    run_view,
)
from perdure.views.timeline import WantedEvents, wanted_events


class KnownRun(Protocol):
    """What a handle needs to know of a run."""

    @property
    def run_id(self) -> str: ...

    @property
    def workflow_id(self) -> str: ...

    @property
    def workflow(self) -> str: ...


class RunViews(Protocol):
    """What can be seen of runs."""

    async def newest(self, namespace: str, id: str) -> KnownRun:
        """The newest run of an id, also one that cannot be read; RunNotFound."""

    async def exact(self, namespace: str, run_id: str) -> KnownRun:
        """The run with this run_id, also one that cannot be read; RunNotFound."""

    async def describe(self, namespace: str, run_id: str) -> RunInfo:
        """A run as it stands; RunNotFound."""

    async def page(self, wanted: RunFilter, where: str | None, params: Mapping[str, object] | None) -> Page:
        """One page of the runs that match."""

    async def count(
        self, namespace: str, where: str, params: Mapping[str, object] | None, by: str | None
    ) -> dict[object, int]:
        """How many runs match, by the values of a field."""

    def events(self, namespace: str, run_id: str, wanted: WantedEvents) -> AsyncGenerator[RunEvent, None]:
        """These events of a run."""

    async def attempts(self, namespace: str, run_id: str) -> list[FailedAttempt]:
        """The failed attempts of a run's activities."""

    async def unread(self, namespace: str, run_id: str) -> list[UnreadMessage]:
        """What is in a run's inbox and was not taken yet."""

    async def set_aside(self, namespace: str, run_id: str) -> list[UnreadMessage]:
        """The signals that the code could not take."""

    async def deferreds(self, namespace: str, run_id: str) -> list[DeferredInfo]:
        """The deferreds that a run waits for, and those that were resolved."""

    async def snapshot(self, namespace: str, run_id: str) -> Snapshot:
        """What a run exposes."""

    def stream(
        self, namespace: str, run_id: str, name: str, kind: ValueType, after: int
    ) -> AsyncGenerator[StreamItem[object], None]:
        """The values of a stream after a number, until the run has ended."""


class StoreRunViews:
    """Looks at runs through an engine over a store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def describe(self, namespace: str, run_id: str) -> RunInfo:
        return await run_view(self._engine, await self._engine.reader.read(namespace, run_id))

    async def newest(self, namespace: str, id: str) -> RunRow:
        with _unreadable_as_well() as found:
            found.row = await self._engine.reader.find(namespace, id)
        return found.row

    async def exact(self, namespace: str, run_id: str) -> RunRow:
        with _unreadable_as_well() as found:
            found.row = await self._engine.reader.read(namespace, run_id)
        return found.row

    async def page(self, wanted: RunFilter, where: str | None, params: Mapping[str, object] | None) -> Page:
        return await page_of(self._engine, wanted, where, params)

    async def count(
        self, namespace: str, where: str, params: Mapping[str, object] | None, by: str | None
    ) -> dict[object, int]:
        return await count_where(self._engine, RunFilter(namespace), where, params, by)

    def events(self, namespace: str, run_id: str, wanted: WantedEvents) -> AsyncGenerator[RunEvent, None]:
        return wanted_events(self._engine, namespace, run_id, wanted)

    async def attempts(self, namespace: str, run_id: str) -> list[FailedAttempt]:
        return [attempt_view(found) for found in await self._engine.reader.attempts(run_id)]

    async def unread(self, namespace: str, run_id: str) -> list[UnreadMessage]:
        return [message_view(message) for message in await self._engine.reader.unread(run_id)]

    async def set_aside(self, namespace: str, run_id: str) -> list[UnreadMessage]:
        return [message_view(message) for message in await self._engine.reader.misfits(run_id)]

    async def deferreds(self, namespace: str, run_id: str) -> list[DeferredInfo]:
        waits = (await self.describe(namespace, run_id)).waiting_for
        return deferred_views(waits, await self._engine.reader.deferreds(run_id))

    async def snapshot(self, namespace: str, run_id: str) -> Snapshot:
        return await snapshot_of(self._engine, namespace, run_id)

    def stream(
        self, namespace: str, run_id: str, name: str, kind: ValueType, after: int
    ) -> AsyncGenerator[StreamItem[object], None]:
        return stream_of(self._engine, namespace, run_id, name, kind, after)


class _Found:
    """A run that was looked for."""

    row: RunRow


@contextmanager
def _unreadable_as_well() -> Iterator[_Found]:
    """Of a run that cannot be read, what is left: with its handle it can be ended; who asks it more is told."""
    found = _Found()
    try:
        yield found
    except RunUnreadable as error:
        if not isinstance(error.rest, RunRow):
            raise
        found.row = error.rest


@runtime_checkable
class HasRunViews(Protocol):
    """An engine that has views of its own, since it is over a server."""

    @property
    def views(self) -> RunViews: ...


def views_of(engine: Engine) -> RunViews:
    """What can be seen of the runs of an engine."""
    return engine.views if isinstance(engine, HasRunViews) else StoreRunViews(engine)
