"""Runs as they change, as people and programs outside see them.

In:   the engine, a filter, the cursor of the last change that was seen.
Out:  every run that matches, then each one that changes.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from perdure.engine.ports import Engine
from perdure.errors import RunUnreadable
from perdure.views.finding import meant_by
from perdure.views.run import RunInfo, View, run_view


@dataclass(frozen=True, slots=True)
class Change(View):
    """A run as it stands, of which something has changed; `left` says that it matches the filter no longer.

    `subscribe(after=cursor)` goes on after this change, in any process.
    """

    run: RunInfo
    cursor: str
    left: bool


async def changes_of(
    engine: Engine, namespace: str, where: str, params: Mapping[str, object] | None, after: str | None
) -> AsyncGenerator[Change, None]:
    """Runs that match a filter, as they change. BadFilter, CursorExpired."""
    wanted = meant_by(where, params, engine.clock.now())
    async with aclosing(engine.subscriptions.changes(namespace, wanted, after)) as changes:
        async for row, cursor, left in changes:
            try:
                info = await run_view(engine, row, is_listed=True)
            except RunUnreadable:
                # Its fields could be compared, and the rest of it cannot be shown; doctor and audit tell of it.
                continue
            yield Change(info, cursor, left)
