"""Schedules: what people ask of them.

In:   names, calls, timetables.
Out:  schedules made, changed, triggered and deleted; ScheduleNotFound, ScheduleExists, BadSchedule.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import get_args

import msgspec

from perdure.clock import Clock
from perdure.engine.arrivals import Arrivals
from perdure.engine.ports import Backfilled, Declared, OwnedRun
from perdure.engine.schedules.deciding import Deciding, moved_to, notes_of
from perdure.engine.schedules.declared import DeclaredSchedules
from perdure.engine.schedules.rows import ScheduleRows
from perdure.errors import BadSchedule, ScheduleExists
from perdure.ids import Ids
from perdure.kernel.schedules import (
    Backfill,
    DecisionEntry,
    Schedule,
    ScheduledCall,
    Source,
    as_moment,
    as_ms,
    next_at,
    run_id_at,
)
from perdure.kernel.timetables import MILLISECOND, Overlap, Timetable, moment, one_of
from perdure.stores.operations import DeleteSchedule
from perdure.stores.records import DecisionRow, ScheduleRow

# So many times a backfill may have; and so many are counted to say by how much it is too large.
MOST_BACKFILLED, MOST_COUNTED = 10_000, 100_000
# After so many of them others have a turn.
BREATH = 1_000
PAGE = 500


class StoreSchedules:
    """Schedules in a store; the ScheduleKeeper of an engine."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        rows: ScheduleRows,
        declared: DeclaredSchedules,
        deciding: Deciding,
        arrivals: Arrivals,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._rows = rows
        self._declared = declared
        self._deciding = deciding
        self._arrivals = arrivals

    # Making

    async def create(self, namespace: str, name: str, call: ScheduledCall, when: Timetable) -> None:
        """A new one; ScheduleExists."""
        self._refuse_useless(when)
        if not await self._insert(namespace, name, call, when):
            raise ScheduleExists(name, namespace)

    async def put(self, namespace: str, name: str, call: ScheduledCall, when: Timetable) -> None:
        """A new one, or another one in the place of the one there is; its pause and its decisions stay."""
        self._refuse_useless(when)
        while not await self._insert(namespace, name, call, when):
            row = await self._rows.reads.get(namespace, name)
            if row is not None and await self._change(row, when, call, "api"):
                return

    async def _insert(self, namespace: str, name: str, call: ScheduledCall, when: Timetable) -> bool:
        return await self._rows.is_applied(self._rows.insertion(namespace, name, call, when, "api"))

    def _refuse_useless(self, when: Timetable) -> None:
        when.refuse_misleading()
        if next(when.times_after(as_moment(self._clock.now())), None) is None:
            raise BadSchedule(f"{when} never starts: no time of it lies ahead")

    async def reconcile(
        self, namespace: str, declared: Mapping[str, Declared], workflows: Sequence[str], queues: Sequence[str] = ()
    ) -> None:
        """Make, change and remove schedules as the code of these workflows says, in one transaction.

        With queues, those that start runs elsewhere stay as they are.
        """
        await self._declared.reconcile(namespace, declared, workflows, queues)

    # Changing

    async def update(
        self, namespace: str, name: str, changes: Mapping[str, object], call: ScheduledCall | None
    ) -> None:
        """Change fields of its timetable, and what it starts from now on; the next time is computed at once."""

        async def change(row: ScheduleRow) -> bool:
            schedule = self._rows.read(row)
            when = with_changes(schedule.when, changes)
            if changes:
                self._refuse_useless(when)
            return await self._change(row, when, call or schedule.call, schedule.source)

        await self._rows.until_done(namespace, name, change)

    async def _change(self, row: ScheduleRow, when: Timetable, call: ScheduledCall, source: Source) -> bool:
        row = await self._rows.decided(row)
        return await self._rows.is_applied(*self._rows.change(row, when, call, source))

    async def pause(self, namespace: str, name: str, reason: str | None) -> None:
        """Let it start nothing; what waits is kept."""
        await self._pause(namespace, name, reason, paused=True)

    async def resume(self, namespace: str, name: str) -> None:
        """Let it go on with the next time; those that have passed are skipped."""
        await self._pause(namespace, name, None, paused=False)

    async def _pause(self, namespace: str, name: str, reason: str | None, *, paused: bool) -> None:
        async def change(row: ScheduleRow) -> bool:
            row = await self._rows.decided(row)
            then = msgspec.structs.replace(self._rows.read(row), paused=paused, reason=reason)
            return await self._rows.is_applied(moved_to(row, then, next_at(then)))

        await self._rows.until_done(namespace, name, change)

    # Starting

    async def trigger(self, namespace: str, name: str) -> OwnedRun:
        """Start a run of it now, whatever is open, paused or not."""
        while True:
            row, now = await self._rows.get(namespace, name), self._clock.now()
            schedule = self._rows.read(row)
            id = f"{run_id_at(name, now)}-{self._ids.token()[:8]}"
            run, inserts = self._deciding.start(namespace, schedule, id, now)
            entry = DecisionEntry(schedule.entries + 1, now, "triggered", run_id=run.run_id)
            then = msgspec.structs.replace(
                schedule, entries=entry.number, newest=entry, last_time=now, last_run_id=run.run_id
            )
            notes = notes_of(row, then, (entry,))
            if await self._rows.is_applied(moved_to(row, then, row.next_at), *notes, *inserts):
                self._arrivals.look_around()
                return run

    async def backfill(self, namespace: str, name: str, start: datetime, end: datetime, overlap: Overlap) -> Backfilled:
        """Start runs for times of the past that have none: noted at once, started by whoever has the duty."""
        one_of("overlap", overlap, get_args(Overlap))
        first, last = as_ms(moment("start", start)), as_ms(moment("end", end))
        if last < first or last > self._clock.now():
            raise BadSchedule(f"a backfill begins before it ends, and ends in the past: not {start} to {end}")
        times = await _counted(self._rows.read(await self._rows.get(namespace, name)), first, last)
        ids = [run_id_at(name, time) for time in times]
        existing = 0
        for page in range(0, len(ids), PAGE):
            existing += len(await self._rows.reads.runs_of_ids(namespace, ids[page : page + PAGE]))

        async def change(row: ScheduleRow) -> bool:
            schedule = self._rows.read(row)
            asked = (*schedule.backfills, Backfill(first - 1, last, overlap))
            then = msgspec.structs.replace(schedule, backfills=asked)
            return await self._rows.is_applied(moved_to(row, then, self._clock.now()))

        if len(times) > existing:
            await self._rows.until_done(namespace, name, change)
        return Backfilled(len(times), existing, len(times) - existing)

    # Forgetting and reading

    async def delete(self, namespace: str, name: str) -> bool:
        """Forget it, if there is one; its runs go on."""
        while (row := await self._rows.reads.get(namespace, name)) is not None:
            if await self._rows.is_applied(DeleteSchedule(row.schedule_id, row.revision)):
                return True
        return False

    async def get(self, namespace: str, name: str) -> tuple[Schedule, list[DecisionRow]]:
        """One of them, and its newest decisions, the newest first."""
        row = await self._rows.get(namespace, name)
        return self._rows.read(row), await self._rows.reads.decisions(row.schedule_id)

    async def all(self, namespace: str) -> list[Schedule]:
        """All of them, by name."""
        found: list[Schedule] = []
        after = ""
        while page := await self._rows.reads.page(namespace, after, PAGE):
            found += map(self._rows.read, page)
            after = page[-1].name
        return found


async def _counted(schedule: Schedule, first: int, last: int) -> list[int]:
    """The times of a backfill; BadSchedule when they are too many."""
    after = as_moment(first) - MILLISECOND
    known = schedule.when.counted(after, as_moment(last))
    times: list[int] = []
    count = 0 if known is None else known[0]
    if count <= MOST_BACKFILLED:
        for number, time in enumerate(islice(schedule.when.times_after(after), MOST_COUNTED), start=1):
            if as_ms(time) > last:
                break
            times.append(as_ms(time))
            if not number % BREATH:
                await asyncio.sleep(0)
        count = len(times)
    if count > MOST_BACKFILLED:
        more = " or more" if known is None and count == MOST_COUNTED else ""
        raise BadSchedule(
            f"{count:,}{more} times of schedule {schedule.name!r} lie in this range, the most is {MOST_BACKFILLED:,}; "
            "give a shorter one"
        )
    return times


def with_changes(when: Timetable, changes: Mapping[str, object]) -> Timetable:
    """A timetable with some fields changed; BadSchedule for one that it does not have."""
    known = type(when).__struct_fields__
    if unknown := [name for name in changes if name not in known]:
        raise BadSchedule(
            f"{type(when).__name__} has no {unknown[0]!r}; it has {', '.join(known)}; put() gives another kind"
        )
    return msgspec.structs.replace(when, **changes)
