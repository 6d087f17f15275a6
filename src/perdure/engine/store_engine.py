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
from perdure.engine.groups import StartGroup, StoreAdvance
from perdure.engine.heartbeat import Heartbeat
from perdure.engine.lease import Lease
from perdure.engine.port import Ending, HandBack, Hold, Host, OwnedRun, Park, Release, StartRequest
from perdure.engine.watch import Watch
from perdure.errors import NotOpen, RunClosed, RunNotFound, StoreError, StoreUnavailable
from perdure.ids import Ids
from perdure.kernel.commands import Command, ReceiveMessage
from perdure.kernel.events import CLOSINGS, Closing, Event, RunCompleted, RunFailed
from perdure.kernel.messages import Message, SignalSent
from perdure.kernel.run import NotOwned, Refusal, RunState, decide, evolve
from perdure.kernel.status import Status
from perdure.stores import rows
from perdure.stores.answers import APPLIED, Applied, Closed, Missing, Outcome, Posted, Taken, Unknown
from perdure.stores.operations import (
    AppendEvent,
    ClaimRuns,
    EndRun,
    FreeMismatches,
    HoldRun,
    InsertRun,
    NoteWaiting,
    Operation,
    ParkRun,
    PostMessage,
    RecordAttempt,
    TakeMessage,
)
from perdure.stores.port import Store
from perdure.stores.records import Attempt, LoadedRun, RunFilter, RunRow

log = logging.getLogger("perdure.engine")

# Makes a named tuple without the detour through its Python constructor.
_row: Any = tuple.__new__

# Enum members know their value only by a detour.
_STATUS_TEXT = {status: status.value for status in Status}

RECOVER_RETRY_MS = 500

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
        self._watch = Watch(
            store,
            clock,
            self._lease,
            notice=self._notice,
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
        run_id = self._ids.run_id(now)
        owned = OwnedRun(run_id, request.workflow_id or run_id, request.workflow, request.input, self._ids.seed(), now)
        owned.arguments = request.arguments
        owned.tenure = self._tenure
        hosted = self._host is not None and self._host.makes_room_for(request)
        answer = await self._insert(request, owned, hosted=hosted).settled
        if answer is APPLIED:
            return owned
        if isinstance(answer, Dropped):
            # The lease moved under it. Whether it was written is not known; this way it is safe to write again.
            answer = await self._insert(request, owned, hosted=False).settled
        if isinstance(answer, Taken):
            return answer.run
        if not isinstance(answer, Applied):
            self._raise_refusal(answer, owned.workflow_id)
        return owned

    def _insert(self, request: StartRequest, owned: OwnedRun, *, hosted: bool) -> StartGroup:
        fields = (
            owned.run_id,
            self.namespace,
            owned.workflow_id,
            owned.workflow,
            request.queue,
            "RUNNING" if hosted else "PENDING",
            self._lease.worker_id if hosted else None,
            None if hosted else owned.created_at,
            request.priority,
            request.input,
            owned.seed,
            owned.created_at,
        )
        insert: InsertRun = _row(InsertRun, fields)
        if hosted:
            self._arriving[owned.run_id] = []
        group = StartGroup(insert, owned, self._host, self._arriving, hosted=hosted)
        self._committer.submit(group)
        return group

    async def post(self, run_id: str, id: str, name: str, payload: bytes) -> None:
        """Send a signal; RunNotFound or RunClosed when nobody can ever receive it."""
        if self._is_closed:
            raise NotOpen
        if self._committer.is_full:
            await self._committer.room()
        signal = SignalSent(name, msgspec.Raw(payload))
        message_id = self._ids.token()
        now = self.clock.now()
        body = msgspec.json.encode(signal).decode()
        answer = await self._committer.apply(PostMessage(run_id, message_id, "SignalSent", body, now))
        self._raise_refusal(answer, id)
        posted = answer.value if isinstance(answer, Applied) else None
        if self._host is not None and isinstance(posted, Posted) and posted.count is not None:
            self._notice(run_id, Message(posted.number, message_id, signal, now), posted.count)

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
            operations = (append, TakeMessage(command.message.number, event.seq))
        advance = StoreAdvance(self._host, owned.run_id, event, operations)
        self._committer.submit(advance)
        return advance

    def _close(self, owned: OwnedRun, event: Event, end: Closing) -> StoreAdvance:
        status, outcome = _STATUS_TEXT[owned.state.status], rows.outcome_of(end)
        worker_id = self._lease.worker_id
        operation = _row(EndRun, (owned.run_id, status, outcome, event.seq, event.at, worker_id, self.namespace))
        advance = StoreAdvance(self._host, owned.run_id, event, (operation,))
        advance.then(self._ended, owned, _ending(end))
        self._committer.submit(advance)
        return advance

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
        self._ask_as_owner(owned, operation, lambda answer: then() if isinstance(answer, Applied) else None)

    def note_waiting(self, owned: OwnedRun, waiting: str) -> None:
        """Show what a live run waits for."""
        note = NoteWaiting(owned.run_id, self._lease.worker_id, waiting, self.clock.now())
        self._ask_as_owner(owned, note, lambda _: None)

    def release(self, owned: OwnedRun, how: Release, done: Callable[[bool], None]) -> None:
        """Let go of a run; `done(False)` when a message came first and it must go on."""
        operation = self._release_operation(owned, how)

        def settle(answer: Settlement) -> None:
            if not isinstance(answer, Dropped):
                done(isinstance(answer, Applied))

        self._ask_as_owner(owned, operation, settle)

    def _ask_as_owner(self, owned: OwnedRun, operation: Operation, tell: Callable[[Settlement], None]) -> None:
        if owned.tenure is self._tenure:
            self._committer.submit(OwnersQuestion((operation,), tell))
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
                await self._pause(RECOVER_RETRY_MS)
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
            await self._pause(patience_ms)

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
                await self._pause(RECOVER_RETRY_MS)
        self._start_heartbeat()
        if is_still_ours and self._host is not None:
            worker_id = self._lease.worker_id
            await self._load(await self._patiently(lambda: self._store.owned_runs(worker_id), self._tenure))

    async def _pause(self, ms: int) -> None:
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
    if loaded.events:
        last = loaded.events[-1]
        owned.state = RunState(Status.RUNNING, last.seq, last.at)
    return owned


def _ending(fact: Closing) -> Ending:
    if isinstance(fact, RunCompleted):
        return Ending(Status.COMPLETED, result=fact.result)
    return Ending(Status.FAILED, failure=fact.failure)


def ending_of(row: RunRow) -> Ending:
    """How a closed run ended."""
    closing = rows.closing_event(row)
    if closing is None or not isinstance(closing.fact, RunCompleted | RunFailed):
        raise LookupError(f"run {row.run_id} is not closed")
    return _ending(closing.fact)
