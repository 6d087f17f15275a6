"""Explain: why a run does not move, in one sentence, with what tells so and what helps.

In:   the engine and a run, of any status; no worker is needed.
Out:  the cause, since when, the evidence, and advice. Nothing is changed, and however many runs there are, few rows are
      read.

The causes are looked for in this order: the run has ended; it is held; its row is locked; its owner is gone; it is free
and ripe, and something keeps workers from it; else it waits for what its row says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from perdure.diagnostics.findings import Hint, command
from perdure.diagnostics.runs import DEFAULT_NAMESPACE, DEFAULT_QUEUE
from perdure.engine.hindrances import Served, has_code, rest_of, served_by, told_missing, told_time
from perdure.engine.ports import Engine, Liveness, WorkerLife
from perdure.errors import RunNotFound, RunUnreadable
from perdure.kernel.messages import PauseRequest, ResumeRequest, SignalSent
from perdure.kernel.quarantine import is_suspect
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.records import RunRow
from perdure.views.bulk import ENDED_BADLY
from perdure.views.held import meaning_of, report_of
from perdure.views.run import Page, RunInfo, View, Wait, moment, run_view
from perdure.views.words import counted, visible

B = TypeVar("B")
# So deep it is told what a child waits for, and what that one's child waits for.
DEEPEST = 5
# So many runs ahead are counted.
MOST_AHEAD = 1000
# Among so many messages that it has not read, requests to pause are looked for, and signals that come later.
MOST_UNREAD = 1000
# A row is held for moments by every write; what is held for longer is in the way.
HELD_SECONDS = 1
# Of several waits the first of these kinds is told: what runs code, then runs, people and time.
ORDER = ("activity", "transaction", "side_effect", "child", "request", "deferred", "signal", "interrupted", "timer")


class Cause(StrEnum):
    """Why a run does not move."""

    CLOSED = "closed"
    DELAYED = "delayed"
    PAUSED = "paused"
    MISMATCH = "mismatch"
    QUARANTINE = "quarantine"
    TIMER = "timer"
    SIGNAL = "signal"
    DEFERRED = "deferred"
    REQUEST = "request"
    ACTIVITY = "activity"
    RETRY = "retry"
    CHILD = "child"
    DEADLOCK = "deadlock"
    NO_WORKER = "no_worker"
    NO_CODE = "no_code"
    BACKLOG = "backlog"
    SUSPECT = "suspect"
    OWNER_STALLED = "owner_stalled"
    OWNER_LOST = "owner_lost"
    LOCKED = "locked"
    MOVING = "moving"


@dataclass(frozen=True, slots=True)
class Explanation(View):
    """Why a run does not move: the cause, one sentence, since when, what tells so, and what to do if anything helps.

    Of a run that waits for another one, `why` is the explanation of that one.
    """

    id: str
    run_id: str
    cause: Cause
    summary: str
    since: datetime | None
    evidence: dict[str, object]
    advice: str | None = None
    why: "Explanation | None" = None


class Diagnoses(Protocol):
    """What a server finds out."""

    async def explain(self, namespace: str, run_id: str) -> Explanation: ...

    async def stuck(self, namespace: str, after_ms: int, cursor: str | None, limit: int) -> Page: ...


@runtime_checkable
class HasDiagnoses(Protocol):
    """An engine over a server."""

    @property
    def diagnoses(self) -> Diagnoses: ...


async def explain(engine: Engine, namespace: str, run_id: str, hint: Hint | None = None) -> Explanation:
    """Why this run does not move; RunNotFound, RunUnreadable."""
    if isinstance(engine, HasDiagnoses):
        return await engine.diagnoses.explain(namespace, run_id)
    row = await engine.reader.read(namespace, run_id)
    where = ("--namespace", namespace) if namespace != DEFAULT_NAMESPACE else ()
    return await _Explainer(engine, namespace, hint or (lambda *words: command(*words, *where))).explain(row, ())


class _Explainer:
    """One look at a run, and at those it waits for; what is known of workers is read once."""

    def __init__(self, engine: Engine, namespace: str, hint: Hint) -> None:
        self._engine = engine
        self._namespace = namespace
        self._hint = hint
        self._now = engine.clock.now()
        self._workers: list[WorkerLife] | None = None

    async def explain(self, row: RunRow, path: tuple[RunRow, ...]) -> Explanation:
        """Why a run does not move that those of the path wait for, one after the other."""
        info = await run_view(self._engine, row)
        if info.closed_at is not None:
            return self._closed(info)
        if info.held is not None:
            return self._held(info)
        if (locked := await self._locked(info)) is not None:
            return locked
        if row.owner is not None:
            lost = await self._lost(row, info)
            return lost or await self._pausing(row, await self._waiting(row, info, path))
        if row.wake_at is not None and row.wake_at <= self._now:
            return await self._ripe(row, info)
        return self._resting(row, info) or await self._waiting(row, info, path)

    def _told(
        self,
        info: RunInfo,
        cause: Cause,
        summary: str,
        since: datetime | None,
        advice: str | None = None,
        why: Explanation | None = None,
        **evidence: Any,
    ) -> Explanation:
        return Explanation(info.id, info.run_id, cause, visible(summary), since, evidence, advice, why)

    def _command(self, *words: str) -> str:
        return f"`{self._hint(*words)}`"

    # It has ended, or somebody must act

    def _closed(self, info: RunInfo) -> Explanation:
        assert info.closed_at is not None
        why = f": {info.error}" if info.error else ""
        summary = f"it has ended: {info.status} at {told_time(info.closed_at)}{why}"
        return self._told(
            info, Cause.CLOSED, summary, info.closed_at, self._again(info), status=info.status, error=info.error
        )

    def _again(self, info: RunInfo) -> str | None:
        """What helps after an end that was not wanted."""
        if info.forked_to is not None:
            return f"it went on as another run: {self._command('show', info.forked_to)}"
        if info.status not in ENDED_BADLY:
            return None
        if info.workflow.startswith(TASK_PREFIX) and info.parent_id is not None:
            return (
                "it is an activity of another run, which was told of its end; when that has failed as well, "
                f"retry that: {self._command('retry', info.parent_id)}"
            )
        return (
            f"when the cause is mended, run again what failed: {self._command('retry', info.id)}; or go on from an "
            f"event with another input or result: {self._command('fork', info.id, '--at', 'SEQ')}"
        )

    def _held(self, info: RunInfo) -> Explanation:
        report = report_of(info)
        trouble = report.get("trouble") or report.get("reason") if isinstance(report, dict) else None
        remedy = report.get("remedy") if isinstance(report, dict) else None
        summary = f"it is held as {info.held}: {trouble or meaning_of(info)}"
        advice = str(remedy) if remedy else f"let it go on: {self._command('resume', info.id)}"
        # A reason of a version to come is told as what it is most like: somebody has to act.
        cause = Cause(info.held) if info.held in {"mismatch", "quarantine", "paused"} else Cause.QUARANTINE
        return self._told(info, cause, summary, info.updated_at, advice, report=report)

    async def _locked(self, info: RunInfo) -> Explanation | None:
        """Somebody holds its row in a transaction; what writes rows in the ordinary course is done in moments."""
        held = await self._engine.inspector.row_holders(info.run_id)
        holders = [each for each in held if each.seconds is None or each.seconds >= HELD_SECONDS]
        if not holders:
            return None
        who = " or ".join(f"process {each.name}" for each in holders)
        seconds = max((each.seconds or 0 for each in holders), default=0)
        summary = f"{who} holds its row in an open transaction, so that nothing of it can be written"
        since = moment(self._now - seconds * 1000)
        advice = "commit or roll back that transaction, or end its process on the server (pg_terminate_backend)"
        told = [{"process": each.name, "seconds": each.seconds} for each in holders]
        return self._told(info, Cause.LOCKED, summary, since, advice, holders=told)

    # Its owner

    async def _lost(self, row: RunRow, info: RunInfo) -> Explanation | None:
        """Its owner is gone, or does not renew its lease; None when it works."""
        workers = await self._known_workers()
        owner = next((each for each in workers if each.row.worker_id == row.owner), None)
        if owner is not None and owner.liveness is Liveness.ALIVE:
            return None
        others = sum(each.liveness is Liveness.ALIVE for each in workers)
        help_ = None if others else f"start a worker, which takes its runs over: {self._start(row)}"
        if owner is None:
            summary = f"its owner, worker {row.owner!r}, has no row any more; the next worker that looks frees the run"
            return self._told(info, Cause.OWNER_LOST, summary, info.updated_at, help_, worker_id=row.owner, until=None)
        worker = owner.row
        until, renewed = moment(worker.lease_until), moment(worker.lease_until - (worker.lease_ms or 0))
        evidence: dict[str, Any] = {
            "worker_id": worker.worker_id,
            "host": worker.host,
            "pid": worker.pid,
            "until": until,
        }
        who = f"its owner, process {worker.pid} on {worker.host},"
        if owner.liveness is Liveness.DEAD:
            summary = f"{who} is gone, and no other worker has taken it over yet"
            return self._told(info, Cause.OWNER_LOST, summary, renewed, help_, **evidence)
        summary = f"{who} does not renew its lease any more, which ended at {told_time(until)}"
        hung = "see whether it hangs, and end it"
        advice = f"{hung}; {help_}" if help_ else f"{hung}; others take its runs over"
        return self._told(info, Cause.OWNER_STALLED, summary, renewed, advice, **evidence)

    async def _pausing(self, row: RunRow, told: Explanation) -> Explanation:
        """The same of a run that was asked to pause, which is held once what is under way has ended."""
        asked = await self._unread(row.run_id, PauseRequest, ResumeRequest) if row.messages else []
        if not asked or not isinstance(last := asked[-1], PauseRequest):
            return told
        why = "" if last.reason is None else f" ({visible(last.reason)})"
        summary = f"{told.summary}; it was asked to pause{why}, and is held once what is under way has ended"
        told.evidence["pause_reason"] = last.reason
        return replace(told, summary=summary)

    async def _unread(self, run_id: str, *kinds: type[B]) -> list[B]:
        """The messages of these kinds that it has not taken, among the first ones."""
        unread = (await self._engine.reader.unread_page(run_id, 0, MOST_UNREAD)).messages
        return [each.body for each in unread if isinstance(each.body, kinds)]

    async def _known_workers(self) -> list[WorkerLife]:
        if self._workers is None:
            self._workers = await self._engine.inspector.workers(self._namespace)
        return self._workers

    # It is free, and ripe

    async def _ripe(self, row: RunRow, info: RunInfo) -> Explanation:
        """A worker should take it; what keeps them from it."""
        workers = await self._known_workers()
        alive = [each.row for each in workers if each.liveness is Liveness.ALIVE]
        served = served_by(alive, self._namespace)
        since = info.updated_at if row.wake_at is None or row.wake_at < 0 else moment(row.wake_at)
        if not has_code(served, row.queue, row.workflow):
            return self._unserved(row, info, served, max(since, info.updated_at), workers)
        if is_suspect(row.losses):
            summary = f"its worker died {row.losses} times while it ran; such runs are brought back a few at a time"
            advice = "find out what ends its workers; it is tried again by itself"
            return self._told(info, Cause.SUSPECT, summary, since, advice, losses=row.losses, until=None)
        names = sorted(served[row.queue] or {row.workflow})
        ahead = await self._engine.inspector.count_ahead(row, names, self._now, MOST_AHEAD)
        if ahead:
            more = " or more" if ahead >= MOST_AHEAD else ""
            summary = f"it waits for its turn on the queue {row.queue}, behind {counted(ahead, 'run')}{more}"
            advice = f"it is taken in its turn; more workers take it sooner: {self._start(row)}"
            return self._told(info, Cause.BACKLOG, summary, since, advice, ahead=ahead, queue=row.queue)
        summary = f"nothing keeps it: it is the next on the queue {row.queue}, and a worker that has its code takes it"
        return self._told(info, Cause.MOVING, summary, since, queue=row.queue, owner=None)

    def _unserved(
        self, row: RunRow, info: RunInfo, served: Served, since: datetime, workers: Sequence[WorkerLife]
    ) -> Explanation:
        """No living worker works its queue, or none of them has its code."""
        there = [_worker(each) for each in workers]
        advice = f"start one: {self._start(row)}"
        if row.queue not in served:
            summary = f"no living worker works its queue, {row.queue}"
            return self._told(info, Cause.NO_WORKER, summary, since, advice, queue=row.queue, workers=there)
        summary, _, remedy = told_missing(row.workflow, row.queue, served).rpartition("; ")
        had = [each.row for each in workers if _is_gone_with(each, row)]
        last = max(had, key=lambda worker: worker.lease_until, default=None)
        if last is not None:
            summary += f"; process {last.pid} on {last.host}, which is gone or hangs, last had it"
        evidence: dict[str, Any] = {"workflow": row.workflow, "queue": row.queue, "workers": there}
        evidence["last_had"] = None if last is None else last.worker_id
        return self._told(info, Cause.NO_CODE, summary, since, remedy, **evidence)

    def _start(self, row: RunRow) -> str:
        return self._command("worker", "MODULE", *(("--queue", row.queue) if row.queue != DEFAULT_QUEUE else ()))

    # It is free, and not ripe yet

    def _resting(self, row: RunRow, info: RunInfo) -> Explanation | None:
        """A delay before its begin, or a rest after its workers died."""
        if (rest := rest_of(row, self._now)) is not None:
            until = moment(rest.until)
            summary = f"it rests until {told_time(until)}: {rest.reason}"
            advice = "find out what ends its workers; it is tried again by itself"
            return self._told(info, Cause.SUSPECT, summary, info.updated_at, advice, losses=row.losses, until=until)
        if row.begun_at is None and row.delayed_until is not None and row.wake_at is not None:
            until = moment(row.delayed_until)
            summary = f"it was started with a delay, and begins at {told_time(until)}"
            return self._told(info, Cause.DELAYED, summary, info.created_at, until=until)
        return None

    # It waits

    async def _waiting(self, row: RunRow, info: RunInfo, path: tuple[RunRow, ...]) -> Explanation:
        """What it waits for, as its row says; of several, one whose own trouble is known before all others."""
        waits = sorted((wait for wait in info.waiting_for if wait.kind in ORDER), key=_rank)
        if not waits:
            return self._moving(row, info)
        wait = waits[0]
        match wait.kind:
            case "activity" | "transaction":
                told = await self._activity(info, wait, (*path, row))
            case "child":
                told = await self._child(info, wait, (*path, row))
            case "timer" if wait.until is not None:
                told = self._told(
                    info,
                    Cause.TIMER,
                    f"it sleeps until {told_time(wait.until)}",
                    info.updated_at,
                    until=wait.until,
                    place=wait.place,
                )
            case "signal" | "deferred" | "request":
                told = await self._channel(info, wait)
            case "interrupted":
                told = self._told(
                    info, Cause.SIGNAL, "it waits to be asked to stop", info.updated_at, place=wait.place, name=None
                )
            case _:
                told = self._moving(row, info)
        return _beside(told, waits)

    def _moving(self, row: RunRow, info: RunInfo) -> Explanation:
        if row.owner is None:
            summary = "it is free, and nothing says what it waits for"
            advice = f"see whether its row is sound: {self._command('audit')}"
            return self._told(info, Cause.MOVING, summary, info.updated_at, advice, owner=None)
        summary = f"nothing keeps it: its worker goes on with it, and it last moved at {told_time(info.updated_at)}"
        return self._told(info, Cause.MOVING, summary, info.updated_at, owner=row.owner)

    async def _channel(self, info: RunInfo, wait: Wait) -> Explanation:
        verb, words = {
            "signal": ("send it", ("signal", info.id, str(wait.name), "JSON")),
            "deferred": ("give it its value", ("resolve", info.id, str(wait.name), "JSON")),
            "request": ("ask it", ("ask", info.id, str(wait.name), "JSON")),
        }[wait.kind]
        since = wait.since or info.updated_at
        summary = f"it waits for the {wait.kind} {wait.name!r}"
        advice = f"{verb}: {self._command(*words)}"
        evidence: dict[str, Any] = {"name": wait.name, "place": wait.place, "accepts": wait.accepts}
        if wait.kind == "signal" and (due_at := await self._under_way(info.run_id, wait.name)) is not None:
            summary += f", and one that was sent with a delay comes at {told_time(due_at)}"
            advice = f"wait until then, or {advice}"
            evidence["due_at"] = due_at
        return self._told(info, Cause(wait.kind), summary, since, advice, **evidence)

    async def _under_way(self, run_id: str, name: str | None) -> datetime | None:
        """When the first signal of this name comes that was sent with a delay."""
        sent = [each for each in await self._unread(run_id, SignalSent) if each.name == name]
        due = [each.due_at for each in sent if each.due_at is not None and each.due_at > self._now]
        return moment(min(due)) if due else None

    async def _activity(self, info: RunInfo, wait: Wait, path: tuple[RunRow, ...]) -> Explanation:
        """An activity under way, here or on a queue, or between two attempts."""
        if wait.run_id is not None and wait.run_id != info.run_id:
            return await self._task(info, wait, wait.run_id, path)
        failed = await self._engine.inspector.last_attempt(info.run_id, wait.place)
        attempt = 1 if failed is None else failed.attempt + 1
        evidence: dict[str, Any] = {"name": wait.name, "place": wait.place, "attempt": attempt}
        if failed is not None and failed.next_at is not None and failed.next_at > self._now:
            error, next_at = failed.failure.summary, moment(failed.next_at)
            summary = (
                f"attempt {failed.attempt} of the activity {wait.name} failed ({error}), and the next one is at "
                f"{told_time(next_at)}"
            )
            return self._told(info, Cause.RETRY, summary, moment(failed.at), next_at=next_at, error=error, **evidence)
        beat = "" if wait.beat_at is None else f", last heard of at {told_time(wait.beat_at)}"
        summary = f"it waits for the activity {wait.name}, which runs (attempt {attempt}{beat})"
        return self._told(
            info, Cause.ACTIVITY, summary, info.updated_at, beat_at=wait.beat_at, details=wait.details, **evidence
        )

    async def _task(self, info: RunInfo, wait: Wait, run_id: str, path: tuple[RunRow, ...]) -> Explanation:
        """An activity on a queue, which is a run of its own."""
        why = await self._other(path, run_id=run_id)
        evidence: dict[str, Any] = {"name": wait.name, "place": wait.place, "queue": wait.queue, "run_id": run_id}
        head = f"it waits for the activity {wait.name} on the queue {wait.queue}"
        if why is None:
            return self._told(info, Cause.ACTIVITY, head, info.updated_at, **evidence)
        if why.cause in {Cause.RETRY, Cause.ACTIVITY}:
            # What its own run waits for is the activity itself.
            return self._told(
                info, why.cause, why.summary, why.since, why.advice, why, **dict[str, Any](why.evidence) | evidence
            )
        return self._told(info, Cause.ACTIVITY, f"{head}: {why.summary}", info.updated_at, why.advice, why, **evidence)

    async def _child(self, info: RunInfo, wait: Wait, path: tuple[RunRow, ...]) -> Explanation:
        """Another run that it waits for; when that one waits for it, neither will ever go on."""
        head = f"it waits for the run {wait.name!r}"
        try:
            child = await self._engine.reader.find(self._namespace, str(wait.name))
        except (RunNotFound, RunUnreadable) as error:
            return self._told(info, Cause.CHILD, f"{head}: {error}", info.updated_at, id=wait.name)
        if child.run_id in {each.run_id for each in path}:
            ids = [each.workflow_id for each in path]
            circle = [*ids[ids.index(child.workflow_id) :], child.workflow_id]
            summary = f"runs wait for each other, and none of them can go on: {' waits for '.join(circle)}"
            advice = f"end one of them: {self._command('cancel', info.id)}"
            return self._told(info, Cause.DEADLOCK, summary, info.updated_at, advice, circle=circle)
        why = await self._other(path, row=child)
        around = None if why is None else why.evidence.get("circle")
        if why is not None and isinstance(around, list) and info.id in around:
            return self._told(
                info, Cause.DEADLOCK, why.summary, info.updated_at, why.advice, **dict[str, Any](why.evidence)
            )
        summary = head if why is None else f"{head}, of which this is known: {why.summary}"
        help_ = None if why is None else why.advice
        return self._told(info, Cause.CHILD, summary, info.updated_at, help_, why, id=child.workflow_id)

    async def _other(
        self, path: tuple[RunRow, ...], *, row: RunRow | None = None, run_id: str | None = None
    ) -> Explanation | None:
        """Why a run does not move that is waited for; None when that is too deep, or cannot be read."""
        if len(path) > DEEPEST:
            return None
        try:
            found = row or await self._engine.reader.read(self._namespace, str(run_id))
            return await self.explain(found, path)
        except (RunNotFound, RunUnreadable):
            return None


def _rank(wait: Wait) -> tuple[bool, int]:
    """What is known to hang comes first."""
    return wait.reason is None, ORDER.index(wait.kind)


def _beside(told: Explanation, waits: Sequence[Wait]) -> Explanation:
    """The same, with what else the run waits for."""
    if len(waits) > 1:
        told.evidence["also"] = [
            {"kind": each.kind, "name": each.name, "place": each.place, "until": each.until} for each in waits[1:]
        ]
    return told


def _worker(seen: WorkerLife) -> dict[str, object]:
    row = seen.row
    return {"worker_id": row.worker_id, "host": row.host, "pid": row.pid, "queues": row.queues, "is": seen.liveness}


def _is_gone_with(seen: WorkerLife, row: RunRow) -> bool:
    """Whether a worker that does not live any more, and whose row is still there, had the code of a run."""
    try:
        names = msgspec.json.decode(seen.row.workflows or "[]", type=list[str])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return False
    return seen.liveness is not Liveness.ALIVE and row.workflow in names
