"""Rows of runs that are not this worker's, as far as starting a child under their id needs them."""

from typing import NoReturn

import msgspec

from perdure.engine.hindrances import Served
from perdure.errors import BadOption
from perdure.http.remote.views import RemoteViews
from perdure.kernel.schedules import as_ms
from perdure.stores.records import RunRow
from perdure.views.timeline import WantedEvents


class NotOffered:
    """A part of an engine of which a server gives only some."""

    def __getattr__(self, verb: str) -> NoReturn:
        if verb.startswith("_"):
            raise AttributeError(verb)
        raise BadOption("a server does not give this; open a Perdure on the URL of the database itself")


class HolderRows(NotOffered):
    """Reads runs from a server; of the Reader of an engine what a worker needs."""

    def __init__(self, views: RemoteViews) -> None:
        self._views = views

    async def read(self, namespace: str, run_id: str) -> RunRow:
        """A run's row; RunNotFound."""
        info = await self._views.describe(namespace, run_id)
        text = "null"
        async for event in self._views.events(namespace, run_id, WantedEvents(limit=1)):
            text = msgspec.json.encode(event.body.get("input")).decode()
        return RunRow(
            info.run_id,
            info.namespace,
            info.workflow_id,
            info.workflow,
            info.queue,
            info.status.value,
            info.held,
            info.held_report,
            None,
            None,
            None,
            0,
            info.priority,
            info.entity_id,
            info.correlation_id,
            None,
            info.step,
            text,
            None,
            0,
            None,
            as_ms(info.created_at),
            as_ms(info.updated_at),
            None if info.closed_at is None else as_ms(info.closed_at),
            parent_id=info.parent_id,
            continued_from=info.continued_from,
            forked_from=info.forked_from,
        )

    async def first(self, row: RunRow) -> RunRow:
        """The run itself, or the first of those that it continues."""
        while row.continued_from is not None:
            row = await self.read(row.namespace, row.continued_from)
        return row

    async def held_counts(self, namespace: str) -> dict[str, int]:
        """Those who run the server are told how many runs are held."""
        return {}

    async def serving(self, namespace: str) -> Served:
        """What living workers have code for is known to the server."""
        return {}
