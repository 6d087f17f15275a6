"""Rows of the database <-> values of the kernel; Garbled, when a row cannot be one."""

import shlex
from typing import Any

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
from perdure.kernel.quarantine import Death
from perdure.kernel.requests import LeftUnanswered, RequestAnswer
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN, OnParentClose, Traits
from perdure.stores.records import AttemptRow, CallProgress, RunRow, SnapshotRow, StreamHead, StreamValue

_encode = msgspec.json.Encoder().encode
_decoders = {kind: msgspec.json.Decoder(fact) for kind, fact in FACTS.items()}
_messages = {kind: msgspec.json.Decoder(body) for kind, body in KINDS.items()}
_anything = msgspec.json.Decoder(msgspec.Raw)
_attributes = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
_UNKNOWN = "which this Perdure does not know"
LONGEST_SHOWN = 80


class Garbled(Exception):  # noqa: N818 - it is what it says
    """A row that cannot be read: the text says which one of its run, and what is wrong with it."""


def paused_report(id: str, reason: str | None) -> str:
    """Why a run is paused, and what lets it go on."""
    remedy = f"`perdure resume {shlex.quote(id)}` lets it go on"
    return msgspec.json.encode({"trouble": reason or "somebody paused it", "reason": reason, "remedy": remedy}).decode()


def paused_with(id: str) -> str:
    """Why an activity on a queue is not begun; the same whatever the reason is, so that it is found again by it."""
    remedy = f"`perdure resume {shlex.quote(id)}` lets both go on"
    return msgspec.json.encode({"trouble": f"the run {id!r}, which called it, is paused", "remedy": remedy}).decode()


def held_report(trouble: str, id: str) -> str:
    """Why a run is held that cannot be read, and what to do, as JSON."""
    newer = "if a newer Perdure wrote it, go back to that one; if none did, " if trouble.endswith(_UNKNOWN) else ""
    remedy = (
        f"`perdure audit` tells all that is wrong with the file; {newer}restore a backup or correct it by hand, "
        f"then `perdure resume {id}`, or give the run up: `perdure terminate {id}`"
    )
    return _encode({"trouble": trouble, "remedy": remedy}).decode()


def body_of(fact: Fact) -> str:
    """A fact as it is written."""
    return _encode(fact).decode()


def event_of(seq: int, kind: str, place: str, at: int, body: str) -> Event:
    decoder = _decoders.get(kind)
    # Columns hold whatever was put into them; a body must be text, or what is inside it would not be looked at.
    if decoder is None or type(body) is not str or type(place) is not str or not type(seq) is type(at) is int:
        known = f"its kind is {_shown(kind)}, {_UNKNOWN}" if decoder is None else None
        raise Garbled(f"event {_shown(seq)} cannot be read: {known or _misfit(seq=seq, place=place, at=at, body=body)}")
    try:
        return Event(seq, at, place, decoder.decode(body))
    except _UNREADABLE as error:
        raise Garbled(f"event {seq} cannot be read as {kind}: {error}") from None


def message_of(number: int, message_id: str, kind: str, body: str, at: int) -> Message:
    decoder = _messages.get(kind)
    if decoder is None or type(body) is not str or type(message_id) is not str or type(at) is not int:
        known = f"its kind is {_shown(kind)}, {_UNKNOWN}" if decoder is None else None
        trouble = known or _misfit(message_id=message_id, at=at, body=body)
        raise Garbled(f"message {number} in its inbox cannot be read: {trouble}")
    try:
        return Message(number, message_id, decoder.decode(body), at)
    except _UNREADABLE as error:
        raise Garbled(f"message {number} in its inbox cannot be read as {kind}: {error}") from None


def attempt_of(place: str, attempt: int, name: str, failure: str, at: int, next_at: int | None) -> AttemptRow:
    if not (type(place) is type(name) is type(failure) is str and type(attempt) is type(at) is int):
        trouble = _misfit(place=place, attempt=attempt, name=name, failure=failure, at=at)
        raise Garbled(f"a failed attempt of an activity cannot be read: {trouble}")
    if next_at is not None and type(next_at) is not int:
        raise Garbled(f"failed attempt {attempt} at {place} cannot be read: {_misfit(next_at=next_at)}")
    try:
        return AttemptRow(place, attempt, name, failure_of(failure), at, next_at)
    except _UNREADABLE as error:
        raise Garbled(f"failed attempt {attempt} at {place} cannot be read: {error}") from None


def progress_of(place: str, begun_at: int | None, details: str | None, beat_at: int | None) -> CallProgress:
    for name, value, kind in (("begun_at", begun_at, int), ("details", details, str), ("beat_at", beat_at, int)):
        if value is not None and type(value) is not kind:
            raise Garbled(f"the progress of the call at {_shown(place)} cannot be read: {_misfit(**{name: value})}")
    if type(place) is not str:
        raise Garbled(f"the progress of a call cannot be read: {_misfit(place=place)}")
    return CallProgress(place, begun_at, details, beat_at)


def snapshot_of(seq: int, at: int, body: str) -> SnapshotRow:
    if type(seq) is not int or type(at) is not int or type(body) is not str:
        raise Garbled(f"its snapshot cannot be read: {_misfit(seq=seq, at=at, body=body)}")
    return SnapshotRow(seq, at, body)


def head_of(name: str, source: str, n: int, own: int, attempt: int) -> StreamHead:
    if type(name) is not str or type(source) is not str or not type(n) is type(own) is type(attempt) is int:
        raise Garbled(f"how far the stream {_shown(name)} is cannot be read")
    return StreamHead(name, source, n, own, attempt)


def stream_value_of(n: int, attempt: int, at: int, body: str) -> StreamValue:
    if type(attempt) is not int or type(at) is not int or type(body) is not str:
        misfit = _misfit(attempt=attempt, at=at, body=body)
        raise Garbled(f"value {_shown(n)} of the stream cannot be read: {misfit}")
    return StreamValue(n, attempt, at, body)


def _misfit(**columns: object) -> str:
    """The first column that holds something else than it should."""
    numbers = {"seq", "at", "attempt", "next_at", "begun_at", "beat_at"}
    for name, value in columns.items():
        if value is None:
            return f"its {name} is lost"
        if type(value) is not (int if name in numbers else str):
            return f"its {name} is {_shown(value)}, which is no {'number' if name in numbers else 'text'}"
    raise AssertionError(columns)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."


def failure_of(body: str) -> Failure:
    """An error as it was written."""
    return msgspec.json.decode(body, type=Failure)


def deaths_of(text: bytes | str | None) -> tuple[Death, ...]:
    """The deaths held against a run; what cannot be read is held against nobody."""
    try:
        return msgspec.json.decode(text or b"[]", type=tuple[Death, ...])
    except _UNREADABLE:
        return ()


def check_start(row: RunRow) -> None:
    """Garbled, when what a run was started with cannot be read: code would meet it in the middle of a step."""
    _check("input", _anything, row.input)
    if row.initial_attributes is not None:
        _check("initial_attributes", _attributes, row.initial_attributes)


def _check(column: str, decoder: "msgspec.json.Decoder[Any]", text: str) -> None:
    try:
        decoder.decode(text)
    except _UNREADABLE as error:
        raise Garbled(f"its {column} cannot be read: {error}") from None


def first_event(row: RunRow) -> Event:
    """RunStarted lives in the run's row; Garbled."""
    _check("input", _anything, row.input)
    at = row.created_at if row.first_at is None else row.first_at
    return Event(1, at, "", RunStarted(row.workflow, msgspec.Raw(row.input.encode()), row.seed))


_STOPPED: dict[str, type[RunCancelled | RunTerminated | RunTimedOut | RunContinued]] = {
    Status.CANCELLED.value: RunCancelled,
    Status.TERMINATED.value: RunTerminated,
    Status.TIMED_OUT.value: RunTimedOut,
    Status.CONTINUED.value: RunContinued,
}


def closing_event(row: RunRow) -> Event | None:
    """So does the event that closed the run; Garbled."""
    if row.closed_at is None or row.last_seq is None or row.outcome is None:
        return None
    try:
        return Event(row.last_seq, row.closed_at, "", _closing(row.status, row.outcome))
    except (*_UNREADABLE, KeyError) as error:
        raise Garbled(f"its outcome cannot be read as that of a run that is {row.status}: {error}") from None


def _closing(status: str, outcome: str) -> Closing:
    if status == Status.COMPLETED:
        _anything.decode(outcome)
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


def error_text(row: RunRow) -> str | None:
    """Why a run ended without a result."""
    if row.outcome is None or row.status in {Status.COMPLETED, Status.CONTINUED}:
        return None
    if row.status == Status.FAILED:
        return msgspec.json.decode(row.outcome, type=Failure).summary
    reason = msgspec.json.decode(row.outcome).get("reason")
    return None if reason is None else str(reason)


def message_body(body: Body) -> str:
    """A message as it is written."""
    return _encode(body).decode()


_answers: "msgspec.json.Decoder[RequestAnswer]" = msgspec.json.Decoder(RequestAnswer)


def answer_of(text: str) -> RequestAnswer:
    """The answer to a request; one that cannot be read is none."""
    try:
        return _answers.decode(text)
    except _UNREADABLE:
        return LeftUnanswered()


def answer_text(answer: RequestAnswer) -> str:
    """The same as it is written."""
    return _encode(answer).decode()


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
        row.forked_from,
        row.schedule,
        row.scheduled_for,
    )
    # Most have none, and that is quicker to see by identity.
    return PLAIN if traits == PLAIN else traits
