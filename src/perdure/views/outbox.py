"""Sinks and dead letters, as people and programs outside see them."""

from dataclasses import dataclass
from datetime import datetime

from perdure.engine.outbox.sinks import Target
from perdure.engine.ports.outbox import SinkState, Undelivered
from perdure.kernel.outbox import OutboxEvent
from perdure.kernel.schedules import as_moment
from perdure.views.run import View


@dataclass(frozen=True, slots=True)
class SinkInfo(View):
    """A sink as it stands; `state` is active, paused, down or behind, `error` what was wrong at last.

    `backlog` events wait, the oldest of which is of `oldest`; `dead` were given up.
    """

    name: str
    target: Target
    events: tuple[str, ...]
    workflows: tuple[str, ...] | None
    include_values: bool
    max_attempts: int
    concurrency: int
    max_backlog: int
    created_at: datetime
    state: str
    reason: str | None
    error: str | None
    backlog: int
    oldest: datetime | None
    delivered: int
    dead: int


@dataclass(frozen=True, slots=True)
class DeadLetter(View):
    """An event that a sink did not take, however often it was tried."""

    id: str
    event: OutboxEvent
    attempts: int
    error: str | None
    died_at: datetime


def sink_view(found: SinkState) -> SinkInfo:
    row, sink, backlog = found
    states = {"paused": sink.paused, "down": sink.down_at is not None, "behind": row.behind_at is not None}
    return SinkInfo(
        name=row.name,
        target=sink.target,
        events=sink.events,
        workflows=sink.workflows,
        include_values=sink.include_values,
        max_attempts=sink.max_attempts,
        concurrency=sink.concurrency,
        max_backlog=sink.max_backlog,
        created_at=as_moment(sink.created_at),
        state=next((name for name, is_so in states.items() if is_so), "active"),
        reason=sink.reason,
        error=sink.error,
        backlog=backlog.waiting,
        oldest=None if backlog.oldest is None else as_moment(backlog.oldest),
        delivered=row.delivered,
        dead=backlog.dead,
    )


def letter_view(found: Undelivered) -> DeadLetter:
    return DeadLetter(found.event.id, found.event, found.attempts, found.error, as_moment(found.died_at))
