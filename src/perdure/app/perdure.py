"""Perdure: the one object a program opens.

In:   a URL, decorated functions, their arguments.
Out:  runs, their results, their histories.
Puts the parts together: store, engine, worker.
"""

import asyncio
import contextlib
import copy
from asyncio.events import _get_running_loop
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from perdure.app import checking
from perdure.app import options as checks
from perdure.app.announcing import announce
from perdure.app.closing import close_fully
from perdure.app.hosts.brief_worker import BriefWorker
from perdure.app.hosts.invocations import Handled, Processed, Tick, budget_ms, handle, process, run_id_in, tick
from perdure.app.hosts.presets import preset as preset_of
from perdure.app.interrupts import end_at_the_callers_line
from perdure.app.keys import DAY, TEN_MINUTES, command_key, start_each
from perdure.app.network.remote import is_remote, remote_engine
from perdure.app.nouns.keys import Keys
from perdure.app.nouns.namespaces import Namespaces
from perdure.app.nouns.outbox import Outbox, reconcile_sinks
from perdure.app.nouns.schedules import Schedules, reconcile
from perdure.app.nouns.workers import Queues, Workers
from perdure.app.open_apps import Home, refuse_in_workflows
from perdure.app.run import Run, handle_of
from perdure.app.run_results import NOTHING, broadcast_of, own_type, resolution, result_of
from perdure.app.senders import sender_of
from perdure.app.shutdown import Shutdown, shutdown
from perdure.app.start_requests import (
    bound,
    checked_json,
    no_workflow,
    recorded,
    request_by_name,
    request_of,
    workflow_of,
)
from perdure.authoring.durations import Duration, seconds
from perdure.authoring.options import DEFAULTS, ConflictPolicy, checked_reason, workflow_options
from perdure.authoring.signals import Signal
from perdure.authoring.sinks import known_sinks
from perdure.authoring.workflow import BoundCall, Workflow, workflows
from perdure.clock import Clock
from perdure.codec import Arguments, ValueType
from perdure.diagnostics.stuck import stuck_page
from perdure.engine import starts
from perdure.engine.endings import final_ending
from perdure.engine.engine import StoreEngine
from perdure.engine.held import tell_how_many
from perdure.engine.leasing.heartbeat import Heartbeat
from perdure.engine.outbox.sinks import EventSenders
from perdure.engine.ports import MAX_UNREAD, Engine, OwnedRun, StartedRun, Steering, Verb
from perdure.engine.reads import StoreReader
from perdure.errors import (
    AnotherLoop,
    BadOption,
    NotOpen,
    PerdureError,
    StoreUnavailable,
    UnknownWorkflow,
)
from perdure.http.access import AsgiApplication, Authenticate
from perdure.ids import Ids, RandomIds, checked_id
from perdure.kernel.conflict import OnConflict
from perdure.kernel.status import Status
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.port import Store
from perdure.stores.records import RunFilter
from perdure.stores.urls import store_for
from perdure.views.bulk import Bulk, act_on_all
from perdure.views.changes import Change, changes_of
from perdure.views.check import Check
from perdure.views.finding import checked_statuses
from perdure.views.run import Page
from perdure.views.run_views import views_of
from perdure.views.schedules import DutyInfo, duty_views
from perdure.views.workers import WorkerStats

if TYPE_CHECKING:
    from perdure.app.sync.generated import SyncPerdure
    from perdure.http.catalog import Catalog
    from perdure.worker.executor import WorkerSettings
    from perdure.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_ANY = ValueType(Any)

# How many runs start_many has under way at once.
MANY = 2000


class Perdure:
    """A durable workflow engine over one database.

    As a context manager it also works the given queues: it runs what is started here
    or elsewhere, as far as it has the code. `worker=False` makes it a client only.

    A `preset` ("dev", "standard" or "throughput") says how many runs live here at once, how long a quiet one stays,
    how long the lease is and how long a stop waits for activities: `max_live, park_after, lease, grace` win over it.
    A run that has not read `max_unread` messages is sent no more signals from here: InboxFull.
    `Perdure("https://server")` is the same over a server, which is shown the `key`, or PERDURE_KEY.
    """

    def __init__(
        self,
        url: str,
        *,
        queues: Sequence[str] = ("default",),
        worker: bool = True,
        namespace: str = "main",
        workflows: Sequence[Workflow[..., object]] | None = None,
        resources: Sequence[object] = (),
        preset: str = "standard",
        max_live: int | None = None,
        max_unread: int = MAX_UNREAD,
        park_after: Duration | None = None,
        lease: Duration | None = None,
        grace: Duration | None = None,
        key: str | None = None,
    ) -> None:
        self.url = url
        self._is_remote = is_remote(url)
        if key is not None and not self._is_remote:
            raise BadOption("key= is what a server is shown; leave it away for a database")
        self._key = key
        self._connect: Callable[[str, str | None], Engine] = remote_engine
        self.namespace = checked_id("namespace", namespace)
        self._is_worker = checks.flag("worker", worker)
        self._queues = checks.queues(queues)
        chosen = preset_of(preset, max_live, park_after, lease, grace)
        self._settings = _settings(
            self._queues,
            max_live=checks.count("max_live", chosen.max_live, 1),
            park_after_ms=round(seconds(chosen.park_after, "park_after") * 1000),
            is_worker=self._is_worker,
        )
        self._max_unread = checks.count("max_unread", max_unread, 1)
        self._lease_ms = round(seconds(chosen.lease, "lease") * 1000)
        self._grace_ms = round(seconds(chosen.grace, "grace") * 1000)
        self._known = checks.known(workflows)
        self._resources = checks.resources(resources)
        self._store = store_for("sqlite://" if self._is_remote else url)
        self._home = Home(url if url != "sqlite://" else f"sqlite://#{id(self)}", namespace)
        # The same, under a key if there is one.
        self._asked = self._home
        self._clock: Clock = self._store.clock()
        self._ids: Ids = RandomIds()
        self._heartbeat: type[Heartbeat] | None = Heartbeat
        self._senders: EventSenders = sender_of
        self._announces = True
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._closing: Worker | None = None
        self._guard: asyncio.Task[None] | None = None
        self._shutdown: Shutdown | None = shutdown
        self._is_over: asyncio.Event | None = None
        self._is_handing_back = False

    # Opening and closing

    async def __aenter__(self) -> Self:
        if self._engine is not None:
            raise BadOption("this Perdure is open already; open it once and share it")
        if self._is_remote and self._is_worker and self._announces and known_sinks():
            raise BadOption("a server hands events to no @sink; open the database itself, or add a webhook")
        engine = self._engine_of_url()
        if self._settings is not None:
            from perdure.worker.worker import Worker  # noqa: PLC0415 - as its settings

            self._worker = Worker(engine, self.namespace, self._settings, self._known, self._resources)
        await engine.open(self.namespace, self._worker, self._queues)
        self._engine = engine
        self._loop = _get_running_loop()
        self._is_over, self._is_handing_back = asyncio.Event(), False
        self._home.open(engine)
        if self._worker is not None:
            if self._shutdown is not None:
                # Before anything is claimed: what runs must be handed back from its first moment on.
                self._shutdown.watch(self, self._hand_back)
                self._guard = asyncio.create_task(self._until_unwound())
            await self._worker.begin()
            await reconcile(engine, self.namespace, self._workflows())
            if self._announces:
                await announce(engine, self.namespace, self._workflows())
            await reconcile_sinks(engine, self.namespace, known_sinks())
            await _tell_of_held_runs(engine, self.namespace)
            await _tell_of_missing_code(engine, self.namespace, self._queues)
        return self

    def _engine_of_url(self) -> Engine:
        return self._connect(self.url, self._key) if self._is_remote else self._engine_over(self._store)

    def _engine_over(self, store: Store, *, is_brief: bool = False) -> StoreEngine:
        return StoreEngine(
            store,
            self._clock,
            self._ids,
            lease_ms=self._lease_ms,
            heartbeat=self._heartbeat,
            max_unread=self._max_unread,
            is_brief=is_brief,
            senders=self._senders,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_at_the_callers_line(error)
        engine, worker, is_over = self._opened, self._worker, cast("asyncio.Event", self._is_over)
        if self._shutdown is not None:
            await self._shutdown.until_ended()
        if self._is_handing_back and self._guard is not None:
            await asyncio.wait({self._guard})
            worker = None
        self._closing = worker
        self._engine = self._worker = None
        self._home.close()
        closing = _close(engine, worker, self._grace_ms if error is None else 0)
        try:
            await close_fully(closing, worker.hurry if worker is not None else lambda: None)
        finally:
            self._closing = None
            is_over.set()
            if self._shutdown is not None:
                await self._shutdown.until_ended()
                self._shutdown.forget(self)

    async def _until_unwound(self) -> None:
        """Hand runs back when the loop ends and this was left open: `asyncio.run` cancels every task, and waits."""
        try:
            await cast("asyncio.Event", self._is_over).wait()
        except asyncio.CancelledError:
            await self._hand_back()
            raise

    async def _hand_back(self) -> None:
        """Let go of all runs since the process ends, and leave the rest to that; one that is being closed hurries."""
        if self._worker is not None:
            self._is_handing_back = True
            await self._worker.close(0)
        elif self._closing is not None and self._is_over is not None:
            self._closing.hurry()
            await self._is_over.wait()

    if not TYPE_CHECKING:
        # There so that a plain `with` is answered with what to write instead; type checkers refuse it by themselves.

        def __enter__(self) -> Self:
            raise BadOption(
                "a Perdure is opened with `async with Perdure(url) as app:`; code that does not await opens it with "
                "`with Perdure(url).sync() as app:`"
            )

        def __exit__(self, *left: object) -> None:
            """Never called, for nothing was entered."""

    def sync(self) -> "SyncPerdure":
        """The same for code that does not await: `with Perdure(url).sync() as app:`, every method blocking.

        The engine runs on a thread of its own; any thread may use the bridge and its handles.
        """
        from perdure.app.sync.generated import SyncPerdure  # noqa: PLC0415 - it is generated from this class

        return SyncPerdure(self)

    @property
    def _opened(self) -> Engine:
        if _get_running_loop() is not self._loop:
            refuse_in_workflows()
            raise NotOpen(self.url) if self._engine is None else AnotherLoop(self.url)
        if self._engine is None:
            raise NotOpen(self.url)
        return self._engine

    def with_key(self, key: str, *, keep: Duration = DAY, stale_after: Duration = TEN_MINUTES) -> Self:
        """The same Perdure, whose commands are done once under this key: asked again they are answered as at first.

        `with_key("refund-17").start(refund, 17)`. Other arguments under a key are a KeyConflict; a key is one of a
        command and a namespace, kept for a day. KeyInProgress while a command of several transactions is under way;
        `stale_after` says when a caller of one that has died is followed by another.
        """
        twin = copy.copy(self)
        wanted = command_key(self.namespace, key, keep, stale_after)
        twin._engine = None if self._engine is None else self._engine.with_key(wanted)
        twin._asked = self._home.with_key(wanted)
        return twin

    # Nouns

    @property
    def namespaces(self) -> Namespaces:
        """The namespaces of this database: create, list, get, delete."""
        return Namespaces(self._asked)

    @property
    def schedules(self) -> Schedules:
        """What starts runs at times: create, put, update, pause, resume, trigger, backfill, delete, list, get."""
        return Schedules(self._asked, self._checked)

    @property
    def keys(self) -> Keys:
        """The keys that callers of a server show: create, list, revoke."""
        return Keys(self._asked)

    @property
    def workers(self) -> Workers:
        """The workers of the namespace: list."""
        return Workers(self._home)

    @property
    def queues(self) -> Queues:
        """The queues of the namespace: list."""
        return Queues(self._home)

    @property
    def outbox(self) -> Outbox:
        """Who is told of changes: add, update, pause, resume, remove, test, dead_letters, replay, resend, list, get."""
        return Outbox(self._asked)

    async def duties(self) -> "list[DutyInfo]":
        """What one worker of the namespace does for all, who has it, and how it went."""
        return await duty_views(self._opened, self.namespace)

    # Hosts

    def worker_stats(self) -> WorkerStats:
        """What the worker of this Perdure has done since it was opened; BadOption for a client, which works nothing."""
        # Whichever thread asks: nothing is waited for, and nothing changed.
        engine, worker = self._engine, self._worker
        if engine is None:
            raise NotOpen(self.url)
        if worker is None:
            raise BadOption(
                "this Perdure was opened with worker=False and works nothing; `app.workers.list()` has others"
            )
        return worker.stats(engine.worker_id)

    async def handle(self, event: Mapping[str, object], *, budget: Duration = 20.0) -> Handled:
        """Bring the run of `event["run_id"]` as far as it gets, in a process that lives for seconds.

        For the length of the call this is a worker. A run that waits is parked at once, what is due within a second is
        waited for. After the `budget` everything is handed back, activities under way included.
        """
        run_id = run_id_in(event)
        return await handle(self._brief(budget), self._store_reader, run_id)

    async def process_available(self, *, max_jobs: int = 10, budget: Duration = 20.0) -> Processed:
        """Take ripe runs, at most `max_jobs`, and bring each as far as it gets, as `handle` does with one."""
        jobs = checks.count("max_jobs", max_jobs, 1)
        return await process(self._brief(budget), self._store_reader, jobs)

    async def tick(self, *, budget: Duration = 20.0) -> Tick:
        """Do once what workers do for all now and then: rescue, ends by the clock, schedules and all other duties.

        A part that fails is named in `errors`; the others are done.
        """
        brief = self._brief(budget)

        async def declared() -> None:
            await reconcile(brief.engine, self.namespace, self._workflows())
            await reconcile_sinks(brief.engine, self.namespace, known_sinks())

        return await tick(brief, declared)

    @property
    def _store_reader(self) -> StoreReader:
        return cast("StoreEngine", self._opened).reader

    def _brief(self, budget: Duration) -> BriefWorker:
        """A worker for the length of a call; BadOption where there can be none."""
        ms, _ = budget_ms(budget), self._opened
        if self._is_worker or self._is_remote or self.url == "sqlite://":
            raise BadOption(
                "this is for processes that live for seconds and open a database of their own with worker=False; "
                "a Perdure that works does all of it by itself"
            )
        from perdure.worker.executor import WorkerSettings  # noqa: PLC0415 - as in _settings
        from perdure.worker.worker import Worker  # noqa: PLC0415 - as above

        settings = WorkerSettings(queues=self._queues, max_live=0, park_after_ms=0)
        make = partial(
            Worker, namespace=self.namespace, settings=settings, known=self._known, resources=self._resources
        )
        engine = self._engine_over(store_for(self.url), is_brief=True)
        return BriefWorker(engine, self.namespace, self._queues, make, ms, self._shutdown)

    def asgi(self, *, authenticate: Authenticate | None = None) -> AsgiApplication:
        """The routes over this Perdure, to be mounted in any ASGI application: `api.mount("/perdure", app.asgi())`.

        `authenticate` gets the ASGI scope of a request, and gives the Caller, or None when it is nobody's; without it
        callers show keys of the database. A server that runs it by itself also opens and closes this Perdure.
        """
        from perdure.app.network.mounted import MountedApplication  # noqa: PLC0415 - only servers need it

        return MountedApplication(self, lambda: self._opened, lambda: self._catalog, authenticate)

    @property
    def _catalog(self) -> "Catalog":
        from perdure.http.catalog import Catalog  # noqa: PLC0415 - as above

        return Catalog(self._workflow, self._names, self._opened.announcements, self._opened.clock)

    # Runs

    async def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a run; it is on disk when this returns. The same id again gives the run that has it.

        A `connection=` that is no argument of the workflow is the first one of `start_within`.
        """
        wanted = self._checked(workflow)
        if "connection" in kwargs and not wanted.signature.takes("connection"):
            return await self.start_within(kwargs.pop("connection"), workflow, *args, **kwargs)
        return await self._start(wanted, recorded(wanted, args, kwargs))

    async def start_within(
        self, connection: object, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> Run[R]:
        """Start a run inside your own transaction on Postgres: it is there when you commit, or not at all.

        The connection is one of asyncpg or psycopg, in a transaction, to the database of this Perdure.
        """
        wanted = self._checked(workflow)
        if connection is None:
            raise BadOption("None is no connection; give the one your transaction is on, or use start without it")
        request = request_of(wanted, recorded(wanted, args, kwargs))
        policy, defaults = wanted.settings.on_conflict, wanted.signature.defaults
        found = await starts.start(self._opened, self.namespace, request, policy, defaults, connection)
        return handle_of(self._home, found, wanted.signature.result)

    async def start_json(
        self,
        workflow: str,
        arguments: bytes,
        *,
        id: str | None = None,
        queue: str | None = None,
        timeout: Duration | None = None,
        priority: int | None = None,
        entity_id: str | None = None,
        correlation_id: str | None = None,
        attributes: Mapping[str, object] | None = None,
        delay: Duration | None = None,
        on_conflict: ConflictPolicy | OnConflict | None = None,
    ) -> Run[object]:
        """Start a workflow by its name, with JSON arguments; over a server, also one that only its workers have."""
        known = self._workflow(workflow)
        if known is None and not self._is_remote:
            raise UnknownWorkflow(workflow, self._names())
        settings = workflow_options(
            DEFAULTS if known is None else known.settings,
            id,
            queue,
            timeout,
            priority,
            entity_id,
            correlation_id,
            attributes,
            delay,
            on_conflict,
        )
        if known is None:
            request, result = request_by_name(workflow, checked_json(workflow, arguments), settings), _ANY
            found = await starts.start(self._opened, self.namespace, request, settings.on_conflict, {})
        else:
            data, args, kwargs = known.signature.from_json(arguments)
            request, result = request_by_name(workflow, data, settings, (args, kwargs)), known.signature.result
            defaults = known.signature.defaults
            found = await starts.start(self._opened, self.namespace, request, settings.on_conflict, defaults)
        return handle_of(self._home, found, result)

    async def start_many(self, *calls: BoundCall[R]) -> list[Run[R] | PerdureError]:
        """Start many runs in few transactions: `start_many(*(pack.call(n) for n in orders))`.

        The answers come in the order of the calls; one that cannot be started is answered with its error
        and harms no other.
        """
        wanted = [(self._checked(bound(call).workflow), call._take_arguments()) for call in calls]
        if self._opened.once is not None:
            return await start_each(self, wanted)
        answers: list[Run[R] | PerdureError] = []
        for first in range(0, len(wanted), MANY):
            starts = [self._start_or_error(*call) for call in wanted[first : first + MANY]]
            answers += await asyncio.gather(*starts)
        return answers

    async def _start_or_error(self, wanted: Workflow[..., Any], arguments: Arguments) -> Run[Any] | PerdureError:
        try:
            return await self._start(wanted, arguments)
        except PerdureError as error:
            return error

    async def _start(self, wanted: Workflow[..., Any], arguments: Arguments) -> Run[Any]:
        request = request_of(wanted, arguments)
        if request.is_plain:
            found: StartedRun = await self._opened.client.start(self.namespace, request)
        else:
            policy, defaults = wanted.settings.on_conflict, wanted.signature.defaults
            found = await starts.start(self._opened, self.namespace, request, policy, defaults)
        return handle_of(self._home, found, wanted.signature.result)

    async def run(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Start a run and wait for its result."""
        wanted, engine = self._checked(workflow), self._opened
        request = request_of(wanted, recorded(wanted, args, kwargs))
        if request.is_plain:
            found: StartedRun = await engine.client.start(self.namespace, request)
        else:
            policy, defaults = wanted.settings.on_conflict, wanted.signature.defaults
            found = await starts.start(engine, self.namespace, request, policy, defaults)
        # No handle and no waiter where they are not needed: most runs have ended by the time their start is answered.
        owned = found if isinstance(found, OwnedRun) else None
        ending = None if owned is None else owned.ending
        if ending is None or ending.next_run_id is not None:
            ending = await final_ending(engine, self.namespace, found.run_id, owned)
        return cast("R", result_of(found.workflow_id, ending, wanted.signature.result))

    @overload
    async def get(self, id: str, *, workflow: Workflow[..., R]) -> Run[R]: ...
    @overload
    async def get(self, id: str, *, workflow: None = None) -> Run[object]: ...
    @overload
    async def get(self, *, run_id: str, workflow: Workflow[..., R]) -> Run[R]: ...
    @overload
    async def get(self, *, run_id: str, workflow: None = None) -> Run[object]: ...
    async def get(
        self,
        id: str | None = None,
        *,
        run_id: str | None = None,
        workflow: Workflow[..., object] | None = None,
    ) -> Run[object]:
        """The newest run with this id, or the one with exactly this run_id; RunNotFound.

        Say whose run it is, `get("o-17", workflow=checkout)`, and its result has the workflow's type.
        """
        if (id is None) == (run_id is None):
            raise BadOption("get() takes an id or a run_id, one of them")
        views = views_of(self._opened)
        row = await (
            views.newest(self.namespace, checked_id("workflow id", id))
            if run_id is None
            else views.exact(self.namespace, checked_id("run id", run_id))
        )
        known = self._workflow(row.workflow) if workflow is None else workflow_of(row, workflow)
        return handle_of(self._home, row, _ANY if known is None else known.signature.result)

    async def resolve(
        self, token: str, value: object = NOTHING, *, error: str | None = None, connection: object = None
    ) -> None:
        """Give the deferred that a token is for its value, or an error instead, as `run.resolve` does.

        The type that the workflow waits for is not known here: a value that does not fit fails its wait.
        BadToken when the token was changed, or is of another database or namespace.
        """
        client = self._opened.client
        await client.resolve_token(
            self.namespace, token, lambda name: resolution(name, own_type(value), value, error), connection
        )

    async def list(
        self,
        *,
        status: "Status | str | Sequence[Status | str] | None" = None,
        workflow: "Workflow[..., object] | str | None" = None,
        id: str | None = None,
        entity_id: str | None = None,
        correlation_id: str | None = None,
        parent_id: str | None = None,
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        schedule: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page:
        """Runs that match, newest first; `after` takes the cursor of the page before.

        `where="status = 'failed' and tenant = :tenant"` is a filter, `params` the values in it; BadFilter.

        `status="held"` finds those that are held, `"mismatch"` and `"quarantine"` those held for that reason.
        Activities on a queue are among them when they are held, else only when `workflow="task:NAME"`, `id` or
        `parent_id` asks for them.
        """
        statuses, held = checked_statuses(status)
        wanted = RunFilter(
            namespace=self.namespace,
            status=statuses,
            held=held,
            workflow=workflow.name if isinstance(workflow, Workflow) else checks.text("workflow name", workflow),
            workflow_id=checks.text("workflow id", id),
            entity_id=checks.text("entity id", entity_id),
            correlation_id=checks.text("correlation id", correlation_id),
            parent_id=checks.text("parent id", parent_id),
            schedule=checks.text("schedule name", schedule),
            before=checks.text("cursor", after),
            limit=limit,
            # Activities on a queue are runs as well; who asks for none of them in particular wants those alone that
            # are held, for they wait for an operator.
            without=TASK_PREFIX if (workflow, id, parent_id) == (None, None, None) else None,
        )
        return await views_of(self._opened).page(wanted, where, params)

    @overload
    async def count(
        self, *, where: str = "true", params: Mapping[str, object] | None = None, by: None = None
    ) -> int: ...
    @overload
    async def count(
        self, *, where: str = "true", params: Mapping[str, object] | None = None, by: str
    ) -> dict[object, int]: ...
    async def count(
        self, *, where: str = "true", params: Mapping[str, object] | None = None, by: str | None = None
    ) -> int | dict[object, int]:
        """How many runs match a filter, all together or by a field: `by="status"` gives a dict; BadFilter."""
        found = await views_of(self._opened).count(self.namespace, where, params, by)
        return found.get(None, 0) if by is None else found

    async def check(
        self,
        *wanted: "Workflow[..., object] | str",
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        limit: int | None = None,
    ) -> Check:
        """Whether the open runs of these workflows, or all open runs, fit the code of this process.

        They are replayed as by a worker that takes them over; nothing is written, claimed or run. At most `limit` runs
        of each workflow are looked at, the newest first.
        """
        known = {name: self._workflow(name) for name in self._names()}
        return await checking.check(self._opened, self.namespace, wanted, known, where, params, limit)

    async def stuck(self, after: Duration = 60.0, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Runs that should move and have not for so long, newest first.

        Nobody alive has their code, or the worker that had them is gone and nobody has taken them over. What waits for
        a time or for somebody outside is not among them; `run.explain()` tells more of each.
        """
        after_ms = round(seconds(after, "after") * 1000)
        return await stuck_page(self._opened, self.namespace, after_ms, checks.text("cursor", cursor), limit)

    def _names(self) -> tuple[str, ...]:
        return workflows.names() if self._known is None else tuple(self._known)

    async def subscribe(
        self, *, where: str = "true", params: Mapping[str, object] | None = None, after: str | None = None
    ) -> AsyncIterator[Change]:
        """Runs as they change: first every open run that matches, then each one that changes, for ever.

        With a filter that asks for a closed status, closed ones are among the first. Of a run that changes quickly only
        the newest state may come; the last one always comes. `after=change.cursor` goes on after a change, also in
        another process; at least once each. CursorExpired when that was too long ago.
        """
        async with contextlib.aclosing(changes_of(self._opened, self.namespace, where, params, after)) as changes:
            async for change in changes:
                yield change

    def _workflows(self) -> Sequence[Workflow[..., Any]]:
        found = map(workflows.get, workflows.names()) if self._known is None else self._known.values()
        return [workflow for workflow in found if workflow is not None]

    # Many at once

    async def cancel_all(
        self,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Ask all open runs that match to stop, as `run.cancel` does; BadFilter.

        Exactly those that are on disk now and still match when it is their turn, each once; `progress` is called with
        what became of them so far, `dry_run` only counts. Called again after a crash it does the rest.
        """
        return await self._steer_all(Verb.CANCEL, reason, where, params, progress, dry_run=dry_run)

    async def terminate_all(
        self,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """End all open runs that match at once, as `run.terminate` does; otherwise as `cancel_all`."""
        return await self._steer_all(Verb.TERMINATE, reason, where, params, progress, dry_run=dry_run)

    async def pause_all(
        self,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Pause all open runs that match, as `run.pause` does; otherwise as `cancel_all`."""
        return await self._steer_all(Verb.PAUSE, reason, where, params, progress, dry_run=dry_run)

    async def resume_all(
        self,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Let all held runs that match go on, as `run.resume` does; otherwise as `cancel_all`.

        A run that goes on keeps no `reason`: one that is given is refused.
        """
        return await self._steer_all(Verb.RESUME, reason, where, params, progress, dry_run=dry_run)

    async def retry_all(
        self,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Retry all runs that match and have not ended well, as `run.retry` does; otherwise as `cancel_all`."""
        return await self._steer_all(Verb.RETRY, reason, where, params, progress, dry_run=dry_run)

    async def broadcast(
        self,
        signal: Signal[T] | str,
        payload: T,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        id: str | None = None,
        delay: Duration = 0,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Send a signal to all open runs that match; under one `id` each of them gets it once, whenever sent.

        With a `delay` it is received that much later, and never earlier. Otherwise as `cancel_all`.
        """
        sent = broadcast_of(signal, payload, id, delay, self._ids)
        return await act_on_all(self._opened, self.namespace, sent, where, params, progress, dry_run=dry_run)

    async def _steer_all(
        self,
        verb: Verb,
        reason: str | None,
        where: str,
        params: Mapping[str, object] | None,
        progress: Callable[[Bulk], object] | None,
        *,
        dry_run: bool,
    ) -> Bulk:
        asked = Steering(verb, checked_reason(reason))
        return await act_on_all(self._opened, self.namespace, asked, where, params, progress, dry_run=dry_run)

    def _workflow(self, name: str) -> Workflow[..., Any] | None:
        return workflows.get(name) if self._known is None else self._known.get(name)

    def _checked(self, workflow: object) -> Workflow[..., Any]:
        if not isinstance(workflow, Workflow):
            raise no_workflow(workflow)
        if self._is_worker and self._known is not None and workflow.name not in self._known:
            raise UnknownWorkflow(workflow.name, tuple(self._known))
        return workflow


def _settings(
    queues: tuple[str, ...], *, max_live: int, park_after_ms: int, is_worker: bool
) -> "WorkerSettings | None":
    """How the runs are worked; None for a client."""
    if not is_worker:
        return None
    # Loaded only where runs are worked: a client, such as most commands, is ready sooner without.
    from perdure.worker.executor import WorkerSettings  # noqa: PLC0415 - as above

    return WorkerSettings(queues=queues, max_live=max_live, park_after_ms=park_after_ms)


async def _close(engine: Engine, worker: "Worker | None", grace_ms: int) -> None:
    try:
        if worker is not None:
            await worker.close(grace_ms)
    finally:
        # An engine that stays open renews its lease, and nobody else may take its runs.
        await engine.close()


async def _tell_of_held_runs(engine: Engine, namespace: str) -> None:
    # It is there to help; whatever keeps it from being read is told by those who cannot do without.
    with contextlib.suppress(StoreUnavailable):
        tell_how_many(await engine.reader.held_counts(namespace))


async def _tell_of_missing_code(engine: Engine, namespace: str, queues: tuple[str, ...]) -> None:
    # As above.
    with contextlib.suppress(StoreUnavailable):
        await engine.claimer.tell_missing(namespace, queues)
