"""Workers and queues, as people and programs outside see them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from perdure.engine.ports import Engine, Liveness, WorkerLife
from perdure.kernel.filters import Filter, all_of
from perdure.kernel.filters.syntax import Compare, Field, In, TextValue
from perdure.kernel.status import OPEN, Status
from perdure.stores.records import RunQuery
from perdure.views.run import View, moment


@dataclass(frozen=True, slots=True)
class WorkerInfo(View):
    """A worker: where it runs, what it works, and whether it is `alive`, `stalled` or `dead`.

    `workflows` is what it has code for; None when it has not said so yet.
    """

    worker_id: str
    liveness: str
    host: str
    pid: int
    queues: tuple[str, ...]
    workflows: tuple[str, ...] | None
    started_at: datetime
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class WorkerStats(View):
    """What the worker of a process has done since it was opened.

    `claimed` runs it took from others or found free, `closed` ended here, `steps` are the events that it recorded,
    `replays` the runs that were brought back from their histories; `live` are in memory now.
    """

    worker_id: str
    started_at: datetime
    claimed: int
    closed: int
    steps: int
    replays: int
    live: int
    is_stopping: bool


@dataclass(frozen=True, slots=True)
class QueueInfo(View):
    """A queue: how many of its open runs are in each status, and how many living workers work it."""

    name: str
    workers: int
    runs: dict[str, int] = field(default_factory=dict)


class WorkerViews(Protocol):
    """Workers and queues as a server shows them."""

    async def workers(self, namespace: str) -> list[WorkerInfo]: ...

    async def queues(self, namespace: str) -> list[QueueInfo]: ...


@runtime_checkable
class HasWorkerViews(Protocol):
    """An engine over a server."""

    @property
    def worker_views(self) -> WorkerViews: ...


def _names(text: str | None) -> tuple[str, ...] | None:
    """A list in a row; one that cannot be read says nothing."""
    try:
        return None if text is None else tuple(msgspec.json.decode(text, type=list[str]))
    except msgspec.MsgspecError:
        return None


def worker_view(life: WorkerLife) -> WorkerInfo:
    row = life.row
    times = moment(row.started_at), moment(row.lease_until)
    return WorkerInfo(
        row.worker_id, life.liveness.value, row.host, row.pid, _names(row.queues) or (), _names(row.workflows), *times
    )


async def worker_views(engine: Engine, namespace: str) -> list[WorkerInfo]:
    """The workers of a namespace, those that are gone and not replaced yet as well."""
    if isinstance(engine, HasWorkerViews):
        return await engine.worker_views.workers(namespace)
    return [worker_view(life) for life in await engine.inspector.workers(namespace)]


async def queue_views(engine: Engine, namespace: str, entity_id: str | None = None) -> list[QueueInfo]:
    """The queues that workers work or open runs are on, by name; runs of one entity, if that is given."""
    if isinstance(engine, HasWorkerViews):
        return await engine.worker_views.queues(namespace)
    workers = await worker_views(engine, namespace)
    alive = Counter(name for each in workers if each.liveness == Liveness.ALIVE for name in each.queues)
    counts: dict[Status, Mapping[object, int]] = {
        status: await engine.reader.count_runs(RunQuery(namespace, _runs(status, entity_id)), "queue")
        for status in sorted(OPEN)
    }
    names = sorted({*alive, *(str(name) for found in counts.values() for name in found)})
    return [
        QueueInfo(name, alive[name], {status.value: found.get(name, 0) for status, found in counts.items()})
        for name in names
    ]


def _runs(status: Status, entity_id: str | None) -> Filter:
    parts: list[Filter] = [In(Field("status"), (TextValue(status.value),))]
    if entity_id is not None:
        parts.append(Compare(Field("entity_id"), "=", TextValue(entity_id)))
    return all_of(parts)
