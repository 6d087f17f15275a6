"""Schedules: rows that start runs at times."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from perdure.engine.ports.owned_run import OwnedRun
from perdure.kernel.schedules import Schedule, ScheduledCall
from perdure.kernel.timetables import Overlap, Timetable
from perdure.stores.records import DecisionRow


class Backfilled(msgspec.Struct, frozen=True):
    """What a backfill comes to: how many times lie in its range, how many of them had runs, how many start now."""

    times: int
    existing: int
    accepted: int


class Declared(NamedTuple):
    """A schedule that comes with the code of a workflow."""

    call: ScheduledCall
    when: Timetable


class ScheduleKeeper(Protocol):
    """What people ask of schedules; those that are named and do not exist are a ScheduleNotFound."""

    async def create(self, namespace: str, name: str, call: ScheduledCall, when: Timetable) -> None:
        """A new one; ScheduleExists."""

    async def put(self, namespace: str, name: str, call: ScheduledCall, when: Timetable) -> None:
        """A new one, or another one in the place of the one there is."""

    async def update(
        self, namespace: str, name: str, changes: Mapping[str, object], call: ScheduledCall | None
    ) -> None:
        """Change fields of its timetable, and what it starts from now on; what is decided stays so."""

    async def pause(self, namespace: str, name: str, reason: str | None) -> None:
        """Let it start nothing; what waits is kept."""

    async def resume(self, namespace: str, name: str) -> None:
        """Let it go on with the next time."""

    async def trigger(self, namespace: str, name: str) -> OwnedRun:
        """Start a run of it now, whatever is open, paused or not."""

    async def backfill(self, namespace: str, name: str, start: datetime, end: datetime, overlap: Overlap) -> Backfilled:
        """Start runs for times of the past that have none."""

    async def delete(self, namespace: str, name: str) -> bool:
        """Forget it, if there is one; its runs go on."""

    async def get(self, namespace: str, name: str) -> tuple[Schedule, list[DecisionRow]]:
        """One of them, and its newest decisions, the newest first."""

    async def all(self, namespace: str) -> list[Schedule]:
        """All of them, by name."""

    async def reconcile(
        self, namespace: str, declared: Mapping[str, Declared], workflows: Sequence[str], queues: Sequence[str] = ()
    ) -> None:
        """Make, change and remove schedules as the code of these workflows says, in one transaction.

        With queues, those that start runs elsewhere stay as they are.
        """
