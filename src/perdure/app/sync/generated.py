"""Perdure and its handles for code that does not await.

Generated from the async classes by `make generate`; change those, not this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from perdure.app.hosts.invocations import Handled, Processed, Tick
from perdure.app.keys import DAY, TEN_MINUTES
from perdure.app.nouns.keys import Keys
from perdure.app.nouns.namespaces import Namespaces
from perdure.app.nouns.outbox import Outbox, SinkChanges
from perdure.app.nouns.schedules import Schedules, TimetableChanges
from perdure.app.nouns.workers import Queues, Workers
from perdure.app.run import Run
from perdure.app.run_results import NOTHING
from perdure.app.sync.bridge import SyncApp, SyncHandle, SyncNoun
from perdure.authoring.deferreds import Deferred
from perdure.authoring.durations import Duration
from perdure.authoring.options import ConflictPolicy
from perdure.authoring.requests import Request
from perdure.authoring.signals import Signal
from perdure.authoring.streams import Stream
from perdure.authoring.workflow import BoundCall, Workflow
from perdure.diagnostics.explain import Explanation
from perdure.engine.outbox.sinks import Log, Webhook
from perdure.engine.ports import Backfilled, MadeKey
from perdure.errors import PerdureError
from perdure.kernel.conflict import OnConflict
from perdure.kernel.status import Status
from perdure.kernel.timetables import Overlap, Timetable
from perdure.views.access_keys import KeyInfo
from perdure.views.bulk import Bulk
from perdure.views.changes import Change
from perdure.views.check import Check
from perdure.views.namespaces import NamespaceDetail, NamespaceInfo
from perdure.views.outbox import DeadLetter, SinkInfo
from perdure.views.outputs import Snapshot, StreamItem
from perdure.views.run import DeferredInfo, FailedAttempt, Page, RunEvent, RunInfo, UnreadMessage
from perdure.views.schedules import DutyInfo, ScheduleInfo
from perdure.views.workers import QueueInfo, WorkerInfo, WorkerStats

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class SyncSchedules(SyncNoun[Schedules]):
    """The schedules of a namespace, for code that does not await."""

    def create(self, name: str, call: BoundCall[object], when: Timetable) -> ScheduleInfo:
        """Make a schedule: `create("eu-report", report.call("eu"), Every(timedelta(minutes=15)))`; ScheduleExists."""
        return self._bridge.wait(self._inner.create(name, call, when))

    def put(self, name: str, call: BoundCall[object], when: Timetable) -> ScheduleInfo:
        """Make a schedule, or put it in the place of the one there is, whose pause and decisions stay."""
        return self._bridge.wait(self._inner.put(name, call, when))

    def update(
        self, name: str, *, call: BoundCall[object] | None = None, **changes: Unpack[TimetableChanges]
    ) -> ScheduleInfo:
        """Change what is given: keywords of its timetable, or the call of the runs to come; ScheduleNotFound.

        The next time is computed at once; decided times stay decided.
        """
        return self._bridge.wait(self._inner.update(name, call=call, **changes))

    def pause(self, name: str, reason: str | None = None) -> None:
        """Let it start nothing until it is resumed; what waits is kept."""
        self._bridge.wait(self._inner.pause(name, reason))

    def resume(self, name: str) -> None:
        """Let it go on with the next time; those that passed meanwhile are skipped."""
        self._bridge.wait(self._inner.resume(name))

    def trigger(self, name: str) -> SyncRun[object]:
        """Start a run of it now, whatever overlap says, paused or not."""
        return SyncRun(self._bridge, self._bridge.wait(self._inner.trigger(name)))

    def backfill(self, name: str, start: datetime, end: datetime, overlap: Overlap = "queue_all") -> Backfilled:
        """Start runs for its times from start to end, both in the past, that have no run yet.

        They are noted when this returns, and start as `overlap` says, also when this process ends.
        """
        return self._bridge.wait(self._inner.backfill(name, start, end, overlap))

    def delete(self, name: str) -> bool:
        """Delete a schedule; answers whether there was one. Its runs go on."""
        return self._bridge.wait(self._inner.delete(name))

    def get(self, name: str) -> ScheduleInfo:
        """One of them, with its newest decisions; ScheduleNotFound."""
        return self._bridge.wait(self._inner.get(name))

    def list(self) -> list[ScheduleInfo]:
        """All of them, by name, without their decisions."""
        return self._bridge.wait(self._inner.list())


class SyncOutbox(SyncNoun[Outbox]):
    """The sinks of a namespace, for code that does not await."""

    def add(
        self,
        name: str,
        target: Webhook | Log,
        *,
        events: Sequence[str],
        workflows: Sequence[str] | None = None,
        include_values: bool = False,
        max_attempts: int = 10,
        concurrency: int = 8,
        max_backlog: int = 100000,
    ) -> SinkInfo:
        """Make a sink: `add("crm", Webhook("https://crm.example/hook", secret="env:CRM_SECRET"), events=("run.*",))`.

        When this returns, nothing that changes is missed. SinkExists; SinkNotReady names transactions that were open
        when the sink was made, and still are after ten seconds: what they change may be missing.
        """
        return self._bridge.wait(
            self._inner.add(
                name,
                target,
                events=events,
                workflows=workflows,
                include_values=include_values,
                max_attempts=max_attempts,
                concurrency=concurrency,
                max_backlog=max_backlog,
            )
        )

    def update(self, name: str, **changes: Unpack[SinkChanges]) -> SinkInfo:
        """Change what is given, such as `target=` with another secret; what waits already is sent there, too."""
        return self._bridge.wait(self._inner.update(name, **changes))

    def pause(self, name: str, reason: str | None = None) -> None:
        """Send it nothing until it is resumed; what it is to be told is kept."""
        self._bridge.wait(self._inner.pause(name, reason))

    def resume(self, name: str) -> None:
        """Send it what waits."""
        self._bridge.wait(self._inner.resume(name))

    def remove(self, name: str) -> bool:
        """Forget a sink and all that waits for it; answers whether there was one."""
        return self._bridge.wait(self._inner.remove(name))

    def test(self, name: str) -> None:
        """Send it an event of the type outbox.test from this process, now; SinkFailed."""
        self._bridge.wait(self._inner.test(name))

    def dead_letters(self, name: str, limit: int = 100) -> list[DeadLetter]:
        """The events that it did not take, the oldest first."""
        return self._bridge.wait(self._inner.dead_letters(name, limit))

    def replay(self, name: str, ids: Sequence[str] | None = None) -> int:
        """Deliver its dead letters after all, all or those of these ids; answers how many."""
        return self._bridge.wait(self._inner.replay(name, ids))

    def resend(self, name: str, since: datetime, until: datetime | None = None) -> int:
        """Send it the events of a time once more, made from histories, with the ids they had; answers how many.

        What histories do not hold is left out: run.suspended, run.held and schedule.skipped.
        """
        return self._bridge.wait(self._inner.resend(name, since, until))

    def get(self, name: str) -> SinkInfo:
        """One of them; SinkNotFound."""
        return self._bridge.wait(self._inner.get(name))

    def list(self) -> list[SinkInfo]:
        """All of them, by name."""
        return self._bridge.wait(self._inner.list())


class SyncNamespaces(SyncNoun[Namespaces]):
    """The namespaces of a database, for code that does not await."""

    def create(self, name: str) -> NamespaceInfo:
        """Make a namespace; NamespaceExists when there is one of this name."""
        return self._bridge.wait(self._inner.create(name))

    def list(self) -> list[NamespaceInfo]:
        """All namespaces, by name."""
        return self._bridge.wait(self._inner.list())

    def get(self, name: str) -> NamespaceDetail:
        """What is in a namespace: runs by status, queues, workers; NamespaceNotFound."""
        return self._bridge.wait(self._inner.get(name))

    def delete(self, name: str) -> None:
        """Delete a namespace that nothing is left in; NamespaceNotEmpty says what is."""
        self._bridge.wait(self._inner.delete(name))


class SyncKeys(SyncNoun[Keys]):
    """The keys of a database, for code that does not await."""

    def create(
        self,
        label: str,
        *,
        role: str | None = None,
        scopes: Sequence[str] = (),
        namespaces: Sequence[str] = (),
        queues: Sequence[str] = (),
        entity_id: str | None = None,
        expires: Duration | None = None,
    ) -> MadeKey:
        """Make a key, by a role (reader, operator, worker, admin) or scope by scope; no namespaces mean every one."""
        return self._bridge.wait(
            self._inner.create(
                label,
                role=role,
                scopes=scopes,
                namespaces=namespaces,
                queues=queues,
                entity_id=entity_id,
                expires=expires,
            )
        )

    def list(self) -> list[KeyInfo]:
        """All keys, those that are revoked as well, the oldest first."""
        return self._bridge.wait(self._inner.list())

    def revoke(self, key_id: str) -> None:
        """End a key, everywhere within a second; KeyNotFound, or LastAdminKey when nobody could make another one."""
        self._bridge.wait(self._inner.revoke(key_id))


class SyncWorkers(SyncNoun[Workers]):
    """The workers of a namespace, for code that does not await."""

    def list(self) -> list[WorkerInfo]:
        """Where they run, what they work, and how they are."""
        return self._bridge.wait(self._inner.list())


class SyncQueues(SyncNoun[Queues]):
    """The queues of a namespace, for code that does not await."""

    def list(self) -> list[QueueInfo]:
        """Those that workers work or open runs are on: runs by status, and living workers."""
        return self._bridge.wait(self._inner.list())


class SyncRun(SyncHandle[R_co]):
    """The handle of a run, for code that does not await: `id` is the caller's key, `run_id` is ours.

    Any thread may use it. It can be pickled, and works wherever a `Perdure(url).sync()` is open on the same database.
    """

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def run_id(self) -> str:
        return self._inner.run_id

    @property
    def workflow(self) -> str:
        return self._inner.workflow

    def with_key(self, key: str, *, keep: Duration = DAY, stale_after: Duration = TEN_MINUTES) -> SyncRun[R_co]:
        """The same handle, whose commands are done once under this key, as those of `app.with_key`."""
        return SyncRun(self._bridge, self._inner.with_key(key, keep=keep, stale_after=stale_after))

    def result(self, timeout: Duration | None = None) -> R_co:
        """What the workflow returned, once it has, in this run or one that continues it.

        RunFailed with its error as the cause, RunCancelled, RunTerminated or RunTimedOut otherwise.
        """
        return self._bridge.wait(self._inner.result(timeout))

    def describe(self) -> RunInfo:
        """The run as it stands now."""
        return self._bridge.wait(self._inner.describe())

    def explain(self) -> Explanation:
        """Why the run does not move: the cause, one sentence, since when, the evidence, and advice."""
        return self._bridge.wait(self._inner.explain())

    def signal(
        self,
        signal: Signal[T] | str,
        payload: T,
        *,
        id: str | None = None,
        delay: Duration = 0,
        connection: object = None,
    ) -> None:
        """Send a signal; it is on disk when this returns. Sent twice under one `id` it counts once.

        With a `delay` it is received that much later, and never earlier, whoever works then.

        RunClosed when the run has ended, InboxFull when it has as many unread messages as it may.
        With a connection that is in a transaction of your own on Postgres it is sent when you commit.
        """
        self._bridge.wait(self._inner.signal(signal, payload, id=id, delay=delay, connection=connection))

    def resolve(
        self, deferred: Deferred[T] | str, value: T = NOTHING, *, error: str | None = None, connection: object = None
    ) -> None:
        """Give a deferred its value, or an error instead; it is on disk when this returns.

        The same value again changes nothing, another one raises AlreadyResolved. RunClosed when the run has ended.
        With a connection that is in a transaction of your own on Postgres it is resolved when you commit.
        """
        self._bridge.wait(self._inner.resolve(deferred, value, error=error, connection=connection))

    @overload
    def ask(self, request: Request[T, A], value: T, *, timeout: Duration | None = None, id: str | None = None) -> A: ...
    @overload
    def ask(self, request: str, value: object, *, timeout: Duration | None = None, id: str | None = None) -> object: ...
    def ask(
        self, request: Request[Any, Any] | str, value: object, *, timeout: Duration | None = None, id: str | None = None
    ) -> object:
        """Ask the running workflow, and wait for its answer; the `timeout` ends the waiting, not the request.

        Asked again under the same `id` it is the same request with the same answer, also after the run has ended;
        IdConflict when another value is asked under it.
        RequestRefused with the workflow's text; NotAnswered when the run ended or continued without an answer.
        """
        work = self._inner.ask(request, value, timeout=timeout, id=id)
        return self._bridge.wait(work)

    def set_attributes(self, /, **patch: object) -> None:
        """Merge into the run's attributes from outside, open or closed; None takes one away.

        The run is found by them at once. Its code does not see them: what it reads is what it was started with and
        what it has set itself, on every replay.
        """
        self._bridge.wait(self._inner.set_attributes(**patch))

    def deferreds(self) -> list[DeferredInfo]:
        """The deferreds that the run waits for, as its row tells it, and those that were resolved."""
        return self._bridge.wait(self._inner.deferreds())

    @overload
    def query(self) -> dict[str, object]: ...
    @overload
    def query(self, name: str | None) -> object: ...
    def query(self, name: str | None = None) -> object:
        """What the workflow exposes under a name, or all of it by name; from disk, so no worker is needed.

        QueryNotFound when there is no such value. Of a run that is continued, the newest.
        """
        work = self._inner.query(name)
        return self._bridge.wait(work)

    def snapshot(self) -> Snapshot:
        """All that the workflow exposes, which event that is of, and the errors of functions that failed."""
        return self._bridge.wait(self._inner.snapshot())

    @overload
    def stream(self, stream: Stream[T], after: int = 0) -> Iterator[StreamItem[T]]: ...
    @overload
    def stream(self, stream: str, after: int = 0) -> Iterator[StreamItem[object]]: ...
    def stream(self, stream: Stream[T] | str, after: int = 0) -> Iterator[StreamItem[object]]:
        """The values of a stream after a number, in the order they were published, until the run has ended.

        Runs that continue this one are followed, and the numbers go on in them.
        """
        work = self._inner.stream(stream, after)
        return self._bridge.iterate(work)

    def cancel(self, reason: str | None = None, *, deadline: Duration | None = None, force: bool = False) -> None:
        """Ask the run to stop; its code gets CancelledError where it waits, and may clean up.

        After the `deadline` it is closed as it is; `force` does so at once. The request is on disk when
        this returns, also when no worker is there; a run that has not begun is closed by then.
        """
        self._bridge.wait(self._inner.cancel(reason, deadline=deadline, force=force))

    def terminate(self, reason: str | None = None) -> None:
        """End the run at once, without clean-up."""
        self._bridge.wait(self._inner.terminate(reason))

    def pause(self, reason: str | None = None) -> None:
        """Have the run begin nothing more: what is under way ends and is recorded, then it is held as `paused`.

        It stays so until `resume()`, also when workers restart; its timeout goes on. Again, it changes the reason.
        """
        self._bridge.wait(self._inner.pause(reason))

    def resume(self) -> None:
        """Let a run go on that is held: a paused one, one in quarantine, or one whose code fits its history again.

        RunNotHeld when it is not held, RunClosed when it has ended.
        """
        self._bridge.wait(self._inner.resume())

    def retry(self, reason: str | None = None) -> SyncRun[R_co]:
        """Run again what failed, or go on where the run was stopped: another run under the same id, which is given.

        Recorded results stay; of a run whose undos ran, everything runs again. A run has one retry, whoever asks.
        RunOpen when the run has not ended, RunClosed when it is COMPLETED, IdConflict when a newer run has the id.
        """
        return SyncRun(self._bridge, self._bridge.wait(self._inner.retry(reason)))

    def fork(
        self,
        at: int | str,
        *,
        id: str | None = None,
        input: Mapping[str, object] | None = None,
        results: Mapping[str, object] | None = None,
        reason: str | None = None,
    ) -> SyncRun[R_co]:
        """Go on from an event, which is the last one kept, or from before the first event of a place, in another run.

        `input` replaces arguments by name; `results` gives calls that wait at that point their results, by place.
        BadForkPoint; RunOpen for an open run without another `id`; IdConflict when another run has the id.
        """
        return SyncRun(
            self._bridge, self._bridge.wait(self._inner.fork(at, id=id, input=input, results=results, reason=reason))
        )

    def events(
        self,
        after: int = 0,
        *,
        before: int | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        follow: bool = False,
    ) -> Iterator[RunEvent]:
        """The run's history after an event's number, in order; `follow` goes on until the run has ended.

        `newest_first` begins at the end, or below `before`; with a `limit` no more is read than is shown.
        RunUnreadable where an event cannot be read, after those before it.
        """
        return self._bridge.iterate(
            self._inner.events(after, before=before, newest_first=newest_first, limit=limit, follow=follow)
        )

    def children(self, *, limit: int = 100, after: str | None = None) -> Page:
        """The runs this run has started, newest first."""
        return self._bridge.wait(self._inner.children(limit=limit, after=after))

    def attempts(self) -> list[FailedAttempt]:
        """The failed attempts of the run's activities that were, or will be, followed by another."""
        return self._bridge.wait(self._inner.attempts())

    def unread(self) -> list[UnreadMessage]:
        """What is in the run's inbox and was not taken yet, oldest first."""
        return self._bridge.wait(self._inner.unread())

    def set_aside(self) -> list[UnreadMessage]:
        """The signals that were not what the code waits for, and that it will not get any more, oldest first."""
        return self._bridge.wait(self._inner.set_aside())


class SyncPerdure(SyncApp):
    """A durable workflow engine for code that does not await: `with Perdure(url).sync() as app:`.

    The methods are those of Perdure, and wait. The engine runs on a thread of its own; any thread may use this.
    """

    @property
    def url(self) -> str:
        return self._app.url

    @property
    def namespace(self) -> str:
        return self._app.namespace

    @property
    def namespaces(self) -> SyncNamespaces:
        """The namespaces of this database: create, list, get, delete."""
        return SyncNamespaces(self._bridge, self._inner.namespaces)

    @property
    def schedules(self) -> SyncSchedules:
        """What starts runs at times: create, put, update, pause, resume, trigger, backfill, delete, list, get."""
        return SyncSchedules(self._bridge, self._inner.schedules)

    @property
    def keys(self) -> SyncKeys:
        """The keys that callers of a server show: create, list, revoke."""
        return SyncKeys(self._bridge, self._inner.keys)

    @property
    def workers(self) -> SyncWorkers:
        """The workers of the namespace: list."""
        return SyncWorkers(self._bridge, self._inner.workers)

    @property
    def queues(self) -> SyncQueues:
        """The queues of the namespace: list."""
        return SyncQueues(self._bridge, self._inner.queues)

    @property
    def outbox(self) -> SyncOutbox:
        """Who is told of changes: add, update, pause, resume, remove, test, dead_letters, replay, resend, list, get."""
        return SyncOutbox(self._bridge, self._inner.outbox)

    def duties(self) -> list[DutyInfo]:
        """What one worker of the namespace does for all, who has it, and how it went."""
        found: list[DutyInfo] = self._bridge.wait(self._inner.duties())
        return found

    def worker_stats(self) -> WorkerStats:
        """What the worker of this Perdure has done since it was opened; BadOption for a client, which works nothing."""
        found: WorkerStats = self._inner.worker_stats()
        return found

    def handle(self, event: Mapping[str, object], *, budget: Duration = 20.0) -> Handled:
        """Bring the run of `event["run_id"]` as far as it gets, in a process that lives for seconds.

        For the length of the call this is a worker. A run that waits is parked at once, what is due within a second is
        waited for. After the `budget` everything is handed back, activities under way included.
        """
        found: Handled = self._bridge.wait(self._inner.handle(event, budget=budget))
        return found

    def process_available(self, *, max_jobs: int = 10, budget: Duration = 20.0) -> Processed:
        """Take ripe runs, at most `max_jobs`, and bring each as far as it gets, as `handle` does with one."""
        found: Processed = self._bridge.wait(self._inner.process_available(max_jobs=max_jobs, budget=budget))
        return found

    def tick(self, *, budget: Duration = 20.0) -> Tick:
        """Do once what workers do for all now and then: rescue, ends by the clock, schedules and all other duties.

        A part that fails is named in `errors`; the others are done.
        """
        found: Tick = self._bridge.wait(self._inner.tick(budget=budget))
        return found

    def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> SyncRun[R]:
        """Start a run; it is on disk when this returns. The same id again gives the run that has it.

        A `connection=` that is no argument of the workflow is the first one of `start_within`.
        """
        return SyncRun(self._bridge, self._bridge.wait(self._inner.start(workflow, *args, **kwargs)))

    def start_within(
        self, connection: object, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> SyncRun[R]:
        """Start a run inside your own transaction on Postgres: it is there when you commit, or not at all.

        The connection is one of asyncpg or psycopg, in a transaction, to the database of this Perdure.
        """
        return SyncRun(self._bridge, self._bridge.wait(self._inner.start_within(connection, workflow, *args, **kwargs)))

    def start_json(
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
    ) -> SyncRun[object]:
        """Start a workflow by its name, with JSON arguments; over a server, also one that only its workers have."""
        return SyncRun(
            self._bridge,
            self._bridge.wait(
                self._inner.start_json(
                    workflow,
                    arguments,
                    id=id,
                    queue=queue,
                    timeout=timeout,
                    priority=priority,
                    entity_id=entity_id,
                    correlation_id=correlation_id,
                    attributes=attributes,
                    delay=delay,
                    on_conflict=on_conflict,
                )
            ),
        )

    def start_many(self, *calls: BoundCall[R]) -> list[SyncRun[R] | PerdureError]:
        """Start many runs in few transactions: `start_many(*(pack.call(n) for n in orders))`.

        The answers come in the order of the calls; one that cannot be started is answered with its error
        and harms no other.
        """
        return [
            SyncRun(self._bridge, item) if isinstance(item, Run) else item
            for item in self._bridge.wait(self._inner.start_many(*calls))
        ]

    def run(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Start a run and wait for its result."""
        found: R = self._bridge.wait(self._inner.run(workflow, *args, **kwargs))
        return found

    @overload
    def get(self, id: str, *, workflow: Workflow[..., R]) -> SyncRun[R]: ...
    @overload
    def get(self, id: str, *, workflow: None = None) -> SyncRun[object]: ...
    @overload
    def get(self, *, run_id: str, workflow: Workflow[..., R]) -> SyncRun[R]: ...
    @overload
    def get(self, *, run_id: str, workflow: None = None) -> SyncRun[object]: ...
    def get(
        self, id: str | None = None, *, run_id: str | None = None, workflow: Workflow[..., object] | None = None
    ) -> SyncRun[object]:
        """The newest run with this id, or the one with exactly this run_id; RunNotFound.

        Say whose run it is, `get("o-17", workflow=checkout)`, and its result has the workflow's type.
        """
        work = self._inner.get(id, run_id=run_id, workflow=workflow)
        return SyncRun(self._bridge, self._bridge.wait(work))

    def resolve(
        self, token: str, value: object = NOTHING, *, error: str | None = None, connection: object = None
    ) -> None:
        """Give the deferred that a token is for its value, or an error instead, as `run.resolve` does.

        The type that the workflow waits for is not known here: a value that does not fit fails its wait.
        BadToken when the token was changed, or is of another database or namespace.
        """
        self._bridge.wait(self._inner.resolve(token, value, error=error, connection=connection))

    def list(
        self,
        *,
        status: Status | str | Sequence[Status | str] | None = None,
        workflow: Workflow[..., object] | str | None = None,
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
        found: Page = self._bridge.wait(
            self._inner.list(
                status=status,
                workflow=workflow,
                id=id,
                entity_id=entity_id,
                correlation_id=correlation_id,
                parent_id=parent_id,
                where=where,
                params=params,
                schedule=schedule,
                limit=limit,
                after=after,
            )
        )
        return found

    @overload
    def count(self, *, where: str = "true", params: Mapping[str, object] | None = None, by: None = None) -> int: ...
    @overload
    def count(
        self, *, where: str = "true", params: Mapping[str, object] | None = None, by: str
    ) -> dict[object, int]: ...
    def count(
        self, *, where: str = "true", params: Mapping[str, object] | None = None, by: str | None = None
    ) -> int | dict[object, int]:
        """How many runs match a filter, all together or by a field: `by="status"` gives a dict; BadFilter."""
        work = self._inner.count(where=where, params=params, by=by)
        found: int | dict[object, int] = self._bridge.wait(work)
        return found

    def check(
        self,
        *wanted: Workflow[..., object] | str,
        where: str | None = None,
        params: Mapping[str, object] | None = None,
        limit: int | None = None,
    ) -> Check:
        """Whether the open runs of these workflows, or all open runs, fit the code of this process.

        They are replayed as by a worker that takes them over; nothing is written, claimed or run. At most `limit` runs
        of each workflow are looked at, the newest first.
        """
        found: Check = self._bridge.wait(self._inner.check(*wanted, where=where, params=params, limit=limit))
        return found

    def stuck(self, after: Duration = 60.0, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Runs that should move and have not for so long, newest first.

        Nobody alive has their code, or the worker that had them is gone and nobody has taken them over. What waits for
        a time or for somebody outside is not among them; `run.explain()` tells more of each.
        """
        found: Page = self._bridge.wait(self._inner.stuck(after, limit=limit, cursor=cursor))
        return found

    def subscribe(
        self, *, where: str = "true", params: Mapping[str, object] | None = None, after: str | None = None
    ) -> Iterator[Change]:
        """Runs as they change: first every open run that matches, then each one that changes, for ever.

        With a filter that asks for a closed status, closed ones are among the first. Of a run that changes quickly only
        the newest state may come; the last one always comes. `after=change.cursor` goes on after a change, also in
        another process; at least once each. CursorExpired when that was too long ago.
        """
        return self._bridge.iterate(self._inner.subscribe(where=where, params=params, after=after))

    def cancel_all(
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
        found: Bulk = self._bridge.wait(
            self._inner.cancel_all(where=where, params=params, reason=reason, dry_run=dry_run, progress=progress)
        )
        return found

    def terminate_all(
        self,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """End all open runs that match at once, as `run.terminate` does; otherwise as `cancel_all`."""
        found: Bulk = self._bridge.wait(
            self._inner.terminate_all(where=where, params=params, reason=reason, dry_run=dry_run, progress=progress)
        )
        return found

    def pause_all(
        self,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Pause all open runs that match, as `run.pause` does; otherwise as `cancel_all`."""
        found: Bulk = self._bridge.wait(
            self._inner.pause_all(where=where, params=params, reason=reason, dry_run=dry_run, progress=progress)
        )
        return found

    def resume_all(
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
        found: Bulk = self._bridge.wait(
            self._inner.resume_all(where=where, params=params, reason=reason, dry_run=dry_run, progress=progress)
        )
        return found

    def retry_all(
        self,
        *,
        where: str,
        params: Mapping[str, object] | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        progress: Callable[[Bulk], object] | None = None,
    ) -> Bulk:
        """Retry all runs that match and have not ended well, as `run.retry` does; otherwise as `cancel_all`."""
        found: Bulk = self._bridge.wait(
            self._inner.retry_all(where=where, params=params, reason=reason, dry_run=dry_run, progress=progress)
        )
        return found

    def broadcast(
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
        found: Bulk = self._bridge.wait(
            self._inner.broadcast(
                signal, payload, where=where, params=params, id=id, delay=delay, dry_run=dry_run, progress=progress
            )
        )
        return found
