"""The namespaces of a database: what `app.namespaces` offers."""

from perdure.app.open_apps import Home
from perdure.ids import checked_id
from perdure.views.namespaces import NamespaceDetail, NamespaceInfo, content_view, namespace_view


class Namespaces:
    """The namespaces of a database; `main` is always there.

    Runs, ids, queues and workers of one know nothing of those of another. A worker that opens on a new name makes it.
    """

    def __init__(self, home: Home) -> None:
        self._home = home

    async def create(self, name: str) -> NamespaceInfo:
        """Make a namespace; NamespaceExists when there is one of this name."""
        return namespace_view(await self._home.engine.namespaces.create(checked_id("namespace", name)))

    async def list(self) -> list[NamespaceInfo]:
        """All namespaces, by name."""
        return [namespace_view(row) for row in await self._home.engine.namespaces.all()]

    async def get(self, name: str) -> NamespaceDetail:
        """What is in a namespace: runs by status, queues, workers; NamespaceNotFound."""
        return content_view(await self._home.engine.namespaces.look(checked_id("namespace", name)))

    async def delete(self, name: str) -> None:
        """Delete a namespace that nothing is left in; NamespaceNotEmpty says what is."""
        await self._home.engine.namespaces.delete(checked_id("namespace", name))
