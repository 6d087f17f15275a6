"""Workers over HTTP: they register, renew their leases and leave."""

from typing import Any

import msgspec

from perdure.engine.ports import AnnouncedParameter, AnnouncedWorkflow, Registration, RemoteWorker
from perdure.errors import LeaseLost, NotAllowed
from perdure.http.calls import Call
from perdure.http.handlers.workers import refuse_entities
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.ids import checked_id

ROWS = RouteRows()


class WorkerParameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter of a workflow: the JSON schema of its values, and its default, if it has one."""

    name: str
    schema: dict[str, Any] | None = None
    default: msgspec.Raw | None = None


class WorkerWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a workflow takes, in order, and what it is for; arguments are checked by it when it is started."""

    parameters: tuple[WorkerParameter, ...] = ()
    about: str = ""


class WorkerBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker: its name for people, the queues it works, and what it has code for."""

    name: str
    queues: tuple[str, ...]
    workflows: dict[str, WorkerWorkflow] = {}
    activities: tuple[str, ...] = ()


class Registered(msgspec.Struct, frozen=True):
    """The worker's id and epoch, which go with every call; its lease in seconds, and the server's time in ms."""

    worker_id: str
    epoch: int
    lease: float
    now: int


class EpochBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The epoch that the worker was registered with."""

    epoch: int


class EpochQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The epoch that the worker was registered with."""

    epoch: int = 0


class Renewed(msgspec.Struct, frozen=True):
    """The lease in seconds from now; what the worker has and is to stop; whether the server is about to end."""

    lease: float
    now: int
    cancelled: tuple[str, ...]
    drain: bool


class Left(msgspec.Struct, frozen=True):
    left: bool


def worker_of(call: Call[Any, Any], epoch: int) -> RemoteWorker:
    """Who calls; a key of queues is good for workers of those alone."""
    refuse_entities(call)
    return RemoteWorker(call.namespace, call.path["worker_id"], epoch, call.caller.queues)


@ROWS.add("POST", "/v1/workers", Scope.WORK, body=WorkerBody, answer=Registered, status=201, keeps_answer=False)
async def register(call: Call[NoQuery, WorkerBody]) -> Registered:
    """Begin a worker: it owns what it takes for as long as its lease lasts, which every call prolongs."""
    refuse_entities(call)
    body, allowed = call.body, call.caller.queues
    queues = tuple(checked_id("queue", name) for name in body.queues)
    if foreign := [name for name in queues if allowed and name not in allowed]:
        raise NotAllowed(
            f"the key {call.caller.label!r} is for the queues {', '.join(allowed)}, and not for {foreign[0]!r}",
            "use another key",
        )
    known = tuple(_announced(checked_id("workflow name", name), each) for name, each in body.workflows.items())
    activities = tuple(checked_id("activity name", name) for name in body.activities)
    given = Registration(checked_id("worker name", body.name), queues, known, activities)
    lease = await call.engine.remote.register(call.namespace, given)
    return Registered(lease.worker_id, lease.epoch, lease.lease_ms / 1000, lease.now)


@ROWS.add("POST", "/v1/workers/{worker_id}/renew", Scope.WORK, body=EpochBody, answer=Renewed, errors=(LeaseLost,))
async def renew(call: Call[NoQuery, EpochBody]) -> Renewed:
    """Prolong the lease; a worker that is told LeaseLost drops all it has, and registers again."""
    renewal = await call.engine.remote.renew(worker_of(call, call.body.epoch))
    is_ending = call.service.stopping.is_set
    return Renewed(renewal.lease_ms / 1000, renewal.now, renewal.cancelled, is_ending)


@ROWS.add("DELETE", "/v1/workers/{worker_id}", Scope.WORK, query=EpochQuery, answer=Left, errors=(LeaseLost,))
async def leave(call: Call[EpochQuery, None]) -> Left:
    """Hand everything back, and end the worker; others go on with what it had at once."""
    await call.engine.remote.leave(worker_of(call, call.query.epoch))
    return Left(left=True)


def _announced(name: str, workflow: WorkerWorkflow) -> AnnouncedWorkflow:
    parameters = tuple(
        AnnouncedParameter(
            checked_id("parameter", each.name),
            each.schema,
            None if each.default is None else bytes(each.default).decode(),
        )
        for each in workflow.parameters
    )
    return AnnouncedWorkflow(name, parameters, workflow.about)
