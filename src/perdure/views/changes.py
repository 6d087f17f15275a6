"""Runs as they change, as people and programs outside see them.

In:   the engine, a filter, the cursor of the last change that was seen.
Out:  every run that matches, then each one that changes.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from perdure.engine.ports import Engine, RunChange
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


class ChangesByText(Protocol):
    """Runs that match the text of a filter, as they change, where the server reads that."""

    def changes(
        self, namespace: str, where: str, params: Mapping[str, object] | None, after: str | None
    ) -> AsyncGenerator[Change, None]: ...


@runtime_checkable
class HasChangesByText(Protocol):
    """An engine over a server."""

    @property
    def changes_by_text(self) -> ChangesByText: ...


async def changes_of(
    engine: Engine, namespace: str, where: str, params: Mapping[str, object] | None, after: str | None
) -> AsyncGenerator[Change, None]:
    """Runs that match a filter, as they change. BadFilter, CursorExpired."""
    if isinstance(engine, HasChangesByText):
        async with aclosing(engine.changes_by_text.changes(namespace, where, params, after)) as told:
            async for change in told:
                yield change
        return
    wanted = meant_by(where, params, engine.clock.now())
    async with aclosing(engine.subscriptions.changes(namespace, wanted, after)) as changes:
        async for found in changes:
            if (seen := await change_view(engine, found)) is not None:
                yield seen


async def change_view(engine: Engine, change: RunChange) -> Change | None:
    """A change as people see it; None for a run that cannot be shown, of which doctor and audit tell."""
    try:
        return Change(await run_view(engine, change.row, is_listed=True), change.cursor, change.left)
    except RunUnreadable:
        return None
