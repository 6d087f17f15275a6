"""A run's state, and the two functions that move it.

decide   state, command, time  ->  the event it leads to, or a refusal
evolve   state, event          ->  state

The state is small on purpose: it does not grow with the history, so a step costs
the same in a run of ten events and in one of ten thousand.
"""

from typing import TypeAlias, assert_never

import msgspec

from perdure.kernel.commands import CloseRun, Command, FireTimer, ReceiveMessage, RecordOutcome, TakeNote
from perdure.kernel.events import (
    Answer,
    ChildCompleted,
    ChildFailed,
    DeferredFailed,
    DeferredResolved,
    Event,
    Fact,
    RequestReceived,
    RunCancelled,
    RunCompleted,
    RunContinued,
    RunFailed,
    RunStarted,
    RunTerminated,
    RunTimedOut,
    SignalReceived,
    TimerFired,
)
from perdure.kernel.messages import (
    ChildFailure,
    ChildResult,
    DeferredFailure,
    DeferredResult,
    RequestSent,
    Sent,
    SignalSent,
)
from perdure.kernel.status import OPEN, Status


class RunState(msgspec.Struct, frozen=True, gc=False):
    """What the rules need to know of a run: where it stands, its last event's number and time."""

    status: Status
    seq: int
    at: int


class TooEarly(msgspec.Struct, frozen=True, gc=False):
    """The timer's time has not come."""

    fire_at: int
    now: int


class AlreadyClosed(msgspec.Struct, frozen=True, gc=False):
    """The run has ended; its history takes no more events."""

    status: Status


class NotOwned(msgspec.Struct, frozen=True, gc=False):
    """The run is not this worker's any more."""


Refusal: TypeAlias = TooEarly | AlreadyClosed | NotOwned


def decide(state: RunState, command: Command, now: int) -> Event | Refusal:
    """The next event of the run, or why there is none."""
    if state.status not in OPEN:
        return AlreadyClosed(state.status)
    # A history's times never go back, whatever the clock of a new owner says.
    at = now if now > state.at else state.at  # noqa: FURB136 - max() would be a call for every event
    seq = state.seq + 1
    match command:
        case RecordOutcome(place, outcome):
            return Event(seq, at, place, outcome)
        case FireTimer(place, fire_at):
            return Event(seq, at, place, TimerFired(fire_at)) if at >= fire_at else TooEarly(fire_at, at)
        case ReceiveMessage(place, _, message_id, body):
            return Event(seq, at, place, _received(message_id, body))
        case TakeNote(note):
            return Event(seq, at, "", note)
        case CloseRun(end):
            return Event(seq, at, "", end)
        case _:
            assert_never(command)


def _received(message_id: str, body: Sent | ChildResult | ChildFailure) -> Answer:
    match body:
        case SignalSent(name, payload):
            return SignalReceived(name, payload, message_id)
        case DeferredResult(name, value):
            return DeferredResolved(name, value)
        case DeferredFailure(name, error):
            return DeferredFailed(name, error)
        case RequestSent(name, value):
            return RequestReceived(name, value, message_id)
        case ChildResult(_, workflow, child_id, run_id, result):
            return ChildCompleted(workflow, child_id, run_id, result)
        case ChildFailure(_, workflow, child_id, run_id, failure):
            return ChildFailed(workflow, child_id, run_id, failure)
        case _:
            assert_never(body)


def evolve(state: RunState, event: Event) -> RunState:
    """The state after the event."""
    return RunState(STATUS_AFTER.get(type(event.fact), state.status), event.seq, event.at)


# The facts that move a run's status; all others leave it as it is.
STATUS_AFTER: dict[type[Fact], Status] = {
    RunStarted: Status.RUNNING,
    RunCompleted: Status.COMPLETED,
    RunFailed: Status.FAILED,
    RunCancelled: Status.CANCELLED,
    RunTerminated: Status.TERMINATED,
    RunTimedOut: Status.TIMED_OUT,
    RunContinued: Status.CONTINUED,
}


def timed_out(timeout_ms: int | None) -> RunTimedOut:
    """The end of a run that took longer than it was given."""
    return RunTimedOut(f"it took longer than its timeout of {(timeout_ms or 0) / 1000:g} s")
