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


class RunCompleted(msgspec.Struct, frozen=True, gc=False):
    """The workflow returned."""

    result: Raw


class RunFailed(msgspec.Struct, frozen=True, gc=False):
    """The workflow raised."""

    failure: Failure


Answer: TypeAlias = ActivityCompleted | ActivityFailed | ValueRecorded | TimerFired | SignalReceived
Closing: TypeAlias = RunCompleted | RunFailed
CLOSINGS = frozenset({RunCompleted, RunFailed})
Fact: TypeAlias = RunStarted | Answer | Closing


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
        RunCompleted,
        RunFailed,
    )
}
