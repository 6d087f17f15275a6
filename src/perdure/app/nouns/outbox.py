"""The sinks of a namespace: what `app.outbox` offers; and those that come with code.

In:   names, targets, which events.
Out:  sinks as people see them, and what they did not take.
"""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

from perdure.app.open_apps import Home
from perdure.authoring.options import checked_reason
from perdure.authoring.sinks import DecoratedSink
from perdure.engine.outbox.rows import checked_sink, names
from perdure.engine.outbox.sinks import Log, Sink, Webhook
from perdure.engine.ports import Engine
from perdure.errors import BadSink, PerdureError, SinkNotFound
from perdure.ids import checked_id
from perdure.views.outbox import DeadLetter, SinkInfo, letters_of, sinks_of

log = logging.getLogger("perdure.engine")


class SinkChanges(TypedDict, total=False):
    """What `update` can change of a sink."""

    target: Webhook | Log
    events: Sequence[str]
    workflows: Sequence[str] | None
    include_values: bool
    max_attempts: int
    concurrency: int
    max_backlog: int


class Outbox:
    """The sinks of a namespace: who is told of changes, at least once each, and in order for each run."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def add(
        self,
        name: str,
        target: Webhook | Log,
        *,
        events: Sequence[str],
        workflows: Sequence[str] | None = None,
        include_values: bool = False,
        max_attempts: int = 10,
        concurrency: int = 8,
        max_backlog: int = 100_000,
    ) -> SinkInfo:
        """Make a sink: `add("crm", Webhook("https://crm.example/hook", secret="env:CRM_SECRET"), events=("run.*",))`.

        When this returns, nothing that changes is missed. SinkExists; SinkNotReady names transactions that were open
        when the sink was made, and still are after ten seconds: what they change may be missing.
        """
        if not isinstance(target, Webhook | Log):
            raise BadSink(f"{target!r} is no sink; give a Webhook(...) or Log(), and decorate functions with @sink")
        given = (names("events", events), None if workflows is None else names("workflows", workflows))
        sink = checked_sink(Sink(target, *given, include_values, max_attempts, concurrency, max_backlog))
        await self._home.engine.outbox.add(self._home.namespace, checked_id("sink name", name), sink)
        return await self.get(name)

    async def update(self, name: str, **changes: Unpack[SinkChanges]) -> SinkInfo:
        """Change what is given, such as `target=` with another secret; what waits already is sent there, too."""
        known = SinkChanges.__annotations__
        if unknown := [field for field in changes if field not in known]:
            raise BadSink(f"a sink has no {unknown[0]!r}; update() changes {', '.join(known)}")
        if not changes:
            raise BadSink(f"update() changes what is given, and nothing is; give one of {', '.join(known)}")
        given: dict[str, Any] = dict(changes)
        for field in ("events", "workflows"):
            if given.get(field) is not None:
                given[field] = names(field, given[field])
        if "target" in given and not isinstance(given["target"], Webhook | Log):
            raise BadSink(f"{given['target']!r} is no Webhook(...) or Log()")
        await self._home.engine.outbox.update(self._home.namespace, name, given)
        return await self.get(name)

    async def pause(self, name: str, reason: str | None = None) -> None:
        """Send it nothing until it is resumed; what it is to be told is kept."""
        changes = {"paused": True, "reason": checked_reason(reason)}
        await self._home.engine.outbox.update(self._home.namespace, name, changes)

    async def resume(self, name: str) -> None:
        """Send it what waits."""
        await self._home.engine.outbox.update(self._home.namespace, name, {"paused": False, "reason": None})

    async def remove(self, name: str) -> bool:
        """Forget a sink and all that waits for it; answers whether there was one."""
        return await self._home.engine.outbox.remove(self._home.namespace, name)

    async def test(self, name: str) -> None:
        """Send it an event of the type outbox.test from this process, now; SinkFailed."""
        await self._home.engine.outbox.test(self._home.namespace, name)

    async def dead_letters(self, name: str, limit: int = 100) -> "list[DeadLetter]":
        """The events that it did not take, the oldest first."""
        return await letters_of(self._home.engine, self._home.namespace, name, limit)

    async def replay(self, name: str, ids: Sequence[str] | None = None) -> int:
        """Deliver its dead letters after all, all or those of these ids; answers how many."""
        wanted = None if ids is None else names("ids", ids)
        return await self._home.engine.outbox.replay(self._home.namespace, name, wanted)

    async def resend(self, name: str, since: datetime, until: datetime | None = None) -> int:
        """Send it the events of a time once more, made from histories, with the ids they had; answers how many.

        What histories do not hold is left out: run.suspended, run.held and schedule.skipped.
        """
        first = _ms("since", since)
        last = self._home.engine.clock.now() if until is None else _ms("until", until)
        return await self._home.engine.outbox.resend(self._home.namespace, name, first, last)

    async def get(self, name: str) -> SinkInfo:
        """One of them; SinkNotFound."""
        for found in await self.list():
            if found.name == name:
                return found
        raise SinkNotFound(name, self._home.namespace)

    async def list(self) -> "list[SinkInfo]":
        """All of them, by name."""
        return await sinks_of(self._home.engine, self._home.namespace)


def _ms(what: str, given: object) -> int:
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise BadSink(f"{what} is {given!r}; give a datetime with a time zone")
    return round(given.timestamp() * 1000)


async def reconcile_sinks(engine: Engine, namespace: str, known: Iterable[DecoratedSink]) -> None:
    """Make the sinks of this code; what is in the way is told, and harms nobody else."""
    declared = {each.name: each.sink for each in known}
    if not declared:
        return
    try:
        await engine.outbox.reconcile(namespace, declared)
    except PerdureError as error:
        text = "the sinks that come with the code could not be written, the next start tries again: %s"
        log.warning(text, error, extra={"event": "reconcile_failed"})
