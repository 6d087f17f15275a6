"""`@sink`: a function that is told of changes, at least once each, in order for each run."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from perdure.authoring.function import checked_function
from perdure.authoring.registry import Registry
from perdure.engine.outbox.rows import checked_sink, names
from perdure.engine.outbox.sinks import Sink, SinkFunction
from perdure.errors import BadSink
from perdure.kernel.outbox import OutboxEvent

SinkCode: TypeAlias = Callable[[OutboxEvent], Awaitable[None] | None]


class DecoratedSink:
    """A function that is a sink, under its name; calling it calls the function."""

    def __init__(self, fn: SinkCode, name: str, sink: Sink) -> None:
        self.fn = fn
        self.name = name
        self.sink = sink
        self.is_async = inspect.iscoroutinefunction(fn)
        self.origin = f"{fn.__module__}.{fn.__qualname__}"
        self.__name__, self.__doc__, self.__module__ = fn.__name__, fn.__doc__, fn.__module__

    def __call__(self, event: OutboxEvent) -> Awaitable[None] | None:
        return self.fn(event)

    def __repr__(self) -> str:
        return f"<sink {self.name}>"


sinks: Registry[DecoratedSink] = Registry("sink")


def known_sinks() -> list[DecoratedSink]:
    """Those of this process."""
    return [found for name in sinks.names() if (found := sinks.get(name)) is not None]


def sink(
    *,
    events: Sequence[str],
    workflows: Sequence[str] | None = None,
    name: str | None = None,
    include_values: bool = False,
    max_attempts: int = 10,
    concurrency: int = 8,
    max_backlog: int = 100_000,
) -> Callable[[SinkCode], DecoratedSink]:
    """Make a function a sink: any worker that has it is told of these events; an error is tried again.

    The sink is made when such a worker opens, and stays until `app.outbox.remove`. A plain `def` runs in a thread.
    """
    wanted = Sink(
        SinkFunction(),
        names("events", events),
        None if workflows is None else names("workflows", workflows),
        include_values,
        max_attempts,
        concurrency,
        max_backlog,
    )
    checked = checked_sink(wanted)

    def decorate(fn: SinkCode) -> DecoratedSink:
        plain = checked_function(fn, "sink")
        if len(inspect.signature(plain).parameters) != 1:
            raise BadSink(f"the sink {plain.__name__!r} takes one argument, the event")
        decorated = DecoratedSink(plain, name or plain.__name__, checked)
        sinks.add(decorated)
        return decorated

    return decorate
