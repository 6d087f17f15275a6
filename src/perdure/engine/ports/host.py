"""A worker in this process, as the engine sees it."""

from collections.abc import Sequence
from typing import Protocol

from perdure.engine.ports.owned_run import OwnedRun, StartRequest
from perdure.errors import RunUnreadable
from perdure.kernel.messages import Message
from perdure.stores.records import LoadedRun


class Host(Protocol):
    """A worker in this process, as the engine sees it."""

    def names(self) -> tuple[str, ...]:
        """The workflows, and the activities on queues, that it has code for."""

    def makes_room_for(self, request: StartRequest) -> bool:
        """Whether it will run this at once; if so, it is adopted, or forgone."""

    def forgo(self) -> None:
        """A run that room was made for does not come."""

    def adopt(self, owned: OwnedRun, loaded: LoadedRun | None) -> None:
        """Bring a run to life that is now this worker's; `loaded` is its past, if it has one."""

    def is_live(self, run_id: str) -> bool:
        """Whether the run lives in this process."""

    def notice(self, run_id: str, message: Message, count: int | None) -> bool:
        """A message has come, the count-th of its run if that is known; False when the run does not live here."""

    def notice_unread(self, run_id: str, messages: Sequence[Message], had: int | None) -> None:
        """What is unread of a run, in order, after what it knows; `had` with the last of it, the count with all."""

    def look_around(self) -> None:
        """Something changed: there may be runs to claim."""

    def ended(self, run_id: str) -> None:
        """The end of a run is on disk."""

    def broken(self, run_id: str, trouble: str) -> None:
        """The database will never take a run's last event."""

    def unreadable(self, error: RunUnreadable) -> None:
        """What came for a run that lives here cannot be read."""

    def evict(self, run_id: str) -> None:
        """A run is not this worker's any more, or must be loaded again."""

    def evict_all(self) -> None:
        """Everything this worker owned is not its own any more, or must be loaded again."""
