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


class Subscriptions(Protocol):
    """Runs as they change."""

    def changes(self, namespace: str, filter: Filter, after: str | None) -> AsyncGenerator[RunChange, None]:
        """Every run that matches now, then each one that changes, for ever; after a cursor, what came since."""
