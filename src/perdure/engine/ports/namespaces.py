"""Which namespaces there are, and what is in them."""

from typing import NamedTuple, Protocol

from perdure.stores.records import NamespaceRow


class NamespaceContent(NamedTuple):
    """A namespace, its runs by status, the queues of its open runs and its workers, and how many workers live."""

    row: NamespaceRow
    runs: dict[str, int]
    queues: tuple[str, ...]
    workers: int


class NamespaceRegistry(Protocol):
    """What can be asked of namespaces."""

    async def create(self, name: str) -> NamespaceRow:
        """Make a namespace; NamespaceExists."""

    async def all(self) -> list[NamespaceRow]:
        """All of them, by name."""

    async def find(self, name: str) -> NamespaceRow:
        """The namespace of this name; NamespaceNotFound, with the nearest."""

    async def look(self, name: str) -> NamespaceContent:
        """One of them and what is in it; of a status 10,001 runs are counted at most. NamespaceNotFound."""

    async def delete(self, name: str) -> None:
        """Forget a namespace that nothing is left in; NamespaceNotFound, NamespaceNotEmpty."""
