"""Runs of remote workers: what they get of a run, and the commands they give, as they stand on the wire.

Times are milliseconds since 1970 by the engine's clock, values JSON. `kind` says which command it is.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from perdure.engine.ports.remote_workers import RemoteWorker
from perdure.errors import PerdureError
from perdure.kernel.events import Event
from perdure.kernel.failure import NO_ATTRIBUTES, UNKNOWN_ARGUMENTS, Failure
from perdure.kernel.messages import Message
from perdure.stores.records import CallProgress, StreamHead

NULL = msgspec.Raw(b"null")


def _null() -> Any:
    return msgspec.field(default_factory=lambda: NULL)


class Tagged(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """Something of several kinds."""


class ErrorValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An error: its type, and its text; the rest is what a Python worker makes the same error of again."""

    type: str
    message: str = ""
    arguments: msgspec.Raw = msgspec.field(default_factory=lambda: UNKNOWN_ARGUMENTS)
    traceback: str = ""
    attributes: msgspec.Raw = msgspec.field(default_factory=lambda: NO_ATTRIBUTES)
    errors: tuple["ErrorValue", ...] = ()

    @property
    def failure(self) -> Failure:
        """What is kept of it."""
        errors = tuple(each.failure for each in self.errors)
        return Failure(self.type, self.message, self.arguments, self.traceback, self.attributes, errors)


def error_value(failure: Failure) -> ErrorValue:
    """A failure as it stands on the wire."""
    errors = tuple(error_value(each) for each in failure.errors)
    kept = (failure.arguments, failure.traceback, failure.attributes, errors)
    return ErrorValue(failure.type, failure.message, *kept)


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


class CompletedChild(Tagged, frozen=True, tag="ChildCompleted"):
    """A run that was waited for in the place of a child returned."""

    workflow: str
    child_id: str
    run_id: str
    result: msgspec.Raw = _null()


class FailedChild(Tagged, frozen=True, tag="ChildFailed"):
    """A run that was waited for in the place of a child ended without a result."""

    workflow: str
    child_id: str
    run_id: str
    error: ErrorValue


class CompletedEnd(Tagged, frozen=True, tag="RunCompleted"):
    """The workflow returned."""

    result: msgspec.Raw = _null()


class FailedEnd(Tagged, frozen=True, tag="RunFailed"):
    """The workflow failed."""

    error: ErrorValue


class CancelledEnd(Tagged, frozen=True, tag="RunCancelled"):
    """The workflow stopped as it was asked to; `notes` tell what could not be undone."""

    reason: str | None = None
    notes: tuple[str, ...] = ()


class TimedOutEnd(Tagged, frozen=True, tag="RunTimedOut"):
    """The run took longer than its timeout; `notes` tell what could not be undone."""

    reason: str | None = None
    notes: tuple[str, ...] = ()


class TerminatedEnd(Tagged, frozen=True, tag="RunTerminated"):
    """The run was stopped from outside, without clean-up."""

    reason: str | None = None


class CancelNote(Tagged, frozen=True, tag="CancelRequested"):
    """The workflow is told of the message of this number, which asks it to stop."""

    number: int


class PatchNote(Tagged, frozen=True, tag="Patched"):
    """The code takes a new way from here on."""

    change_id: str


class TimeoutNote(Tagged, frozen=True, tag="TimeoutReached"):
    """The run took longer than its timeout, and undoes first what it has done."""

    reason: str | None = None


# Commands that become events; `at` is when, by the server's time as the worker knows it: now, if it is left away


class OutcomeCommand(Tagged, frozen=True, tag="RecordOutcome"):
    """Write down how the call at this place ended."""

    place: str
    outcome: CompletedActivity | FailedActivity | KnownValue | CompletedChild | FailedChild
    at: int | None = None


class TimerCommand(Tagged, frozen=True, tag="FireTimer"):
    """Fire the timer at this place; refused before its time."""

    place: str
    fire_at: int
    at: int | None = None


class MessageCommand(Tagged, frozen=True, tag="ReceiveMessage"):
    """Hand the unread message of this number to the call at this place."""

    place: str
    number: int
    at: int | None = None


class NoteCommand(Tagged, frozen=True, tag="TakeNote"):
    """Write down something about the run that answers no call."""

    note: CancelNote | PatchNote | TimeoutNote
    at: int | None = None


class CloseCommand(Tagged, frozen=True, tag="CloseRun"):
    """End the run; `undo` is what is shown of its undos from then on.

    A run that has started no `children` is ended more quickly when that is said.
    """

    end: CompletedEnd | FailedEnd | CancelledEnd | TimedOutEnd | TerminatedEnd
    undo: str | None = None
    at: int | None = None
    children: bool = True


class ContinueCommand(Tagged, frozen=True, tag="ContinueRun"):
    """End the run, and start the one that goes on in its place; its attributes are the run's, if none are given."""

    input: msgspec.Raw = _null()
    attributes: dict[str, Any] | None = None
    at: int | None = None


# Commands that are no events of the run


class ChildCommand(Tagged, frozen=True, tag="StartChild"):
    """Start the child at this place; one that was started there before stays. Durations are seconds.

    `at` is the time of the event that the call follows, from which its run_id is made; `supersedes` is the closed run
    whose id it takes.
    """

    place: str
    workflow: str
    input: msgspec.Raw = _null()
    id: str | None = None
    queue: str | None = None
    priority: int | None = None
    timeout: float | None = None
    on_parent_close: str = "cancel"
    delay: float = 0
    entity_id: str | None = None
    correlation_id: str | None = None
    attributes: dict[str, Any] | None = None
    supersedes: str | None = None
    at: int | None = None


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


class UnbegunCommand(Tagged, frozen=True, tag="CloseUnbegun"):
    """End the child or the activity that was started at this place with a failure, unless some worker has begun it."""

    place: str
    workflow: str
    child_id: str
    run_id: str
    error: ErrorValue


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
    at: int | None = None


class BeatsCommand(Tagged, frozen=True, tag="RecordBeats"):
    """The newest details, as JSON, of activities that the worker runs itself."""

    beats: tuple[CallProgress, ...]


class BeginCommand(Tagged, frozen=True, tag="BeginAttempt"):
    """The only attempt of an activity in the worker itself begins."""

    place: str


class AnswerCommand(Tagged, frozen=True, tag="AnswerRequest"):
    """Answer the request with this id, or refuse it with a reason; with `number` its message is not offered again."""

    id: str
    answer: msgspec.Raw = _null()
    refused: str | None = None
    number: int | None = None


class AsideCommand(Tagged, frozen=True, tag="SetAside"):
    """The code does not take the unread messages of these numbers: they are not offered again."""

    numbers: tuple[int, ...]


class PublishCommand(Tagged, frozen=True, tag="Publish"):
    """Publish values in a stream of the run, in their order; those of an activity with its place as `source`.

    An activity on a queue publishes in the streams of the run that called it. `after` is how many values of its own the
    run had published there before: those that are written already are left out.
    """

    stream: str
    values: tuple[msgspec.Raw, ...]
    source: str = ""
    attempt: int = 1
    at: int | None = None
    after: int | None = None


class ExposeCommand(Tagged, frozen=True, tag="Expose"):
    """Show these values of the run, by name, and why there is none where there is none."""

    values: dict[str, msgspec.Raw]
    errors: dict[str, str] = {}


class UndoCommand(Tagged, frozen=True, tag="NoteUndo"):
    """Show what the run would have to undo, and what it has undone, as JSON."""

    undo: str | None


class WaitingCommand(Tagged, frozen=True, tag="NoteWaiting"):
    """Show what the run waits for while it is kept."""

    waiting: msgspec.Raw


class LossesCommand(Tagged, frozen=True, tag="NoteLosses"):
    """How often workers were lost with the run, as far as that still counts."""

    losses: int
    outlived: int


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
    | UnbegunCommand
    | AnnotateCommand
    | AttemptCommand
    | BeatsCommand
    | BeginCommand
    | AnswerCommand
    | AsideCommand
    | PublishCommand
    | ExposeCommand
    | UndoCommand
    | WaitingCommand
    | LossesCommand
)
# Those that become events.
EVENTFUL = (OutcomeCommand, TimerCommand, MessageCommand, NoteCommand, CloseCommand, ContinueCommand)


class ParkStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let go of the run until a time, or a message; `had` is how many messages it had when it was looked at last."""

    had: int
    wake_at: int | None = None
    waiting: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"[]"))


class HoldStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Stop the run until a person acts."""

    reason: str
    report: str


class PauseStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the run since a person wants that, unless a message came; `taken` are the numbers of what asked for it.

    `tasks` is the report of its activities on queues that no worker has begun, which are held with it.
    """

    had: int
    report: str
    tasks: str
    taken: tuple[int, ...] = ()


class KeepStep(msgspec.Struct, frozen=True):
    """Keep the run."""


class HandBackStep(msgspec.Struct, frozen=True):
    """Let any worker go on with the run at once."""


NextStep: TypeAlias = KeepStep | HandBackStep | ParkStep | HoldStep | PauseStep


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


class FailedTry(msgspec.Struct, frozen=True):
    """An attempt of an activity that failed, and when the next one is due."""

    place: str
    attempt: int
    name: str
    error: ErrorValue
    at: int
    next_at: int | None


class OwnedDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an owner knows of a run besides, to go on with it as the worker before would have."""

    namespace: str
    queue: str
    priority: int = 0
    has_begun_before: bool = False
    # Whether all its unread messages are there.
    has_all_messages: bool = True
    status: str = "RUNNING"
    entity_id: str | None = None
    correlation_id: str | None = None
    attributes: str | None = None
    own_attributes: str | None = None
    initial_attributes: str | None = None
    step: str | None = None
    parent_id: str | None = None
    parent_place: str | None = None
    on_parent_close: str | None = None
    begun_at: int | None = None
    timeout_ms: int | None = None
    delayed_until: int | None = None
    close_at: int | None = None
    close_as: str | None = None
    cancel_reason: str | None = None
    continued_from: str | None = None
    forked_from: str | None = None
    schedule: str | None = None
    scheduled_for: int | None = None
    losses: int = 0
    outlived: int = 0
    undo: str | None = None
    attempts: tuple[FailedTry, ...] = ()
    started: tuple[str, ...] = ()
    progress: tuple[CallProgress, ...] = ()
    unanswered: tuple[str, ...] = ()
    heads: tuple[StreamHead, ...] = ()


class WorkerNews(msgspec.Struct, frozen=True):
    """What has come for runs of a worker since it last asked; `after` is what it asks with the next time."""

    after: int
    messages: Sequence[tuple[str, Message, int]] = ()
    # How often there may have been something to claim, as this server counts.
    work: int = 0


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
    detail: OwnedDetail | None = None


class ClaimWish(msgspec.Struct, frozen=True):
    """How many runs are to be taken, and how.

    `holding` names those that the worker has in hand: what it owns besides comes first. A worker that is an `owner` in
    full gets activities on queues as runs of one step, and all that an owner knows of each.
    """

    limit: int
    holding: Sequence[str] | None = None
    is_owner: bool = False
    suspects: int = 1


class RemoteRuns(Protocol):
    """Runs of workflows, for remote workers."""

    async def claim(self, worker: RemoteWorker, wish: ClaimWish) -> list[HandedRun]:
        """Take runs; first those that it has and does not hold, if it says what it holds."""

    async def next_wake(self, worker: RemoteWorker, *, suspects: bool) -> int | None:
        """When the next run or activity that it could take becomes ripe."""

    async def read(self, worker: RemoteWorker, run_id: str, after: int, *, is_owner: bool = False) -> HandedRun:
        """A run that it has, with its events after a number; RunNotOwned."""

    async def news(self, worker: RemoteWorker, after: int) -> WorkerNews:
        """What has come for its runs since."""

    async def advance(
        self, worker: RemoteWorker, asked: Sequence[RemoteAdvance], *, reads_unread: bool = True
    ) -> list[RemoteProgress | PerdureError]:
        """Do what a worker wants of its runs, in one transaction, each for itself.

        In their order where each stands by then, or OutOfStep, RunNotOwned, IdConflict, BadField. LeaseLost of all.
        Without `reads_unread` it is not told what has come for those that are kept.
        """
