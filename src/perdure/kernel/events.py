"""Events: the facts of a run's history, numbered 1..n without gaps, never changed.

An event is a fact with its number, its time and its place. The place names the
durable call that the fact answers; the first and the last fact have none, they
are about the run itself and live in the run's own row.
"""

from typing import TypeAlias

import msgspec

from perdure.kernel.failure import Failure

Raw = msgspec.Raw


class RunStarted(msgspec.Struct, frozen=True, gc=False):
    """Always number 1."""

    workflow: str
    input: Raw
    seed: int


class ActivityCompleted(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An activity returned; its attempts before that are not history."""

    name: str
    arguments: Raw
    result: Raw
    started_at: int
    attempts: int = 1


class ActivityFailed(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An activity failed for good: its attempts are spent, or the error is not worth retrying."""

    name: str
    arguments: Raw
    failure: Failure
    started_at: int
    attempts: int = 1


class ValueRecorded(msgspec.Struct, frozen=True, gc=False):
    """A side effect's value, null too."""

    value: Raw


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """A timer's time had come; never before `fire_at`."""

    fire_at: int


class SignalReceived(msgspec.Struct, frozen=True, gc=False):
    """The workflow took this message out of its inbox."""

    name: str
    payload: Raw
    message_id: str


class DeferredResolved(msgspec.Struct, frozen=True, gc=False):
    """A deferred that the workflow waits for has its value; every wait for it gets this one."""

    name: str
    value: Raw


class DeferredFailed(msgspec.Struct, frozen=True, gc=False):
    """A deferred that the workflow waits for has an error instead of a value."""

    name: str
    error: str


class RequestReceived(msgspec.Struct, frozen=True, gc=False):
    """The workflow took this request out of its inbox; its answer is no event."""

    name: str
    value: Raw
    message_id: str


class ResultGiven(msgspec.Struct, frozen=True, gc=False):
    """A person gave the call at this place its result by hand, when the run was forked from another one."""

    value: Raw


class ChildCompleted(msgspec.Struct, frozen=True, gc=False):
    """A child run returned."""

    workflow: str
    child_id: str
    run_id: str
    result: Raw


class ChildFailed(msgspec.Struct, frozen=True, gc=False):
    """A child run ended without a result: it failed, was cancelled or terminated, or took too long."""

    workflow: str
    child_id: str
    run_id: str
    failure: Failure


class CancelRequested(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Somebody asked the run to stop; its code is told where it waits."""

    reason: str | None = None
    close_at: int | None = None


class TimeoutReached(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The run took longer than its timeout and has undos to do: its code is told where it waits, then they are done."""

    reason: str | None = None


class Patched(msgspec.Struct, frozen=True, gc=False):
    """The code asked about this change when it first came by, and took the new way."""

    change_id: str


class RunCompleted(msgspec.Struct, frozen=True, gc=False):
    """The workflow returned."""

    result: Raw


class RunFailed(msgspec.Struct, frozen=True, gc=False):
    """The workflow raised."""

    failure: Failure


class RunCancelled(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The run was cancelled, with its clean-up done or its time over; `notes` tell what could not be undone."""

    reason: str | None = None
    notes: tuple[str, ...] = ()


class RunTerminated(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The run was stopped from outside, without clean-up."""

    reason: str | None = None


class RunTimedOut(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The run took longer than its timeout; `notes` tell what could not be undone."""

    reason: str | None = None
    notes: tuple[str, ...] = ()


class RunContinued(msgspec.Struct, frozen=True, gc=False):
    """The workflow goes on in another run under the same id."""

    run_id: str


Answer: TypeAlias = (
    ActivityCompleted
    | ActivityFailed
    | ValueRecorded
    | TimerFired
    | SignalReceived
    | DeferredResolved
    | DeferredFailed
    | RequestReceived
    | ChildCompleted
    | ChildFailed
    | ResultGiven
)
Note: TypeAlias = CancelRequested | TimeoutReached | Patched
Closing: TypeAlias = RunCompleted | RunFailed | RunCancelled | RunTerminated | RunTimedOut | RunContinued
CLOSINGS = frozenset({RunCompleted, RunFailed, RunCancelled, RunTerminated, RunTimedOut, RunContinued})
Fact: TypeAlias = RunStarted | Answer | Note | Closing


class Event(msgspec.Struct, frozen=True, gc=False):
    """A fact with its number, its time and its place."""

    seq: int
    at: int
    place: str
    fact: Fact

    @property
    def kind(self) -> str:
        return type(self.fact).__name__


FACTS: dict[str, type[Fact]] = {
    kind.__name__: kind
    for kind in (
        RunStarted,
        ActivityCompleted,
        ActivityFailed,
        ValueRecorded,
        TimerFired,
        SignalReceived,
        DeferredResolved,
        DeferredFailed,
        RequestReceived,
        ChildCompleted,
        ChildFailed,
        ResultGiven,
        CancelRequested,
        TimeoutReached,
        Patched,
        RunCompleted,
        RunFailed,
        RunCancelled,
        RunTerminated,
        RunTimedOut,
        RunContinued,
    )
}
