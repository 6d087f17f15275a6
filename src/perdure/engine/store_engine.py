"""The engine over a store: kernel decides, committer writes, lease guards.

In:   the verbs of the Engine port.
Out:  answers after the commit.
Knows nothing of workflow code; a Host runs that.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import Committer, Dropped, OwnersQuestion, Settlement, Unavailable
from perdure.engine.endings import ending, ending_of, told_to_parent
from perdure.engine.groups import ChildStart, StartGroup, StoreAdvance, StoreClosing
from perdure.engine.heartbeat import Heartbeat
from perdure.engine.lease import Lease
from perdure.engine.port import Ending, HandBack, Hold, Host, OwnedRun, Park, Release, StartRequest
from perdure.engine.stopping import Stopping, first_of, stop_child, stop_children
from perdure.engine.watch import Watch
from perdure.errors import NotOpen, RunClosed, RunNotFound, StoreError, StoreUnavailable
from perdure.ids import Ids, stamp_of
from perdure.kernel.commands import CloseRun, Command, ReceiveMessage, TakeNote
from perdure.kernel.events import CLOSINGS, Closing, Event, RunContinued
from perdure.kernel.messages import Message, SignalSent
from perdure.kernel.run import NotOwned, Refusal, RunState, decide, evolve
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN
from perdure.stores import rows
from perdure.stores.answers import APPLIED, Applied, Closed, Missing, Moved, Outcome, Posted, Taken, Unknown
from perdure.stores.operations import (
    Annotate,
    AppendEvent,
    ClaimRuns,
    EndRun,
    FreeMismatches,
    HoldRun,
    InsertRichRun,
    InsertRun,
    MoveMessages,
    NoteWaiting,
    Operation,
    ParkRun,
    PostMessage,
    RecordAttempt,
    SupersedeRun,
    TakeMessage,
    TellRun,
)
from perdure.stores.port import Store
from perdure.stores.records import Attempt, LoadedRun, RunFilter, RunRow

log = logging.getLogger("perdure.engine")

# Makes a named tuple without the detour through its Python constructor.
_row: Any = tuple.__new__

# Enum members know their value only by a detour.
_STATUS_TEXT = {status: status.value for status in Status}

RECOVER_RETRY_MS = 500
# How long terminate() waits for an owner in another process.
OWNER_PATIENCE_MS = 5000

T = TypeVar("T")


class StoreEngine:
    """Runs, kept in a store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        *,
        namespace: str = "main",
        lease_ms: int = 30_000,
        heartbeat: bool = True,
    ) -> None:
        self.clock = clock
        self.namespace = namespace
        self._store = store
        self._ids = ids
        self._committer = Committer(store, clock, self._on_lost)
        self._lease = Lease(store, self._committer, clock, ids, namespace=namespace, lease_ms=lease_ms)
        self._wants_heartbeat = heartbeat
        self._heartbeat: Heartbeat | None = None
        self._host: Host | None = None
        self._waiters: dict[str, list[asyncio.Future[Ending]]] = {}
        # Runs of ours that do not live yet, started or being read, and what came for them meanwhile.
        self._arriving: dict[str, list[Message]] = {}
        # Everything owned was given under a tenure; losing the lease, or not knowing, begins another.
        self._tenure = object()
        self._stopping = Stopping(
            store, self._committer, clock, ids, self._lease, notice=self._notice, ended=self._ended_elsewhere
        )
        self._watch = Watch(
            store,
            clock,
            self._lease,
            notice=self._notice,
            overdue=lambda now: self._stopping.close_overdue(namespace, now),
            ended=lambda row: self._tell_waiters(row.run_id, ending_of(row)),
            awaited=self._awaited,
        )
        self._is_closed = False
        self._pauses = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # Opening and closing

    async def open(self, host: Host | None = None, queues: tuple[str, ...] = ()) -> None:
        """Open the store; with a host, also become a worker for these queues."""
        await self._store.open()
        try:
            if host is not None:
                self._host = host
                await self._lease.begin(queues)
                self._start_heartbeat()
            await self._watch.begin(host, self._renew_without_heartbeat)
        except BaseException:
            if self._heartbeat is not None:
                self._heartbeat.stop()
            await self._store.close()
            raise

    async def close(self) -> None:
        """Write what is left, give the lease back and let go of the store."""
        self._is_closed = True
        self._watch.stop()
        if not self._committer.is_stopped:
            await self._committer.idle()
        if self._committer.is_stalled:
            # What could not be written is left to whoever takes these runs over.
            self._committer.give_up()
        for task in list(self._tasks):
            task.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
            await self._heartbeat.stopped()
        # One that has lost its lease, or cannot write, has nothing to give back.
        if self._host is not None and not self._committer.is_stopped:
            await self._lease.end()
        for waiter in [w for waiters in self._waiters.values() for w in waiters]:
            if not waiter.done():
                waiter.set_exception(NotOpen())
        await self._store.close()

    def abandon(self) -> None:
        """Stop at once and write nothing more, as if the process had died."""
        self._watch.stop()
        for task in list(self._tasks):
            task.cancel()

    def _start_heartbeat(self) -> None:
        if self._wants_heartbeat:
            self._heartbeat = Heartbeat(self._lease.renew, self._on_renewal_refused)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written or recovered."""
        return self._committer.is_idle and self._watch.is_idle and not self._tasks

    @property
    def is_stalled(self) -> bool:
        """Whether the database was unavailable, and only time can help."""
        return self._committer.is_stalled or self._pauses > 0

    @property
    def worker_id(self) -> str:
        return self._lease.worker_id

    # Starting and posting

    async def start(self, request: StartRequest) -> RunRow | OwnedRun:
        """Start a run; when its workflow_id is taken, the run that has it."""
        if self._is_closed:
            raise NotOpen
        if self._committer.is_full:
            await self._committer.room()
        now = self.clock.now()
        owned = self._new_run(request, now)
        hosted = self._hosts(request)
        group = StartGroup(
            self._insertion(request, owned, hosted=hosted), owned, self._host, self._arriving, hosted=hosted
        )
        self._committer.submit(group)
        answer = await group.settled
        if answer is APPLIED:
            return owned
        if isinstance(answer, Dropped):
            # The lease moved under it. Whether it was written is not known; this way it is safe to write again.
            again = self._insertion(request, owned, hosted=False)
            group = StartGroup(again, owned, self._host, self._arriving, hosted=False)
            self._committer.submit(group)
            answer = await group.settled
        if isinstance(answer, Taken):
            return answer.run
        if isinstance(answer, Moved) and request.supersedes is not None:
            # Somebody else was quicker, or the run does not make way yet: ask again who has the id.
            return await self.start(msgspec.structs.replace(request, supersedes=None))
        if not isinstance(answer, Applied):
            self._raise_refusal(answer, owned.workflow_id)
        return owned

    def _hosts(self, request: StartRequest) -> bool:
        return self._host is not None and not request.delay_ms and self._host.makes_room_for(request)

    def _new_run(self, request: StartRequest, now: int) -> OwnedRun:
        run_id = request.run_id or self._run_id(now, request.supersedes)
        seed = self._ids.seed() if request.seed is None else request.seed
        owned = OwnedRun(run_id, request.workflow_id or run_id, request.workflow, request.input, seed, now)
        owned.arguments = request.arguments
        owned.tenure = self._tenure
        if self.namespace != "main":
            owned.namespace = self.namespace
        if request.queue != "default":
            owned.queue = request.queue
        if request.priority:
            owned.priority = request.priority
        if request.traits is not PLAIN or request.delay_ms:
            traits, begins_at = request.traits, now + request.delay_ms
            owned.traits = msgspec.structs.replace(
                traits,
                delayed_until=begins_at if request.delay_ms else None,
                close_at=None if traits.timeout_ms is None else begins_at + traits.timeout_ms,
            )
        return owned

    def _run_id(self, now: int, predecessor: str | None) -> str:
        """A new run id, above that of the run before it under the same workflow_id: lists are ordered by them."""
        return self._ids.run_id(now if predecessor is None else max(now, stamp_of(predecessor) + 1))

    def _insertion(self, request: StartRequest, owned: OwnedRun, *, hosted: bool) -> tuple[Operation, ...]:
        traits = owned.traits
        fields = (
            owned.run_id,
            self.namespace,
            owned.workflow_id,
            owned.workflow,
            request.queue,
            "RUNNING" if hosted else "PENDING",
            self._lease.worker_id if hosted else None,
            None if hosted else traits.delayed_until or owned.created_at,
            request.priority,
            request.input,
            owned.seed,
            owned.created_at,
        )
        if hosted:
            self._arriving[owned.run_id] = []
        if traits is PLAIN:
            insert: Operation = _row(InsertRun, fields)
        else:
            insert = InsertRichRun(
                *fields,
                traits.parent_id,
                traits.parent_place,
                traits.on_parent_close,
                traits.entity_id,
                traits.correlation_id,
                traits.attributes,
                traits.timeout_ms,
                traits.delayed_until,
                traits.close_at,
                traits.continued_from,
            )
        return (insert,) if request.supersedes is None else (SupersedeRun(request.supersedes, None), insert)

    async def post(self, run_id: str, id: str, signal: SignalSent, message_id: str | None = None) -> None:
        """Send a signal; RunNotFound or RunClosed when nobody can ever receive it."""
        if self._is_closed:
            raise NotOpen
        if self._committer.is_full:
            await self._committer.room()
        message_id = message_id or self._ids.token()
        body = rows.message_body(signal)
        now = self.clock.now()
        answer = await self._committer.apply(PostMessage(run_id, message_id, "SignalSent", body, now))
        while isinstance(answer, Closed) and answer.status == Status.CONTINUED:
            run_id = (await self._newest(run_id)).run_id
            answer = await self._committer.apply(PostMessage(run_id, message_id, "SignalSent", body, now))
        self._raise_refusal(answer, id)
        posted = answer.value if isinstance(answer, Applied) else None
        if self._host is not None and isinstance(posted, Posted) and posted.count is not None:
            self._notice(run_id, Message(posted.number, message_id, signal, now), posted.count)

    async def _newest(self, run_id: str) -> RunRow:
        """The run itself, or the one that continues it by now."""
        row = await self.read(run_id)
        while row.status == Status.CONTINUED:
            row = await self.read(str(ending_of(row).next_run_id))
        return row

    # Stopping

    async def cancel(self, run_id: str, id: str, reason: str | None, deadline_ms: int | None) -> None:
        """Ask a run to stop; after the deadline it is closed whatever its code does."""
        row = await self._open_run(run_id, id)
        answer = await self._stopping.cancel(row, reason, deadline_ms)
        if isinstance(answer, Closed) and answer.status == Status.CONTINUED:
            await self.cancel(run_id, id, reason, deadline_ms)
        elif answer is not None:
            self._raise_refusal(answer, id)
            if deadline_ms == 0:
                await self._until_ended(row.run_id)

    async def terminate(self, run_id: str, id: str, reason: str | None) -> None:
        """End a run at once, without clean-up."""
        row = await self._open_run(run_id, id)
        answer = await self._stopping.terminate(row, reason)
        if isinstance(answer, Closed) and answer.status == Status.CONTINUED:
            await self.terminate(run_id, id, reason)
        elif answer is not None:
            self._raise_refusal(answer, id)
            await self._until_ended(row.run_id)

    async def _open_run(self, run_id: str, id: str) -> RunRow:
        row = await self._newest(run_id)
        if row.closed_at is not None:
            raise RunClosed(id, row.status)
        return row

    async def _until_ended(self, run_id: str) -> None:
        """Until the run's owner has done what it was told to; one that does not answer is not waited for for long."""
        await first_of(self.wait(run_id), self.pause(OWNER_PATIENCE_MS))

    def _notice(self, run_id: str, message: Message, count: int | None) -> None:
        """Pass a message on to the run's host; to a run that does not live yet, a moment later."""
        if run_id in self._arriving:
            self._arriving[run_id].append(message)
        elif self._host is not None and not self._host.notice(run_id, message, count):
            self._host.look_around()

    def _raise_refusal(self, answer: Settlement, id: str) -> None:
        match answer:
            case Applied():
                return
            case Missing():
                raise RunNotFound(id, self.namespace)
            case Closed(status):
                raise RunClosed(id, status)
            case Unavailable(error):
                raise error
            case _:
                raise StoreError(self._store.url, f"the change was refused: {answer}")

    # What the owner of a run does

    def advance(self, owned: OwnedRun, command: Command) -> StoreAdvance | Refusal:
        """Let the rules decide; the event is in the next batch."""
        if owned.tenure is not self._tenure:
            return NotOwned()
        event = decide(owned.state, command, self.clock.now())
        if not isinstance(event, Event):
            return event
        owned.state = evolve(owned.state, event)
        fact = event.fact
        kind = type(fact)
        if kind in CLOSINGS:
            return self._close(owned, event, fact)  # type: ignore[arg-type]  # its type was looked at
        append = _row(
            AppendEvent,
            (
                self.namespace,
                owned.run_id,
                event.seq,
                kind.__name__,
                event.place,
                event.at,
                rows.body_of(fact),
            ),
        )
        operations: tuple[Operation, ...] = (append,)
        if type(command) is ReceiveMessage:
            operations = (append, TakeMessage(command.number, event.seq))
        elif type(command) is TakeNote and command.message is not None:
            operations = (append, TakeMessage(command.message.number, event.seq))
        advance = StoreAdvance(self._host, owned.run_id, event, operations)
        self._committer.submit(advance)
        return advance

    def _close(self, owned: OwnedRun, event: Event, end: Closing, *beside: Operation) -> StoreAdvance:
        status, outcome = _STATUS_TEXT[owned.state.status], rows.outcome_of(end)
        worker_id = self._lease.worker_id
        operation = _row(EndRun, (owned.run_id, status, outcome, event.seq, event.at, worker_id, self.namespace))
        if beside or owned.has_children or owned.traits.parent_id is not None:
            advance = self._close_in_company(owned, event, end, operation, beside)
        else:
            advance = StoreAdvance(self._host, owned.run_id, event, (operation,))
            advance.then(self._ended, owned, ending(end))
        self._committer.submit(advance)
        return advance

    def _close_in_company(
        self, owned: OwnedRun, event: Event, end: Closing, operation: EndRun, beside: Sequence[Operation]
    ) -> StoreAdvance:
        """An end that concerns others: the run's children, its parent, or the run that continues it."""
        operations = [*beside, operation]
        traits, message = owned.traits, None
        if owned.has_children:
            operations.append(stop_children(owned.run_id, owned.workflow_id, end, event.at))
        if traits.parent_id is not None and traits.parent_place is not None and not isinstance(end, RunContinued):
            body = told_to_parent(traits.parent_place, owned.workflow, owned.workflow_id, owned.run_id, end)
            message = Message(0, f"child:{owned.run_id}", body, event.at)
            kind, text = type(body).__name__, rows.message_body(body)
            operations.append(TellRun(traits.parent_id, message.message_id, kind, text, event.at))

        def ended(posted: Posted | None) -> None:
            self._ended(owned, ending(end))
            if message is not None and posted is not None and traits.parent_id is not None:
                told = msgspec.structs.replace(message, number=posted.number)
                self._notice(traits.parent_id, told, posted.count)
            if owned.has_children:
                self._spawn(self._tell_children(owned.run_id))
            if beside and self._host is not None:
                self._host.look_around()

        return StoreClosing(self._host, owned.run_id, event, operations, ended)

    async def _tell_children(self, run_id: str) -> None:
        """Children of ours that live here were asked to stop."""
        after = None
        while True:
            page = await self._store.list_runs(RunFilter(self.namespace, parent_id=run_id, before=after, limit=500))
            for row in page:
                if row.closed_at is None:
                    await self._read_if_live(row.run_id)
            if len(page) < 500:  # noqa: PLR2004 - as asked for above
                return
            after = page[-1].run_id

    async def _read_if_live(self, run_id: str) -> None:
        if self._host is not None and self._host.is_live(run_id):
            await self.read_messages_of(run_id)
        elif self._host is not None:
            self._host.look_around()

    def continue_run(self, owned: OwnedRun, request: StartRequest) -> StoreAdvance | Refusal:
        """Close a run, and start the one that goes on in its place."""
        if owned.tenure is not self._tenure:
            return NotOwned()
        now = self.clock.now()
        run_id = self._run_id(now, owned.run_id)
        event = decide(owned.state, CloseRun(RunContinued(run_id)), now)
        if not isinstance(event, Event):
            return event
        owned.state = evolve(owned.state, event)
        successor = self._new_run(msgspec.structs.replace(request, run_id=run_id, supersedes=None), now)
        (insert,) = self._insertion(request, successor, hosted=False)
        beside = (
            SupersedeRun(owned.run_id, self._lease.worker_id),
            insert,
            MoveMessages(owned.run_id, run_id),
        )
        return self._close(owned, event, RunContinued(run_id), *beside)

    def start_child(self, owned: OwnedRun, request: StartRequest, then: Callable[[RunRow | None], None]) -> None:
        """Start a child of an owned run; `then` gets the run that has its id, if another one does."""
        if owned.tenure is not self._tenure:
            return
        child = self._new_run(request, self.clock.now())
        hosted = self._hosts(request)
        operations = self._insertion(request, child, hosted=hosted)

        def again() -> None:
            self.start_child(owned, msgspec.structs.replace(request, supersedes=None), then)

        group = ChildStart(operations, child, self._host, self._arriving, hosted=hosted, then=then, again=again)
        self._committer.submit(group)

    def cancel_child(self, owned: OwnedRun, place: str, reason: str) -> None:
        """Ask the child that was started at this place to stop; one that has ended does not mind."""

        def told(answer: Settlement) -> None:
            asked = answer.value if isinstance(answer, Applied) else None
            if isinstance(asked, list):
                self._spawn(self._read_all(asked))

        self._ask_as_owner(owned, told, stop_child(owned.run_id, place, reason, self.clock.now()))

    async def _read_all(self, run_ids: list[str]) -> None:
        for run_id in run_ids:
            await self._read_if_live(run_id)

    def annotate(self, owned: OwnedRun, attributes: str, step: str | None) -> None:
        """Show what a workflow says of itself."""
        note = Annotate(owned.run_id, self._lease.worker_id, attributes, step, self.clock.now())
        self._ask_as_owner(owned, lambda _: None, note)

    def record_attempt(self, owned: OwnedRun, attempt: Attempt, then: Callable[[], None]) -> None:
        """Write down a failed attempt, then go on."""
        operation = RecordAttempt(
            self.namespace,
            owned.run_id,
            attempt.place,
            attempt.attempt,
            attempt.name,
            msgspec.json.encode(attempt.failure).decode(),
            attempt.at,
            attempt.next_at or attempt.at,
        )
        self._ask_as_owner(owned, lambda answer: then() if isinstance(answer, Applied) else None, operation)

    def note_waiting(self, owned: OwnedRun, waiting: str) -> None:
        """Show what a live run waits for."""
        note = NoteWaiting(owned.run_id, self._lease.worker_id, waiting, self.clock.now())
        self._ask_as_owner(owned, lambda _: None, note)

    def release(self, owned: OwnedRun, how: Release, done: Callable[[bool], None]) -> None:
        """Let go of a run; `done(False)` when a message came first and it must go on."""
        operation = self._release_operation(owned, how)

        def settle(answer: Settlement) -> None:
            if not isinstance(answer, Dropped):
                done(isinstance(answer, Applied))

        self._ask_as_owner(owned, settle, operation)

    def _ask_as_owner(self, owned: OwnedRun, tell: Callable[[Settlement], None], *operations: Operation) -> None:
        if owned.tenure is self._tenure:
            self._committer.submit(OwnersQuestion(operations, tell))
        else:
            tell(Dropped())

    def _release_operation(self, owned: OwnedRun, how: Release) -> Operation:
        worker_id, now = self._lease.worker_id, self.clock.now()
        match how:
            case Park(wake_at, waiting):
                status = Status.SUSPENDED.value
                return ParkRun(owned.run_id, worker_id, status, wake_at, waiting, owned.messages, now)
            case HandBack():
                return ParkRun(owned.run_id, worker_id, Status.PENDING.value, now, None, None, now)
            case Hold(reason, report):
                return HoldRun(owned.run_id, worker_id, reason, report, now)

    async def claim(self, queues: tuple[str, ...], workflows: tuple[str, ...], limit: int) -> int:
        """Take ripe runs and hand them to the host; answers how many."""
        operation = ClaimRuns(self._lease.worker_id, self.namespace, queues, workflows, self.clock.now(), limit)
        answer = await self._committer.apply(operation, kind=OwnersQuestion)
        if not isinstance(answer, Applied) or not answer.value:
            return 0
        assert isinstance(answer.value, list)
        await self._load(answer.value)
        return len(answer.value)

    async def _load(self, run_ids: list[str]) -> None:
        """Bring runs of ours to life; messages that come while they are being read are not lost."""
        assert self._host is not None
        self._arriving |= {run_id: [] for run_id in run_ids}
        tenure = self._tenure
        try:
            found = await self._patiently(lambda: self._store.load_runs(run_ids, self._lease.worker_id), tenure)
        finally:
            early = {run_id: self._arriving.pop(run_id, []) for run_id in run_ids}
        # What was read before a loss says nothing of now; and while the epoch is not settled nothing is ours.
        if tenure is not self._tenure or self._committer.is_stopped:
            return
        for loaded in found:
            owned = owned_from(loaded)
            owned.tenure = tenure
            try:
                self._host.adopt(owned, loaded)
            except Exception as error:
                log.exception("a run could not be brought to life", extra={"event": "adopt_failed"})
                self._host.broken(owned.run_id, f"{type(error).__name__}: {error}")
            for message in early[loaded.row.run_id]:
                self._host.notice(loaded.row.run_id, message, None)

    async def _patiently(self, read: "Callable[[], Awaitable[list[T]]]", tenure: object) -> "list[T]":
        """Read what is ours until it can be read: nobody else will bring these runs to life."""
        while tenure is self._tenure and not self._is_closed:
            try:
                return await read()
            except StoreUnavailable:
                log.warning("own runs cannot be read, will try again", extra={"event": "load_failed"})
                await self.pause(RECOVER_RETRY_MS)
        return []

    async def next_wake(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> int | None:
        """When the next free run becomes ripe."""
        return await self._store.next_wake(self.namespace, queues, workflows)

    async def free_mismatches(self, workflows: tuple[str, ...]) -> None:
        """Give runs held for a mismatch another try; the code may be back."""
        await self._committer.apply(FreeMismatches(self.namespace, workflows, self.clock.now()))

    # Reading and waiting

    async def read(self, run_id: str) -> RunRow:
        """A run's row; RunNotFound."""
        if self._is_closed:
            raise NotOpen
        row = await self._store.run(self.namespace, run_id)
        if row is None:
            raise RunNotFound(run_id, self.namespace)
        return row

    async def find(self, workflow_id: str) -> RunRow:
        """The newest run of a workflow_id; RunNotFound."""
        row = await self._store.latest_run(self.namespace, workflow_id)
        if row is None:
            raise RunNotFound(workflow_id, self.namespace)
        return row

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        """Runs, newest first."""
        return await self._store.list_runs(wanted)

    async def events(self, run_id: str, after: int, limit: int) -> list[Event]:
        """A run's history."""
        return await self._store.events(await self.read(run_id), after, limit)

    async def last_event_at(self, run_id: str) -> int | None:
        """When a run's last event was."""
        return await self._store.last_event_at(run_id)

    async def attempts(self, run_id: str) -> Sequence[Attempt]:
        """A run's failed attempts."""
        return await self._store.attempts(run_id)

    async def unread(self, run_id: str) -> Sequence[Message]:
        """The messages a run has not taken yet."""
        return await self._store.unread(run_id)

    async def wait(self, run_id: str, owned: OwnedRun | None = None) -> Ending:
        """Until the run has ended; `owned` is its handle, if it was started here."""
        if owned is not None and owned.ending is not None:
            return owned.ending
        future: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        # Registered before the look, so that an end in between is not missed.
        self._waiters.setdefault(run_id, []).append(future)
        try:
            if self._host is None or not self._host.is_live(run_id):
                row = await self.read(run_id)
                if row.closed_at is not None:
                    return ending_of(row)
            return await future
        finally:
            self._forget_waiter(run_id, future)

    def _forget_waiter(self, run_id: str, future: "asyncio.Future[Ending]") -> None:
        waiters = self._waiters.get(run_id)
        if waiters is not None:
            waiters.remove(future)
            if not waiters:
                del self._waiters[run_id]

    def _ended_elsewhere(self, run_id: str, ending: Ending) -> None:
        """A run that lived nowhere was closed."""
        self._tell_waiters(run_id, ending)
        if self._host is not None:
            self._spawn(self._tell_children(run_id))

    def _ended(self, owned: OwnedRun, ending: Ending) -> None:
        owned.ending = ending
        if self._host is not None:
            self._host.ended(owned.run_id)
        if owned.run_id in self._waiters:
            self._tell_waiters(owned.run_id, ending)

    def _tell_waiters(self, run_id: str, ending: Ending) -> None:
        for waiter in self._waiters.pop(run_id, ()):
            if not waiter.done():
                waiter.set_result(ending)

    def _awaited(self) -> list[str]:
        """The runs somebody here waits for that live elsewhere."""
        host = self._host
        return [run_id for run_id in self._waiters if host is None or not host.is_live(run_id)]

    async def read_messages_of(self, run_id: str) -> None:
        """Notice what is unread in one run's inbox."""
        for message in await self._store.unread(run_id):
            self._notice(run_id, message, None)

    async def settle(self, patience_ms: int) -> None:
        """Until everything asked for so far is on disk; while the database is unavailable, not for longer than this."""
        await self._committer.idle()
        if self._committer.is_stalled:
            await self.pause(patience_ms)

    # Losing the lease

    def _renew_without_heartbeat(self) -> None:
        """Renewal where no thread does it: under a clock that does not tick by itself."""
        if self._host is not None and self._heartbeat is None and not self._lease.renew():
            self._on_renewal_refused()

    def _on_renewal_refused(self) -> None:
        self._committer.stop_for(Unknown(StoreUnavailable(self._store.url, "the lease was not renewed")))

    def _on_lost(self, outcome: Outcome) -> None:
        self._tenure = object()
        if self._host is None:
            self._committer.resume(None, 0)
            return
        self._host.drop_all()
        self._spawn(self._recover())

    async def _recover(self) -> None:
        """Get a new epoch, whatever it takes; then bring back the runs that are still ours."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        while True:
            try:
                is_still_ours = await self._lease.recover()
                break
            except StoreUnavailable:
                log.warning("no new epoch yet, will try again", extra={"event": "recovery_failed"})
                await self.pause(RECOVER_RETRY_MS)
        self._start_heartbeat()
        if is_still_ours and self._host is not None:
            worker_id = self._lease.worker_id
            await self._load(await self._patiently(lambda: self._store.owned_runs(worker_id), self._tenure))

    async def pause(self, ms: int) -> None:
        """Wait by the engine's clock."""
        woken = asyncio.Event()
        self.clock.call_at(self.clock.now() + ms, woken.set)
        self._pauses += 1
        try:
            await woken.wait()
        finally:
            self._pauses -= 1


def owned_from(loaded: LoadedRun) -> OwnedRun:
    """The handle of a run that was claimed, in the state its history leads to."""
    row = loaded.row
    owned = OwnedRun(row.run_id, row.workflow_id, row.workflow, row.input, row.seed, row.created_at)
    owned.messages = row.messages
    owned.namespace = row.namespace
    owned.queue = row.queue
    owned.priority = row.priority
    owned.traits = rows.traits_of(row)
    owned.has_children = bool(loaded.children)
    if loaded.events:
        last = loaded.events[-1]
        owned.state = RunState(Status.RUNNING, last.seq, last.at)
    return owned
