"""Deciding: what the rules say of a schedule is written, and what follows from it is done.

In:   a schedule as it was read, the time.
Out:  one group: the schedule moved on, its decisions, its new runs; refused when the schedule is not as it was read.
After that is on disk, old runs are asked to end where the policy says so.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import CallbackGroup, Committer, Settlement, Unavailable
from perdure.engine.ports import OwnedRun, StartRequest
from perdure.engine.starts import Starts
from perdure.engine.stopping import Stopping
from perdure.errors import RunUnreadable
from perdure.kernel.schedules import (
    KEPT_DECISIONS,
    Decided,
    DecisionEntry,
    Schedule,
    backfill_times,
    decide,
    next_at,
    run_id_at,
)
from perdure.kernel.status import OPEN
from perdure.stores.answers import Applied, Broken, Moved, Taken
from perdure.stores.operations import MoveSchedule, NoteDecision, Operation
from perdure.stores.port import Store
from perdure.stores.records import RunFilter, RunRow, ScheduleRow

log = logging.getLogger("perdure.engine")

# A schedule that cannot be read, or whose runs cannot be written, is looked at again after so long.
PUT_OFF_MS = 60_000
# After so many schedules others have a turn.
BREATH = 100
# So many old runs are asked to end at a time.
MOST_STOPPED = 1000


def read_schedule(row: ScheduleRow) -> Schedule:
    """The schedule in a row; msgspec.ValidationError when it cannot be read, its time zone being gone for one."""
    return msgspec.json.decode(row.body, type=Schedule)


def moved_to(row: ScheduleRow, schedule: Schedule, look_at: int | None) -> MoveSchedule:
    """The operation by which a schedule becomes another, if it is still as it was read."""
    body = msgspec.json.encode(schedule).decode()
    return MoveSchedule(row.schedule_id, row.revision, look_at, int(schedule.waits), body)


def notes_of(row: ScheduleRow, schedule: Schedule, entries: tuple[DecisionEntry, ...]) -> list[Operation]:
    """The operations that note decisions, as far as they are among those that are kept."""
    return [
        NoteDecision(
            row.schedule_id,
            entry.number % KEPT_DECISIONS,
            entry.number,
            entry.time,
            entry.kind,
            entry.count,
            entry.run_id,
        )
        for entry in entries
        if entry.number > schedule.entries - KEPT_DECISIONS
    ]


class Deciding:
    """Decides schedules; any process may, for only one comes through."""

    def __init__(self, store: Store, committer: Committer, clock: Clock, starts: Starts, stopping: Stopping) -> None:
        self._store = store
        self._committer = committer
        self._clock = clock
        self._starts = starts
        self._stopping = stopping

    async def decide_all(self, rows: Sequence[ScheduleRow], now: int) -> bool:
        """Decide what is due of schedules, together as far as that goes; answers whether any of them got on."""
        rest: list[ScheduleRow] = []
        writes: list[asyncio.Future[Settlement]] = []
        written: list[ScheduleRow] = []
        for number, row in enumerate(rows, start=1):
            if not number % BREATH:
                # Others have a turn in between.
                await asyncio.sleep(0)
            operations = self._plainly(row, now)
            if operations is None:
                rest.append(row)
                continue
            answer: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
            self._committer.submit(CallbackGroup(operations, partial(_tell, answer)))
            writes.append(answer)
            written.append(row)
        for row, write in zip(written, writes, strict=True):
            if not isinstance(await write, Applied | Moved):
                rest.append(row)
        told = await asyncio.gather(*(self.decide(row, now) for row in rest), return_exceptions=True)
        if trouble := next((error for error in told if isinstance(error, BaseException)), None):
            raise trouble
        return bool(writes) or any(told)

    def _plainly(self, row: ScheduleRow, now: int) -> list[Operation] | None:
        """The group of a schedule that has nothing special about it, as most; None for others."""
        try:
            schedule = read_schedule(row)
        except msgspec.ValidationError:
            return None
        decided = None if schedule.backfills else decide(schedule, now, row.open_runs)
        is_plain = decided is not None and decided.stop is None and decided.schedule != schedule
        return self._operations(row, decided) if decided is not None and is_plain else None

    async def decide(self, row: ScheduleRow, now: int) -> bool:
        """Decide what is due of a schedule; answers whether it got on, by us or by others."""
        try:
            schedule = read_schedule(row)
        except msgspec.ValidationError as error:
            await self._put_off(row, now, str(error))
            return True
        taken = await self._taken(row, schedule)
        decided = decide(schedule, now, row.open_runs, taken)
        while decided is not None and decided.schedule != schedule:
            answer = await self._write(row, decided)
            if isinstance(answer, Taken) and (time := _time_of(schedule, decided, answer.run)) is not None:
                # A run that somebody has started under this id counts as the run of this time.
                taken[time] = answer.run.run_id
                decided = decide(schedule, now, row.open_runs, taken)
                continue
            if isinstance(answer, Unavailable):
                raise answer.error
            if not isinstance(answer, Applied | Moved):
                trouble = answer.trouble if isinstance(answer, Broken) else type(answer).__name__
                await self._put_off(row, now, trouble)
            break
        if decided is None:
            return await self._look_later(row, schedule)
        if decided.stop is not None:
            await self._stop_old(row, terminate=decided.stop == "terminate_old")
        # Without anything to write but that it is looked at again, the same look would find it again and again.
        return await self._look_later(row, schedule) if decided.schedule == schedule else True

    async def _taken(self, row: ScheduleRow, schedule: Schedule) -> dict[int, str]:
        """The times of a backfill that have runs."""
        times = {run_id_at(schedule.name, time): time for time in backfill_times(schedule)}
        if not times:
            return {}
        found = await self._store.reads.schedules.runs_of_ids(row.namespace, list(times))
        return {times[id]: run_id for id, run_id in found.items()}

    async def _write(self, row: ScheduleRow, decided: Decided) -> Settlement:
        """Mark, decisions and runs in one group."""
        return await self._committer.apply(*self._operations(row, decided))

    def _operations(self, row: ScheduleRow, decided: Decided) -> list[Operation]:
        """The group: first of all what it is conditional on."""
        inserts: list[Operation] = []
        run_ids: dict[int, str] = {}
        for start in decided.starts:
            run, operations = self.start(row.namespace, decided.schedule, run_id_at(row.name, start.time), start.time)
            run_ids[start.number] = run.run_id
            inserts += operations
        entries = tuple(
            msgspec.structs.replace(entry, run_id=run_ids.get(entry.number, entry.run_id)) for entry in decided.entries
        )
        schedule = decided.schedule
        if run_ids:
            schedule = msgspec.structs.replace(schedule, last_run_id=[*run_ids.values()][-1])
        return [moved_to(row, schedule, decided.next_at), *notes_of(row, schedule, entries), *inserts]

    def start(self, namespace: str, schedule: Schedule, id: str, time: int) -> tuple[OwnedRun, tuple[Operation, ...]]:
        """A run of the schedule for a nominal time, and the operations that insert it."""
        call = schedule.call
        traits = msgspec.structs.replace(call.traits, schedule=schedule.name, scheduled_for=time)
        request = StartRequest(
            call.workflow, call.input, id, call.queue, call.priority, traits=traits, delay_ms=call.delay_ms
        )
        run = self._starts.new_run(namespace, request, self._clock.latest())
        return run, self._starts.insert(request, run, hosted=False)

    async def _look_later(self, row: ScheduleRow, schedule: Schedule) -> bool:
        """Nothing was due after all, for the rules of its zone have changed: the next look is when that is."""
        then = next_at(schedule)
        if then == row.next_at:
            return False
        return isinstance(await self._committer.apply(moved_to(row, schedule, then)), Applied)

    async def refresh(self, row: ScheduleRow) -> None:
        """Compute the next time anew, by the rules of time zones that are installed now."""
        try:
            schedule = read_schedule(row)
        except msgspec.ValidationError:
            return
        then = next_at(schedule)
        if row.next_at is not None and then is not None and row.next_at != then and row.next_at > self._clock.now():
            await self._committer.apply(moved_to(row, schedule, then))

    async def _put_off(self, row: ScheduleRow, now: int, trouble: str) -> None:
        """Let a schedule that cannot be decided not keep others from it."""
        extra = {"event": "schedule_put_off", "schedule": row.name}
        log.error("the schedule %r cannot be decided, will try again in a minute: %s", row.name, trouble, extra=extra)
        later = MoveSchedule(row.schedule_id, row.revision, now + PUT_OFF_MS, row.waits, row.body)
        answer = await self._committer.apply(later)
        if isinstance(answer, Unavailable):
            raise answer.error

    async def _stop_old(self, row: ScheduleRow, *, terminate: bool) -> None:
        """Ask the open runs of a schedule to end, that were not asked before."""
        reason = f"the schedule {row.name!r} starts another run"
        wanted = RunFilter(row.namespace, tuple(OPEN), schedule=row.name, limit=MOST_STOPPED)
        for run in await self._store.reads.list_runs(wanted):
            if isinstance(run, RunUnreadable):
                continue
            if terminate:
                await self._stopping.terminate(run, reason)
            elif run.cancel_requested_at is None:
                await self._stopping.cancel(run, reason, None)


def _tell(answer: "asyncio.Future[Settlement]", settlement: Settlement) -> None:
    if not answer.done():
        answer.set_result(settlement)


def _time_of(schedule: Schedule, decided: Decided, run: RunRow) -> int | None:
    """The time whose id this run has."""
    ids = {run_id_at(schedule.name, start.time): start.time for start in decided.starts}
    return ids.get(run.workflow_id)
