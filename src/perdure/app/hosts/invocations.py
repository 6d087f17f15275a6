"""Invocations: one run, some runs, or maintenance, done by a process that lives for seconds.

In:   a brief worker, and what it is for.
Out:  what became of it, as a value that can be answered to whoever invoked the process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from perdure.app.hosts.brief_worker import BriefWorker
from perdure.authoring.durations import Duration, seconds
from perdure.engine.duties.maintenance import MaintenancePart
from perdure.engine.reads import StoreReader
from perdure.errors import BadOption, UnknownWorkflow
from perdure.ids import checked_id
from perdure.kernel.status import Status
from perdure.stores.records import RunRow
from perdure.views.run import View, moment

# What is due so soon is waited for; anything later is left to the next invocation.
SOON_MS = 1000
# How often it is looked whether a run that is due, and could not be had, can be had now, in seconds.
AGAIN = 0.02

HandledStatus: TypeAlias = Literal["completed", "suspended", "failed", "busy"]


@dataclass(frozen=True, slots=True)
class Handled(View):
    """What became of a run: it has ended well or badly, it waits, or another process has it.

    `run_id` is the run that goes on by now, if it was continued; `wake_at` when a run that waits has something to do
    by itself.
    """

    status: HandledStatus
    run_id: str
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Processed(View):
    """How many runs were taken, and how many of them ended well, ended otherwise, or wait."""

    processed: int
    succeeded: int
    failed: int
    suspended: int


@dataclass(frozen=True, slots=True)
class Tick(View):
    """How many things each part of maintenance did; of those that failed, why."""

    counts: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def budget_ms(budget: Duration) -> int:
    """A budget in milliseconds; BadOption when nothing could be done within it."""
    ms = round(seconds(budget, "budget") * 1000)
    if ms <= 0:
        raise BadOption(f"budget is {budget!r}; give the seconds that the call may take, more than 0")
    return ms


def run_id_in(event: object) -> str:
    """The run that an event is about; BadOption."""
    if not isinstance(event, Mapping) or "run_id" not in event:
        raise BadOption(f"the event is {event!r}; give a mapping with the run_id: {{'run_id': '...'}}")
    return checked_id("run_id", event["run_id"])


async def handle(brief: BriefWorker, reader: StoreReader, run_id: str) -> Handled:
    """Bring one run as far as it gets, and those that continue it; `reader` outlives the worker."""
    row = await reader.newest(brief.namespace, run_id)
    sleeps = row.owner is None and row.held is None and not _is_soon(row, brief)
    if row.closed_at is not None or sleeps:
        return _handled(row, brief.engine.clock.now())
    async with brief:
        await brief.engine.takeover.rescue()
        run_id, is_busy = await _advance(brief, row.run_id)
    if is_busy:
        return Handled("busy", run_id)
    # What was under way is handed back by now.
    return _handled(await reader.newest(brief.namespace, run_id), brief.engine.clock.now())


async def _advance(brief: BriefWorker, run_id: str) -> tuple[str, bool]:
    """Work on a run until it waits, has ended, or the time is over; the run that goes on, and whether it is busy."""
    while True:
        row = await brief.engine.reader.newest(brief.namespace, run_id)
        run_id = row.run_id
        if row.owner not in (None, brief.engine.worker_id):
            return run_id, True
        is_due = row.owner is not None or (row.held is None and _is_soon(row, brief))
        if row.closed_at is not None or not is_due or brief.is_over:
            return run_id, False
        if row.workflow not in brief.worker.names():
            raise UnknownWorkflow(row.workflow, brief.worker.names())
        if row.owner is not None or await brief.worker.claim_one(run_id):
            await brief.until_left([run_id])
        else:
            # It is due in a moment, or somebody else is just taking it.
            await asyncio.sleep(AGAIN)


def _is_soon(row: RunRow, brief: BriefWorker) -> bool:
    """Whether a run is due, or will be in a moment."""
    return row.wake_at is not None and row.wake_at <= brief.engine.clock.now() + SOON_MS


def _handled(row: RunRow, now: int) -> Handled:
    if row.closed_at is not None:
        return Handled("completed" if row.status == Status.COMPLETED else "failed", row.run_id)
    if row.owner is not None:
        return Handled("busy", row.run_id)
    if row.held is not None or row.wake_at is None:
        return Handled("suspended", row.run_id)
    # What is ripe at once has no time on SQLite but a turn, which is below zero.
    return Handled("suspended", row.run_id, moment(row.wake_at if row.wake_at >= 0 else now))


async def process(brief: BriefWorker, reader: StoreReader, max_jobs: int) -> Processed:
    """Take ripe runs, at most so many, and bring each as far as it gets; `reader` outlives the worker."""
    taken: set[str] = set()
    jobs = 0
    async with brief:
        await brief.engine.takeover.rescue()
        while jobs < max_jobs and not brief.is_over and (claimed := await brief.worker.claim(max_jobs - jobs)):
            jobs += len(claimed)
            taken |= set(claimed)
            await brief.until_left(claimed)
    rows = [await reader.read(brief.namespace, run_id) for run_id in taken]
    ended = [row.status for row in rows if row.closed_at is not None]
    succeeded = sum(status in (Status.COMPLETED, Status.CONTINUED) for status in ended)
    return Processed(len(rows), succeeded, len(ended) - succeeded, len(rows) - len(ended))


async def tick(brief: BriefWorker, reconcile: Callable[[], Awaitable[None]]) -> Tick:
    """Do each part of maintenance once."""

    async def declared() -> int:
        await reconcile()
        return 0

    async with brief:
        counts, errors = await brief.engine.maintenance.tick(
            brief.namespace, brief.until, MaintenancePart("declared", "declared", declared)
        )
    counts.pop("declared", None)
    return Tick(counts, errors)
