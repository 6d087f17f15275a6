"""Sinks and dead letters, as people and programs outside see them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from perdure.engine.outbox.sinks import Target, shown
from perdure.engine.ports import Engine
from perdure.engine.ports.outbox import SinkState, Undelivered
from perdure.kernel.outbox import OutboxEvent
from perdure.kernel.schedules import as_moment
from perdure.views.run import View


@dataclass(frozen=True, slots=True)
class SinkInfo(View):
    """A sink as it stands, without its secret; `state` is active, paused, down or behind.

    `error` is what was wrong at last. `backlog` events wait, the oldest of which is of `oldest`; `dead` were given up.
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
        target=shown(sink.target),
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


class SinkViews(Protocol):
    """Sinks as a server shows them."""

    async def every(self, namespace: str) -> list[SinkInfo]: ...

    async def letters(self, namespace: str, name: str, limit: int) -> list[DeadLetter]: ...


@runtime_checkable
class HasSinkViews(Protocol):
    """An engine over a server."""

    @property
    def sink_views(self) -> SinkViews: ...


async def sinks_of(engine: Engine, namespace: str) -> list[SinkInfo]:
    """All of them, by name."""
    if isinstance(engine, HasSinkViews):
        return await engine.sink_views.every(namespace)
    return [sink_view(found) for found in await engine.outbox.all(namespace)]


async def letters_of(engine: Engine, namespace: str, name: str, limit: int) -> list[DeadLetter]:
    """What one of them did not take, the oldest first; SinkNotFound."""
    if isinstance(engine, HasSinkViews):
        return await engine.sink_views.letters(namespace, name, limit)
    return [letter_view(each) for each in await engine.outbox.dead_letters(namespace, name, limit)]
