"""Commands of remote workers, carried out by the verbs that every owner of runs has.

In:   commands as they stand on the wire, and the run they are for.
Out:  what they lead to, gathered to be written all at once; BadField for one that makes no sense or comes too early.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perdure.engine.ports import StartRequest
from perdure.engine.ports.remote_runs import (
    AnnotateCommand,
    AnswerCommand,
    AttemptCommand,
    BeginCommand,
    CancelledEnd,
    CancelNote,
    ChildCommand,
    CloseCommand,
    CompletedActivity,
    CompletedEnd,
    ContinueCommand,
    ErrorValue,
    ExposeCommand,
    FailedActivity,
    FailedEnd,
    KnownValue,
    MessageCommand,
    NoteCommand,
    OutcomeCommand,
    PatchNote,
    PublishCommand,
    RemoteCommand,
    StopChildCommand,
    TaskCommand,
    TimerCommand,
)
from perdure.engine.remote.sessions import Writing
from perdure.errors import BadField
from perdure.ids import LONGEST_ID, checked_id, child_run_id
from perdure.kernel.attributes import AttributeChange, merged
from perdure.kernel.commands import CloseRun, Command, FireTimer, ReceiveMessage, RecordOutcome, TakeNote
from perdure.kernel.events import (
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    Closing,
    Patched,
    RunCancelled,
    RunCompleted,
    RunFailed,
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
from perdure.kernel.snapshots import LARGEST, ShownValues
from perdure.kernel.tasks import TaskInput
from perdure.kernel.traits import TASK_PREFIX, OnParentClose, Traits
from perdure.stores.operations import PublishValues, WriteSnapshot
from perdure.stores.records import AttemptRow, RunRow

RECEIVED = (SignalSent, DeferredResult, DeferredFailure, RequestSent, ChildResult, ChildFailure)


class RunCommands:
    """Carries out the commands of one call for one run."""

    def __init__(self, writing: Writing, row: RunRow, unread: Mapping[int, Message], now: int) -> None:
        self._writing = writing
        self._owner = writing.owner
        self._owned = writing.owned
        self._row = row
        self._unread = dict(unread)
        self._now = now
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
            raise BadField(_kind(command), "it comes after the end of the run")
        _DO[type(command)](self, command)

    def _advance(self, kind: str, command: Command) -> None:
        refusal = self._owner.advance(self._owned, command)
        if isinstance(refusal, TooEarly):
            raise BadField(kind, f"the timer is due at {refusal.fire_at}, and it is {refusal.now}")
        if isinstance(refusal, AlreadyClosed):
            raise BadField(kind, "it comes after the end of the run")

    # What becomes an event

    def _record(self, command: OutcomeCommand) -> None:
        fact: ActivityCompleted | ActivityFailed | ValueRecorded
        match command.outcome:
            case CompletedActivity(name, arguments, result, started_at, attempts):
                fact = ActivityCompleted(name, arguments, result, started_at, attempts)
            case FailedActivity(name, error, arguments, started_at, attempts):
                fact = ActivityFailed(name, arguments, _failure(error), started_at, attempts)
            case KnownValue(value):
                fact = ValueRecorded(value)
        self._advance("RecordOutcome", RecordOutcome(_place(command.place), fact))

    def _fire(self, command: TimerCommand) -> None:
        self._advance("FireTimer", FireTimer(_place(command.place), command.fire_at))

    def _receive(self, command: MessageCommand) -> None:
        message = self._taken("ReceiveMessage", command.number)
        body = message.body
        if not isinstance(body, RECEIVED):
            raise BadField("ReceiveMessage", f"message {command.number} is a {type(body).__name__}: note it, or end")
        if isinstance(body, SignalSent) and body.due_at is not None and body.due_at > self._now:
            raise BadField("ReceiveMessage", f"message {command.number} is due at {body.due_at}, it is {self._now}")
        place = _place(command.place)
        self._advance("ReceiveMessage", ReceiveMessage(place, message.number, message.message_id, body))

    def _note(self, command: NoteCommand) -> None:
        match command.note:
            case PatchNote(change_id):
                self._advance("TakeNote", TakeNote(Patched(checked_id("change id", change_id))))
            case CancelNote(number):
                message = self._taken("TakeNote", number)
                if not isinstance(message.body, CancelRequest):
                    raise BadField("TakeNote", f"message {number} does not ask the run to stop")
                note = CancelRequested(message.body.reason, message.body.close_at)
                self._advance("TakeNote", TakeNote(note, message))

    def _taken(self, kind: str, number: int) -> Message:
        message = self._unread.pop(number, None)
        if message is None:
            raise BadField(kind, f"the run has no unread message {number}")
        return message

    def _close(self, command: CloseCommand) -> None:
        end: Closing
        match command.end:
            case CompletedEnd(result):
                end = RunCompleted(result)
            case FailedEnd(error):
                end = RunFailed(_failure(error))
            case CancelledEnd(reason):
                end = RunCancelled(reason)
        self._advance("CloseRun", CloseRun(end))

    def _continue(self, command: ContinueCommand) -> None:
        owned, row = self._owned, self._row
        traits = msgspec.structs.replace(
            owned.traits,
            attributes=row.own_attributes or row.attributes,
            continued_from=owned.run_id,
            delayed_until=None,
        )
        request = StartRequest(
            owned.workflow, _text(command.input), owned.workflow_id, owned.queue, owned.priority, traits=traits
        )
        self._owner.continue_run(owned, request)
        self.has_started = True

    # What is no event

    def _start_child(self, command: ChildCommand) -> None:
        if command.on_parent_close not in list(OnParentClose):
            raise BadField("StartChild", f"on_parent_close is {command.on_parent_close!r}")
        timeout_ms = None if command.timeout is None else round(command.timeout * 1000)
        name = checked_id("workflow name", command.workflow)
        queue = self._row.queue if command.queue is None else checked_id("queue", command.queue)
        traits = Traits(on_parent_close=command.on_parent_close, timeout_ms=timeout_ms)
        self._start(command.place, name, _text(command.input), command.id, queue, command.priority, traits)

    def _start_task(self, command: TaskCommand) -> None:
        retry = command.retry
        task = TaskInput(
            command.arguments,
            command.timeout,
            retry.max_attempts,
            retry.initial_interval,
            retry.backoff,
            retry.max_interval,
            retry.non_retryable,
            command.heartbeat,
            command.at_most_once,
        )
        # Refused here, and not when the activity has failed.
        assert task.retry
        name = f"{TASK_PREFIX}{checked_id('activity name', command.activity)}"
        text = msgspec.json.encode(task).decode()
        self._start(command.place, name, text, None, checked_id("queue", command.queue), None, Traits())

    def _start(
        self, at: str, workflow: str, text: str, id: str | None, queue: str, priority: int | None, traits: Traits
    ) -> None:
        owned, place = self._owned, _place(at)
        run_id, seed = child_run_id(owned.run_id, place, owned.state.at)
        default_id = f"{owned.workflow_id}/{place}"
        child_id = default_id if len(default_id) <= LONGEST_ID else run_id
        traits = msgspec.structs.replace(
            traits, parent_id=owned.run_id, parent_place=place, correlation_id=owned.traits.correlation_id
        )
        request = StartRequest(
            workflow,
            text,
            child_id if id is None else checked_id("workflow id", id),
            queue,
            owned.priority if priority is None else priority,
            traits=traits,
            run_id=run_id,
            seed=seed,
        )
        self._owner.start_child(owned, request, lambda _: None)
        self.has_started = True

    def _stop_child(self, command: StopChildCommand) -> None:
        self._owner.cancel_child(self._owned, _place(command.place), command.reason)

    def _annotate(self, command: AnnotateCommand) -> None:
        change, row = None, self._row
        if command.attributes is not None:
            patch = msgspec.json.encode(command.attributes).decode()
            own = merged(row.own_attributes or row.attributes, command.attributes)
            change = AttributeChange(merged(row.attributes, command.attributes), row.attributes, own, patch)
        self._owner.annotate(self._owned, row.step if command.step is None else command.step, change)

    def _record_attempt(self, command: AttemptCommand) -> None:
        failure, place = _failure(command.error), _place(command.place)
        record = AttemptRow(place, command.attempt, command.name, failure, self._now, command.next_at)
        self._owner.record_attempt(self._owned, record, lambda: None)

    def _begin_attempt(self, command: BeginCommand) -> None:
        self._owner.begin_attempt(self._owned, _place(command.place), lambda: None)

    def _answer(self, command: AnswerCommand) -> None:
        said = Answered(command.answer) if command.refused is None else Refused(command.refused)
        self._owner.answer(self._owned, {command.id: said})

    def _publish(self, command: PublishCommand) -> None:
        name, row = checked_id("stream name", command.stream), self._row
        bodies = tuple(_text(value) for value in command.values)
        if bodies:
            of_run = (row.run_id, "", 1, self._now)
            self._writing.add(PublishValues(row.run_id, row.namespace, name, *of_run, bodies))

    def _expose(self, command: ExposeCommand) -> None:
        text = msgspec.json.encode(ShownValues(command.values, {})).decode()
        if len(text.encode()) > LARGEST:
            raise BadField("Expose", f"the values have {len(text.encode())} bytes; the limit is {LARGEST}")
        worker_id, row = self._writing.worker_id, self._row
        self._writing.add(WriteSnapshot(row.run_id, worker_id, row.namespace, self.seq, self._now, text))


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
    AnnotateCommand: RunCommands._annotate,
    AttemptCommand: RunCommands._record_attempt,
    BeginCommand: RunCommands._begin_attempt,
    AnswerCommand: RunCommands._answer,
    PublishCommand: RunCommands._publish,
    ExposeCommand: RunCommands._expose,
}


def _kind(command: RemoteCommand) -> str:
    return str(command.__struct_config__.tag)


def _text(value: msgspec.Raw) -> str:
    return bytes(value).decode()


def _place(place: str) -> str:
    return checked_id("place", place)


def _failure(error: ErrorValue) -> Failure:
    return Failure(checked_id("error type", error.type), error.message)
