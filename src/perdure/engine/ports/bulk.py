"""What is done to all runs that match a filter."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from perdure.kernel.filters import Filter
from perdure.kernel.messages import SignalSent


class Verb(StrEnum):
    """What can be asked of many runs at once."""

    CANCEL = "cancel"
    TERMINATE = "terminate"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"


class Steering(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is asked of each run, and why; a request to stop under one message_id comes once to a run."""

    verb: Verb
    reason: str | None = None
    message_id: str | None = None


class Broadcast(msgspec.Struct, frozen=True, omit_defaults=True):
    """The signal that each run is sent, received so much later; under one message_id it counts once in a run."""

    sent: SignalSent
    message_id: str
    delay_ms: int = 0


BulkAction: TypeAlias = Steering | Broadcast


class Failures(msgspec.Struct, frozen=True):
    """How many runs were refused with an error of one type, and the ids of the first of them."""

    count: int
    ids: tuple[str, ...]


class Tally(msgspec.Struct, frozen=True):
    """How many runs matched, and what became of them so far."""

    matched: int = 0
    done: int = 0
    skipped: int = 0
    errors: dict[str, Failures] = {}


class BulkActions(Protocol):
    """What is done to all runs that match a filter."""

    async def act(self, namespace: str, action: BulkAction, where: Filter, told: Callable[[Tally], None]) -> Tally:
        """Do this to the runs that match and are on disk now, a bite at a time; `told` is called after each."""
