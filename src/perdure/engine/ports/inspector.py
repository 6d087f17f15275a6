"""What is asked to find out why a run does not move; nothing is changed by it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from perdure.errors import RunUnreadable
from perdure.stores.records import AttemptRow, RowHolder, RunRow, WorkerRow


class Liveness(StrEnum):
    """How a worker is: it works, does not renew its lease any more, or its process is gone."""

    ALIVE = "alive"
    STALLED = "stalled"
    DEAD = "dead"


class WorkerLife(msgspec.Struct, frozen=True):
    """A worker's row, and how it is."""

    row: WorkerRow
    liveness: Liveness


class Inspector(Protocol):
    """What may be in the way of runs."""

    async def workers(self, namespace: str) -> list[WorkerLife]:
        """The workers of a namespace."""

    async def stuck(
        self, namespace: str, after_ms: int, before: str | None, limit: int
    ) -> list[RunRow | RunUnreadable]:
        """Runs that are due or owned, and did not move for so long, since nobody is there who could; newest first."""

    async def last_attempt(self, run_id: str, place: str) -> AttemptRow | None:
        """The last failed attempt of a call."""

    async def count_ahead(self, row: RunRow, workflows: Sequence[str], now: int, most: int) -> int:
        """How many runs of these workflows will be claimed before this one, counted up to a number."""

    async def row_holders(self, run_id: str) -> list[RowHolder]:
        """Who holds the run's row in a transaction of their own."""
