"""The handle of a run: see it, wait for it, talk to it, stop it."""

import asyncio
import math
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Generic, TypeVar, cast, overload
from uuid import uuid4

import msgspec

from perdure.app import options
from perdure.app.forking import fork_request, merged_input
from perdure.app.keys import DAY, TEN_MINUTES, command_key
from perdure.app.open_apps import Home, KeyedHome
from perdure.app.run_results import (
    ANY,
    NOTHING,
    named,
    own_type,
    resolution,
    restored_answer,
    result_of,
    state_of,
)
from perdure.authoring.deferreds import Deferred
from perdure.authoring.durations import Duration, seconds, shown
from perdure.authoring.options import AttributesPatch, checked_reason
from perdure.authoring.requests import Request
from perdure.authoring.signals import Signal
from perdure.authoring.streams import Stream
from perdure.authoring.workflow import workflows
from perdure.codec import ValueType
from perdure.diagnostics.explain import Explanation, explain
from perdure.diagnostics.findings import Hint
from perdure.engine.endings import final_ending
from perdure.engine.ports import Ending, Engine, OwnedRun
from perdure.errors import RunNotFound
from perdure.ids import checked_id
from perdure.kernel.messages import RequestSent, SignalSent
from perdure.stores.records import RunFilter
from perdure.views import detail
from perdure.views.detail import RunDetail
from perdure.views.outputs import Snapshot, StreamItem, value_in
from perdure.views.run import (
    DeferredInfo,
    FailedAttempt,
    Page,
    RunEvent,
    RunInfo,
    UnreadMessage,
)
from perdure.views.run_views import KnownRun, RunViews, views_of

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
A = TypeVar("A")


NOT_THERE = "the transaction in which it was started is not committed yet, or was undone; or the run was deleted"


class Run(Generic[R_co]):
    """The handle of a run: `id` is the caller's key, `run_id` is ours.

    Awaiting it is awaiting its result. It can be pickled, and works wherever a Perdure is
    open on the same database.
    """

    def __init__(self, home: Home, id: str, run_id: str, workflow: str, result: ValueType) -> None:
        self.id = id
        self.run_id = run_id
        self.workflow = workflow
        self._home = home
        self._owned: OwnedRun | None = None
        self._result = result

    @property
    def _engine(self) -> Engine:
        return self._home.engine

    @property
    def _views(self) -> RunViews:
        return views_of(self._home.engine)

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.result().__await__()

    def with_key(self, key: str, *, keep: Duration = DAY, stale_after: Duration = TEN_MINUTES) -> "Run[R_co]":
        """The same handle, whose commands are done once under this key, as those of `app.with_key`."""
        wanted = command_key(self._home.namespace, key, keep, stale_after)
        twin: Run[R_co] = Run(self._home.plain.with_key(wanted), self.id, self.run_id, self.workflow, self._result)
        twin._owned = self._owned
        return twin

    async def result(self, timeout: Duration | None = None) -> R_co:
        """What the workflow returned, once it has, in this run or one that continues it.

        RunFailed with its error as the cause, RunCancelled, RunTerminated or RunTimedOut otherwise.
        """
        if timeout is None:
            ending = await self._ending()
        else:
            limit = seconds(timeout, "timeout")
            try:
                async with asyncio.timeout(limit):
                    ending = await self._ending()
            except TimeoutError:
                how_it_is = await state_of(self._views, self._home.namespace, self.run_id)
                raise TimeoutError(f"run {self.id!r} has no result after {timeout}{how_it_is}") from None
        return cast("R_co", result_of(self.id, ending, self._result))

    async def _ending(self) -> Ending:
        with self._told_by_id():
            return await final_ending(self._engine, self._home.namespace, self.run_id, self._owned)

    async def describe(self) -> RunInfo:
        """The run as it stands now."""
        with self._told_by_id():
            return await self._views.describe(self._home.namespace, self.run_id)

    async def explain(self) -> Explanation:
        """Why the run does not move: the cause, one sentence, since when, the evidence, and advice."""
        return await explanation_of(self)

    @contextmanager
    def _told_by_id(self) -> Iterator[None]:
        """Of a run that is not there, the id that people know is told; a handle of it can only be from a start."""
        try:
            yield
        except RunNotFound as error:
            if error.id != self.run_id:
                raise
            raise RunNotFound(self.id, error.namespace, NOT_THERE) from None

    async def signal(
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
        client = self._engine.client
        name, kind = named(signal, Signal)
        data, _ = kind.record(payload, f"the signal {name!r}")
        message_id = None if id is None else f"signal:{checked_id('signal id', id)}"
        sent, delay_ms = SignalSent(name, msgspec.Raw(data)), math.ceil(seconds(delay, "delay") * 1000)
        at = (self._home.namespace, self.run_id, self.id)
        await client.post(*at, sent, message_id, within=connection, delay_ms=delay_ms)

    async def resolve(
        self, deferred: Deferred[T] | str, value: T = NOTHING, *, error: str | None = None, connection: object = None
    ) -> None:
        """Give a deferred its value, or an error instead; it is on disk when this returns.

        The same value again changes nothing, another one raises AlreadyResolved. RunClosed when the run has ended.
        With a connection that is in a transaction of your own on Postgres it is resolved when you commit.
        """
        name, kind = named(deferred, Deferred)
        sent = resolution(name, own_type(value) if isinstance(deferred, str) else kind, value, error)
        at = (self._home.namespace, self.run_id, self.id)
        await self._engine.client.post(*at, sent, f"deferred:{name}", within=connection)

    @overload
    async def ask(
        self, request: Request[T, A], value: T, *, timeout: Duration | None = None, id: str | None = None
    ) -> A: ...
    @overload
    async def ask(
        self, request: str, value: object, *, timeout: Duration | None = None, id: str | None = None
    ) -> object: ...
    async def ask(
        self,
        request: Request[Any, Any] | str,
        value: object,
        *,
        timeout: Duration | None = None,
        id: str | None = None,
    ) -> object:
        """Ask the running workflow, and wait for its answer; the `timeout` ends the waiting, not the request.

        Asked again under the same `id` it is the same request with the same answer, also after the run has ended;
        IdConflict when another value is asked under it.
        RequestRefused with the workflow's text; NotAnswered when the run ended or continued without an answer.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        name, kind = named(request, Request)
        data, _ = kind.record(value, f"the request {name!r}")
        answers = request.answers if isinstance(request, Request) else ANY
        # Nobody asks again under an id that was not given: it is not one of those that go on with the run.
        message_id = uuid4().hex if id is None else f"request:{checked_id('request id', id)}"
        if id is None and isinstance(self._home, KeyedHome):
            message_id = f"request:key:{self._home.key.text}"
        asking = self._engine.client.ask(
            self._home.namespace, self.run_id, self.id, RequestSent(name, msgspec.Raw(data)), message_id
        )
        try:
            async with asyncio.timeout(limit):
                answer = await asking
        except TimeoutError:
            how_it_is = await state_of(self._views, self._home.namespace, self.run_id)
            raise TimeoutError(
                f"run {self.id!r} has not answered {name!r} within {shown(timeout)}{how_it_is}"
            ) from None
        return restored_answer(self.id, name, answer, answers)

    async def set_attributes(self, /, **patch: object) -> None:
        """Merge into the run's attributes from outside, open or closed; None takes one away.

        The run is found by them at once. Its code does not see them: what it reads is what it was started with and
        what it has set itself, on every replay.
        """
        change = AttributesPatch(patch)
        with self._told_by_id():
            await self._engine.client.set_attributes(self._home.namespace, self.run_id, change)

    async def deferreds(self) -> list[DeferredInfo]:
        """The deferreds that the run waits for, as its row tells it, and those that were resolved."""
        with self._told_by_id():
            return await self._views.deferreds(self._home.namespace, self.run_id)

    @overload
    async def query(self) -> dict[str, object]: ...
    @overload
    async def query(self, name: str | None) -> object: ...
    async def query(self, name: str | None = None) -> object:
        """What the workflow exposes under a name, or all of it by name; from disk, so no worker is needed.

        QueryNotFound when there is no such value. Of a run that is continued, the newest.
        """
        if name is not None:
            checked_id("query name", name)
        found = await self.snapshot()
        return dict(found.values) if name is None else value_in(found, self.id, name)

    async def snapshot(self) -> Snapshot:
        """All that the workflow exposes, which event that is of, and the errors of functions that failed."""
        with self._told_by_id():
            return await self._views.snapshot(self._home.namespace, self.run_id)

    @overload
    def stream(self, stream: Stream[T], after: int = 0) -> AsyncIterator[StreamItem[T]]: ...
    @overload
    def stream(self, stream: str, after: int = 0) -> AsyncIterator[StreamItem[object]]: ...
    async def stream(self, stream: Stream[T] | str, after: int = 0) -> AsyncIterator[StreamItem[object]]:
        """The values of a stream after a number, in the order they were published, until the run has ended.

        Runs that continue this one are followed, and the numbers go on in them.
        """
        name, kind = named(stream, Stream)
        after = options.count("after", after, 0)
        at = (self._home.namespace, self.run_id, name)
        with self._told_by_id():
            async with aclosing(self._views.stream(*at, kind, after)) as values:
                async for item in values:
                    yield item

    async def cancel(self, reason: str | None = None, *, deadline: Duration | None = None, force: bool = False) -> None:
        """Ask the run to stop; its code gets CancelledError where it waits, and may clean up.

        After the `deadline` it is closed as it is; `force` does so at once. The request is on disk when
        this returns, also when no worker is there; a run that has not begun is closed by then.
        """
        deadline_ms = None if deadline is None else math.ceil(seconds(deadline, "deadline") * 1000)
        at = (self._home.namespace, self.run_id, self.id)
        await self._engine.client.cancel(*at, checked_reason(reason), 0 if force else deadline_ms)

    async def terminate(self, reason: str | None = None) -> None:
        """End the run at once, without clean-up."""
        await self._engine.client.terminate(self._home.namespace, self.run_id, self.id, checked_reason(reason))

    async def pause(self, reason: str | None = None) -> None:
        """Have the run begin nothing more: what is under way ends and is recorded, then it is held as `paused`.

        It stays so until `resume()`, also when workers restart; its timeout goes on. Again, it changes the reason.
        """
        await self._engine.client.pause(self._home.namespace, self.run_id, self.id, checked_reason(reason))

    async def resume(self) -> None:
        """Let a run go on that is held: a paused one, one in quarantine, or one whose code fits its history again.

        RunNotHeld when it is not held, RunClosed when it has ended.
        """
        await self._engine.client.resume(self._home.namespace, self.run_id, self.id)

    async def retry(self, reason: str | None = None) -> "Run[R_co]":
        """Run again what failed, or go on where the run was stopped: another run under the same id, which is given.

        Recorded results stay; of a run whose undos ran, everything runs again. A run has one retry, whoever asks.
        RunOpen when the run has not ended, RunClosed when it is COMPLETED, IdConflict when a newer run has the id.
        """
        at = (self._home.namespace, self.run_id, self.id)
        return handle_of(self._home.plain, await self._engine.forker.retry(*at, checked_reason(reason)), self._result)

    async def fork(
        self,
        at: int | str,
        *,
        id: str | None = None,
        input: Mapping[str, object] | None = None,
        results: Mapping[str, object] | None = None,
        reason: str | None = None,
    ) -> "Run[R_co]":
        """Go on from an event, which is the last one kept, or from before the first event of a place, in another run.

        `input` replaces arguments by name; `results` gives calls that wait at that point their results, by place.
        BadForkPoint; RunOpen for an open run without another `id`; IdConflict when another run has the id.
        """
        request = fork_request(self.workflow, at, id, input, results, reason)
        where = (self._home.namespace, self.run_id, self.id)
        made = await self._engine.forker.fork(*where, request, merged_input)
        return handle_of(self._home.plain, made, self._result)

    async def events(
        self,
        after: int = 0,
        *,
        before: int | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[RunEvent]:
        """The run's history after an event's number, in order; `follow` goes on until the run has ended.

        `newest_first` begins at the end, or below `before`; with a `limit` no more is read than is shown.
        RunUnreadable where an event cannot be read, after those before it.
        """
        wanted = options.wanted_events(after, before, limit, newest_first=newest_first, follow=follow)
        async with aclosing(self._views.events(self._home.namespace, self.run_id, wanted)) as history:
            async for event in history:
                yield event

    async def children(self, *, limit: int = 100, after: str | None = None) -> Page:
        """The runs this run has started, newest first."""
        wanted = RunFilter(self._home.namespace, parent_id=self.run_id, before=after, limit=limit)
        return await self._views.page(wanted, None, None)

    async def attempts(self) -> list[FailedAttempt]:
        """The failed attempts of the run's activities that were, or will be, followed by another."""
        return await self._views.attempts(self._home.namespace, self.run_id)

    async def unread(self) -> list[UnreadMessage]:
        """What is in the run's inbox and was not taken yet, oldest first."""
        return await self._views.unread(self._home.namespace, self.run_id)

    async def set_aside(self) -> list[UnreadMessage]:
        """The signals that were not what the code waits for, and that it will not get any more, oldest first."""
        return await self._views.set_aside(self._home.namespace, self.run_id)

    def __reduce__(self) -> tuple[object, tuple[str, str, str, str, str]]:
        return _restored, (self._home.url, self._home.namespace, self.id, self.run_id, self.workflow)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.run_id == self.run_id

    def __hash__(self) -> int:
        return hash(self.run_id)

    def __repr__(self) -> str:
        return f"<run {self.id} of {self.workflow}>"


def _restored(url: str, namespace: str, id: str, run_id: str, workflow: str) -> Run[Any]:
    """A handle that was pickled."""
    known = workflows.get(workflow)
    return Run(Home(url, namespace), id, run_id, workflow, ANY if known is None else known.signature.result)


def handle_of(home: Home, run: KnownRun, result: ValueType) -> Run[Any]:
    """The handle of a run that was started or found."""
    handle: Run[Any] = Run(home, run.workflow_id, run.run_id, run.workflow, result)
    if isinstance(run, OwnedRun):
        handle._owned = run
    return handle


async def detail_of(run: Run[Any], most_unread: int = detail.MOST_UNREAD) -> RunDetail:
    """Everything about a run; of its unread messages at most so many."""
    with run._told_by_id():
        return await detail.detail_of(run._engine, run._home.namespace, run.run_id, most_unread)


async def explanation_of(run: Run[Any], hint: Hint | None = None) -> Explanation:
    """Why a run does not move, with commands as the reader has to type them."""
    with run._told_by_id():
        return await explain(run._engine, run._home.namespace, run.run_id, hint)
