"""What runs show and publish: snapshots, streams."""

from collections.abc import Sequence
from typing import Protocol

from perdure.engine.ports.owned_run import OwnedRun, Published
from perdure.stores.records import RunRow, SnapshotRow, StreamHead, StreamValue


class Outputs(Protocol):
    """What runs show and publish; the first two are for the owner of a run alone."""

    def show(self, owned: OwnedRun, seq: int, body: str) -> None:
        """Show this of an owned run, as of an event that is written before."""

    def publish(self, owned: OwnedRun, published: Sequence[Published]) -> None:
        """Write values that an owned run has published, in their order."""

    async def snapshot(self, namespace: str, run_id: str) -> SnapshotRow | None:
        """What a run shows, or the one that continues it."""

    async def holder(self, namespace: str, run_id: str, name: str, after: int) -> RunRow:
        """The run in which the values of a stream after a number begin: this one, or one that it continues."""

    async def stream_page(self, run_id: str, name: str, after: int, limit: int) -> Sequence[StreamValue]:
        """The first values of a run's stream after a number."""

    async def heads(self, run_id: str) -> Sequence[StreamHead]:
        """How far the streams of a run are."""

    async def wait_for_more(self, run_id: str, name: str, after: int) -> None:
        """Until a run's stream has more than this number, or the run has ended, or may have."""

    async def wait_for_event(self, run_id: str, after: int) -> None:
        """Until a run has more events than this number, or has ended, or may have."""
