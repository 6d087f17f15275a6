"""Commands of owned runs, as they stand on the wire.

In:   commands of the kernel, requests to start and to let go of runs.
Out:  the values of the protocol; the server's rules make the same events of them.
"""

from typing import Any, assert_never

import msgspec

from perdure.engine.ports import HandBack, Hold, OwnedRun, Park, Pause, Published, Release, StartRequest
from perdure.engine.ports.remote_runs import (
    AnswerCommand,
    CancelledEnd,
    CancelNote,
    ChildCommand,
    CloseCommand,
    CompletedActivity,
    CompletedChild,
    CompletedEnd,
    ExposeCommand,
    FailedActivity,
    FailedChild,
    FailedEnd,
    HoldStep,
    KnownValue,
    MessageCommand,
    NoteCommand,
    OutcomeCommand,
    ParkStep,
    PatchNote,
    PauseStep,
    PublishCommand,
    RemoteCommand,
    TerminatedEnd,
    TimedOutEnd,
    TimeoutNote,
    TimerCommand,
    error_value,
)
from perdure.ids import stamp_of
from perdure.kernel.commands import CloseRun, Command, FireTimer, ReceiveMessage, RecordOutcome, TakeNote
from perdure.kernel.events import (
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    Closing,
    Note,
    Patched,
    RunCancelled,
    RunCompleted,
    RunContinued,
    RunFailed,
    RunTerminated,
    RunTimedOut,
    TimeoutReached,
    ValueRecorded,
)
from perdure.kernel.requests import Answered, RequestAnswer
from perdure.kernel.requests import Refused as RefusedRequest
from perdure.kernel.snapshots import ShownValues

NOTHING = msgspec.Raw(b"null")


def command_of(owned: OwnedRun, command: Command, at: int) -> RemoteCommand:
    """A command that becomes an event at a time."""
    match command:
        case RecordOutcome(place, outcome):
            return OutcomeCommand(place, _outcome(outcome), at)
        case FireTimer(place, fire_at):
            return TimerCommand(place, fire_at, at)
        case ReceiveMessage(place, number):
            return MessageCommand(place, number, at)
        case TakeNote(note, message):
            return NoteCommand(_note(note, None if message is None else message.number), at)
        case CloseRun(end, undo):
            return CloseCommand(_end(end), undo, at, owned.has_children)
        case _:
            assert_never(command)


def _outcome(
    outcome: ActivityCompleted | ActivityFailed | ValueRecorded | ChildCompleted | ChildFailed,
) -> CompletedActivity | FailedActivity | KnownValue | CompletedChild | FailedChild:
    match outcome:
        case ActivityCompleted(name, arguments, result, started_at, attempts):
            return CompletedActivity(name, arguments, result, started_at, attempts)
        case ActivityFailed(name, arguments, failure, started_at, attempts):
            return FailedActivity(name, error_value(failure), arguments, started_at, attempts)
        case ValueRecorded(value):
            return KnownValue(value)
        case ChildCompleted(workflow, child_id, run_id, result):
            return CompletedChild(workflow, child_id, run_id, result)
        case ChildFailed(workflow, child_id, run_id, failure):
            return FailedChild(workflow, child_id, run_id, error_value(failure))
        case _:
            assert_never(outcome)


def _note(note: Note, number: int | None) -> CancelNote | PatchNote | TimeoutNote:
    match note:
        case CancelRequested():
            return CancelNote(number or 0)
        case Patched(change_id):
            return PatchNote(change_id)
        case TimeoutReached(reason):
            return TimeoutNote(reason)
        case _:
            assert_never(note)


def _end(end: Closing) -> CompletedEnd | FailedEnd | CancelledEnd | TimedOutEnd | TerminatedEnd:
    match end:
        case RunCompleted(result):
            return CompletedEnd(result)
        case RunFailed(failure):
            return FailedEnd(error_value(failure))
        case RunCancelled(reason, notes):
            return CancelledEnd(reason, notes)
        case RunTimedOut(reason, notes):
            return TimedOutEnd(reason, notes)
        case RunTerminated(reason):
            return TerminatedEnd(reason)
        case RunContinued():
            raise AssertionError("a run is continued by a command of its own")
        case _:
            assert_never(end)


def child_of(request: StartRequest) -> ChildCommand:
    """The start of a child; the server makes its run_id from the same time."""
    traits = request.traits
    assert request.run_id is not None
    return ChildCommand(
        str(traits.parent_place),
        request.workflow,
        msgspec.Raw(request.input.encode()),
        request.workflow_id,
        request.queue,
        request.priority,
        None if traits.timeout_ms is None else traits.timeout_ms / 1000,
        traits.on_parent_close,
        request.delay_ms / 1000,
        traits.entity_id,
        traits.correlation_id,
        attributes_of(traits.attributes),
        request.supersedes,
        stamp_of(request.run_id),
    )


def attributes_of(text: str | None) -> dict[str, Any] | None:
    """Attributes as a value."""
    return None if text is None else msgspec.json.decode(text, type=dict[str, Any])


def answer_of(message_id: str, answer: RequestAnswer, number: int | None = None) -> AnswerCommand:
    """What the code says to a caller that asked it."""
    if isinstance(answer, Answered):
        return AnswerCommand(message_id, answer.value, None, number)
    reason = answer.reason if isinstance(answer, RefusedRequest) else "it was left unanswered"
    return AnswerCommand(message_id, NOTHING, reason, number)


def publish_of(published: Published, bodies: tuple[str, ...], at: int, after: int | None) -> PublishCommand:
    """Values of a stream, in their order."""
    values = tuple(msgspec.Raw(body.encode()) for body in bodies)
    at = at if published.at is None else published.at
    return PublishCommand(published.name, values, published.source, published.attempt, at, after)


def expose_of(body: str) -> ExposeCommand:
    """What a run shows of itself."""
    shown = msgspec.json.decode(body, type=ShownValues)
    return ExposeCommand(shown.values, shown.errors)


def step_of(owned: OwnedRun, how: Release) -> object:
    """What becomes of a run then, as the server is told."""
    match how:
        case Park(wake_at, waiting):
            return {"park": ParkStep(owned.messages, wake_at, msgspec.Raw(waiting.encode()))}
        case HandBack():
            return "hand_back"
        case Hold(reason, report):
            return {"hold": HoldStep(reason, report)}
        case Pause(report, tasks, taken):
            return {"pause": PauseStep(owned.messages, report, tasks, taken)}
        case _:
            assert_never(how)
