"""Perdure and Run: the one object a program opens, and the handle of a run.

In:   a URL, decorated functions, their arguments.
Out:  runs, their results, their histories.
Puts the parts together: store, engine, worker.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar
from urllib.parse import unquote

import msgspec

from perdure import codec
from perdure.authoring.durations import Duration, seconds
from perdure.authoring.functions import Workflow, workflows
from perdure.authoring.runtime import current
from perdure.authoring.signals import Signal
from perdure.clock import Clock, SystemClock
from perdure.codec import Arguments, ValueType
from perdure.engine.port import Ending, Engine, OwnedRun, StartRequest
from perdure.engine.store_engine import StoreEngine
from perdure.errors import BadOption, IdConflict, NotAllowedInWorkflow, NotOpen, RunFailed, UnknownWorkflow
from perdure.ids import Ids, RandomIds, checked_id
from perdure.kernel.events import Event
from perdure.kernel.failure import Failure
from perdure.kernel.status import Status
from perdure.stores.port import Store
from perdure.stores.records import RunFilter, RunRow
from perdure.stores.sqlite import SqliteStore
from perdure.worker.failures import revive
from perdure.worker.worker import Worker, WorkerSettings

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_ANY = ValueType(Any)

EVENTS_PAGE = 500
LARGEST_PAGE = 1000
LONGEST_SHOWN = 100


class Wait(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something a run waits for: an activity, a timer, a signal or a side effect, and since or until when."""

    kind: str
    place: str
    name: str | None = None
    until: datetime | None = None
    failed_attempts: int = 0


class FailedAttempt(msgspec.Struct, frozen=True):
    """A failed attempt of an activity, and when the next one is due."""

    place: str
    attempt: int
    name: str
    error: str
    at: datetime
    next_at: datetime | None


class RunEvent(msgspec.Struct, frozen=True):
    """An event of a run's history, as people read it; `body` holds what its kind has to say."""

    seq: int
    at: datetime
    kind: str
    place: str
    body: dict[str, object]


class RunInfo(msgspec.Struct, frozen=True):
    """A run as it stands."""

    run_id: str
    workflow_id: str
    workflow: str
    namespace: str
    queue: str
    status: Status
    held: str | None
    held_report: str | None
    waiting_for: tuple[Wait, ...]
    step: str | None
    entity_id: str | None
    correlation_id: str | None
    attributes: dict[str, object]
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None
    error: str | None

    @property
    def id(self) -> str:
        return self.workflow_id


class Page(Sequence[RunInfo]):
    """A page of runs; `cursor` leads to the next one, None when there is none."""

    def __init__(self, runs: list[RunInfo], cursor: str | None) -> None:
        self._runs = runs
        self.cursor = cursor

    def __iter__(self) -> Iterator[RunInfo]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index]

    def __repr__(self) -> str:
        return f"<page of {len(self)} runs{'' if self.cursor is None else ', more after its cursor'}>"


class Run(Generic[R]):
    """The handle of a run: `id` is the caller's key, `run_id` is ours."""

    def __init__(self, engine: Engine, run: RunRow | OwnedRun, result: ValueType) -> None:
        self.id = run.workflow_id
        self.run_id = run.run_id
        self.workflow = run.workflow
        self._engine = engine
        self._owned = run if isinstance(run, OwnedRun) else None
        self._result = result

    async def result(self, timeout: Duration | None = None) -> R:
        """What the workflow returned, once it has; RunFailed with its error otherwise."""
        _refuse_in_workflows()
        if timeout is None:
            ending = await self._engine.wait(self.run_id, self._owned)
        else:
            try:
                async with asyncio.timeout(seconds(timeout, "timeout")):
                    ending = await self._engine.wait(self.run_id, self._owned)
            except TimeoutError:
                raise TimeoutError(f"run {self.id!r} has no result after {timeout}; it goes on") from None
        return _result(self.id, ending, self._result)  # type: ignore[return-value]  # as annotated

    async def describe(self) -> RunInfo:
        """The run as it stands now."""
        _refuse_in_workflows()
        row = await self._engine.read(self.run_id)
        return await _info(self._engine, row)

    async def signal(self, signal: Signal[T] | str, payload: T) -> None:
        """Send a signal; it is on disk when this returns."""
        _refuse_in_workflows()
        if isinstance(signal, str):
            name, kind = checked_id("signal name", signal), _ANY
        else:
            name, kind = signal.name, signal.payload
        data, _ = kind.record(payload, f"the signal {name!r}")
        await self._engine.post(self.run_id, self.id, name, data)

    async def events(self, after: int = 0) -> AsyncIterator[RunEvent]:
        """The run's history so far, in order."""
        while True:
            page = await self._engine.events(self.run_id, after, EVENTS_PAGE)
            for event in page:
                yield _shown(event)
            if len(page) < EVENTS_PAGE:
                return
            after = page[-1].seq

    async def attempts(self) -> list[FailedAttempt]:
        """The failed attempts of the run's activities that were, or will be, followed by another."""
        return [
            FailedAttempt(
                found.place,
                found.attempt,
                found.name,
                found.failure.summary,
                _moment(found.at),
                None if found.next_at is None else _moment(found.next_at),
            )
            for found in await self._engine.attempts(self.run_id)
        ]

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.workflow}>"


class Perdure:
    """A durable workflow engine over one database.

    As a context manager it also works the given queues: it runs what is started here
    or elsewhere, as far as it has the code. `worker=False` makes it a client only.
    """

    def __init__(
        self,
        url: str,
        *,
        queues: Sequence[str] = ("default",),
        worker: bool = True,
        namespace: str = "main",
        workflows: Sequence[Workflow[..., Any]] | None = None,
        max_live: int = 10_000,
        park_after: Duration = 10.0,
        lease: Duration = 30.0,
        grace: Duration = 10.0,
    ) -> None:
        self.url = url
        self.namespace = checked_id("namespace", namespace)
        self._is_worker = worker
        self._settings = WorkerSettings(
            queues=tuple(checked_id("queue", queue) for queue in queues),
            max_live=max_live,
            park_after_ms=round(seconds(park_after, "park_after") * 1000),
        )
        self._lease_ms = round(seconds(lease, "lease") * 1000)
        self._grace_ms = round(seconds(grace, "grace") * 1000)
        self._known = None if workflows is None else {w.name: w for w in workflows}
        self._store = store_for(url)
        self._clock: Clock = SystemClock()
        self._ids: Ids = RandomIds()
        self._has_heartbeat = True
        self._engine: Engine | None = None
        self._worker: Worker | None = None

    # Opening and closing

    async def __aenter__(self) -> Self:
        if self._engine is not None:
            raise BadOption("this Perdure is open already; open it once and share it")
        engine: Engine = StoreEngine(
            self._store,
            self._clock,
            self._ids,
            namespace=self.namespace,
            lease_ms=self._lease_ms,
            heartbeat=self._has_heartbeat,
        )
        if self._is_worker:
            self._worker = Worker(engine, self._settings, self._known)
        await engine.open(self._worker, self._settings.queues)
        self._engine = engine
        if self._worker is not None:
            await self._worker.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        engine, worker = self._opened, self._worker
        self._engine = self._worker = None
        if worker is not None:
            await worker.end(self._grace_ms if error is None else 0)
        await engine.close()

    @property
    def _opened(self) -> Engine:
        _refuse_in_workflows()
        if self._engine is None:
            raise NotOpen
        return self._engine

    # Runs

    async def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a run; it is on disk when this returns. The same id again gives the run that has it."""
        wanted = self._checked(workflow)
        request = _request(wanted, wanted.signature.record(args, kwargs))
        return await self._start(self._opened, wanted, request)

    async def start_json(self, workflow: str, arguments: bytes, id: str | None = None) -> Run[Any]:
        """Start a registered workflow by its name, with JSON arguments."""
        wanted = workflows.get(workflow) if self._known is None else self._known.get(workflow)
        if wanted is None:
            raise UnknownWorkflow(workflow, workflows.names() if self._known is None else tuple(self._known))
        request = _request(wanted.options(id=id), wanted.signature.from_json(arguments))
        return await self._start(self._opened, wanted, request)

    async def _start(self, engine: Engine, wanted: Workflow[..., Any], request: StartRequest) -> Run[Any]:
        found = await engine.start(request)
        if isinstance(found, RunRow):
            _refuse_other(found, request)
        return Run(engine, found, wanted.signature.result)

    async def run(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Start a run and wait for its result."""
        wanted, engine = self._checked(workflow), self._opened
        request = _request(wanted, wanted.signature.record(args, kwargs))
        # No handle and no waiter where they are not needed: most runs have ended by the time their start is answered.
        found = await engine.start(request)
        if isinstance(found, RunRow):
            _refuse_other(found, request)
            ending = await engine.wait(found.run_id)
        else:
            ending = found.ending or await engine.wait(found.run_id, found)
        return _result(found.workflow_id, ending, wanted.signature.result)  # type: ignore[return-value]  # as annotated

    async def get(self, id: str | None = None, *, run_id: str | None = None) -> Run[Any]:
        """The newest run with this id, or the one with exactly this run_id; RunNotFound."""
        engine = self._opened
        if (id is None) == (run_id is None):
            raise BadOption("get() takes an id or a run_id, one of them")
        row = await (engine.read(str(run_id)) if id is None else engine.find(id))
        known = workflows.get(row.workflow) if self._known is None else self._known.get(row.workflow)
        result = _ANY if known is None else known.signature.result
        return Run(engine, row, result)

    async def list(
        self,
        *,
        status: "Status | str | Sequence[Status | str] | None" = None,
        workflow: "Workflow[..., Any] | str | None" = None,
        id: str | None = None,
        entity_id: str | None = None,
        correlation_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """Runs that match, newest first; `after` takes the cursor of the page before."""
        engine = self._opened
        if not 1 <= limit <= LARGEST_PAGE:
            raise BadOption(f"limit is {limit}; a page has 1 to {LARGEST_PAGE} runs")
        wanted = RunFilter(
            namespace=self.namespace,
            status=_statuses(status),
            workflow=workflow.name if isinstance(workflow, Workflow) else workflow,
            workflow_id=id,
            entity_id=entity_id,
            correlation_id=correlation_id,
            before=after,
            limit=limit + 1,
        )
        rows = await engine.list_runs(wanted)
        infos = [await _info(engine, row, is_listed=True) for row in rows[:limit]]
        return Page(infos, rows[limit - 1].run_id if len(rows) > limit else None)

    def _checked(self, workflow: object) -> Workflow[..., Any]:
        if not isinstance(workflow, Workflow):
            name = getattr(workflow, "__qualname__", repr(workflow))
            raise BadOption(f"{name} is not a workflow; decorate it with @workflow")
        if self._is_worker and self._known is not None and workflow.name not in self._known:
            raise UnknownWorkflow(workflow.name, tuple(self._known))
        return workflow


def _refuse_in_workflows() -> None:
    """A replay would start, signal or wait again; that is what activities are for."""
    if current() is not None:
        raise NotAllowedInWorkflow("using a Perdure or a Run", "do it in an activity")


def store_for(url: str) -> Store:
    """The store behind a URL; BadOption when it names none."""
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not separator or scheme != "sqlite":
        raise BadOption(f"the URL {url!r} names no store; use sqlite:///file.db, or sqlite:// for memory")
    if not rest:
        return SqliteStore(None)
    if not rest.startswith("/") or rest == "/":
        raise BadOption(f"the URL {url!r} names no file; use sqlite:///file.db, or sqlite:////absolute/path.db")
    return SqliteStore(unquote(rest[1:]))


def _statuses(status: "Status | str | Sequence[Status | str] | None") -> tuple[str, ...]:
    if status is None:
        return ()
    names = [status] if isinstance(status, str) else list(status)
    for name in names:
        if name.upper() not in Status.__members__:
            raise BadOption(f"no status is named {name!r}; there are {', '.join(Status)}")
    return tuple(name.upper() for name in names)


def _request(wanted: Workflow[..., Any], arguments: Arguments) -> StartRequest:
    data, args, kwargs = arguments
    return StartRequest(wanted.name, data.decode(), wanted.settings.id, arguments=(args, kwargs))


def _refuse_other(found: RunRow, request: StartRequest) -> None:
    """The id is taken: fine when it is the same workflow with the same arguments."""
    same = found.workflow == request.workflow and codec.load(found.input.encode()) == codec.load(request.input.encode())
    if not same:
        raise IdConflict(
            found.workflow_id, _digest(found.workflow, found.input), _digest(request.workflow, request.input)
        )


def _digest(workflow: str, input: str) -> str:
    shown = input if len(input) <= LONGEST_SHOWN else input[:LONGEST_SHOWN] + "..."
    return f"{workflow}({shown})"


def _result(id: str, ending: Ending, kind: ValueType) -> object:
    if ending.result is None:
        raise _failure(id, ending)
    return kind.restore(ending.result, "the result")


def _failure(id: str, ending: Ending) -> Exception:
    failure = ending.failure or Failure("builtins.RuntimeError", "unknown")
    error = RunFailed(id, failure.summary)
    error.__cause__ = revive(failure)
    return error


def _shown(event: Event) -> RunEvent:
    body = msgspec.json.decode(msgspec.json.encode(event.fact))
    return RunEvent(event.seq, _moment(event.at), event.kind, event.place, body)


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)


def _waits(text: str | None) -> tuple[Wait, ...]:
    found = []
    for wait in msgspec.json.decode(text or "[]"):
        until = wait.pop("until", None)
        found.append(Wait(**wait, until=None if until is None else _moment(until)))
    return tuple(found)


async def _info(engine: Engine, row: RunRow, *, is_listed: bool = False) -> RunInfo:
    moved_at = row.updated_at
    waiting = row.waiting
    if row.closed_at is None and not is_listed:
        # Steps do not touch the row; the last event says when the run moved, and whether the note of its wait is old.
        last = await engine.last_event_at(row.run_id)
        if last is not None and last > moved_at:
            moved_at, waiting = last, None
    failure = None
    if row.status == Status.FAILED and row.outcome:
        failure = msgspec.json.decode(row.outcome, type=Failure)
    return RunInfo(
        run_id=row.run_id,
        workflow_id=row.workflow_id,
        workflow=row.workflow,
        namespace=row.namespace,
        queue=row.queue,
        status=Status(row.status),
        held=row.held,
        held_report=row.held_report,
        waiting_for=_waits(waiting),
        step=row.step,
        entity_id=row.entity_id,
        correlation_id=row.correlation_id,
        attributes=msgspec.json.decode(row.attributes or "{}"),
        created_at=_moment(row.created_at),
        updated_at=_moment(moved_at),
        closed_at=None if row.closed_at is None else _moment(row.closed_at),
        error=None if failure is None else failure.summary,
    )
