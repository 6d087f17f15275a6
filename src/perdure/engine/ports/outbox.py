"""The outbox: who is told of changes, and what became of that."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from perdure.engine.outbox.sinks import Sink
from perdure.kernel.outbox import OutboxEvent
from perdure.stores.records import BacklogRow, SinkRow


class SinkState(NamedTuple):
    """A sink as it stands, and how much waits for it."""

    row: SinkRow
    sink: Sink
    backlog: BacklogRow


class Undelivered(NamedTuple):
    """An event that a sink did not take: its number among them, the last error, and when it was given up."""

    n: int
    event: OutboxEvent
    attempts: int
    error: str | None
    died_at: int


class OutboxKeeper(Protocol):
    """What people ask of sinks; those that are named and do not exist are a SinkNotFound."""

    async def add(self, namespace: str, name: str, sink: Sink) -> None:
        """A new one; SinkExists, SinkNotReady. From then on it is told of everything it wants."""

    async def update(self, namespace: str, name: str, changes: Mapping[str, object]) -> None:
        """Change what is given."""

    async def remove(self, namespace: str, name: str) -> bool:
        """Forget it and all that waits for it, if there is one."""

    async def all(self, namespace: str) -> list[SinkState]:
        """All of them, by name."""

    async def dead_letters(self, namespace: str, name: str, limit: int) -> list[Undelivered]:
        """What it did not take, the oldest first."""

    async def replay(self, namespace: str, name: str, ids: Sequence[str] | None) -> int:
        """Deliver dead letters after all; how many."""

    async def resend(self, namespace: str, name: str, since: int, until: int) -> int:
        """Make the events of a time anew from histories; how many."""

    async def test(self, namespace: str, name: str) -> None:
        """Send an event from this process, now; SinkFailed."""

    async def reconcile(self, namespace: str, declared: Mapping[str, Sink]) -> None:
        """Make sinks as the code of this worker says."""
