"""Views: runs, their events and messages, as people and programs outside see them.

They are dataclasses of plain values, so that web frameworks and JSON libraries take them as they are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, overload

import msgspec

from perdure.codec.schemas import misfit
from perdure.engine.hindrances import (
    NoCode,
    Rest,
    Served,
    has_code,
    hindrance_of,
    told_missing,
)
from perdure.engine.ports import Engine
from perdure.errors import BadOption, RunNotFound, RunUnreadable, StoreUnavailable
from perdure.kernel.events import Event
from perdure.kernel.messages import (
    ChildFailure,
    ChildResult,
    DeferredFailure,
    DeferredResult,
    Message,
    RequestSent,
    ResumeRequest,
    SignalSent,
)
from perdure.kernel.status import Status
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.records import AttemptRow, CallProgress, RunRow
from perdure.stores.rows import Garbled, error_text

A = TypeVar("A")
B = TypeVar("B")

# The first and the last moment that Python can tell.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
LARGEST_PAGE = 1000
# Of so many children that a run waits for it is looked what keeps them.
MOST_CHILDREN = 10


class View:
    """What all views can do."""

    __slots__ = ()

    def to_dict(self) -> dict[str, object]:
        """The view in plain values that every JSON library takes; moments as text."""
        return msgspec.json.decode(msgspec.json.encode(self), type=dict[str, object])


@dataclass(frozen=True, slots=True)
class Wait(View):
    """Something a run waits for: an activity, a timer, a signal, a child or a side effect, and since or until when.

    Of kind "worker" it waits for one that has its code; of kind "rest" for its next try, after it was alone with
    workers that died. `reason` says why in words; `accepts` is the JSON schema of a signal's payload. Of an activity
    that calls heartbeat(), `details` are the newest it gave, as of `beat_at`; `run_id` is the run of one on a queue.
    """

    kind: str
    place: str
    name: str | None = None
    until: datetime | None = None
    failed_attempts: int = 0
    queue: str | None = None
    since: datetime | None = None
    reason: str | None = None
    accepts: dict[str, object] | None = None
    details: object = None
    beat_at: datetime | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeferredInfo(View):
    """A deferred of a run that is waited for, or was resolved; `type` is the JSON schema of its value, if known.

    `since` is when the oldest wait for it began that still waits.
    """

    name: str
    is_resolved: bool
    type: dict[str, object] | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class UndoInfo(View):
    """A call that a run has registered to undo something: its state is waiting, done, failed or left.

    `left` is what was not undone of a run that has ended without. `name` is None when it is not known what there is:
    the run has registered something, and its worker has not said what yet, or died before it could.
    """

    name: str | None
    state: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class FailedAttempt(View):
    """A failed attempt of an activity, and when the next one is due."""

    place: str
    attempt: int
    name: str
    error: str
    at: datetime
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunEvent(View):
    """An event of a run's history, as people read it; `body` holds what its kind has to say."""

    seq: int
    at: datetime
    kind: str
    place: str
    body: dict[str, object]


@dataclass(frozen=True, slots=True)
class UnreadMessage(View):
    """A message in a run's inbox that its code has not taken yet; `name` is that of a signal or a child.

    One that was sent with a delay is `due_at` a time, and not received before.
    """

    kind: str
    name: str | None
    payload: object
    at: datetime
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RunInfo(View):
    """A run as it stands."""

    run_id: str
    workflow_id: str
    workflow: str
    namespace: str
    queue: str
    priority: int
    status: Status
    held: str | None
    held_report: str | None
    waiting_for: tuple[Wait, ...]
    step: str | None
    entity_id: str | None
    correlation_id: str | None
    attributes: dict[str, object]
    parent_id: str | None
    continued_from: str | None
    continued_to: str | None
    cancel_requested_at: datetime | None
    cancel_reason: str | None
    deadline_at: datetime | None
    delayed_until: datetime | None
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    error: str | None
    # The run that it is a retry or a fork of, the number of the last event that both have, and why it was made; and the
    # newest run that was made of it.
    forked_from: str | None = None
    forked_at: int | None = None
    forked_to: str | None = None
    fork_reason: str | None = None
    # How often its workers were lost in the calls it is in; a run that gets on begins at 0 again.
    losses: int = 0
    # What it has to undo should it not end well, in the order in which that is done; and what it has undone.
    undo: tuple[UndoInfo, ...] = ()
    # Of a run that a schedule started: which one, and for which nominal time.
    schedule: str | None = None
    scheduled_for: datetime | None = None

    @property
    def id(self) -> str:
        return self.workflow_id


@dataclass(init=False, repr=False, eq=False)
class Page(View, Sequence[RunInfo]):
    """A page of runs; `cursor` leads to the next one, None when there is none.

    Runs that are there but cannot be read are not among them; `unreadable` says which, and what is wrong,
    `errors` the same as text. `read` is how many runs were read to find those that match a filter; without it None.
    """

    runs: tuple[RunInfo, ...]
    cursor: str | None
    errors: tuple[str, ...]

    def __init__(
        self,
        runs: Sequence[RunInfo],
        cursor: str | None,
        unreadable: Sequence[RunUnreadable] = (),
        read: int | None = None,
    ) -> None:
        self.runs = tuple(runs)
        self.cursor = cursor
        self.unreadable = tuple(unreadable)
        self.errors = tuple(map(str, unreadable))
        self.read = read

    def __iter__(self) -> Iterator[RunInfo]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> RunInfo: ...
    @overload
    def __getitem__(self, index: slice) -> list[RunInfo]: ...
    def __getitem__(self, index: int | slice) -> RunInfo | list[RunInfo]:
        return list(self.runs[index]) if isinstance(index, slice) else self.runs[index]

    def __repr__(self) -> str:
        return f"<page of {len(self)} runs{'' if self.cursor is None else ', more after its cursor'}>"


EPOCH = datetime.fromtimestamp(0, UTC)


def moment(ms: int) -> datetime:
    """Engine time as an aware datetime; a spoilt one may lie beyond the last there is."""
    return EPOCH + timedelta(milliseconds=max(FIRST_MS, min(ms, LAST_MS)))


def _moment_or_none(ms: int | None) -> datetime | None:
    return None if ms is None else moment(ms)


def event_view(event: Event) -> RunEvent:
    """An event, as people read it."""
    body = msgspec.json.decode(msgspec.json.encode(event.fact))
    return RunEvent(event.seq, moment(event.at), event.kind, event.place, body)


def attempt_view(found: AttemptRow) -> FailedAttempt:
    """A failed attempt, as people read it."""
    at, next_at = moment(found.at), _moment_or_none(found.next_at)
    return FailedAttempt(found.place, found.attempt, found.name, found.failure.summary, at, next_at)


def message_view(message: Message) -> UnreadMessage:
    """A message, as people read it."""
    body, at = message.body, moment(message.at)
    kind = type(body).__name__
    match body:
        case SignalSent(name, payload) | DeferredResult(name, payload) | RequestSent(name, payload):
            due_at = body.due_at if isinstance(body, SignalSent) else None
            return UnreadMessage(
                kind, name, msgspec.json.decode(payload), at, None if due_at is None else moment(due_at)
            )
        case DeferredFailure(name, error):
            return UnreadMessage(kind, name, error, at)
        case ChildResult(child_id=child_id, result=result):
            return UnreadMessage(kind, child_id, msgspec.json.decode(result), at)
        case ChildFailure(child_id=child_id, failure=failure):
            return UnreadMessage(kind, child_id, failure.summary, at)
        case ResumeRequest():
            return UnreadMessage(kind, None, None, at)
        case _:
            return UnreadMessage(kind, None, body.reason, at)


def deferred_views(waits: Sequence[Wait], resolved: Sequence[Message]) -> list[DeferredInfo]:
    """The deferreds that a run waits for, oldest wait first, then those that were resolved and are not waited for."""
    found: dict[str, DeferredInfo] = {}
    given = [message.body.name for message in resolved if isinstance(message.body, DeferredResult | DeferredFailure)]
    for wait in waits:
        if wait.kind == "deferred" and wait.name is not None and wait.name not in found:
            found[wait.name] = DeferredInfo(wait.name, wait.name in given, wait.accepts, wait.since)
    for name in given:
        found.setdefault(name, DeferredInfo(name, is_resolved=True))
    return list(found.values())


_attributes = msgspec.json.Decoder(dict[str, Any]).decode


def _waits(text: str | None) -> tuple[Wait, ...]:
    found = []
    for wait in msgspec.json.decode(text or "[]"):
        until, since = wait.pop("until", None), wait.pop("since", None)
        # What a version to come says besides is not for this one.
        known = {name: wait[name] for name in Wait.__dataclass_fields__ if name in wait}
        found.append(Wait(**known, until=_moment_or_none(until), since=_moment_or_none(since)))
    return tuple(found)


def _undos(row: RunRow) -> tuple[UndoInfo, ...]:
    """What a run has to undo; of one that has ended well nothing, of one that has ended without it is left."""
    found = [UndoInfo(each["name"], each["state"], each.get("error")) for each in msgspec.json.decode(row.undo or "[]")]
    if row.closed_at is None:
        return tuple(found)
    if row.status in {Status.COMPLETED, Status.CONTINUED}:
        return tuple(each for each in found if each.state != "waiting")
    return tuple(replace(each, state="left") if each.state == "waiting" else each for each in found)


async def _with_progress(engine: Engine, row: RunRow, waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
    """The same waits; activities with what they last said of themselves."""
    run_ids = {wait.run_id or row.run_id for wait in waits if wait.kind == "activity"}
    found = await engine.reader.progress(sorted(run_ids)) if run_ids and row.closed_at is None else {}
    return tuple(_beating(wait, found.get(wait.run_id or row.run_id, ())) for wait in waits) if found else waits


def _beating(wait: Wait, known: Sequence[CallProgress]) -> Wait:
    """A wait with the newest heartbeat of its activity; a run of a queue has one activity alone."""
    for said in known if wait.kind == "activity" else ():
        if said.beat_at is not None and (wait.run_id is not None or said.place == wait.place):
            details = msgspec.json.decode(said.details or "null")
            return replace(wait, details=details, beat_at=moment(said.beat_at))
    return wait


async def _hindered(engine: Engine, row: RunRow, waits: tuple[Wait, ...], *, is_listed: bool) -> tuple[Wait, ...]:
    """What an open run waits for, and what keeps it, or the activities and children it waits for, from going on."""
    may_hang = row.owner is None or any(wait.queue or wait.kind == "child" for wait in waits)
    if row.closed_at is not None or row.held is not None or not may_hang:
        return waits
    try:
        served = await engine.reader.serving(row.namespace)
    except StoreUnavailable:
        # It would only have helped; the run itself was read.
        return waits
    waits = tuple(_without_code(wait, served) for wait in waits)
    if not is_listed:
        waits = await _with_hindered_children(engine, row, waits, served)
    match hindrance_of(row, served, engine.clock.now()):
        case Rest(until, reason):
            return (Wait("rest", "", until=moment(until), reason=reason), *waits)
        case NoCode(workflow, queue, since, reason):
            return (Wait("worker", "", workflow, queue=queue, since=moment(since), reason=reason), *waits)
        case _:
            return waits


async def _with_hindered_children(
    engine: Engine, row: RunRow, waits: tuple[Wait, ...], served: Served
) -> tuple[Wait, ...]:
    """The same; the first few children with a reason when something keeps them from going on."""
    children = [wait for wait in waits if wait.kind == "child" and wait.name is not None][:MOST_CHILDREN]
    told = {wait.place: await _with_hindrance(engine, row.namespace, wait, served) for wait in children}
    return tuple(told.get(wait.place, wait) for wait in waits)


async def _with_hindrance(engine: Engine, namespace: str, wait: Wait, served: Served) -> Wait:
    try:
        child = await engine.reader.find(namespace, str(wait.name))
    except (RunNotFound, RunUnreadable, StoreUnavailable):
        # It would only have helped, as above.
        return wait
    match hindrance_of(child, served, engine.clock.now()):
        case Rest(until, reason):
            return replace(wait, until=moment(until), reason=reason)
        case NoCode(_, queue, since, reason):
            return replace(wait, queue=queue, since=moment(since), reason=reason)
        case _:
            return wait


def _without_code(wait: Wait, served: Served) -> Wait:
    """The same; with a reason when it is an activity on a queue that no living worker could run."""
    name = f"{TASK_PREFIX}{wait.name}"
    if wait.queue is None or has_code(served, wait.queue, name):
        return wait
    return replace(wait, reason=told_missing(name, wait.queue, served))


def _continued_to(row: RunRow) -> str | None:
    if row.status != Status.CONTINUED or row.outcome is None:
        return None
    return str(msgspec.json.decode(row.outcome)["run_id"])


async def run_view(engine: Engine, row: RunRow, *, is_listed: bool = False) -> RunInfo:
    """A run as it stands; in a list without a look at its last event. RunUnreadable."""
    try:
        return await _run_view(engine, row, is_listed=is_listed)
    except Garbled as error:
        raise RunUnreadable(engine.url, row.run_id, row.workflow_id, str(error)) from None


async def _run_view(engine: Engine, row: RunRow, *, is_listed: bool) -> RunInfo:
    moved_at = row.updated_at
    waiting = row.waiting
    if row.closed_at is None and not is_listed:
        # Steps do not touch the row; the last event says when the run moved, and whether the note of its wait is old.
        last = await engine.reader.last_event(row.run_id)
        if last is not None and last[1] > moved_at:
            moved_at, waiting = last[1], None
    waits = _read("waiting", _waits, waiting)
    if waits and not is_listed:
        waits = await _with_progress(engine, row, waits)
    return _info(row, await _hindered(engine, row, waits, is_listed=is_listed), moved_at)


def new_run_view(row: RunRow) -> RunInfo:
    """A run that was written this very moment, of which nothing more is to be told than what its row says."""
    return _info(row, (), row.updated_at)


def _info(row: RunRow, waits: tuple[Wait, ...], moved_at: int) -> RunInfo:
    return RunInfo(
        run_id=row.run_id,
        workflow_id=row.workflow_id,
        workflow=row.workflow,
        namespace=row.namespace,
        queue=row.queue,
        priority=row.priority,
        status=row.status if type(row.status) is Status else _read("status", Status, row.status),
        held=row.held,
        held_report=row.held_report,
        waiting_for=waits,
        step=row.step,
        entity_id=row.entity_id,
        correlation_id=row.correlation_id,
        attributes={} if row.attributes is None else _read("attributes", _attributes, row.attributes),
        parent_id=row.parent_id,
        continued_from=row.continued_from,
        continued_to=None if row.closed_at is None else _read("outcome", _continued_to, row),
        cancel_requested_at=None if row.cancel_requested_at is None else moment(row.cancel_requested_at),
        cancel_reason=row.cancel_reason,
        deadline_at=None if row.close_at is None else moment(row.close_at),
        delayed_until=None if row.delayed_until is None else moment(row.delayed_until),
        created_at=moment(row.created_at),
        updated_at=moment(moved_at),
        closed_at=None if row.closed_at is None else moment(row.closed_at),
        error=None if row.closed_at is None else _read("outcome", error_text, row),
        forked_from=row.forked_from,
        forked_at=row.forked_at,
        forked_to=row.forked_to,
        fork_reason=row.fork_reason,
        losses=row.losses,
        undo=() if row.undo is None else _read("undo", _undos, row),
        schedule=row.schedule,
        scheduled_for=None if row.scheduled_for is None else moment(row.scheduled_for),
    )


def _read(column: str, read: Callable[[A], B], given: A) -> B:
    """What a column says; Garbled, with its name, when it says nothing that makes sense."""
    try:
        return read(given)
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError) as error:
        trouble = str(error).replace("`", "")
        raise Garbled(f"the {column} in its row cannot be read: {trouble}") from None


def checked_limit(limit: object) -> int:
    """The limit itself, if a page may have so many runs."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LARGEST_PAGE:
        raise BadOption(f"limit is {limit!r}; a page has 1 to {LARGEST_PAGE} runs")
    return limit


async def shown_page(
    engine: Engine, rows: Sequence[RunRow | RunUnreadable], limit: int, read: int | None = None
) -> Page:
    """A page of rows of which there may be one more than it has room for."""
    infos: list[RunInfo] = []
    unreadable: list[RunUnreadable] = []
    for row in rows[:limit]:
        try:
            if isinstance(row, RunUnreadable):
                raise row
            infos.append(await run_view(engine, row, is_listed=True))
        except RunUnreadable as error:
            unreadable.append(error)
    return Page(infos, rows[limit - 1].run_id if len(rows) > limit else None, tuple(unreadable), read)


def signal_misfit(name: str, payload: object, waits: Sequence[Wait]) -> str | None:
    """Why a run that waits for this signal would set this payload aside; None when it takes it, or keeps it."""
    schemas = [wait.accepts for wait in waits if wait.kind == "signal" and wait.name == name]
    troubles = [misfit(payload, schema or {}) for schema in schemas]
    return troubles[0] if troubles and None not in troubles else None
