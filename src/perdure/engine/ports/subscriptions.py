"""Runs as they change."""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

from perdure.kernel.filters import Filter
from perdure.stores.records import RunRow


class RunChange(NamedTuple):
    """A run as it stands; `left` says that it matches no longer, and `cursor` leads to what comes after."""

    row: RunRow
    cursor: str
    left: bool


class Subscription(Protocol):
    """Somebody who follows runs, until it is closed; `cursor` goes on after all that it was told."""

    @property
    def cursor(self) -> str: ...

    async def next(self) -> RunChange:
        """The next change, once there is one."""

    def close(self) -> None:
        """Follow no longer."""


class Subscriptions(Protocol):
    """Runs as they change."""

    def changes(self, namespace: str, filter: Filter, after: str | None) -> AsyncGenerator[RunChange, None]:
        """Every run that matches now, then each one that changes, for ever; after a cursor, what came since."""

    async def follow(self, namespace: str, filter: Filter, after: str | None) -> Subscription:
        """The same, begun when this returns; CursorExpired."""
