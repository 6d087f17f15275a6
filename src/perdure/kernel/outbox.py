"""Events out: which there are, which a sink gets, and what becomes of one that could not be delivered.

In:   types and patterns; the attempts of an event, and which others failed.
Out:  the types that are meant; when to try again, or that it is a dead letter; whether a sink is down.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from perdure.errors import BadSink
from perdure.kernel.status import Status
from perdure.kernel.traits import TASK_PREFIX

STARTED, SUSPENDED, HELD = "run.started", "run.suspended", "run.held"
STEP_COMPLETED, STEP_FAILED = "step.completed", "step.failed"
SKIPPED = "schedule.skipped"
# How a run ended, by its last status.
ENDED = {
    Status.COMPLETED: "run.completed",
    Status.FAILED: "run.failed",
    Status.CANCELLED: "run.cancelled",
    Status.TERMINATED: "run.terminated",
    Status.TIMED_OUT: "run.timed_out",
    Status.CONTINUED: "run.continued",
}
# The steps of a run, by the kind of their events.
STEPS = {"ActivityCompleted": STEP_COMPLETED, "ActivityFailed": STEP_FAILED}
# An activity on a queue is a child of the run, and a step of it all the same: its events begin so.
TASK_STEPS = {"ChildCompleted": STEP_COMPLETED, "ChildFailed": STEP_FAILED}
TASK_BODY = f'{{"workflow":"{TASK_PREFIX}'
TYPES = (STARTED, SUSPENDED, HELD, *ENDED.values(), *STEPS.values(), SKIPPED)
# What a sink wants is a number, in which each type has its bit.
BITS = {type: 1 << place for place, type in enumerate(TYPES)}
STEP_BITS = BITS[STEP_COMPLETED] | BITS[STEP_FAILED]
# What a sink is told of itself: that events are missing, and that somebody tries it.
GAP, TEST = "outbox.gap", "outbox.test"
# What is meant by a pattern; runs are suspended too often to be meant with the others.
PATTERNS = {
    "run.*": tuple(type for type in TYPES if type.startswith("run.") and type != SUSPENDED),
    "step.*": tuple(STEPS.values()),
    "schedule.*": (SKIPPED,),
}

FIRST_RETRY_MS = 1000
LONGEST_RETRY_MS = 24 * 3600 * 1000
# So many different events that failed, and none that was delivered since, make a sink down; then it is tried so often.
DOWN_AFTER = 5
LONGEST_PROBE_MS = 60_000


class OutboxEvent(msgspec.Struct, frozen=True):
    """A change that a sink is told of; `id` is the same however often it is told, `number` rises per run."""

    id: str
    type: str
    at: datetime
    namespace: str
    run_id: str | None
    workflow_id: str | None
    workflow: str | None
    number: int
    data: dict[str, object]


def types_of(events: Iterable[str]) -> int:
    """The types that names and patterns mean, as bits; BadSink."""
    bits = 0
    for event in events:
        for type in PATTERNS.get(event, (event,)):
            if type not in BITS:
                known = ", ".join((*PATTERNS, *TYPES))
                raise BadSink(f"there is no event {event!r}; there are {known}")
            bits |= BITS[type]
    return bits


def event_id(run_id: str, type: str, number: int, at: int) -> str:
    """The id of an event: from where it stands in a history, if it is in one, so that it is the same when made anew.

    What is in none has its time as well, for its number does not always rise.
    """
    if type in {SUSPENDED, HELD, SKIPPED, GAP}:
        return f"{run_id or 'sink'}:{number}:{type.partition('.')[2]}:{at}"
    return f"{run_id}:{number}"


def pause_ms(failures: int) -> int:
    """The pause after the first failure and so many more, each four times as long."""
    return FIRST_RETRY_MS << (2 * min(failures, 20))


def retry_at(attempts: int, most: int, now: int, asked_ms: int = 0) -> int | None:
    """When to try again after so many attempts; None when they are spent. A receiver may ask for a longer pause."""
    if attempts >= most:
        return None
    return now + min(max(pause_ms(attempts - 1), asked_ms), LONGEST_RETRY_MS)


class SinkHealth(msgspec.Struct, frozen=True):
    """How a sink does: which events failed since the last one was delivered, and since when it is down."""

    failed: frozenset[int] = frozenset()
    down_at: int | None = None
    probes: int = 0

    def succeeded(self) -> "SinkHealth":
        """One was delivered."""
        return UP

    def failed_with(self, number: int, now: int) -> "SinkHealth":
        """One could not be delivered."""
        failed = self.failed | {number}
        if self.down_at is not None:
            return SinkHealth(failed, self.down_at, self.probes + 1)
        return SinkHealth(failed, now if len(failed) >= DOWN_AFTER else None)

    def probe_at(self, now: int) -> int:
        """When one that is down is tried next."""
        return now + min(pause_ms(self.probes), LONGEST_PROBE_MS)


UP = SinkHealth()
