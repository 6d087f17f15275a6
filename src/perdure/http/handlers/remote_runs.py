"""Runs of workflows, for workers over HTTP: take them with their past, move them by commands, let go of them."""

from typing import Any, Literal

import msgspec

from perdure.engine.ports import Engine, RemoteWorker
from perdure.engine.ports.remote_runs import (
    HandBackStep,
    HandedRun,
    HoldStep,
    KeepStep,
    NextStep,
    ParkStep,
    RemoteAdvance,
    RemoteCommand,
    RemoteProgress,
)
from perdure.errors import BadField, BadId, IdConflict, LeaseLost, OutOfStep, PerdureError, RunNotOwned
from perdure.http import problems
from perdure.http.calls import Call
from perdure.http.handlers.remote_workers import worker_of
from perdure.http.handlers.tasks import ClaimBody, claimed
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.http.values import checked_value
from perdure.kernel.events import Event
from perdure.kernel.messages import Message

ROWS = RouteRows()
MOST_ADVANCED = 1000


class ClaimedRun(msgspec.Struct, frozen=True):
    """A run to go on with; times are milliseconds.

    `events` are those after the first, each with `seq`, `at`, `place`, `kind` and its fields; `messages` what is
    unread, each with `number`, `id`, `at`, `kind` and its fields, and `had` how many it has had. With `more` its other
    events are read page by page. `children` are the runs and activities it has started, by their places.
    `token_key` is what tokens of its deferreds are signed with, in hexadecimal.
    """

    run_id: str
    id: str
    workflow: str
    input: msgspec.Raw
    seed: int
    created_at: int
    seq: int
    events: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    had: int
    children: dict[str, str]
    token_key: str
    more: bool


class ClaimedRuns(msgspec.Struct, frozen=True):
    runs: list[ClaimedRun]


class RunPageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's epoch, and the number after which events are wanted."""

    epoch: int = 0
    after: int = 0


class ThenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let go of the run: `park` it, or `hold` it until a person acts."""

    park: ParkStep | None = None
    hold: HoldStep | None = None


class RunCommandsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wanted of one run, after the event that the worker knows to be its last."""

    run_id: str
    after_seq: int
    commands: tuple[RemoteCommand, ...] = ()
    then: Literal["keep", "hand_back"] | ThenBody = "keep"


class AdvanceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wanted of several runs, each for itself."""

    epoch: int
    runs: tuple[RunCommandsBody, ...]


class AdvanceAnswers(msgspec.Struct, frozen=True):
    """Of each run in order `seq`, `kept`, and while it is kept its unread `messages` and `had`; or a `problem`."""

    answers: list[dict[str, Any]]


@ROWS.add(
    "POST",
    "/v1/workers/{worker_id}/claim-runs",
    Scope.WORK,
    body=ClaimBody,
    answer=ClaimedRuns,
    errors=(LeaseLost,),
    keeps_answer=False,
)
async def claim_runs(call: Call[NoQuery, ClaimBody]) -> ClaimedRuns:
    """Take runs of the worker's workflows on its queues, waiting for the first for a while."""
    found = await claimed(call, call.engine.remote.runs.claim, are_tasks=False)
    return ClaimedRuns([_claimed(run) for run in found])


@ROWS.add(
    "GET",
    "/v1/workers/{worker_id}/runs/{run_id}",
    Scope.WORK,
    query=RunPageQuery,
    answer=ClaimedRun,
    errors=(LeaseLost, RunNotOwned),
)
async def read_claimed(call: Call[RunPageQuery, None]) -> ClaimedRun:
    """A run that the worker has: the next page of its events, and what it has not read."""
    worker = worker_of(call, call.query.epoch)
    return _claimed(await call.engine.remote.runs.read(worker, call.path["run_id"], call.query.after))


@ROWS.add(
    "POST",
    "/v1/workers/{worker_id}/advance",
    Scope.WORK,
    body=AdvanceBody,
    answer=AdvanceAnswers,
    errors=(LeaseLost, BadField, BadId, OutOfStep, RunNotOwned, IdConflict),
)
async def advance(call: Call[NoQuery, AdvanceBody]) -> AdvanceAnswers:
    """Move runs by commands: those of one run all or nothing, whatever becomes of the others."""
    worker = worker_of(call, call.body.epoch)
    if len(call.body.runs) > MOST_ADVANCED:
        raise BadField("runs", f"there are {len(call.body.runs)}; give at most {MOST_ADVANCED} at once")
    return AdvanceAnswers([await _advanced(call.engine, worker, each, call.request_id) for each in call.body.runs])


async def _advanced(engine: Engine, worker: RemoteWorker, asked: RunCommandsBody, request_id: str) -> dict[str, Any]:
    try:
        for command in asked.commands:
            _check(command)
        step = _step(asked.then)
        progress = await engine.remote.runs.advance(
            worker, RemoteAdvance(asked.run_id, asked.after_seq, asked.commands, step)
        )
    except LeaseLost:
        raise
    except PerdureError as error:
        return {"problem": problems.problem_of(error, request_id)[1]}
    return _progress(progress)


def _progress(progress: RemoteProgress) -> dict[str, Any]:
    if not progress.is_kept:
        return {"seq": progress.seq, "kept": False}
    messages = [message_json(each) for each in progress.messages]
    return {"seq": progress.seq, "kept": True, "messages": messages, "had": progress.had}


def _step(then: str | ThenBody) -> NextStep:
    if not isinstance(then, ThenBody):
        return KeepStep() if then == "keep" else HandBackStep()
    steps = [step for step in (then.park, then.hold) if step is not None]
    if len(steps) != 1:
        raise BadField("then", "give `keep`, `hand_back`, a `park` or a `hold`")
    return steps[0]


def _check(value: object) -> None:
    """Refuse values that could not be read again."""
    if isinstance(value, msgspec.Raw):
        checked_value(value, "the value of a command")
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _check(getattr(value, name))
    elif isinstance(value, tuple):
        for each in value:
            _check(each)
    elif isinstance(value, dict):
        for each in value.values():
            _check(each)


def _claimed(run: HandedRun) -> ClaimedRun:
    return ClaimedRun(
        run.run_id,
        run.workflow_id,
        run.workflow,
        msgspec.Raw(run.input.encode()),
        run.seed,
        run.created_at,
        run.seq,
        [event_json(event) for event in run.events],
        [message_json(message) for message in run.messages],
        run.had,
        run.children,
        run.token_key,
        run.more,
    )


def event_json(event: Event) -> dict[str, Any]:
    """An event as workers get it."""
    fields = {name: getattr(event.fact, name) for name in event.fact.__struct_fields__}
    return {**fields, "seq": event.seq, "at": event.at, "place": event.place, "kind": event.kind}


def message_json(message: Message) -> dict[str, Any]:
    """A message as workers get it."""
    body = message.body
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    return {**fields, "number": message.number, "id": message.message_id, "at": message.at, "kind": type(body).__name__}
