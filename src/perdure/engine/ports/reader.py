"""What everybody may read: runs, their events, attempts and messages."""

from collections.abc import Sequence
from typing import Protocol

from perdure.engine.hindrances import Served
from perdure.errors import RunUnreadable
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.stores.records import AttemptRow, CallProgress, FoundRuns, RunFilter, RunQuery, RunRow, UnreadPage


class Reader(Protocol):
    """What everybody may read."""

    async def read(self, namespace: str, run_id: str) -> RunRow:
        """A run's row; RunNotFound."""

    async def find(self, namespace: str, workflow_id: str) -> RunRow:
        """The newest run of a workflow_id; RunNotFound."""

    async def first(self, row: RunRow) -> RunRow:
        """The run itself, or the first of those that it continues."""

    async def list_runs(self, wanted: RunFilter) -> list[RunRow | RunUnreadable]:
        """Runs, newest first; those that cannot be read are in their places."""

    async def find_runs(self, wanted: RunQuery) -> FoundRuns:
        """Runs that match a filter, newest first, and how many were read to find them."""

    async def count_runs(self, wanted: RunQuery, by: str | None = None) -> dict[object, int]:
        """How many runs match a filter, by the values of a field; without one there is one number, under None."""

    async def held_counts(self, namespace: str) -> dict[str, int]:
        """How many runs are held, by reason."""

    async def serving(self, namespace: str) -> Served:
        """What living workers have code for, by queue."""

    async def events(self, namespace: str, run_id: str, after: int, limit: int) -> list[Event]:
        """A run's history after an event's number."""

    async def last_event(self, run_id: str) -> tuple[int, int] | None:
        """The number of a run's last event, and when it was; those that stand in its row do not count."""

    async def attempts(self, run_id: str) -> Sequence[AttemptRow]:
        """A run's failed attempts."""

    async def progress(self, run_ids: Sequence[str]) -> dict[str, list[CallProgress]]:
        """What is known of the calls of these runs, by run: that they have begun, and the details of heartbeats."""

    async def unread(self, run_id: str) -> Sequence[Message]:
        """The messages a run has not taken yet."""

    async def unread_page(self, run_id: str, after: int, limit: int) -> UnreadPage:
        """The first of these after a number."""

    async def count_unread(self, run_id: str, most: int) -> int:
        """How many of these there are, counted up to a number."""

    async def deferreds(self, run_id: str) -> Sequence[Message]:
        """What the deferreds of a run were resolved with, waited for or not, in the order that it came."""

    async def misfits(self, run_id: str) -> Sequence[Message]:
        """The signals that were set aside, for they are not what a run's code waits for."""
