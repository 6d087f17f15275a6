"""Runs of remote workers: what they get of a run, and the commands they give, as they stand on the wire.

Times are milliseconds since 1970 by the engine's clock, values JSON. `kind` says which command it is.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.engine.ports.remote_workers import RemoteWorker
from perdure.kernel.events import Event
from perdure.kernel.messages import Message

NULL = msgspec.Raw(b"null")


def _null() -> Any:
    return msgspec.field(default_factory=lambda: NULL)


class Tagged(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Something of several kinds."""


class ErrorValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error: its type, and its text."""

    type: str
    message: str = ""


# How calls ended


class CompletedActivity(Tagged, frozen=True, tag="ActivityCompleted"):
    """An activity that ran in the worker itself returned."""

    name: str
    arguments: msgspec.Raw = _null()
    result: msgspec.Raw = _null()
    started_at: int = 0
    attempts: int = 1


class FailedActivity(Tagged, frozen=True, tag="ActivityFailed"):
    """An activity that ran in the worker itself failed for good."""

    name: str
    error: ErrorValue
    arguments: msgspec.Raw = _null()
    started_at: int = 0
    attempts: int = 1


class KnownValue(Tagged, frozen=True, tag="ValueRecorded"):
    """A value that is to be the same on every replay."""

    value: msgspec.Raw = _null()


class CompletedEnd(Tagged, frozen=True, tag="RunCompleted"):
    """The workflow returned."""

    result: msgspec.Raw = _null()


class FailedEnd(Tagged, frozen=True, tag="RunFailed"):
    """The workflow failed."""

    error: ErrorValue


class CancelledEnd(Tagged, frozen=True, tag="RunCancelled"):
    """The workflow stopped as it was asked to."""

    reason: str | None = None


class CancelNote(Tagged, frozen=True, tag="CancelRequested"):
    """The workflow is told of the message of this number, which asks it to stop."""

    number: int


class PatchNote(Tagged, frozen=True, tag="Patched"):
    """The code takes a new way from here on."""

    change_id: str


# Commands that become events


class OutcomeCommand(Tagged, frozen=True, tag="RecordOutcome"):
    """Write down how the call at this place ended."""

    place: str
    outcome: CompletedActivity | FailedActivity | KnownValue


class TimerCommand(Tagged, frozen=True, tag="FireTimer"):
    """Fire the timer at this place; refused before its time."""

    place: str
    fire_at: int


class MessageCommand(Tagged, frozen=True, tag="ReceiveMessage"):
    """Hand the unread message of this number to the call at this place."""

    place: str
    number: int


class NoteCommand(Tagged, frozen=True, tag="TakeNote"):
    """Write down something about the run that answers no call."""

    note: CancelNote | PatchNote


class CloseCommand(Tagged, frozen=True, tag="CloseRun"):
    """End the run."""

    end: CompletedEnd | FailedEnd | CancelledEnd


class ContinueCommand(Tagged, frozen=True, tag="ContinueRun"):
    """End the run, and start the one that goes on in its place."""

    input: msgspec.Raw = _null()


# Commands that are no events of the run


class ChildCommand(Tagged, frozen=True, tag="StartChild"):
    """Start the child at this place; one that was started there before stays. Durations are seconds."""

    place: str
    workflow: str
    input: msgspec.Raw = _null()
    id: str | None = None
    queue: str | None = None
    priority: int | None = None
    timeout: float | None = None
    on_parent_close: str = "cancel"


class RetryValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often, and how soon, a failed activity is tried again, in seconds."""

    max_attempts: int = 3
    initial_interval: float = 1
    backoff: float = 2
    max_interval: float = 100
    non_retryable: tuple[str, ...] = ()


class TaskCommand(Tagged, frozen=True, tag="StartTask"):
    """Start the activity on a queue at this place; its end is a message. Durations are seconds."""

    place: str
    activity: str
    queue: str
    arguments: msgspec.Raw = _null()
    timeout: float = 300
    heartbeat: float | None = None
    at_most_once: bool = False
    retry: RetryValue = RetryValue()


class StopChildCommand(Tagged, frozen=True, tag="CancelChild"):
    """Ask the child or the activity that was started at this place to stop."""

    place: str
    reason: str = "it is not waited for any more"


class AnnotateCommand(Tagged, frozen=True, tag="Annotate"):
    """Show the current step; change attributes, null takes one away."""

    step: str | None = None
    attributes: dict[str, Any] | None = None


class AttemptCommand(Tagged, frozen=True, tag="RecordAttempt"):
    """An attempt of an activity in the worker itself failed; the next one comes at a time."""

    place: str
    name: str
    attempt: int
    error: ErrorValue
    next_at: int


class BeginCommand(Tagged, frozen=True, tag="BeginAttempt"):
    """The only attempt of an activity in the worker itself begins."""

    place: str


class AnswerCommand(Tagged, frozen=True, tag="AnswerRequest"):
    """Answer the request with this id, or refuse it with a reason."""

    id: str
    answer: msgspec.Raw = _null()
    refused: str | None = None


class PublishCommand(Tagged, frozen=True, tag="Publish"):
    """Publish values in a stream of the run, in their order."""

    stream: str
    values: tuple[msgspec.Raw, ...]


class ExposeCommand(Tagged, frozen=True, tag="Expose"):
    """Show these values of the run, by name."""

    values: dict[str, msgspec.Raw]


RemoteCommand: TypeAlias = (
    OutcomeCommand
    | TimerCommand
    | MessageCommand
    | NoteCommand
    | CloseCommand
    | ContinueCommand
    | ChildCommand
    | TaskCommand
    | StopChildCommand
    | AnnotateCommand
    | AttemptCommand
    | BeginCommand
    | AnswerCommand
    | PublishCommand
    | ExposeCommand
)


class ParkStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let go of the run until a time, or a message; `had` is how many messages it had when it was looked at last."""

    had: int
    wake_at: int | None = None
    waiting: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"[]"))


class HoldStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stop the run until a person acts."""

    reason: str
    report: str


class KeepStep(msgspec.Struct, frozen=True):
    """Keep the run."""


class HandBackStep(msgspec.Struct, frozen=True):
    """Let any worker go on with the run at once."""


NextStep: TypeAlias = KeepStep | HandBackStep | ParkStep | HoldStep


class RemoteAdvance(msgspec.Struct, frozen=True):
    """What a worker wants of one of its runs: commands, all or nothing, and what becomes of it then."""

    run_id: str
    after_seq: int
    commands: tuple[RemoteCommand, ...]
    then: NextStep


class RemoteProgress(msgspec.Struct, frozen=True):
    """Where a run stands by now; `is_kept` says that it is still the worker's, with what it has not read."""

    seq: int
    is_kept: bool
    messages: Sequence[Message] = ()
    had: int = 0


class HandedRun(msgspec.Struct, frozen=True):
    """A run that a remote worker has: its past from a number on, what it has not read, and what it has started."""

    run_id: str
    workflow_id: str
    workflow: str
    input: str
    seed: int
    created_at: int
    seq: int
    events: Sequence[Event]
    messages: Sequence[Message]
    had: int
    children: dict[str, str]
    token_key: str
    more: bool


class RemoteRuns(Protocol):
    """Runs of workflows, for remote workers."""

    async def claim(self, worker: RemoteWorker, limit: int, holding: Sequence[str] | None) -> list[HandedRun]:
        """Take runs; first those that it has and does not hold, if it says what it holds."""

    async def read(self, worker: RemoteWorker, run_id: str, after: int) -> HandedRun:
        """A run that it has, with its events after a number; RunNotOwned."""

    async def advance(self, worker: RemoteWorker, asked: RemoteAdvance) -> RemoteProgress:
        """Do what a worker wants of one of its runs; OutOfStep, RunNotOwned, BadInput."""
