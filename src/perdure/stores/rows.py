"""Rows of the database <-> values of the kernel."""

import msgspec

from perdure.kernel.events import FACTS, Closing, Event, Fact, RunCompleted, RunFailed, RunStarted
from perdure.kernel.failure import Failure
from perdure.kernel.messages import KINDS, Message
from perdure.kernel.status import Status
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


def closing_event(row: RunRow) -> Event | None:
    """So does the event that closed the run."""
    if row.closed_at is None or row.last_seq is None or row.outcome is None:
        return None
    fact: Closing
    if row.status == Status.COMPLETED:
        fact = RunCompleted(msgspec.Raw(row.outcome.encode()))
    else:
        fact = RunFailed(failure_of(row.outcome))
    return Event(row.last_seq, row.closed_at, "", fact)


def outcome_of(closing: Closing) -> str:
    """The outcome column of a run that ends so."""
    if isinstance(closing, RunCompleted):
        return bytes(closing.result).decode()
    return _encode(closing.failure).decode()
