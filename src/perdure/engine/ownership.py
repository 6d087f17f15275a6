"""Ownership: what only the owner of a run may ask for. The kernel decides, the committer writes.

In:   commands of owned runs, and what concerns their children and parents.
Out:  groups for the committer; after their commit, the runs and callers they concern are told.
Everything here is good only under the tenure it was asked in.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from perdure.engine.arrivals import Arrivals
from perdure.engine.committer import Dropped, Group, OwnersGroup, Settlement
from perdure.engine.endings import ending, told_to_parent
from perdure.engine.groups import ChildStart, StoreAdvance, StoreClosing
from perdure.engine.outputs.followers import Followers
from perdure.engine.ports import Ending, HandBack, Hold, Host, OwnedRun, Park, Pause, Release, StartRequest, Tenure
from perdure.engine.starts import Starts, insertion
from perdure.engine.stopping import Stopping, stop_child, stop_children
from perdure.engine.waiting.waiters import Waiters
from perdure.kernel.attributes import AttributeChange
from perdure.kernel.commands import CloseRun, Command, ReceiveMessage, TakeNote
from perdure.kernel.events import CLOSINGS, ChildFailed, Closing, Event, RunContinued, RunFailed
from perdure.kernel.messages import CancelRequest, Message, TerminateRequest
from perdure.kernel.requests import RequestAnswer
from perdure.kernel.run import NotOwned, Refusal, decide, evolve
from perdure.kernel.status import OPEN, PAUSED, Status
from perdure.stores import rows
from perdure.stores.answers import Applied, Broken, Posted
from perdure.stores.operations import (
    Annotate,
    AnswerRequest,
    AppendEvent,
    BeginAttempt,
    CloseFreeRun,
    EndRun,
    HoldRun,
    HoldTasks,
    MoveMessages,
    MoveStreams,
    NoteLosses,
    NoteUndo,
    NoteWaiting,
    Operation,
    ParkRun,
    RecordAttempt,
    RecordBeat,
    SupersedeRun,
    TakeMessage,
    TellRun,
)
from perdure.stores.records import AttemptRow, CallProgress, RunRow

# Makes a named tuple without the detour through its Python constructor.
_row: Any = tuple.__new__

# Enum members know their value only by a detour.
_STATUS_TEXT = {status: status.value for status in Status}


class Gatherer(Protocol):
    """What groups are given to."""

    def submit(self, group: Group) -> None: ...


class EventTime(Protocol):
    """What tells how late it is."""

    def now(self) -> int: ...

    def latest(self) -> int: ...


class OwnersLease(Protocol):
    """Whose runs they are: the worker's id, what they were given under, and its host, if it is this process."""

    worker_id: str
    host: Host | None
    tenure: Tenure


class Ownership:
    """Moves, closes and lets go of the runs this process owns; the Owner of an engine."""

    def __init__(
        self,
        committer: Gatherer,
        clock: EventTime,
        lease: OwnersLease,
        starts: Starts,
        arrivals: Arrivals,
        waiters: Waiters,
        stopping: Stopping,
        followers: Followers,
    ) -> None:
        self._committer = committer
        self._clock = clock
        self._lease = lease
        self._starts = starts
        self._arrivals = arrivals
        self._waiters = waiters
        self._stopping = stopping
        self._followers = followers

    def over(self, committer: "Gatherer", lease: "OwnersLease") -> "Ownership":
        """The same for the runs of another worker, in whose name this process writes."""
        twin = self._twin()
        twin._committer, twin._lease = committer, lease
        return twin

    def by(self, time: EventTime) -> "Ownership":
        """The same by another time than that of the clock."""
        twin = self._twin()
        twin._clock = time
        return twin

    def _twin(self) -> "Ownership":
        # One is made for every run of a request: several times as quick as `copy.copy`.
        twin = Ownership.__new__(Ownership)
        twin.__dict__ = self.__dict__.copy()
        return twin

    def advance(self, owned: OwnedRun, command: Command) -> StoreAdvance | Refusal:
        """Let the rules decide; the event is in the next batch."""
        if owned.tenure is not self._lease.tenure:
            return NotOwned()
        event = decide(owned.state, command, self._clock.latest())
        if not isinstance(event, Event):
            return event
        owned.state = evolve(owned.state, event)
        fact = event.fact
        kind = type(fact)
        if kind in CLOSINGS:
            return self._close(owned, event, fact, command.undo)  # type: ignore[arg-type,union-attr]  # looked at
        append = _row(
            AppendEvent,
            (
                owned.namespace,
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
        advance = StoreAdvance(self._lease.host, owned.run_id, event, operations)
        self._committer.submit(advance)
        return advance

    def _close(self, owned: OwnedRun, event: Event, end: Closing, undo: str | None, *beside: Operation) -> StoreAdvance:
        status, outcome = _STATUS_TEXT[owned.state.status], rows.outcome_of(end)
        worker_id = self._lease.worker_id
        operation = _row(EndRun, (owned.run_id, status, outcome, event.seq, event.at, worker_id, owned.namespace, undo))
        if beside or owned.has_children or owned.traits.parent_id is not None:
            advance = self._close_in_company(owned, event, end, operation, beside)
        else:
            advance = StoreAdvance(self._lease.host, owned.run_id, event, (operation,))
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
                self._arrivals.notice(traits.parent_id, told, posted.count)
            if owned.has_children:
                self._stopping.tell_children(owned.namespace, owned.run_id, end)
            if beside:
                self._arrivals.look_around()

        return StoreClosing(self._lease.host, owned.run_id, event, operations, ended)

    def continue_run(self, owned: OwnedRun, request: StartRequest) -> StoreAdvance | Refusal:
        """Close a run, and start the one that goes on in its place."""
        if owned.tenure is not self._lease.tenure:
            return NotOwned()
        now = self._clock.latest()
        run_id = self._starts.run_id_after(now, owned.run_id)
        event = decide(owned.state, CloseRun(RunContinued(run_id)), now)
        if not isinstance(event, Event):
            return event
        owned.state = evolve(owned.state, event)
        successor = self._starts.new_run(owned.namespace, msgspec.structs.replace(request, run_id=run_id), now)
        (insert,) = insertion(request, successor, None)
        beside = (
            SupersedeRun(owned.run_id, self._lease.worker_id),
            insert,
            MoveMessages(owned.run_id, run_id),
            *([MoveStreams(owned.run_id, run_id)] if owned.published or owned.has_children else []),
        )
        return self._close(owned, event, RunContinued(run_id), None, *beside)

    def start_child(self, owned: OwnedRun, request: StartRequest, then: Callable[[RunRow | None], None]) -> None:
        """Start a child of an owned run; `then` gets the run that has its id, if another one does."""
        if owned.tenure is not self._lease.tenure:
            return
        if owned.state.status not in OPEN:
            then(None)
            return
        host = self._lease.host
        child = self._starts.new_run(owned.namespace, request, self._clock.latest())
        hosted = host is not None and not request.delay_ms and host.makes_room_for(request)
        operations = self._starts.insert(request, child, hosted=hosted)

        def again() -> None:
            self.start_child(owned, msgspec.structs.replace(request, supersedes=None), then)

        group = ChildStart(operations, child, host, self._arrivals, hosted=hosted, then=then, again=again)
        self._committer.submit(group)

    def cancel_child(self, owned: OwnedRun, place: str, reason: str) -> None:
        """Ask the child that was started at this place to stop; one that has ended does not mind."""

        def told(answer: Settlement) -> None:
            asked = answer.value if isinstance(answer, Applied) else None
            if isinstance(asked, list):
                for child in asked:
                    body = TerminateRequest(reason) if child.kind == "TerminateRequest" else CancelRequest(reason)
                    self._arrivals.notice(child.run_id, Message(child.number, stop.message_id, body, stop.at), None)

        stop = stop_child(owned.run_id, place, reason, self._clock.now())
        self._ask_as_owner(owned, told, stop)

    def close_unbegun(self, owned: OwnedRun, place: str, failed: ChildFailed) -> None:
        """End the child at this place with a failure, unless some worker has begun it."""
        now, end = self._clock.now(), RunFailed(failed.failure)
        body = told_to_parent(place, failed.workflow, failed.child_id, failed.run_id, end)
        kind, text, message_id = type(body).__name__, rows.message_body(body), f"child:{failed.run_id}"
        status = Status.FAILED.value
        close = CloseFreeRun(failed.run_id, owned.namespace, status, rows.outcome_of(end), now, only_unbegun=True)

        def told(answer: Settlement) -> None:
            if isinstance(answer, Applied) and isinstance(answer.value, Posted):
                message = Message(answer.value.number, message_id, body, now)
                self._arrivals.notice(owned.run_id, message, answer.value.count)

        self._ask_as_owner(owned, told, close, TellRun(owned.run_id, message_id, kind, text, now))

    def set_aside(self, owned: OwnedRun, *numbers: int) -> None:
        """Messages that the code of an owned run does not take are not to be offered again."""
        self._ask_as_owner(owned, lambda _: None, *(TakeMessage(number, 0) for number in numbers))

    def answer(self, owned: OwnedRun, answers: Mapping[str, RequestAnswer], *refused: Message) -> None:
        """Write down what the code says to callers that asked it, and tell them; refused requests became no event."""
        operations: list[Operation] = [TakeMessage(message.number, 0) for message in refused]
        for message_id, answer in answers.items():
            operations.append(AnswerRequest(owned.run_id, message_id, rows.answer_text(answer)))

        def told(settled: Settlement) -> None:
            if isinstance(settled, Applied):
                for message_id, answer in answers.items():
                    self._waiters.askers.tell(owned.run_id, message_id, answer)

        self._ask_as_owner(owned, told, *operations)

    def annotate(self, owned: OwnedRun, step: str | None, change: AttributeChange | None) -> None:
        """Show what a workflow says of itself; without a change its attributes are as before."""
        changed = (None, None, None, None) if change is None else change
        said = (changed[0], step, self._clock.now(), owned.namespace, *changed[1:])
        note = Annotate(owned.run_id, self._lease.worker_id, *said)
        self._ask_as_owner(owned, lambda _: None, note)

    def note_undo(self, owned: OwnedRun, undo: str | None) -> None:
        """Show what a run would have to undo, and what it has undone."""
        self._ask_as_owner(owned, lambda _: None, NoteUndo(owned.run_id, self._lease.worker_id, undo))

    def record_attempt(self, owned: OwnedRun, attempt: AttemptRow, then: Callable[[], None]) -> None:
        """Write down a failed attempt, then go on; one of a run that is about to end has no successor."""
        if owned.state.status not in OPEN:
            return
        operation = RecordAttempt(
            owned.namespace,
            owned.run_id,
            attempt.place,
            attempt.attempt,
            attempt.name,
            msgspec.json.encode(attempt.failure).decode(),
            attempt.at,
            attempt.next_at or attempt.at,
        )
        self._ask_as_owner(owned, partial(self._go_on, owned, then), operation)

    def begin_attempt(self, owned: OwnedRun, place: str, then: Callable[[], None]) -> None:
        """Write down that the only attempt of a call begins, then begin it."""
        begin = BeginAttempt(owned.namespace, owned.run_id, place, self._clock.now())
        self._ask_as_owner(owned, partial(self._go_on, owned, then), begin)

    def _go_on(self, owned: OwnedRun, then: Callable[[], None], answer: Settlement) -> None:
        if isinstance(answer, Applied):
            then()
        elif isinstance(answer, Broken) and self._lease.host is not None:
            self._lease.host.broken(owned.run_id, answer.trouble)

    def record_beats(
        self, owned: OwnedRun, said: Sequence[CallProgress], then: Callable[[], None] = lambda: None
    ) -> None:
        """Write down the newest details of activities under way, then go on."""
        namespace, run_id = owned.namespace, owned.run_id
        beats = [_row(RecordBeat, (namespace, run_id, each.place, each.details, each.beat_at or 0)) for each in said]
        self._ask_as_owner(owned, lambda _: then(), *beats)

    def note_waiting(self, owned: OwnedRun, waiting: str, then: Callable[[], None] = lambda: None) -> None:
        """Show what a live run waits for, then go on."""
        note = NoteWaiting(owned.run_id, self._lease.worker_id, waiting, self._clock.now())
        self._ask_as_owner(owned, lambda _: then(), note)

    def note_losses(self, owned: OwnedRun, losses: int, outlived: int) -> None:
        """Put down what is held against a run from now on."""
        note = NoteLosses(owned.run_id, self._lease.worker_id, losses, outlived)
        self._ask_as_owner(owned, lambda _: None, note)

    def release(self, owned: OwnedRun, how: Release, done: Callable[[bool], None]) -> None:
        """Let go of a run; `done(False)` when a message came first and it must go on."""
        operations = self._release_operations(owned, how)

        def settle(answer: Settlement) -> None:
            if not isinstance(answer, Dropped):
                done(isinstance(answer, Applied))

        self._ask_as_owner(owned, settle, *operations)

    def _ask_as_owner(self, owned: OwnedRun, tell: Callable[[Settlement], None], *operations: Operation) -> None:
        if owned.tenure is self._lease.tenure:
            self._committer.submit(OwnersGroup(operations, tell))
        else:
            tell(Dropped())

    def _release_operations(self, owned: OwnedRun, how: Release) -> Sequence[Operation]:
        worker_id, now = self._lease.worker_id, self._clock.now()
        match how:
            case Park(wake_at, waiting):
                status = Status.SUSPENDED.value
                return (ParkRun(owned.run_id, worker_id, status, wake_at, waiting, owned.messages, now),)
            case HandBack():
                return (ParkRun(owned.run_id, worker_id, Status.PENDING.value, now, None, None, now),)
            case Hold(reason, report):
                return (HoldRun(owned.run_id, worker_id, reason, report, now),)
            case Pause(report, tasks, taken):
                hold = HoldRun(owned.run_id, worker_id, PAUSED, report, now, owned.messages)
                return (hold, HoldTasks(owned.run_id, tasks, now), *(TakeMessage(number, 0) for number in taken))

    def _ended(self, owned: OwnedRun, ending: Ending) -> None:
        owned.ending = ending
        if self._lease.host is not None:
            self._lease.host.ended(owned.run_id)
        if owned.run_id in self._waiters.askers.by_run:
            self._waiters.askers.ended(owned.run_id)
        if owned.run_id in self._waiters.by_run:
            self._waiters.tell(owned.run_id, ending)
        if owned.run_id in self._followers.by_run:
            self._followers.look_at_once(owned.run_id)
