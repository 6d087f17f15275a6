"""Who works, and on which queues: what `app.workers` and `app.queues` offer."""

from perdure.app.open_apps import Home
from perdure.views.workers import QueueInfo, WorkerInfo, queue_views, worker_views


class Workers:
    """The workers of a namespace."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def list(self) -> list[WorkerInfo]:
        """Where they run, what they work, and how they are."""
        return await worker_views(self._home.engine, self._home.namespace)


class Queues:
    """The queues of a namespace."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def list(self) -> list[QueueInfo]:
        """Those that workers work or open runs are on: runs by status, and living workers."""
        return await queue_views(self._home.engine, self._home.namespace)
