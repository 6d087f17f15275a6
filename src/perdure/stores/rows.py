"""Rows of the database <-> values of the kernel."""

import msgspec

from perdure.kernel.events import (
    FACTS,
    Closing,
    Event,
    Fact,
    RunCancelled,
    RunCompleted,
    RunContinued,
    RunFailed,
    RunStarted,
    RunTerminated,
    RunTimedOut,
)
from perdure.kernel.failure import Failure
from perdure.kernel.messages import KINDS, Body, Message
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN, OnParentClose, Traits
from perdure.stores.records import RunRow

_encode = msgspec.json.Encoder().encode
_decoders = {kind: msgspec.json.Decoder(fact) for kind, fact in FACTS.items()}
_messages = {kind: msgspec.json.Decoder(body) for kind, body in KINDS.items()}


def body_of(fact: Fact) -> str:
    """A fact as it is written."""
    return _encode(fact).decode()


def event_of(seq: int, kind: str, place: str, at: int, body: str) -> Event:
    return Event(seq, at, place, _decoders[kind].decode(body))


def message_of(number: int, message_id: str, kind: str, body: str, at: int) -> Message:
    return Message(number, message_id, _messages[kind].decode(body), at)


def failure_of(body: str) -> Failure:
    return msgspec.json.decode(body, type=Failure)


def first_event(row: RunRow) -> Event:
    """RunStarted lives in the run's row."""
    return Event(1, row.created_at, "", RunStarted(row.workflow, msgspec.Raw(row.input.encode()), row.seed))


_STOPPED: dict[str, type[RunCancelled | RunTerminated | RunTimedOut | RunContinued]] = {
    Status.CANCELLED.value: RunCancelled,
    Status.TERMINATED.value: RunTerminated,
    Status.TIMED_OUT.value: RunTimedOut,
    Status.CONTINUED.value: RunContinued,
}


def closing_event(row: RunRow) -> Event | None:
    """So does the event that closed the run."""
    if row.closed_at is None or row.last_seq is None or row.outcome is None:
        return None
    return Event(row.last_seq, row.closed_at, "", _closing(row.status, row.outcome))


def _closing(status: str, outcome: str) -> Closing:
    if status == Status.COMPLETED:
        return RunCompleted(msgspec.Raw(outcome.encode()))
    if status == Status.FAILED:
        return RunFailed(failure_of(outcome))
    return msgspec.json.decode(outcome, type=_STOPPED[status])


def outcome_of(closing: Closing) -> str:
    """The outcome column of a run that ends so."""
    match closing:
        case RunCompleted(result):
            return bytes(result).decode()
        case RunFailed(failure):
            return _encode(failure).decode()
        case _:
            return _encode(closing).decode()


def message_body(body: Body) -> str:
    """A message as it is written."""
    return _encode(body).decode()


def traits_of(row: RunRow) -> Traits:
    """What a run was started with."""
    traits = Traits(
        row.parent_id,
        row.parent_place,
        row.on_parent_close or OnParentClose.CANCEL.value,
        row.entity_id,
        row.correlation_id,
        row.initial_attributes,
        row.timeout_ms,
        row.delayed_until,
        row.close_at,
        row.continued_from,
    )
    # Most have none, and that is quicker to see by identity.
    return PLAIN if traits == PLAIN else traits
