"""Runs: start one or many, look at one, list and count them, wait for a result."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from perdure.authoring.options import (
    ConflictPolicy,
    checked_priority,
    member_of,
    milliseconds,
    recorded_attributes,
)
from perdure.engine import starts
from perdure.engine.endings import final_ending
from perdure.engine.ports import Ending, KeptRun, OwnedRun, StartedRun, StartRequest
from perdure.errors import (
    BadArguments,
    BadField,
    BadFilter,
    BadOption,
    IdConflict,
    NotAllowed,
    PerdureError,
    RunCancelled,
    RunNotFound,
    RunTerminated,
    RunTimedOut,
    StoreUnavailable,
    UnknownWorkflow,
)
from perdure.http.access import check_scope
from perdure.http.calls import Call
from perdure.http.problems import problem_of
from perdure.http.table import NoQuery, Reply, RouteRows, Scope
from perdure.http.values import absent, run_json
from perdure.ids import checked_id
from perdure.kernel.conflict import OnConflict
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN, TASK_PREFIX, Traits
from perdure.stores.records import RunFilter
from perdure.views.finding import checked_statuses, count_where, page_of
from perdure.views.run import RunInfo, new_run_view, run_view

ROWS = RouteRows()
# Nobody waits longer than this in one request; who wants to, asks again.
LONGEST_WAIT = 60.0
LARGEST_BATCH = 1000
CREATED, ACCEPTED = 201, 202


class StartBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to be started; durations are seconds."""

    workflow: str
    input: msgspec.Raw = absent()
    id: str | None = None
    queue: str | None = None
    priority: int | None = None
    timeout: float | None = None
    delay: float | None = None
    entity_id: str | None = None
    correlation_id: str | None = None
    attributes: dict[str, Any] | None = None
    on_conflict: ConflictPolicy = "return"


class StartQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`wait` so many seconds for the result, and answer with it."""

    wait: float | None = None


class RunError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a run ended without a result: the class of the error, and what it says.

    `failure` is all that is kept of the error that failed it; `reason` was given by who ended it.
    """

    type: str
    message: str
    reason: str | None = None
    notes: tuple[str, ...] = ()
    failure: dict[str, Any] | None = None


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run ended: its status, and its result or its error; while it is open the status alone."""

    status: Status
    result: msgspec.Raw = absent()
    error: RunError | None = None


class Problem(msgspec.Struct, frozen=True):
    """Why one element of many was refused."""

    error: str
    detail: str
    status: int


class StartAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of many, in the order of what was asked."""

    run: RunInfo | None = None
    problem: Problem | None = None


class StartAnswers(msgspec.Struct, frozen=True):
    """Answers in the order of what was asked."""

    items: list[StartAnswer]


class StartBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Runs to be started, at most a thousand."""

    runs: list[StartBody]


START_ERRORS = (UnknownWorkflow, BadArguments, BadOption, IdConflict, StoreUnavailable)


@ROWS.add(
    "POST",
    "/v1/runs",
    Scope.START,
    query=StartQuery,
    body=StartBody,
    answer=RunInfo,
    status=CREATED,
    also=((200, "the run that has the id already"),),
    errors=START_ERRORS,
)
async def start_run(call: Call[StartQuery, StartBody]) -> Reply:
    """Start a run; it is on disk when this answers. The same id again gives the run that has it."""
    wait = checked_wait(call.query.wait)
    found = await _start(call, call.body)
    ended = {} if wait is None else await _result(call, found.run_id, wait)
    if isinstance(found, OwnedRun) and found.is_unclaimed and wait is None:
        return Reply(run_json(new_run_view(starts.row_of(found))), CREATED)
    is_new = found.is_new if isinstance(found, KeptRun) else isinstance(found, OwnedRun)
    row = await call.engine.reader.read(call.namespace, found.run_id)
    # Of one that is new there is nothing more to be told than what its row says.
    body = run_json(await run_view(call.engine, row, is_listed=is_new and wait is None))
    if "result" in ended:
        body = msgspec.Raw(bytes(body)[:-1] + b',"result":' + bytes(ended["result"]) + b"}")
    return Reply(body, CREATED if is_new else 200)


@ROWS.add("POST", "/v1/runs/batch", Scope.START, body=StartBatch, answer=StartAnswers, errors=(StoreUnavailable,))
async def start_runs(call: Call[NoQuery, StartBatch]) -> dict[str, Any]:
    """Start many runs; each is answered by itself, and one that is refused harms no other."""
    if len(call.body.runs) > LARGEST_BATCH:
        raise BadField("the body", f"a batch has at most {LARGEST_BATCH} runs, this one has {len(call.body.runs)}")
    once = call.engine.once
    calls = [call if once is None else call.over(once.numbered(number)) for number in range(len(call.body.runs))]
    return {"items": [await _started(each, start) for each, start in zip(calls, call.body.runs, strict=True)]}


async def _started(call: Call[NoQuery, StartBatch], start: StartBody) -> dict[str, Any]:
    try:
        found = await _start(call, start)
        if isinstance(found, OwnedRun) and found.is_unclaimed:
            return {"run": run_json(new_run_view(starts.row_of(found)))}
        row = await call.engine.reader.read(call.namespace, found.run_id)
        return {"run": run_json(await run_view(call.engine, row, is_listed=True))}
    except PerdureError as error:
        return {"problem": problem_of(error, call.request_id)[1]}


async def _start(call: Call[Any, Any], start: StartBody) -> StartedRun:
    if start.on_conflict == "terminate":
        # It ends the run that has the id, which is more than to start one.
        check_scope(call.caller, Scope.STEER)
    arguments = await call.service.catalog.arguments(call.namespace, start.workflow, start.input)
    entity_id = start.entity_id
    if call.caller.entity_id is not None:
        if entity_id not in {None, call.caller.entity_id}:
            raise NotAllowed(
                f"the key {call.caller.label!r} starts runs of its own entity alone", "leave entity_id away"
            )
        entity_id = call.caller.entity_id
    traits = Traits(
        entity_id=None if entity_id is None else checked_id("entity id", entity_id),
        correlation_id=None if start.correlation_id is None else checked_id("correlation id", start.correlation_id),
        attributes=None if start.attributes is None else recorded_attributes(start.attributes),
        timeout_ms=None if start.timeout is None else milliseconds(start.timeout, "timeout", least=1),
    )
    request = StartRequest(
        start.workflow,
        arguments.input,
        None if start.id is None else checked_id("workflow id", start.id),
        "default" if start.queue is None else checked_id("queue", start.queue),
        0 if start.priority is None else checked_priority(start.priority),
        arguments.restored,
        PLAIN if traits == PLAIN else traits,
        0 if start.delay is None else milliseconds(start.delay, "delay"),
    )
    policy = member_of(OnConflict, start.on_conflict, "on_conflict")
    return await starts.start(call.engine, call.namespace, request, policy, arguments.defaults, may_see=call.may_see)


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs to list, newest first; `after` takes the cursor of the page before."""

    status: tuple[str, ...] = ()
    workflow: str | None = None
    id: str | None = None
    entity_id: str | None = None
    correlation_id: str | None = None
    parent_id: str | None = None
    schedule: str | None = None
    where: str | None = None
    params: str | None = None
    limit: int = 100
    after: str | None = None


class RunPage(msgspec.Struct, frozen=True):
    """A page of runs; `cursor` leads to the next one."""

    items: list[RunInfo]
    cursor: str | None


@ROWS.add("GET", "/v1/runs", Scope.READ, query=ListQuery, answer=RunPage, errors=(BadOption, BadFilter))
async def list_runs(call: Call[ListQuery, None]) -> Mapping[str, Any]:
    """Runs that match, newest first."""
    query = call.query
    statuses, held = checked_statuses([name for each in query.status for name in each.split(",")])
    entity_id = query.entity_id if call.caller.entity_id is None else call.caller.entity_id
    if query.entity_id is not None and query.entity_id != entity_id:
        return {"items": [], "cursor": None}
    asks_for_one = (query.workflow, query.id, query.parent_id) != (None, None, None)
    wanted = RunFilter(
        namespace=call.namespace,
        status=statuses,
        held=held,
        workflow=query.workflow,
        workflow_id=query.id,
        entity_id=entity_id,
        correlation_id=query.correlation_id,
        parent_id=query.parent_id,
        schedule=query.schedule,
        before=query.after,
        limit=query.limit,
        without=None if asks_for_one else TASK_PREFIX,
    )
    page = await page_of(call.engine, wanted, query.where, params_of(query.params))
    return {"items": [run_json(info) for info in page], "cursor": page.cursor}


class CountQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter, and the field by whose values to count."""

    where: str = "true"
    params: str | None = None
    by: str | None = None


class CountedValue(msgspec.Struct, frozen=True):
    """How many runs have this value; null stands for those that have none."""

    value: str | int | None
    count: int


class CountedRuns(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many runs match; by the values of a field, if one was asked for."""

    count: int
    by: list[CountedValue] | None = None


@ROWS.add("GET", "/v1/runs/count", Scope.READ, query=CountQuery, answer=CountedRuns, errors=(BadOption, BadFilter))
async def count_runs(call: Call[CountQuery, None]) -> CountedRuns:
    """How many runs match a filter, all together or by the values of a field."""
    own = RunFilter(call.namespace, entity_id=call.caller.entity_id)
    found = await count_where(call.engine, own, call.query.where, params_of(call.query.params), call.query.by)
    by = None if call.query.by is None else [CountedValue(cast("Any", value), count) for value, count in found.items()]
    return CountedRuns(sum(found.values()), by)


def params_of(given: str | None) -> dict[str, object] | None:
    """The values in a filter, as JSON."""
    try:
        return None if given is None else msgspec.json.decode(given, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadField("the query", f"params is not a JSON object: {error}") from None


@ROWS.add("GET", "/v1/runs/{id}", Scope.READ, answer=RunInfo, errors=(RunNotFound,))
async def get_run(call: Call[NoQuery, None]) -> msgspec.Raw:
    """A run as it stands: the newest one of an id, or the one that `run_id` names."""
    return run_json(await run_view(call.engine, await call.run()))


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`wait` so many seconds, at most 60, for the end."""

    wait: float = 0.0


@ROWS.add(
    "GET",
    "/v1/runs/{id}/result",
    Scope.READ,
    query=WaitQuery,
    answer=Result,
    also=((ACCEPTED, "the run is open"),),
    errors=(RunNotFound,),
)
async def get_result(call: Call[WaitQuery, None]) -> Reply:
    """How a run ended, or the last of those that continue it; 202 while it is open."""
    row = await call.run()
    result = await _result(call, row.run_id, checked_wait(call.query.wait) or 0)
    return Reply(result, ACCEPTED if result["status"] in OPEN_STATUSES else 200)


# The class of the error that tells of an end, and what it says where nobody gave a reason.
ENDED = {
    Status.CANCELLED: (RunCancelled.__name__, "the run was cancelled"),
    Status.TERMINATED: (RunTerminated.__name__, "the run was terminated"),
    Status.TIMED_OUT: (RunTimedOut.__name__, "the run took longer than its timeout"),
}
OPEN_STATUSES: frozenset[str] = frozenset({Status.PENDING, Status.RUNNING, Status.SUSPENDED})


async def _result(call: Call[Any, Any], run_id: str, wait: float) -> dict[str, Any]:
    waiting = final_ending(call.engine, call.namespace, run_id, None)
    ending = await call.service.stopping.within(waiting, max(wait, 0.001))
    await call.check_key()
    if ending is None:
        row = await call.engine.reader.read(call.namespace, run_id)
        if row.status in OPEN_STATUSES:
            return {"status": row.status}
        if row.status == Status.CONTINUED:
            # The newest of those that continue it is the one that is open.
            return {"status": Status.RUNNING}
        # It has ended in this very moment.
        ending = await final_ending(call.engine, call.namespace, run_id, None)
    return result_json(ending)


def result_json(ending: Ending) -> dict[str, Any]:
    """How a run ended, as JSON."""
    if ending.result is not None:
        return {"status": ending.status, "result": msgspec.Raw(bytes(ending.result))}
    failure = ending.failure
    if failure is None:
        kind, text = ENDED[ending.status]
        return {"status": ending.status, "error": RunError(kind, ending.reason or text, ending.reason, ending.notes)}
    return {
        "status": ending.status,
        "error": {"type": failure.type, "message": failure.message, "failure": failure},
    }


def checked_wait(given: float | None) -> float | None:
    """How long to wait, in seconds; BadField."""
    if given is not None and not 0 <= given <= LONGEST_WAIT:
        raise BadField("the query", f"wait is {given}; give 0 to {LONGEST_WAIT:.0f} seconds, and ask again")
    return given
