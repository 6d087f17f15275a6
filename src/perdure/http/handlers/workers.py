"""Who works: workers, their queues, what one of them does for all; and runs that nobody works."""

from typing import Any

import msgspec

from perdure.authoring.options import milliseconds
from perdure.diagnostics.stuck import stuck_page
from perdure.errors import BadOption, NotAllowed
from perdure.http.calls import Call
from perdure.http.handlers.runs import RunPage
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.http.values import run_json
from perdure.views.schedules import DutyInfo, duty_views
from perdure.views.workers import QueueInfo, WorkerInfo, queue_views, worker_views

ROWS = RouteRows()


class WorkerPage(msgspec.Struct, frozen=True):
    items: list[WorkerInfo]


class QueuePage(msgspec.Struct, frozen=True):
    items: list[QueueInfo]


class DutyPage(msgspec.Struct, frozen=True):
    items: list[DutyInfo]


class StuckQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Runs that have not moved for `idle` seconds; `after` takes the cursor of the page before."""

    idle: float = 60.0
    limit: int = 100
    after: str | None = None


def refuse_entities(call: Call[Any, Any]) -> None:
    """What is no run belongs to no entity, so that a key of one has nothing to see there."""
    if call.caller.entity_id is not None:
        raise NotAllowed(f"the key {call.caller.label!r} is one of an entity, which has no workers", "use another key")


@ROWS.add("GET", "/v1/workers", Scope.READ, answer=WorkerPage)
async def list_workers(call: Call[NoQuery, None]) -> WorkerPage:
    """The workers of a namespace: where they run, what they work, and how they are."""
    refuse_entities(call)
    return WorkerPage(await worker_views(call.engine, call.namespace))


@ROWS.add("GET", "/v1/queues", Scope.READ, answer=QueuePage)
async def list_queues(call: Call[NoQuery, None]) -> QueuePage:
    """The queues that workers work or open runs are on: runs by status, and living workers."""
    return QueuePage(await queue_views(call.engine, call.namespace, call.caller.entity_id))


@ROWS.add("GET", "/v1/duties", Scope.READ, answer=DutyPage)
async def list_duties(call: Call[NoQuery, None]) -> DutyPage:
    """What one worker of the namespace does for all, who has it, and how it went."""
    refuse_entities(call)
    return DutyPage(await duty_views(call.engine, call.namespace))


@ROWS.add("GET", "/v1/stuck", Scope.READ, query=StuckQuery, answer=RunPage, errors=(BadOption,))
async def list_stuck(call: Call[StuckQuery, None]) -> dict[str, object]:
    """Runs that should move and have not for so long, newest first: nobody has their code, or their worker is gone."""
    idle_ms = milliseconds(call.query.idle, "idle")
    page = await stuck_page(call.engine, call.namespace, idle_ms, call.query.after, call.query.limit)
    own = [info for info in page if call.caller.entity_id in {None, info.entity_id}]
    return {"items": [run_json(info) for info in own], "cursor": page.cursor}
