"""Messages: what the outside world has to say to a run.

A message waits in the run's inbox until the owner turns it into an event, or
does what it asks for.
"""

from typing import TypeAlias

import msgspec

from perdure.kernel.failure import Failure


class SignalSent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Somebody sent the run a signal; one that has a `due_at` is not received before that time is over."""

    name: str
    payload: msgspec.Raw
    due_at: int | None = None


class DeferredResult(msgspec.Struct, frozen=True, gc=False):
    """The value of a deferred, which has only one."""

    name: str
    value: msgspec.Raw


class DeferredFailure(msgspec.Struct, frozen=True, gc=False):
    """The error that a deferred has instead of a value."""

    name: str
    error: str


class RequestSent(msgspec.Struct, frozen=True, gc=False):
    """Somebody asks the run something, and waits for its answer."""

    name: str
    value: msgspec.Raw


class ChildResult(msgspec.Struct, frozen=True, gc=False):
    """A child run returned; its parent's call stands at this place."""

    place: str
    workflow: str
    child_id: str
    run_id: str
    result: msgspec.Raw


class ChildFailure(msgspec.Struct, frozen=True, gc=False):
    """A child run ended without a result."""

    place: str
    workflow: str
    child_id: str
    run_id: str
    failure: Failure


class CancelRequest(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Stop, and clean up; after `close_at` there is no more waiting for that."""

    reason: str | None = None
    close_at: int | None = None


class TerminateRequest(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Stop at once."""

    reason: str | None = None


class PauseRequest(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Begin nothing more, and be held once what is under way has ended."""

    reason: str | None = None


class ResumeRequest(msgspec.Struct, frozen=True, gc=False):
    """Go on: what asked the run to pause, and has not been done yet, is taken back."""


# What callers send to runs, and code waits for by its name.
Sent: TypeAlias = SignalSent | DeferredResult | DeferredFailure | RequestSent
Body: TypeAlias = Sent | ChildResult | ChildFailure | CancelRequest | TerminateRequest | PauseRequest | ResumeRequest


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message in an inbox. `number` rises with every message of the database."""

    number: int
    message_id: str
    body: Body
    at: int


KINDS: dict[str, type[Body]] = {
    kind.__name__: kind
    for kind in (
        SignalSent,
        DeferredResult,
        DeferredFailure,
        RequestSent,
        ChildResult,
        ChildFailure,
        CancelRequest,
        TerminateRequest,
        PauseRequest,
        ResumeRequest,
    )
}
