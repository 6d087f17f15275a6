"""Rows of schedules: read, made and changed, each change conditional on what was read.

In:   names, and what a schedule is to become.
Out:  rows, operations, and what became of them; what another process was quicker with is read again.
"""

from collections.abc import Awaitable, Callable

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import Committer, Dropped, Settlement, Unavailable
from perdure.engine.duties.duties import Duties
from perdure.engine.schedules.deciding import Deciding, moved_to, notes_of, read_schedule
from perdure.errors import NotOpen, ScheduleNotFound, StoreError
from perdure.ids import Ids
from perdure.kernel.schedules import Schedule, ScheduledCall, Source, changed, next_at
from perdure.kernel.timetables import Timetable
from perdure.stores.answers import Applied, Broken
from perdure.stores.operations import InsertSchedule, Operation
from perdure.stores.port import Store
from perdure.stores.records import ScheduleRow


class ScheduleRows:
    """What all who change schedules need."""

    def __init__(
        self, store: Store, committer: Committer, clock: Clock, ids: Ids, deciding: Deciding, duties: Duties
    ) -> None:
        self._url = store.url
        self.reads = store.reads.schedules
        self._committer = committer
        self._clock = clock
        self._ids = ids
        self._deciding = deciding
        self._duties = duties

    async def get(self, namespace: str, name: str) -> ScheduleRow:
        """The row of a schedule; ScheduleNotFound."""
        row = await self.reads.get(namespace, name)
        if row is None:
            raise ScheduleNotFound(name, namespace)
        return row

    def read(self, row: ScheduleRow) -> Schedule:
        """The schedule in a row; StoreError when it cannot be read."""
        try:
            return read_schedule(row)
        except msgspec.ValidationError as error:
            trouble = f"the schedule {row.name!r} cannot be read: {error}; delete it and make it anew"
            raise StoreError(self._url, trouble) from None

    def insertion(
        self, namespace: str, name: str, call: ScheduledCall, when: Timetable, source: Source
    ) -> InsertSchedule:
        """The operation that makes a schedule, whose times begin now."""
        now = self._clock.now()
        schedule = Schedule(name, call, when, source, now, now)
        body = msgspec.json.encode(schedule).decode()
        # In the order of time, so that those that are due together lie together.
        return InsertSchedule(self._ids.run_id(now), namespace, name, source, next_at(schedule), 0, body)

    def change(self, row: ScheduleRow, when: Timetable, call: ScheduledCall, source: Source) -> list[Operation]:
        """The operations that give a schedule another timetable and call."""
        then, entries = changed(self.read(row), when, self._clock.now())
        then = msgspec.structs.replace(then, call=call, source=source)
        # At once, so that what waits is seen to under the new policy.
        look_at = self._clock.now() if then.waits else next_at(then)
        return [moved_to(row, then, look_at), *notes_of(row, then, entries)]

    async def decided(self, row: ScheduleRow) -> ScheduleRow:
        """The schedule when all that is due by now is decided: under what it was, not under what it becomes."""
        now = self._clock.now()
        while True:
            await self._deciding.decide(row, now)
            found = await self.get(row.namespace, row.name)
            if found.revision == row.revision:
                return found
            row = found

    async def until_done(self, namespace: str, name: str, change: Callable[[ScheduleRow], Awaitable[bool]]) -> None:
        """Change a schedule as it is now; as long as others are quicker, as it is then."""
        while not await change(await self.get(namespace, name)):
            pass

    async def apply(self, *operations: Operation) -> Settlement:
        """What became of a change; errors when it could not be written."""
        answer = await self._committer.apply(*operations)
        if isinstance(answer, Unavailable):
            raise answer.error
        if isinstance(answer, Dropped):
            raise NotOpen
        if isinstance(answer, Broken):
            raise StoreError(self._url, f"the change was refused: {answer.trouble}")
        if isinstance(answer, Applied):
            self._duties.look()
        return answer

    async def is_applied(self, *operations: Operation) -> bool:
        """Whether a change was made; not when another process was quicker."""
        return isinstance(await self.apply(*operations), Applied)
