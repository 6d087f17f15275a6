"""Workers over HTTP that own runs as a worker beside the database does: what they are told, and tell of themselves."""

from typing import Any

import msgspec

from perdure.engine.ports import Declared, RemoteWorker
from perdure.engine.ports.remote_runs import WorkerNews
from perdure.errors import BadField, LeaseLost, NotAllowed, RunNotOwned
from perdure.http.calls import Call
from perdure.http.handlers.runs import LONGEST_WAIT
from perdure.http.handlers.schedules import ScheduleBody, scheduled_call, timetable_in
from perdure.http.handlers.worker_protocol.workers import (
    RunNews,
    WorkerWorkflow,
    announced_workflow,
    message_json,
    news_json,
    worker_of,
)
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.ids import checked_id

ROWS = RouteRows()
# For longer than its lease it is sure to have, a worker hears nothing at a time.
LONGEST_LISTEN = 5.0


class ListenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was heard so far: `after` and `work` of the last answer, 0 at first; and for how many seconds to wait.

    At most five: a lease lasts for twice as long, and is prolonged by every call.
    """

    epoch: int
    after: int
    work: int = 0
    wait: float = 0


class Heard(msgspec.Struct, frozen=True):
    """What has come for runs of the worker, and the lease as by `renew`.

    `work` is another number than before when there may be more to claim; what becomes ripe by the clock is told by
    `next_wake` of a claim.
    """

    lease: float
    now: int
    news: RunNews
    work: int
    drain: bool


class AnnounceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker has code for: `names` of workflows, and of activities on queues as `task:NAME`.

    `workflows` are described for those who start them. `schedules` are all that their code declares, by workflow: what
    it declared before and does not now is removed. Runs of `retry_mismatches` on its queues that are held since the
    code did not fit are tried again. A key of queues has nothing to do with schedules that start runs on others.
    """

    epoch: int
    names: tuple[str, ...] | None = None
    workflows: dict[str, WorkerWorkflow] = {}
    schedules: dict[str, ScheduleBody] | None = None
    retry_mismatches: tuple[str, ...] = ()


class Announced(msgspec.Struct, frozen=True):
    announced: bool


class InboxQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's epoch, and the number after which messages are wanted."""

    epoch: int = 0
    after: int = 0


class InboxPage(msgspec.Struct, frozen=True):
    """What is unread, in order, 500 at a time, and how many messages the run has had."""

    messages: list[dict[str, Any]]
    had: int


@ROWS.add(
    "POST",
    "/v1/workers/{worker_id}/listen",
    Scope.WORK,
    body=ListenBody,
    answer=Heard,
    errors=(LeaseLost,),
    keeps_answer=False,
)
async def listen(call: Call[NoQuery, ListenBody]) -> Heard:
    """Wait until something comes for runs of the worker, or there is something to claim; it prolongs the lease."""
    body, remote = call.body, call.engine.remote
    worker, heard = worker_of(call, body.epoch), WorkerNews(body.after, work=body.work)

    async def hear() -> bool:
        nonlocal heard
        heard = await remote.listening.hear(worker, body.after, body.work, waits=body.wait > 0)
        return True

    wait = min(max(0, body.wait), LONGEST_LISTEN) or LONGEST_WAIT
    clock = call.engine.clock
    until = clock.monotonic() + round(wait * 1000)
    if not await call.unless_gone(hear(), wait) and clock.monotonic() < until and not call.service.stopping.is_set:
        # It has gone without a word.
        remote.stream_broke(worker)
    now, is_ending = clock.now(), call.service.stopping.is_set
    return Heard(remote.lease_ms / 1000, now, news_json(heard), heard.work, is_ending)


@ROWS.add(
    "POST",
    "/v1/workers/{worker_id}/announce",
    Scope.WORK,
    body=AnnounceBody,
    answer=Announced,
    errors=(LeaseLost,),
    keeps_answer=False,
)
async def announce(call: Call[NoQuery, AnnounceBody]) -> Announced:
    """Say what the worker has code for by now; it is handed nothing else."""
    body, worker = call.body, worker_of(call, call.body.epoch)
    names = None if body.names is None else [checked_id("name", name) for name in body.names]
    known = [announced_workflow(checked_id("workflow name", name), each) for name, each in body.workflows.items()]
    queues = await call.engine.remote.listening.announce(worker, names, known)
    if body.retry_mismatches:
        await call.engine.claimer.free_mismatches(call.namespace, queues, body.retry_mismatches)
    if body.schedules is not None:
        await _declare(call, body.schedules, names, worker)
    return Announced(announced=True)


async def _declare(
    call: Call[Any, Any], schedules: dict[str, ScheduleBody], names: list[str] | None, worker: RemoteWorker
) -> None:
    """Let schedules be as the code of a worker says, as far as its key goes; NotAllowed tells of the first beyond."""
    for name, each in schedules.items():
        if each.call.workflow != name:
            raise BadField("schedules", f"that of {name!r} starts another workflow")
        if each.call.entity_id is not None and not worker.names_entities:
            raise NotAllowed(
                f"the schedule of {name!r} starts runs of the entity {each.call.entity_id!r}, "
                f"and the key {call.caller.label!r} may not start runs",
                "use one with the scope start",
            )
    declared = {
        name: Declared(await scheduled_call(call, each.call), timetable_in(each.when))
        for name, each in schedules.items()
    }
    allowed = call.caller.queues
    # Workers of several queues have the same code: each makes the schedules of its own.
    await call.engine.schedules.reconcile(call.namespace, declared, tuple(names or declared), allowed)
    if foreign := [name for name, each in declared.items() if allowed and each.call.queue not in allowed]:
        raise NotAllowed(
            f"the schedule of {foreign[0]!r} starts runs on the queue {declared[foreign[0]].call.queue!r}, and the key "
            f"{call.caller.label!r} is for {', '.join(allowed)}; it is left to workers of that queue",
            "use another key, or give the workflow a queue of this one",
        )


@ROWS.add(
    "GET",
    "/v1/workers/{worker_id}/runs/{run_id}/messages",
    Scope.WORK,
    query=InboxQuery,
    answer=InboxPage,
    errors=(LeaseLost, RunNotOwned),
)
async def read_inbox(call: Call[InboxQuery, None]) -> InboxPage:
    """What a run that the worker has has not read."""
    worker = worker_of(call, call.query.epoch)
    messages, had = await call.engine.remote.listening.unread(worker, call.path["run_id"], call.query.after)
    return InboxPage([message_json(each) for each in messages], had)
