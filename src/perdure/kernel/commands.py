"""Commands: what the owner of a run asks for on behalf of its workflow code."""

from typing import TypeAlias

import msgspec

from perdure.kernel.events import (
    ActivityCompleted,
    ActivityFailed,
    ChildCompleted,
    ChildFailed,
    Closing,
    Note,
    ValueRecorded,
)
from perdure.kernel.messages import ChildFailure, ChildResult, Message, Sent


class RecordOutcome(msgspec.Struct, frozen=True, gc=False):
    """Write down how the call at this place ended."""

    place: str
    outcome: ActivityCompleted | ActivityFailed | ValueRecorded | ChildCompleted | ChildFailed


class FireTimer(msgspec.Struct, frozen=True, gc=False):
    """Fire the timer at this place; refused before its time."""

    place: str
    fire_at: int


class ReceiveMessage(msgspec.Struct, frozen=True, gc=False):
    """Hand a message to the call that waits for it at this place."""

    place: str
    number: int
    message_id: str
    body: Sent | ChildResult | ChildFailure


class TakeNote(msgspec.Struct, frozen=True, gc=False):
    """Write down something about the run that answers no call; `message` is where it came from, if it did."""

    note: Note
    message: Message | None = None


class CloseRun(msgspec.Struct, frozen=True, gc=False):
    """End the run with what its workflow returned or raised; `undo` is what its row says of its undos from then on."""

    end: Closing
    undo: str | None = None


Command: TypeAlias = RecordOutcome | FireTimer | ReceiveMessage | TakeNote | CloseRun
