"""Commands of remote workers, carried out by the verbs that every owner of runs has.

In:   commands as they stand on the wire, and the run they are for.
Out:  what they lead to, gathered to be written all at once; BadField for one that makes no sense or comes too early.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from perdure.engine.ownership import Ownership
from perdure.engine.ports import StartRequest
from perdure.engine.ports.remote_runs import (
    AnnotateCommand,
    AnswerCommand,
    AsideCommand,
    AttemptCommand,
    BeatsCommand,
    BeginCommand,
    CancelledEnd,
    CancelNote,
    ChildCommand,
    CloseCommand,
    CompletedActivity,
    CompletedChild,
    CompletedEnd,
    ContinueCommand,
    ErrorValue,
    ExposeCommand,
    FailedActivity,
    FailedChild,
    FailedEnd,
    KnownValue,
    LossesCommand,
    MessageCommand,
    NoteCommand,
    OutcomeCommand,
    PatchNote,
    PublishCommand,
    RemoteCommand,
    StopChildCommand,
    TaskCommand,
    TerminatedEnd,
    TimedOutEnd,
    TimeoutNote,
    TimerCommand,
    UnbegunCommand,
    UndoCommand,
    WaitingCommand,
)
from perdure.engine.remote.sessions import Writing
from perdure.engine.remote.shown import check_details, check_undo, check_waiting
from perdure.engine.remote.task_inputs import check_attempts, check_duration, task_input
from perdure.errors import BadField, NotAllowed, RunUnreadable
from perdure.ids import LONGEST_ID, checked_id, child_run_id, stamp_of
from perdure.kernel.attributes import AttributeChange, merged
from perdure.kernel.commands import CloseRun, Command, FireTimer, ReceiveMessage, RecordOutcome, TakeNote
from perdure.kernel.events import (
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    Closing,
    Patched,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunTerminated,
    RunTimedOut,
    TimeoutReached,
    ValueRecorded,
)
from perdure.kernel.failure import Failure
from perdure.kernel.messages import (
    CancelRequest,
    ChildFailure,
    ChildResult,
    DeferredFailure,
    DeferredResult,
    Message,
    RequestSent,
    SignalSent,
)
from perdure.kernel.requests import Answered, Refused
from perdure.kernel.run import AlreadyClosed, TooEarly
from perdure.kernel.snapshots import LARGEST, ROOM_FOR_ERRORS, ShownValues
from perdure.kernel.tasks import TaskInput
from perdure.kernel.traits import TASK_PREFIX, OnParentClose, Traits
from perdure.stores.operations import PublishValues, WriteSnapshot
from perdure.stores.records import AttemptRow, RunRow

# The clocks of two servers, each as a worker was told it, are less than so far apart.
SKEW_MS = 1000
NOTHING_PUBLISHED: Mapping[str, int] = {}
NO_CHILDREN: Mapping[str, tuple[str, str]] = {}
NO_ARGUMENTS = msgspec.Raw(b"{}")
RECEIVED = (SignalSent, DeferredResult, DeferredFailure, RequestSent, ChildResult, ChildFailure)


class GivenTime:
    """In the place of a clock: the time of the event that is made."""

    at = 0

    def now(self) -> int:
        return self.at

    latest = now


class RunCommands:
    """Carries out the commands of one call for one run."""

    def __init__(
        self,
        writing: Writing,
        row: RunRow,
        unread: Mapping[int, Message],
        now: int,
        published: Mapping[str, int] = NOTHING_PUBLISHED,
        children: Mapping[str, tuple[str, str]] = NO_CHILDREN,
    ) -> None:
        self._writing = writing
        self._owner = writing.owner
        self._owned = writing.owned
        self._row = row
        self._unread = dict(unread)
        # How many values its own code has published, by stream.
        self._published = published
        # What it has started at the places that the commands name.
        self._children = dict(children)
        self._now = now
        # The same owner, by the time that the worker says it is.
        self._time = GivenTime()
        self._timed: Ownership | None = None
        # Whether children or activities were started, which workers want to know of.
        self.has_started = False

    @property
    def seq(self) -> int:
        """The number of the run's last event by now."""
        return self._owned.state.seq

    @property
    def has_ended(self) -> bool:
        return self._owned.state.status not in {"PENDING", "RUNNING", "SUSPENDED"}

    def carry_out(self, command: RemoteCommand) -> None:
        """Do what one command asks for."""
        if self.has_ended:
            raise _untimely(_kind(command), "it comes after the end of the run")
        _DO[type(command)](self, command)

    def _advance(self, kind: str, command: Command, at: int | None) -> None:
        refusal = self._owner_at(kind, at).advance(self._owned, command)
        if isinstance(refusal, TooEarly):
            raise _untimely(kind, f"the timer is due at {refusal.fire_at}, and it is {refusal.now}")
        if isinstance(refusal, AlreadyClosed):
            raise _untimely(kind, "it comes after the end of the run")

    def _owner_at(self, kind: str, at: int | None) -> Ownership:
        """The owner by the clock of this process, or by the time that the worker says it is."""
        if at is None:
            return self._owner
        # A history's times never go back: after the clock was set back they are ahead of it.
        if at > max(self._now, self._owned.state.at) + SKEW_MS:
            raise _untimely(kind, f"it is to be at {at}, and it is {self._now}; ask the server for its time")
        if self._timed is None:
            self._timed = self._owner.by(self._time)
        self._time.at = at
        return self._timed

    # What becomes an event

    def _record(self, command: OutcomeCommand) -> None:
        fact: ActivityCompleted | ActivityFailed | ValueRecorded | ChildCompleted | ChildFailed
        match command.outcome:
            case CompletedActivity(name, arguments, result, started_at, attempts):
                fact = ActivityCompleted(name, arguments, result, started_at, attempts)
            case FailedActivity(name, error, arguments, started_at, attempts):
                fact = ActivityFailed(name, arguments, _failure(error), started_at, attempts)
            case KnownValue(value):
                fact = ValueRecorded(value)
            case CompletedChild(workflow, child_id, run_id, result):
                fact = ChildCompleted(workflow, child_id, run_id, result)
            case FailedChild(workflow, child_id, run_id, error):
                fact = ChildFailed(workflow, child_id, run_id, _failure(error))
        self._advance("RecordOutcome", RecordOutcome(_place(command.place), fact), command.at)

    def _fire(self, command: TimerCommand) -> None:
        if command.fire_at < 0:
            raise BadField("FireTimer", f"fire_at is {command.fire_at}; give milliseconds since 1970")
        self._advance("FireTimer", FireTimer(_place(command.place), command.fire_at), command.at)

    def _receive(self, command: MessageCommand) -> None:
        message = self._taken("ReceiveMessage", command.number)
        body = message.body
        if not isinstance(body, RECEIVED):
            raise _untimely("ReceiveMessage", f"message {command.number} is a {type(body).__name__}: note it, or end")
        if isinstance(body, SignalSent) and body.due_at is not None and body.due_at > self._now:
            raise _untimely("ReceiveMessage", f"message {command.number} is due at {body.due_at}, it is {self._now}")
        place = _place(command.place)
        self._advance("ReceiveMessage", ReceiveMessage(place, message.number, message.message_id, body), command.at)

    def _note(self, command: NoteCommand) -> None:
        match command.note:
            case PatchNote(change_id):
                self._advance("TakeNote", TakeNote(Patched(checked_id("change id", change_id))), command.at)
            case TimeoutNote(reason):
                if not self._is_over(self._now if command.at is None else command.at):
                    raise BadField("TakeNote", "the run has no timeout, or that is not over")
                self._advance("TakeNote", TakeNote(TimeoutReached(reason)), command.at)
            case CancelNote(number):
                message = self._taken("TakeNote", number)
                if not isinstance(message.body, CancelRequest):
                    raise _untimely("TakeNote", f"message {number} does not ask the run to stop")
                note = CancelRequested(message.body.reason, message.body.close_at)
                self._advance("TakeNote", TakeNote(note, message), command.at)

    def _is_over(self, at: int) -> bool:
        """Whether the timeout is; a deadline to stop by may have taken its place, or the run before begun it."""
        row = self._row
        if row.timeout_ms is None:
            return False
        ends_at = (row.delayed_until or row.created_at) + row.timeout_ms
        return at >= (ends_at if row.close_at is None else min(ends_at, row.close_at))

    def _taken(self, kind: str, number: int) -> Message:
        message = self._unread.pop(number, None)
        if message is None:
            raise _untimely(kind, f"the run has no unread message {number}")
        return message

    def _close(self, command: CloseCommand) -> None:
        end: Closing
        match command.end:
            case CompletedEnd(result):
                end = RunCompleted(result)
            case FailedEnd(error):
                end = RunFailed(_failure(error))
            case CancelledEnd(reason, notes):
                end = RunCancelled(reason, notes)
            case TimedOutEnd(reason, notes):
                end = RunTimedOut(reason, notes)
            case TerminatedEnd(reason):
                end = RunTerminated(reason)
        check_undo("CloseRun", command.undo)
        self._owned.has_children = command.children
        self._advance("CloseRun", CloseRun(end, command.undo), command.at)

    def _continue(self, command: ContinueCommand) -> None:
        owned, row = self._owned, self._row
        given = None if command.attributes is None else msgspec.json.encode(command.attributes).decode()
        traits = msgspec.structs.replace(
            owned.traits,
            attributes=given or row.own_attributes or row.attributes,
            continued_from=owned.run_id,
            delayed_until=None,
        )
        request = StartRequest(
            owned.workflow, _text(command.input), owned.workflow_id, owned.queue, owned.priority, traits=traits
        )
        # Its streams, if it has any, go on in the other one.
        owned.published = owned.published or {"": 0}
        self._owner_at("ContinueRun", command.at).continue_run(owned, request)
        self.has_started = True

    # What is no event

    def _start_child(self, command: ChildCommand) -> None:
        if command.on_parent_close not in list(OnParentClose):
            raise BadField("StartChild", f"on_parent_close is {command.on_parent_close!r}")
        check_duration("StartChild", "timeout", command.timeout)
        check_duration("StartChild", "delay", command.delay)
        timeout_ms = None if command.timeout is None else round(command.timeout * 1000)
        name = checked_id("workflow name", command.workflow)
        if name.startswith(TASK_PREFIX):
            task_input("StartChild", command.input)
        queue = self._row.queue if command.queue is None else checked_id("queue", command.queue)
        traits = Traits(
            on_parent_close=command.on_parent_close,
            timeout_ms=timeout_ms,
            entity_id=_id_or_none("entity id", command.entity_id),
            correlation_id=_id_or_none("correlation id", command.correlation_id),
            attributes=None if command.attributes is None else msgspec.json.encode(command.attributes).decode(),
        )
        request = StartRequest(
            name,
            _text(command.input),
            _id_or_none("workflow id", command.id),
            queue,
            self._owned.priority if command.priority is None else command.priority,
            traits=traits,
            delay_ms=round(command.delay * 1000),
            supersedes=command.supersedes,
        )
        self._start(command.place, request, command.at)

    def _start_task(self, command: TaskCommand) -> None:
        retry = command.retry
        task = TaskInput(
            NO_ARGUMENTS if bytes(command.arguments) == b"null" else command.arguments,
            command.timeout,
            retry.max_attempts,
            retry.initial_interval,
            retry.backoff,
            retry.max_interval,
            retry.non_retryable,
            command.heartbeat,
            command.at_most_once,
        )
        check_attempts("StartTask", task)
        name = f"{TASK_PREFIX}{checked_id('activity name', command.activity)}"
        text = msgspec.json.encode(task).decode()
        queue = checked_id("queue", command.queue)
        self._start(command.place, StartRequest(name, text, None, queue, self._owned.priority), None)

    def _start(self, at_place: str, request: StartRequest, at: int | None) -> None:
        owned, place, traits = self._owned, _place(at_place), request.traits
        if at is not None and at < 0:
            raise BadField("StartChild", f"it is to be at {at}; give milliseconds since 1970")
        run_id, seed = child_run_id(owned.run_id, place, owned.state.at if at is None else min(at, owned.state.at))
        child = (run_id, request.workflow)
        if self._children.setdefault(place, child) != child:
            raise BadField("StartChild or StartTask", f"the run has started another one at {place!r}")
        default_id = f"{owned.workflow_id}/{place}"
        child_id = default_id if len(default_id) <= LONGEST_ID else run_id
        traits = msgspec.structs.replace(
            traits,
            parent_id=owned.run_id,
            parent_place=place,
            correlation_id=traits.correlation_id or owned.traits.correlation_id,
        )
        request = msgspec.structs.replace(
            request, workflow_id=request.workflow_id or child_id, traits=traits, run_id=run_id, seed=seed
        )
        self._owner.start_child(owned, request, lambda _: None)
        self.has_started = True

    def _stop_child(self, command: StopChildCommand) -> None:
        self._owner.cancel_child(self._owned, _place(command.place), command.reason)

    def _close_unbegun(self, command: UnbegunCommand) -> None:
        failed = ChildFailed(command.workflow, command.child_id, command.run_id, _failure(command.error))
        place = _place(command.place)
        # Any other than its own child would be told nothing, and end.
        if not _is_child(self._owned.run_id, place, command.run_id):
            raise _untimely("CloseUnbegun", f"{command.run_id!r} was not started at {place!r}")
        self._owner.close_unbegun(self._owned, place, failed)

    def _annotate(self, command: AnnotateCommand) -> None:
        change, row = None, self._row
        if command.attributes is not None:
            patch = msgspec.json.encode(command.attributes).decode()
            own = merged(row.own_attributes or row.attributes, command.attributes)
            change = AttributeChange(merged(row.attributes, command.attributes), row.attributes, own, patch)
            has_other = row.own_attributes is not None
            self._row = msgspec.structs.replace(
                row, attributes=change.attributes, own_attributes=own if has_other else None
            )
        step = row.step if command.step is None else checked_id("step", command.step)
        self._row = msgspec.structs.replace(self._row, step=step)
        self._owner.annotate(self._owned, step, change)

    def _record_attempt(self, command: AttemptCommand) -> None:
        failure, place = _failure(command.error), _place(command.place)
        name = checked_id("activity name", command.name)
        record = AttemptRow(place, command.attempt, name, failure, command.at or self._now, command.next_at)
        self._owner.record_attempt(self._owned, record, lambda: None)

    def _record_beats(self, command: BeatsCommand) -> None:
        for each in command.beats:
            _place(each.place)
            check_details("RecordBeats", each.details)
        self._owner.record_beats(self._owned, command.beats)

    def _begin_attempt(self, command: BeginCommand) -> None:
        self._owner.begin_attempt(self._owned, _place(command.place), lambda: None)

    def _answer(self, command: AnswerCommand) -> None:
        said = Answered(command.answer) if command.refused is None else Refused(command.refused)
        if command.number is not None and command.number not in self._unread:
            # No event tells that it was answered before, and the worker was not told.
            return
        refused = () if command.number is None else (self._taken("AnswerRequest", command.number),)
        self._owner.answer(self._owned, {checked_id("request id", command.id): said}, *refused)

    def _set_aside(self, command: AsideCommand) -> None:
        # Those that were set aside before, and the worker was not told, are so already.
        numbers = [number for number in command.numbers if self._unread.pop(number, None) is not None]
        if numbers:
            self._owner.set_aside(self._owned, *numbers)

    def _publish(self, command: PublishCommand) -> None:
        name, row = checked_id("stream name", command.stream), self._row
        source = command.source and checked_id("source", command.source)
        bodies = tuple(_text(value) for value in command.values)
        if command.after is not None:
            bodies = bodies[max(0, self._published.get(name, 0) - command.after) :]
        is_task = row.workflow.startswith(TASK_PREFIX) and row.parent_id is not None
        if bodies:
            of_run = (row.run_id, source, command.attempt, command.at or self._now)
            run_id = str(row.parent_id) if is_task else row.run_id
            self._writing.add(PublishValues(run_id, row.namespace, name, *of_run, bodies))

    def _expose(self, command: ExposeCommand) -> None:
        for name in (*command.values, *command.errors):
            checked_id("query name", name)
        size = sum(len(name.encode()) + len(bytes(value)) for name, value in command.values.items())
        told = sum(len(name.encode()) + len(error.encode()) for name, error in command.errors.items())
        if size > LARGEST or size + told > LARGEST + ROOM_FOR_ERRORS:
            raise BadField("Expose", f"the values have {size + told:,} bytes; the limit is {LARGEST:,}")
        text = msgspec.json.encode(ShownValues(command.values, command.errors)).decode()
        worker_id, row = self._writing.worker_id, self._row
        self._writing.add(WriteSnapshot(row.run_id, worker_id, row.namespace, self.seq, self._now, text))

    def _note_undo(self, command: UndoCommand) -> None:
        check_undo("NoteUndo", command.undo)
        self._owner.note_undo(self._owned, command.undo)

    def _note_waiting(self, command: WaitingCommand) -> None:
        check_waiting("NoteWaiting", command.waiting)
        self._owner.note_waiting(self._owned, _text(command.waiting))

    def _note_losses(self, command: LossesCommand) -> None:
        self._owner.note_losses(self._owned, command.losses, command.outlived)


_DO: dict[type[Any], Callable[[RunCommands, Any], None]] = {
    OutcomeCommand: RunCommands._record,
    TimerCommand: RunCommands._fire,
    MessageCommand: RunCommands._receive,
    NoteCommand: RunCommands._note,
    CloseCommand: RunCommands._close,
    ContinueCommand: RunCommands._continue,
    ChildCommand: RunCommands._start_child,
    TaskCommand: RunCommands._start_task,
    StopChildCommand: RunCommands._stop_child,
    UnbegunCommand: RunCommands._close_unbegun,
    AnnotateCommand: RunCommands._annotate,
    AttemptCommand: RunCommands._record_attempt,
    BeatsCommand: RunCommands._record_beats,
    BeginCommand: RunCommands._begin_attempt,
    AnswerCommand: RunCommands._answer,
    AsideCommand: RunCommands._set_aside,
    PublishCommand: RunCommands._publish,
    ExposeCommand: RunCommands._expose,
    UndoCommand: RunCommands._note_undo,
    WaitingCommand: RunCommands._note_waiting,
    LossesCommand: RunCommands._note_losses,
}


TAKING = (MessageCommand, NoteCommand, AsideCommand)
STARTING = (ChildCommand, TaskCommand)


def takes_messages(commands: Iterable[RemoteCommand]) -> bool:
    """Whether some of them are about unread messages."""
    return any(
        isinstance(each, TAKING) or (isinstance(each, AnswerCommand) and each.number is not None) for each in commands
    )


def child_places(commands: Iterable[RemoteCommand]) -> list[str]:
    """The places at which some of them start children or activities."""
    return [each.place for each in commands if isinstance(each, STARTING)]


def check_entities(commands: Iterable[RemoteCommand], entity_id: str | None) -> None:
    """Refuse children of another entity than their parent's; NotAllowed."""
    for each in commands:
        if isinstance(each, ChildCommand) and each.entity_id not in (None, entity_id):
            trouble = f"the child at {each.place!r} is to be of {each.entity_id!r}, and its parent is not"
            raise NotAllowed(trouble, "leave `entity_id` away, or give the worker a key that may start runs")


def superseded_by(commands: Iterable[RemoteCommand]) -> list[str]:
    """The closed runs whose ids some of them take."""
    return [each.supersedes for each in commands if isinstance(each, ChildCommand) and each.supersedes is not None]


def check_superseded(
    commands: Iterable[RemoteCommand], parent: RunRow, found: Mapping[str, RunRow | RunUnreadable]
) -> None:
    """Refuse to take an id from a run that does not have it; BadField."""
    for each in commands:
        other = found.get(each.supersedes or "") if isinstance(each, ChildCommand) else None
        if not isinstance(each, ChildCommand) or not isinstance(other, RunRow):
            continue
        child_id = each.id or f"{parent.workflow_id}/{each.place}"
        if (other.namespace, other.workflow_id) != (parent.namespace, child_id):
            raise BadField("StartChild", f"supersedes is {each.supersedes!r}, which is no run with the id {child_id!r}")


def counts_published(commands: Iterable[RemoteCommand]) -> bool:
    """Whether some of them say how many values were published before."""
    return any(isinstance(each, PublishCommand) and each.after is not None for each in commands)


def _is_child(parent_id: str, place: str, run_id: str) -> bool:
    """Whether a run was started by another one at a place."""
    try:
        return child_run_id(parent_id, place, stamp_of(run_id))[0] == run_id
    except ValueError:
        return False


def _kind(command: RemoteCommand) -> str:
    return str(command.__struct_config__.tag)


def _text(value: msgspec.Raw) -> str:
    return bytes(value).decode()


def _id_or_none(what: str, id: str | None) -> str | None:
    return None if id is None else checked_id(what, id)


def _place(place: str) -> str:
    return checked_id("place", place)


def _failure(error: ErrorValue) -> Failure:
    checked_id("error type", error.type)
    return error.failure


def _untimely(kind: str, trouble: str) -> BadField:
    """Why a run, as it stands, does not allow a command."""
    return BadField(kind, trouble, "the run as it stands does not allow it")
