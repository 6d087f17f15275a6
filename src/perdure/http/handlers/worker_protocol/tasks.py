"""Activities on queues, for workers over HTTP: take attempts, say how they go on and how they ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from perdure.engine.ports import PublishedValue, RemoteWorker
from perdure.errors import BadField, LeaseLost, RunNotFound, RunNotOwned
from perdure.http.calls import Call
from perdure.http.handlers.runs import LONGEST_WAIT
from perdure.http.handlers.worker_protocol.workers import worker_of
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.http.values import absent, checked_value
from perdure.ids import checked_id
from perdure.kernel.failure import Failure

T = TypeVar("T")
B = TypeVar("B", bound="ClaimBody")

ROWS = RouteRows()
MOST_CLAIMED = 1000


class ClaimBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many to take, and for how many seconds to wait for the first.

    `holding` names what the worker has in hand: what it owns besides, for the answer to a claim was lost, comes first.
    """

    epoch: int
    limit: int = 10
    wait: float = 0
    holding: tuple[str, ...] | None = None


class ClaimedTask(msgspec.Struct, frozen=True):
    """An attempt to be made; `timeout` and `heartbeat` are seconds, after which it is taken for failed."""

    task_id: str
    activity: str
    arguments: msgspec.Raw
    attempt: int
    max_attempts: int
    timeout: float
    heartbeat: float | None
    details: msgspec.Raw
    idempotency_key: str
    run: str | None


class ClaimedTasks(msgspec.Struct, frozen=True):
    tasks: list[ClaimedTask]


class CompleteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the attempt returned, null for nothing; it is not to be left away."""

    epoch: int
    attempt: int
    result: msgspec.Raw


class TaskError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error: its type, by whose name it may be one that is not retried, and its text."""

    type: str
    message: str = ""


class FailBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the attempt failed; with `retry` false it is not tried again, whatever its caller said."""

    epoch: int
    attempt: int
    error: TaskError
    retry: bool = True


class PublishBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value for a stream of the run that called the activity."""

    stream: str
    value: msgspec.Raw = absent()


class HeartbeatBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The attempt goes on; `details` are handed to the next attempt, should this one fail."""

    epoch: int
    attempt: int
    details: msgspec.Raw = absent()
    publish: tuple[PublishBody, ...] = ()


class Recorded(msgspec.Struct, frozen=True):
    recorded: bool


class Beat(msgspec.Struct, frozen=True):
    """Whether nobody waits for the attempt any more."""

    cancelled: bool


TASK = "/v1/workers/{worker_id}/tasks/{task_id}"
LOST = (LeaseLost, RunNotOwned, RunNotFound)


@ROWS.add(
    "POST",
    "/v1/workers/{worker_id}/claim-tasks",
    Scope.WORK,
    body=ClaimBody,
    answer=ClaimedTasks,
    errors=(LeaseLost,),
    keeps_answer=False,
)
async def claim_tasks(call: Call[NoQuery, ClaimBody]) -> ClaimedTasks:
    """Take attempts of the worker's activities on its queues, waiting for the first for a while."""
    found = await claimed(call, call.engine.remote.tasks.claim, are_tasks=True)
    return ClaimedTasks([msgspec.convert(task, ClaimedTask, from_attributes=True) for task in found])


@ROWS.add("POST", f"{TASK}/complete", Scope.WORK, body=CompleteBody, answer=Recorded, errors=LOST)
async def complete(call: Call[NoQuery, CompleteBody]) -> Recorded:
    """The attempt has returned; the same again changes nothing."""
    body, task_id = call.body, call.path["task_id"]
    result = checked_value(body.result, "the result of the activity")
    await call.engine.remote.tasks.complete(worker_of(call, body.epoch), task_id, body.attempt, result)
    return Recorded(recorded=True)


@ROWS.add("POST", f"{TASK}/fail", Scope.WORK, body=FailBody, answer=Recorded, errors=LOST)
async def fail(call: Call[NoQuery, FailBody]) -> Recorded:
    """The attempt has failed: another one follows, or the activity has failed, as its caller said."""
    body, task_id = call.body, call.path["task_id"]
    failure = Failure(checked_id("error type", body.error.type), body.error.message)
    worker = worker_of(call, body.epoch)
    await call.engine.remote.tasks.fail(worker, task_id, body.attempt, failure, may_retry=body.retry)
    return Recorded(recorded=True)


@ROWS.add("POST", f"{TASK}/heartbeat", Scope.WORK, body=HeartbeatBody, answer=Beat, errors=LOST)
async def heartbeat(call: Call[NoQuery, HeartbeatBody]) -> Beat:
    """The attempt goes on; the answer says whether it is still wanted."""
    body, task_id = call.body, call.path["task_id"]
    details = checked_value(body.details, "the details of the heartbeat") if bytes(body.details) else None
    published = [
        PublishedValue(checked_id("stream name", each.stream), checked_value(each.value, f"the stream {each.stream!r}"))
        for each in body.publish
    ]
    worker = worker_of(call, body.epoch)
    return Beat(await call.engine.remote.tasks.heartbeat(worker, task_id, body.attempt, details, published))


async def claimed(
    call: Call[NoQuery, B],
    claim: Callable[[RemoteWorker, int, Sequence[str] | None], Awaitable[list[T]]],
    *,
    are_tasks: bool | None,
) -> list[T]:
    """What a worker takes at once, or as soon as there is something within its patience; BadField."""
    body, worker = call.body, worker_of(call, call.body.epoch)
    if not 1 <= body.limit <= MOST_CLAIMED:
        raise BadField("limit", f"it is {body.limit}; give 1 to {MOST_CLAIMED}")
    found = await claim(worker, body.limit, body.holding)
    if found or body.wait <= 0:
        return found
    time = asyncio.get_running_loop().time
    until = time() + min(body.wait, LONGEST_WAIT)
    with call.engine.remote.waiting(worker, are_tasks=are_tasks) as work:
        # Who has gone would own what nobody gets; what others were quicker to take is waited for again.
        while not found and await call.unless_gone(work.comes(), until - time()):
            found = await claim(worker, body.limit, body.holding)
    return found
