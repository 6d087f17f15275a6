"""Subscriptions: runs as they change, for all subscribers of this process by one look at the database.

In:   filters, and cursors of earlier subscribers.
Out:  runs that match, then those that change. Writers log changes while `listeners` says that somebody wants them;
      here that is said, once a minute, and what is old in the log is deleted.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import suppress

from perdure.clock import Alarm, Clock
from perdure.engine.background import Background
from perdure.engine.committer import Committer, Dropped, Unavailable
from perdure.engine.ports.subscriptions import RunChange
from perdure.engine.subscriptions.cursors import Cursor
from perdure.engine.subscriptions.matching import Selection
from perdure.engine.subscriptions.subscriber import ListPage, Subscriber
from perdure.errors import CursorExpired, NotOpen, PerdureError, RunUnreadable
from perdure.kernel.filters import Filter, RunFields, all_of, is_about_closed
from perdure.kernel.filters.syntax import Field, In, TextValue
from perdure.kernel.position import Position
from perdure.kernel.status import OPEN
from perdure.stores.answers import Applied
from perdure.stores.operations import ForgetChanges, Listen, MoveLog, Operation
from perdure.stores.port import Store
from perdure.stores.records import ListenerRow, RunQuery, RunRow
from perdure.stores.rows import Garbled
from perdure.stores.rules.changes import CHANGES
from perdure.stores.rules.filters import run_fields

# How often changes are looked for.
LOOK_MS = 100
# So long the log is kept, and written after the last subscriber has left; how often one says that it is there.
KEPT_MS, TELL_MS = 600_000, 60_000
# What is wanted for no longer than this may have lapsed by the clock of another process.
LAPSED_MS = 60_000
ARE_OPEN = In(Field("status"), tuple(TextValue(status.value) for status in sorted(OPEN)))
# So many runs are read at once, and so many changes deleted in one transaction.
PAGE, BITE = 500, 1000


class StoreSubscriptions:
    """Those in this process who follow runs; the Subscriptions of an engine."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, background: Background) -> None:
        self._changelog = store.reads.changelog
        self._reads = store.reads
        self._committer = committer
        self._clock = clock
        self._background = background
        self._subscribers: list[Subscriber] = []
        # Up to where the last look has seen; None while nobody follows.
        self._position: Position | None = None
        self._since = Position(0)
        self._tell_at = 0
        self._beginning = asyncio.Lock()
        # Between two looks, and None when there is none to come.
        self._alarm: Alarm | None = None
        self._is_looking = False

    async def changes(self, namespace: str, filter: Filter, after: str | None) -> AsyncGenerator[RunChange, None]:
        """Every run that matches now, then each one that changes; after a cursor, what came since."""
        following = await self.follow(namespace, filter, after)
        try:
            while True:
                yield await following.next()
        finally:
            following.close()

    async def follow(self, namespace: str, filter: Filter, after: str | None) -> "Following":
        """The same, begun when this returns; CursorExpired."""
        wanted = Selection(namespace, filter)
        return Following(self, await self._joined(wanted, None if after is None else Cursor.parse(after)))

    def close(self) -> None:
        """Tell everybody that nothing more comes."""
        if self._alarm is not None:
            self._alarm.cancel()
        for subscriber in self._subscribers:
            subscriber.fail(NotOpen())

    # Who follows

    async def _joined(self, wanted: Selection, after: Cursor | None) -> Subscriber:
        if self._background.is_closed:
            raise NotOpen
        async with self._beginning:
            if self._position is None:
                await self._tell_writers()
            assert self._position is not None
            subscriber = Subscriber(wanted, self._clock, self._position, after)
            self._subscribers.append(subscriber)
        try:
            await self._begin(subscriber, after)
        except BaseException:
            self.leave(subscriber)
            raise
        self._set_alarm()
        return subscriber

    async def _begin(self, subscriber: Subscriber, after: Cursor | None) -> None:
        """Bring a subscriber to where all are; CursorExpired when what came since is not in the log any more."""
        if after is None:
            subscriber.unlogged = self._since.open & subscriber.position.open
            return
        seen, (now, changed) = after.position, await self._changelog.changed(after.position)
        # Asked last: before anything is deleted it is said that the log begins later.
        since = (await self._listener()).since
        if not since or not (seen.covers(Position.parse(since)) and now.covers(seen)):
            raise CursorExpired(str(after), KEPT_MS // 60_000)
        for bite in _bites(changed):
            subscriber.offer_first(await self._read(bite), seen)
        subscriber.unlogged = Position.parse(since).open & seen.open

    def leave(self, subscriber: Subscriber) -> None:
        """One follows no longer; after the last one nobody looks."""
        if subscriber in self._subscribers:
            self._subscribers.remove(subscriber)
        if not self._subscribers:
            self._position = None
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None

    async def page_after(self, selection: Selection, after: str) -> ListPage:
        """The next runs that match; of those that are listed first, open ones unless closed ones are asked for."""
        meant = selection.filter if is_about_closed(selection.filter) else all_of([selection.filter, ARE_OPEN])
        found = (await self._reads.matching.page(RunQuery(selection.namespace, meant, after or None, PAGE))).rows
        rows = [row for row in found if isinstance(row, RunRow)]
        return ListPage(rows, found[-1].run_id if len(found) == PAGE else None)

    # Looks

    def _set_alarm(self) -> None:
        if self._alarm is None and not self._is_looking and self._subscribers:
            self._alarm = self._clock.call_at(self._clock.now() + LOOK_MS, self.wake)

    def wake(self) -> None:
        """It is time for the next look."""
        self._alarm = None
        if self._subscribers and not self._background.is_closed:
            self._is_looking = True
            self._background.spawn(self._look_safely())

    async def _look_safely(self) -> None:
        try:
            await self.look()
        except PerdureError as error:
            for subscriber in self._subscribers:
                subscriber.fail(error)
        finally:
            self._is_looking = False
        self._set_alarm()

    async def look(self) -> None:
        """One look for all: read the runs that have changed since the last one."""
        before = self._position
        if before is None:
            return
        if self._clock.now() >= self._tell_at:
            await self._tell_writers()
        position, changed = await self._changelog.changed(before)
        changed += self._listed_again(position)
        for bite in _bites(changed):
            for row, fields in await self._read(bite):
                for subscriber in self._subscribers:
                    subscriber.offer(row, fields, before)
        if self._position is not None:
            self._position = position
            for subscriber in self._subscribers:
                subscriber.position = position

    def _listed_again(self, position: Position) -> list[str]:
        """The runs that are to be read once more for subscribers for whom the log was not whole, if it is by now."""
        whole = [
            subscriber
            for subscriber in self._subscribers
            if subscriber.unlogged and not subscriber.unlogged & position.open
        ]
        return [run_id for subscriber in whole for run_id in subscriber.list_again()]

    async def _read(self, run_ids: Sequence[str]) -> list[tuple[RunRow, RunFields]]:
        return [*_readable(await self._changelog.runs(run_ids))]

    # The log

    async def _tell_writers(self) -> None:
        """Say that somebody listens, and see to the log; where it has a gap, everything is told once more."""
        now = self._clock.now()
        await self._apply(Listen(CHANGES, now + KEPT_MS + TELL_MS, now + LAPSED_MS))
        # After the commit of that: a transaction that has not seen it is open now, or seen.
        position = await self._changelog.position()
        listener = await self._tended(now, position)
        self._since = Position.parse(listener.since)
        self._tell_at = now + TELL_MS
        if self._position is None:
            self._position = position
        elif not self._position.covers(self._since):
            for subscriber in self._subscribers:
                # As if it had been open then, and is over.
                subscriber.unlogged = frozenset({-1})

    async def _tended(self, now: int, position: Position) -> ListenerRow:
        """Begin the log if it has lapsed, and delete what is older than it is kept; who listens then."""
        listener = await self._listener()
        if listener.since and now - listener.later_at < KEPT_MS:
            return listener
        since = Position.parse(listener.later) if listener.since else position
        moved = MoveLog(CHANGES, listener.since, str(since), str(position), now)
        if isinstance(await self._apply(moved), Applied):
            self._background.spawn(self._forget(since))
        return await self._listener()

    async def _listener(self) -> ListenerRow:
        found = await self._changelog.listener(CHANGES)
        assert found is not None, "it is there once somebody has listened"
        return found

    async def _forget(self, since: Position) -> None:
        forget = ForgetChanges(since.end, tuple(sorted(since.open)), BITE)
        # What cannot be deleted now is so the next time.
        while (await self._committer.apply(forget)) == Applied(value=True):
            pass

    async def _apply(self, operation: Operation) -> object:
        answer = await self._committer.apply(operation)
        if isinstance(answer, Unavailable):
            raise answer.error
        if isinstance(answer, Dropped):
            raise NotOpen
        return answer


class Following:
    """One who follows runs; the Subscription of an engine."""

    def __init__(self, subscriptions: StoreSubscriptions, subscriber: Subscriber) -> None:
        self._subscriptions = subscriptions
        self._subscriber = subscriber

    @property
    def cursor(self) -> str:
        return self._subscriber.cursor

    async def next(self) -> RunChange:
        return await self._subscriber.next(self._subscriptions.page_after)

    def close(self) -> None:
        self._subscriptions.leave(self._subscriber)


def _readable(found: Iterable[RunRow | RunUnreadable]) -> Iterator[tuple[RunRow, RunFields]]:
    """Those of the runs that can be read; of the others doctor and audit tell."""
    for row in found:
        with suppress(Garbled):
            if isinstance(row, RunRow):
                yield row, run_fields(row)


def _bites(run_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (run_ids[first : first + PAGE] for first in range(0, len(run_ids), PAGE))
