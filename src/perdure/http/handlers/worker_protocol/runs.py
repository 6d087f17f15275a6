"""Runs of workflows, for workers over HTTP: take them with their past, move them by commands, let go of them."""

from collections.abc import Awaitable, Sequence
from functools import cache
from typing import Any, Literal, get_args

import msgspec

from perdure.authoring.options import recorded_attributes
from perdure.engine.ports import RemoteWorker
from perdure.engine.ports.remote_runs import (
    AnnotateCommand,
    ChildCommand,
    ClaimWish,
    ContinueCommand,
    HandBackStep,
    HandedRun,
    HoldStep,
    KeepStep,
    NextStep,
    OwnedDetail,
    ParkStep,
    PauseStep,
    RemoteAdvance,
    RemoteCommand,
    RemoteProgress,
)
from perdure.errors import BadField, BadId, IdConflict, LeaseLost, OutOfStep, PerdureError, RunNotOwned
from perdure.http import problems
from perdure.http.calls import Call
from perdure.http.handlers.worker_protocol.tasks import ClaimBody, claimed
from perdure.http.handlers.worker_protocol.workers import RunNews, event_json, message_json, news_of, worker_of
from perdure.http.table import NoQuery, RouteRows, Scope
from perdure.http.values import checked_value
from perdure.ids import checked_id

ROWS = RouteRows()
PLAIN: frozenset[object] = frozenset({str, int, float, bool, type(None)})
MOST_ADVANCED = 1000
# Those with attributes, which are the same as those of a start.
ANNOTATING = (AnnotateCommand, ChildCommand, ContinueCommand)


class ClaimedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run to go on with; times are milliseconds.

    `events` are those after the first, each with `seq`, `at`, `place`, `kind` and its fields; `messages` what is
    unread, each with `number`, `id`, `at`, `kind` and its fields, and `had` how many it has had. With `more` its other
    events are read page by page. `children` are the runs and activities it has started, by their places.
    `token_key` is what tokens of its deferreds are signed with, in hexadecimal. `detail` is for an `owner`.
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
    detail: OwnedDetail | None = None


class ClaimRunsBody(ClaimBody, frozen=True, forbid_unknown_fields=True):
    """The same for runs; with `owner` activities on queues come as runs of one step, and each with its `detail`.

    At most so many `suspects` are among them: runs whose workers were lost with them.
    """

    owner: bool = False
    suspects: int = 1


class ClaimedRuns(msgspec.Struct, frozen=True, omit_defaults=True):
    """Runs; with fewer than an `owner` has room for, when to claim again."""

    runs: list[ClaimedRun]
    next_wake: int | None = None


class RunPageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's epoch, and the number after which events are wanted; `owner` as in a claim."""

    epoch: int = 0
    after: int = 0
    owner: bool = False


class ThenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let go of the run: `park` it, `hold` it until a person acts, or `pause` it as a person asked for."""

    park: ParkStep | None = None
    hold: HoldStep | None = None
    pause: PauseStep | None = None


class RunCommandsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wanted of one run, after the event that the worker knows to be its last."""

    run_id: str
    after_seq: int
    commands: tuple[RemoteCommand, ...] = ()
    then: Literal["keep", "hand_back"] | ThenBody = "keep"


class AdvanceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is wanted of several runs, each for itself.

    With `after`, which the last answer gave, the answer has what came since for any run of the worker, and not what is
    unread of each of these.
    """

    epoch: int
    runs: tuple[RunCommandsBody, ...]
    after: int | None = None


class AdvanceAnswers(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of each run in order `seq`, `kept`, and while it is kept its unread `messages` and `had`; or a `problem`."""

    answers: list[dict[str, Any]]
    news: RunNews | None = None


@ROWS.add(
    "POST",
    "/v1/workers/{worker_id}/claim-runs",
    Scope.WORK,
    body=ClaimRunsBody,
    answer=ClaimedRuns,
    errors=(LeaseLost,),
    keeps_answer=False,
)
async def claim_runs(call: Call[NoQuery, ClaimRunsBody]) -> ClaimedRuns:
    """Take runs of the worker's workflows on its queues, waiting for the first for a while."""
    body, runs = call.body, call.engine.remote.runs

    def claim(worker: RemoteWorker, limit: int, holding: Sequence[str] | None) -> Awaitable[list[HandedRun]]:
        return runs.claim(worker, ClaimWish(limit, holding, body.owner, body.suspects))

    found = await claimed(call, claim, are_tasks=None if body.owner else False)
    if not body.owner or len(found) == body.limit:
        return ClaimedRuns([_claimed(run) for run in found])
    next_wake = await runs.next_wake(worker_of(call, body.epoch), suspects=body.suspects > 0)
    return ClaimedRuns([_claimed(run) for run in found], next_wake)


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
    query, run_id = call.query, call.path["run_id"]
    return _claimed(await call.engine.remote.runs.read(worker, run_id, query.after, is_owner=query.owner))


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
    after, runs = call.body.after, call.engine.remote.runs
    checked = [_checked(each) for each in call.body.runs]
    right = [each for each in checked if isinstance(each, RemoteAdvance)]
    moved = iter(await runs.advance(worker, right, reads_unread=after is None))
    results = [each if isinstance(each, PerdureError) else next(moved) for each in checked]
    answers = [_answer(each, call.request_id, has_unread=after is None) for each in results]
    return AdvanceAnswers(answers, None if after is None else await news_of(call.engine, worker, after))


def _checked(asked: RunCommandsBody) -> RemoteAdvance | PerdureError:
    try:
        checked_id("run id", asked.run_id)
        for command in asked.commands:
            _check(command)
            if isinstance(command, ChildCommand) and command.supersedes is not None:
                checked_id("run id", command.supersedes)
            if isinstance(command, ANNOTATING) and command.attributes is not None:
                recorded_attributes(command.attributes)
        return RemoteAdvance(asked.run_id, asked.after_seq, asked.commands, _step(asked.then))
    except PerdureError as error:
        return error


def _answer(progress: RemoteProgress | PerdureError, request_id: str, *, has_unread: bool) -> dict[str, Any]:
    if isinstance(progress, PerdureError):
        return {"problem": problems.problem_of(progress, request_id)[1]}
    if not progress.is_kept or not has_unread:
        return {"seq": progress.seq, "kept": progress.is_kept}
    messages = [message_json(each) for each in progress.messages]
    return {"seq": progress.seq, "kept": True, "messages": messages, "had": progress.had}


def _step(then: str | ThenBody) -> NextStep:
    if not isinstance(then, ThenBody):
        return KeepStep() if then == "keep" else HandBackStep()
    steps = [step for step in (then.park, then.hold, then.pause) if step is not None]
    if len(steps) != 1:
        raise BadField("then", "give `keep`, `hand_back`, a `park`, a `hold` or a `pause`")
    return steps[0]


def _check(value: object) -> None:
    """Refuse values that could not be read again."""
    if type(value) in PLAIN:
        return
    if isinstance(value, msgspec.Raw):
        checked_value(value, "the value of a command")
    elif isinstance(value, msgspec.Struct):
        for name in _fields_to_check(type(value)):
            _check(getattr(value, name))
    elif isinstance(value, tuple):
        for each in value:
            _check(each)
    elif isinstance(value, dict):
        for each in value.values():
            _check(each)


@cache
def _fields_to_check(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a struct that may hold values; most of what a worker says are numbers and texts."""
    return tuple(
        each.name for each in msgspec.structs.fields(kind) if not set(get_args(each.type) or [each.type]) <= PLAIN
    )


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
        run.detail,
    )
