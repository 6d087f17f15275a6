"""Workers over HTTP: they register, renew their leases and leave."""

from collections import Counter
from typing import Any

import msgspec

from perdure.engine.ports import (
    AnnouncedChannel,
    AnnouncedParameter,
    AnnouncedWorkflow,
    Engine,
    Registration,
    RemoteWorker,
)
from perdure.engine.ports.remote_runs import WorkerNews
from perdure.errors import BadField, LeaseLost, NotAllowed
from perdure.http.calls import Call
from perdure.http.handlers.workers import refuse_entities
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.http.values import absent
from perdure.ids import checked_id
from perdure.kernel.events import Event
from perdure.kernel.messages import Message

ROWS = RouteRows()
TAKES = (None, "args", "kwargs")


class WorkerParameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter of a workflow: the JSON schema of its values, and its default, if it has one.

    `takes` says that it takes all others: `args` those without names, `kwargs` those with.
    """

    name: str
    schema: dict[str, Any] | None = None
    default: msgspec.Raw = absent()
    takes: str | None = None


class WorkerChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signal, a deferred or a request that a workflow listens to."""

    kind: str
    name: str
    schema: dict[str, Any] | None = None


class WorkerWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a workflow takes, in order, and what it is for; arguments are checked by it when it is started."""

    parameters: tuple[WorkerParameter, ...] = ()
    about: str = ""
    channels: tuple[WorkerChannel, ...] = ()


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


class RenewBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The epoch that the worker was registered with; `holding` names all that it has in hand."""

    epoch: int
    holding: tuple[str, ...] | None = None


class EpochQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The epoch that the worker was registered with."""

    epoch: int = 0


class MessageForRun(msgspec.Struct, frozen=True):
    """A message that has come for a run, and how many that has had by now."""

    run_id: str
    had: int
    message: dict[str, Any]


class RunNews(msgspec.Struct, frozen=True):
    """What has come for runs of the worker since; `after` is what to ask with the next time."""

    after: int
    messages: list[MessageForRun]


class Renewed(msgspec.Struct, frozen=True):
    """The lease in seconds from now; what the worker has and is to stop; whether the server is about to end.

    `unheld` is what it has and does not hold, if it said what it holds: a claim hands it out again.
    """

    lease: float
    now: int
    cancelled: tuple[str, ...]
    drain: bool
    unheld: tuple[str, ...] = ()


class Left(msgspec.Struct, frozen=True):
    left: bool


def worker_of(call: Call[Any, Any], epoch: int) -> RemoteWorker:
    """Who calls; a key of queues is good for workers of those alone."""
    refuse_entities(call)
    caller = call.caller
    return RemoteWorker(
        call.namespace, call.path["worker_id"], epoch, caller.queues, names_entities=Scope.START in caller.scopes
    )


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
    known = tuple(announced_workflow(checked_id("workflow name", name), each) for name, each in body.workflows.items())
    activities = tuple(checked_id("activity name", name) for name in body.activities)
    given = Registration(checked_id("worker name", body.name), queues, known, activities)
    lease = await call.engine.remote.register(call.namespace, given)
    return Registered(lease.worker_id, lease.epoch, lease.lease_ms / 1000, lease.now)


@ROWS.add("POST", "/v1/workers/{worker_id}/renew", Scope.WORK, body=RenewBody, answer=Renewed, errors=(LeaseLost,))
async def renew(call: Call[NoQuery, RenewBody]) -> Renewed:
    """Prolong the lease; a worker that is told LeaseLost drops all it has, and registers again."""
    renewal = await call.engine.remote.renew(worker_of(call, call.body.epoch), call.body.holding)
    is_ending = call.service.stopping.is_set
    return Renewed(renewal.lease_ms / 1000, renewal.now, renewal.cancelled, is_ending, renewal.unheld)


async def news_of(engine: Engine, worker: RemoteWorker, after: int) -> RunNews:
    """What has come for runs of a worker since it last asked."""
    return news_json(await engine.remote.runs.news(worker, after))


def news_json(news: WorkerNews) -> RunNews:
    """What has come for runs of a worker, as it gets it."""
    return RunNews(news.after, [MessageForRun(run_id, had, message_json(each)) for run_id, each, had in news.messages])


def event_json(event: Event) -> dict[str, Any]:
    """An event as workers get it."""
    fields = {name: getattr(event.fact, name) for name in event.fact.__struct_fields__}
    return {**fields, "seq": event.seq, "at": event.at, "place": event.place, "kind": event.kind}


def message_json(message: Message) -> dict[str, Any]:
    """A message as workers get it."""
    body = message.body
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    return {**fields, "number": message.number, "id": message.message_id, "at": message.at, "kind": type(body).__name__}


@ROWS.add("DELETE", "/v1/workers/{worker_id}", Scope.WORK, query=EpochQuery, answer=Left, errors=(LeaseLost,))
async def leave(call: Call[EpochQuery, None]) -> Left:
    """Hand everything back, and end the worker; others go on with what it had at once."""
    await call.engine.remote.leave(worker_of(call, call.query.epoch))
    return Left(left=True)


def announced_workflow(name: str, workflow: WorkerWorkflow) -> AnnouncedWorkflow:
    """A workflow that can be started by what is told of it; BadField."""
    names = Counter(each.name for each in workflow.parameters)
    if twice := [each for each, count in names.items() if count > 1]:
        raise BadField("workflows", f"{name!r} has two parameters named {twice[0]!r}")
    if unknown := [each.takes for each in workflow.parameters if each.takes not in TAKES]:
        raise BadField("workflows", f"a parameter of {name!r} takes {unknown[0]!r}; give `args` or `kwargs`")
    parameters = tuple(
        AnnouncedParameter(
            checked_id("parameter", each.name),
            each.schema,
            bytes(each.default).decode() or None,
            each.takes,
        )
        for each in workflow.parameters
    )
    channels = tuple(AnnouncedChannel(each.kind, each.name, each.schema) for each in workflow.channels)
    return AnnouncedWorkflow(name, parameters, workflow.about, channels)
