"""What the owner of a run asks of an engine over a store: kernel decides, committer writes.

In:   commands of owned runs, and what concerns their children and parents.
Out:  groups for the committer; after their commit, whoever they concern is told.
Everything here is good only under the tenure it was asked in.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from perdure.clock import Clock
from perdure.engine.committer import Committer, Dropped, OwnersQuestion, Settlement
from perdure.engine.deadlines import Deadlines
from perdure.engine.endings import ending, told_to_parent
from perdure.engine.groups import Arrival, ChildStart, StoreAdvance, StoreClosing
from perdure.engine.held import tell_unreadable
from perdure.engine.leasing.lease import Lease
from perdure.engine.outages import Outage
from perdure.engine.ports import Ending, HandBack, Hold, OwnedRun, Park, Release, StartRequest
from perdure.engine.reads import ReadingEngine
from perdure.engine.starts import insertion, new_run, run_id_after
from perdure.engine.stopping import stop_child, stop_children
from perdure.errors import RunUnreadable, StoreUnavailable
from perdure.ids import Ids
from perdure.kernel.commands import CloseRun, Command, ReceiveMessage, TakeNote
from perdure.kernel.events import CLOSINGS, Closing, Event, RunContinued
from perdure.kernel.messages import CancelRequest, Message, TerminateRequest
from perdure.kernel.run import NotOwned, Refusal, decide, evolve
from perdure.kernel.status import OPEN, Status
from perdure.stores import rows
from perdure.stores.answers import Applied, Broken, Outcome, Posted
from perdure.stores.operations import (
    Annotate,
    AppendEvent,
    EndRun,
    HoldRun,
    MoveMessages,
    NoteLosses,
    NoteWaiting,
    Operation,
    ParkRun,
    RecordAttempt,
    SupersedeRun,
    TakeMessage,
    TellRun,
)
from perdure.stores.port import Store
from perdure.stores.records import UNREAD_PAGE, Attempt, RunFilter, RunRow, UnreadPage

# Makes a named tuple without the detour through its Python constructor.
_row: Any = tuple.__new__

# Enum members know their value only by a detour.
_STATUS_TEXT = {status: status.value for status in Status}

CHILDREN_PAGE = 500
READ_AGAIN_MS = 500

T = TypeVar("T")

log = logging.getLogger("perdure.engine")


class OwningEngine(ReadingEngine):
    """Moves, closes and lets go of the runs this process owns."""

    def __init__(self, store: Store, clock: Clock, ids: Ids, *, namespace: str, lease_ms: int) -> None:
        super().__init__(store, clock, namespace)
        self._ids = ids
        self._committer = Committer(store, clock, self._on_lost)
        self._lease = Lease(store, self._committer, clock, ids, namespace=namespace, lease_ms=lease_ms)
        self._deadlines = Deadlines(clock)
        # Runs of ours that do not live yet, started or being read, and what came for them meanwhile.
        self._arriving: dict[str, list[Arrival]] = {}
        # Everything owned was given under a tenure; losing the lease, or not knowing, begins another.
        self._tenure = object()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pauses = 0
        self._reading_outage = Outage(
            clock, "load_failed", "own runs cannot be read, will try again", "own runs can be read again"
        )

    @abstractmethod
    def _on_lost(self, outcome: Outcome) -> None:
        """The lease is lost, or nobody knows."""

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def advance(self, owned: OwnedRun, command: Command) -> StoreAdvance | Refusal:
        """Let the rules decide; the event is in the next batch."""
        if owned.tenure is not self._tenure:
            return NotOwned()
        event = decide(owned.state, command, self.clock.latest())
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
                self._spawn(self._tell_children(owned.run_id, end))
            if beside and self._host is not None:
                self._host.look_around()

        return StoreClosing(self._host, owned.run_id, event, operations, ended)

    @abstractmethod
    async def _tell_children(self, run_id: str, end: Closing) -> None:
        """Children of a run that ended were asked to stop."""

    async def _read_children(self, run_id: str) -> None:
        """Notice what came for the children of a run, as far as they live here."""
        after = None
        while True:
            wanted = RunFilter(self.namespace, tuple(OPEN), parent_id=run_id, before=after, limit=CHILDREN_PAGE)
            page = await self._patiently(partial(self._store.list_runs, wanted), self._tenure)
            await self._read_all([row.run_id for row in page])
            if len(page) < CHILDREN_PAGE:
                return
            after = page[-1].run_id

    async def _read_all(self, run_ids: list[str]) -> None:
        """Notice what came for those of these runs that live here, or are about to."""
        for run_id in run_ids:
            if self._host is not None and (run_id in self._arriving or self._host.is_live(run_id)):
                await self.read_messages_of(run_id)
            elif self._host is not None:
                self._host.look_around()

    def continue_run(self, owned: OwnedRun, request: StartRequest) -> StoreAdvance | Refusal:
        """Close a run, and start the one that goes on in its place."""
        if owned.tenure is not self._tenure:
            return NotOwned()
        now = self.clock.latest()
        run_id = run_id_after(self._ids, now, owned.run_id)
        event = decide(owned.state, CloseRun(RunContinued(run_id)), now)
        if not isinstance(event, Event):
            return event
        owned.state = evolve(owned.state, event)
        successor = new_run(
            self._ids, msgspec.structs.replace(request, run_id=run_id), now, self.namespace, self._tenure
        )
        (insert,) = insertion(request, successor, None)
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
        if owned.state.status not in OPEN:
            then(None)
            return
        child = new_run(self._ids, request, self.clock.latest(), self.namespace, self._tenure)
        hosted = self._host is not None and not request.delay_ms and self._host.makes_room_for(request)
        operations = self._insert(request, child, hosted=hosted)

        def again() -> None:
            self.start_child(owned, msgspec.structs.replace(request, supersedes=None), then)

        group = ChildStart(operations, child, self._host, self._arriving, hosted=hosted, then=then, again=again)
        self._committer.submit(group)

    def cancel_child(self, owned: OwnedRun, place: str, reason: str) -> None:
        """Ask the child that was started at this place to stop; one that has ended does not mind."""

        def told(answer: Settlement) -> None:
            asked = answer.value if isinstance(answer, Applied) else None
            if isinstance(asked, list):
                for child in asked:
                    body = TerminateRequest(reason) if child.kind == "TerminateRequest" else CancelRequest(reason)
                    self._notice(child.run_id, Message(child.number, stop.message_id, body, stop.at), None)

        stop = stop_child(owned.run_id, place, reason, self.clock.now())
        self._ask_as_owner(owned, told, stop)

    def set_aside(self, owned: OwnedRun, message: Message) -> None:
        """A message that the code of an owned run cannot take is not to be offered again."""
        self._ask_as_owner(owned, lambda _: None, TakeMessage(message.number, 0))

    def annotate(self, owned: OwnedRun, attributes: str, step: str | None) -> None:
        """Show what a workflow says of itself."""
        note = Annotate(owned.run_id, self._lease.worker_id, attributes, step, self.clock.now())
        self._ask_as_owner(owned, lambda _: None, note)

    def record_attempt(self, owned: OwnedRun, attempt: Attempt, then: Callable[[], None]) -> None:
        """Write down a failed attempt, then go on; one of a run that is about to end has no successor."""
        if owned.state.status not in OPEN:
            return
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

        def settle(answer: Settlement) -> None:
            if isinstance(answer, Applied):
                then()
            elif isinstance(answer, Broken) and self._host is not None:
                self._host.broken(owned.run_id, answer.trouble)

        self._ask_as_owner(owned, settle, operation)

    def note_waiting(self, owned: OwnedRun, waiting: str, then: Callable[[], None] = lambda: None) -> None:
        """Show what a live run waits for, then go on."""
        note = NoteWaiting(owned.run_id, self._lease.worker_id, waiting, self.clock.now())
        self._ask_as_owner(owned, lambda _: then(), note)

    def note_losses(self, owned: OwnedRun, losses: int, outlived: int) -> None:
        """Put down what is held against a run from now on."""
        note = NoteLosses(owned.run_id, self._lease.worker_id, losses, outlived)
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

    def _ended(self, owned: OwnedRun, ending: Ending) -> None:
        owned.ending = ending
        if self._host is not None:
            self._host.ended(owned.run_id)
        if owned.run_id in self._waiters:
            self._tell_waiters(owned.run_id, ending)

    def _notice(self, run_id: str, message: Message, count: int | None) -> None:
        """Pass a message on to the run's host; to a run that does not live yet, a moment later."""
        if run_id in self._arriving:
            self._arriving[run_id].append((message, count))
        elif self._host is not None and not self._host.notice(run_id, message, count):
            self._host.look_around()

    def _unreadable(self, error: RunUnreadable) -> None:
        """Something that came for a run of ours cannot be read; it is held, for nothing after that may be taken."""
        if error.run_id in self._arriving:
            self._arriving[error.run_id].append(error)
        elif self._host is not None:
            self._host.unreadable(error)

    def _hold_unread(self, error: RunUnreadable) -> None:
        """A run of ours cannot be brought to life: whoever else claims it could not do so either."""
        report = rows.held_report(error.trouble, error.id)
        hold = HoldRun(error.run_id, self._lease.worker_id, "quarantine", report, self.clock.now())

        def told(answer: Settlement) -> None:
            if isinstance(answer, Applied):
                tell_unreadable(error)

        self._committer.submit(OwnersQuestion((hold,), told))

    async def read_messages_of(self, run_id: str, after: int = 0) -> None:
        """Notice what is unread in one run's inbox after a number, a page at a time."""
        tenure, is_last = self._tenure, False
        while not is_last and tenure is self._tenure and not self._is_closed:
            try:
                pages = await self._patiently(partial(self._unread_page, run_id, after), tenure)
            except RunUnreadable as error:
                self._unreadable(error)
                return
            for messages, had in pages:
                is_last = len(messages) < UNREAD_PAGE
                after = messages[-1].number if messages else after
                if run_id in self._arriving:
                    self._arriving[run_id] += [(message, None) for message in messages]
                elif self._host is not None and self._host.is_live(run_id):
                    self._host.notice_unread(run_id, messages, had if is_last else None)
                elif self._host is not None:
                    self._host.look_around()
                    return

    async def _unread_page(self, run_id: str, after: int) -> list[UnreadPage]:
        return [await self._store.unread_page(run_id, after, UNREAD_PAGE)]

    async def _patiently(self, read: "Callable[[], Awaitable[list[T]]]", tenure: object) -> "list[T]":
        """Read what is ours until it can be read: nobody else will bring these runs to life."""
        while tenure is self._tenure and not self._is_closed:
            try:
                found = await read()
            except StoreUnavailable as error:
                self._reading_outage.fails(error)
                await self._stall(READ_AGAIN_MS)
            else:
                self._reading_outage.is_over()
                return found
        return []

    async def _stall(self, ms: int) -> None:
        """Wait for a database that is unavailable."""
        self._pauses += 1
        try:
            await self.pause(ms)
        finally:
            self._pauses -= 1

    def _insert(self, request: StartRequest, owned: OwnedRun, *, hosted: bool) -> tuple[Operation, ...]:
        """The operations that insert a run; messages for one that will live here are kept until it does."""
        if hosted:
            self._arriving[owned.run_id] = []
        self._deadlines.expect(owned.traits.close_at)
        return insertion(request, owned, self._lease.worker_id if hosted else None)
