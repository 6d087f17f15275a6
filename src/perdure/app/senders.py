"""EventSenders: how this process sends events to a sink: to a function of its code, to the log, or by a webhook."""

import asyncio
import logging
from typing import cast

from perdure.authoring.sinks import DecoratedSink, sinks
from perdure.engine.outbox.sinks import EventSender, Log, SinkFunction, Target, Webhook
from perdure.kernel.outbox import OutboxEvent
from perdure.threads import Threads

log = logging.getLogger("perdure.events")

# A function that takes longer than this has failed.
LONGEST_SECONDS = 60


def sender_of(name: str, target: Target) -> EventSender | None:
    """A sender for a sink; None when this process has no code for it."""
    match target:
        case Log():
            return LogSender()
        case SinkFunction():
            code = sinks.get(name)
            return None if code is None else FunctionSender(code)
        case Webhook():
            from perdure.http.webhooks import WebhookSender  # noqa: PLC0415 - what it sends with is an extra

            return WebhookSender(target)


class LogSender:
    """Writes a line for each event."""

    is_instant = True

    async def send(self, event: OutboxEvent) -> None:
        """Log it, with all it says as fields."""
        log.info("%s %s", event.type, event.workflow_id or "", extra={"event": event.type, "outbox_event": event})

    async def close(self) -> None:
        """There is nothing to let go of."""


class FunctionSender:
    """Calls a function; a plain one in a thread."""

    is_instant = False

    def __init__(self, code: DecoratedSink) -> None:
        self._code = code
        self._threads: Threads | None = None

    async def send(self, event: OutboxEvent) -> None:
        """Call it; what it raises is the failure."""
        async with asyncio.timeout(LONGEST_SECONDS):
            if self._code.is_async:
                await cast("asyncio.Future[None]", self._code.fn(event))
                return
            if self._threads is None:
                self._threads = Threads(self._code.sink.concurrency, f"perdure-sink-{self._code.name}")
            await self._threads.run(lambda: self._code.fn(event))

    async def close(self) -> None:
        """Let threads end."""
        if self._threads is not None:
            self._threads.close()
