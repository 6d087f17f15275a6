"""The owner over a server: the kernel decides here at once, and on the server once more when it is written.

In:   commands of owned runs, and what concerns their children.
Out:  commands for the server; after its answer, what was to follow.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.clock import Clock
from perdure.engine.endings import ending
from perdure.engine.outputs.outputs import pieces_of
from perdure.engine.ports import Advance, OwnedRun, Published, Release, StartRequest
from perdure.engine.ports.remote_runs import (
    AnnotateCommand,
    AsideCommand,
    AttemptCommand,
    BeatsCommand,
    BeginCommand,
    ContinueCommand,
    LossesCommand,
    RemoteCommand,
    StopChildCommand,
    UnbegunCommand,
    UndoCommand,
    WaitingCommand,
    error_value,
)
from perdure.http.remote.worker.commands import (
    answer_of,
    attributes_of,
    child_of,
    command_of,
    expose_of,
    publish_of,
    step_of,
)
from perdure.http.remote.worker.lease import ServerLease
from perdure.http.remote.worker.rows import HolderRows, NotOffered
from perdure.http.remote.worker.writes import WorkerWrites
from perdure.kernel.attributes import AttributeChange
from perdure.kernel.commands import CloseRun, Command
from perdure.kernel.events import ChildFailed, Closing, Event, RunContinued
from perdure.kernel.messages import Message
from perdure.kernel.requests import RequestAnswer
from perdure.kernel.run import NotOwned, Refusal, decide, evolve
from perdure.kernel.status import OPEN
from perdure.stores.records import AttemptRow, CallProgress, RunRow


class SentEvent(Advance):
    """An event on its way to the server, and what happens once it is written."""

    __slots__ = ("_effect", "_effect_args", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self._effect: Callable[..., None] | None = None

    def then(self, effect: Callable[..., None], *args: Any) -> None:
        """Do this once it is there; the last one given is done."""
        self._effect = effect
        self._effect_args = args

    def written(self) -> None:
        """It is there."""
        if self._effect is not None:
            self._effect(*self._effect_args)


class OwnerOverHttp:
    """Moves, closes and lets go of runs that the server gave to this worker; the Owner of an engine."""

    def __init__(self, lease: ServerLease, writes: WorkerWrites, clock: Clock, rows: HolderRows) -> None:
        self._lease = lease
        self._writes = writes
        self._clock = clock
        self._rows = rows

    def advance(self, owned: OwnedRun, command: Command) -> SentEvent | Refusal:
        """Let the rules decide; the command is in the next request."""
        if owned.tenure is not self._lease.tenure:
            return NotOwned()
        event = decide(owned.state, command, self._clock.latest())
        if not isinstance(event, Event):
            return event
        owned.state = evolve(owned.state, event)
        sent = SentEvent(event)
        if type(command) is CloseRun:
            sent.then(self._ended, owned, command.end)
        self._writes.add(owned, command_of(owned, command, event.at), sent.written)
        return sent

    def continue_run(self, owned: OwnedRun, request: StartRequest) -> SentEvent | Refusal:
        """Close a run, and start the one that goes on in its place; the server gives that its id."""
        if owned.tenure is not self._lease.tenure:
            return NotOwned()
        event = decide(owned.state, CloseRun(RunContinued("")), self._clock.latest())
        if not isinstance(event, Event):
            return event
        owned.state = evolve(owned.state, event)
        sent = SentEvent(event)
        sent.then(self._ended, owned, None)
        attributes = attributes_of(request.traits.attributes) or {}
        command = ContinueCommand(msgspec.Raw(request.input.encode()), attributes, event.at)
        self._writes.add(owned, command, sent.written)
        return sent

    def _ended(self, owned: OwnedRun, end: Closing | None) -> None:
        if end is not None:
            owned.ending = ending(end)
        if self._lease.host is not None:
            self._lease.host.ended(owned.run_id)

    # Children

    def start_child(self, owned: OwnedRun, request: StartRequest, then: Callable[[RunRow | None], None]) -> None:
        """Start a child of an owned run; `then` gets the run that has its id, if another one does."""
        if owned.tenure is not self._lease.tenure:
            return
        if owned.state.status not in OPEN:
            then(None)
            return
        refused = partial(self._child_refused, owned, request, then)
        self._writes.add(owned, child_of(request), partial(self._child_started, then), refused)

    def _child_started(self, then: Callable[[RunRow | None], None]) -> None:
        then(None)
        if self._lease.host is not None:
            self._lease.host.look_around()

    def _child_refused(
        self, owned: OwnedRun, request: StartRequest, then: Callable[[RunRow | None], None], problem: dict[str, Any]
    ) -> None:
        holder = problem.get("run_id")
        if problem.get("error") != "IdConflict":
            # The run whose id it was to take has moved.
            self.start_child(owned, msgspec.structs.replace(request, supersedes=None), then)
        elif holder == request.run_id or not isinstance(holder, str):
            # It is this very child, started by an owner that died right after, or by a request whose answer was lost.
            then(None)
        else:
            self._lease.background.spawn(self._tell_holder(owned, holder, then))

    async def _tell_holder(self, owned: OwnedRun, run_id: str, then: Callable[[RunRow | None], None]) -> None:
        then(await self._lease.patiently(lambda: self._rows.read(owned.namespace, run_id)))

    def cancel_child(self, owned: OwnedRun, place: str, reason: str) -> None:
        """Ask the child that was started at this place to stop."""
        self._say(owned, StopChildCommand(place, reason))

    def close_unbegun(self, owned: OwnedRun, place: str, failed: ChildFailed) -> None:
        """End the child at this place with a failure, unless some worker has begun it."""
        error = error_value(failed.failure)
        self._say(owned, UnbegunCommand(place, failed.workflow, failed.child_id, failed.run_id, error))

    # Messages

    def set_aside(self, owned: OwnedRun, *numbers: int) -> None:
        """Messages that the code of an owned run does not take are not to be offered again."""
        self._say(owned, AsideCommand(numbers))

    def answer(self, owned: OwnedRun, answers: Mapping[str, RequestAnswer], *refused: Message) -> None:
        """Answer requests; what the code cannot take is not to be offered again."""
        numbers = {message.message_id: message.number for message in refused}
        for message_id, answer in answers.items():
            self._say(owned, answer_of(message_id, answer, numbers.get(message_id)))

    # What is shown of a run

    def annotate(self, owned: OwnedRun, step: str | None, change: AttributeChange | None) -> None:
        """Show what a workflow says of itself."""
        self._say(owned, AnnotateCommand(step, None if change is None else attributes_of(change.patch)))

    def note_undo(self, owned: OwnedRun, undo: str | None) -> None:
        """Show what a run would have to undo, and what it has undone."""
        self._say(owned, UndoCommand(undo))

    def note_waiting(self, owned: OwnedRun, waiting: str, then: Callable[[], None] = lambda: None) -> None:
        """Show what a live run waits for, then go on."""
        self._say(owned, WaitingCommand(msgspec.Raw(waiting.encode())), then)

    def note_losses(self, owned: OwnedRun, losses: int, outlived: int) -> None:
        """Put down what is held against a run from now on."""
        self._say(owned, LossesCommand(losses, outlived))

    # Activities in this process

    def record_attempt(self, owned: OwnedRun, attempt: AttemptRow, then: Callable[[], None]) -> None:
        """Write down a failed attempt, then go on."""
        if owned.state.status in OPEN:
            error, next_at = error_value(attempt.failure), attempt.next_at or attempt.at
            command = AttemptCommand(attempt.place, attempt.name, attempt.attempt, error, next_at, attempt.at)
            self._say(owned, command, then)

    def begin_attempt(self, owned: OwnedRun, place: str, then: Callable[[], None]) -> None:
        """Write down that the only attempt of a call begins, then begin it."""
        self._say(owned, BeginCommand(place), then)

    def record_beats(
        self, owned: OwnedRun, said: Sequence[CallProgress], then: Callable[[], None] = lambda: None
    ) -> None:
        """Write down the newest details of activities under way, then go on."""
        self._say(owned, BeatsCommand(tuple(said)), then)

    # Letting go

    def release(self, owned: OwnedRun, how: Release, done: Callable[[bool], None]) -> None:
        """Let go of a run; `done(False)` when a message came first and it must go on."""
        if owned.tenure is self._lease.tenure:
            self._writes.let_go(owned, step_of(owned, how), done)

    def _say(self, owned: OwnedRun, command: RemoteCommand, then: Callable[[], None] | None = None) -> None:
        if owned.tenure is self._lease.tenure:
            self._writes.add(owned, command, then)


class OutputsOverHttp(NotOffered):
    """What owned runs show and publish; of the Outputs of an engine what an owner needs."""

    def __init__(self, lease: ServerLease, writes: WorkerWrites, clock: Clock) -> None:
        self._lease = lease
        self._writes = writes
        self._clock = clock

    def show(self, owned: OwnedRun, seq: int, body: str) -> None:
        """Show this of an owned run, as of an event that is written before."""
        if owned.tenure is self._lease.tenure:
            self._writes.add(owned, expose_of(body))

    def publish(self, owned: OwnedRun, published: Sequence[Published]) -> None:
        """Write values that an owned run has published, in their order."""
        now = self._clock.now()
        own = dict(owned.published or {})
        # Those that are on their way now are counted as published already.
        for each in published:
            if not each.source:
                own[each.name] = own.get(each.name, 0) - len(each.bodies)
        for each in published:
            for bodies in pieces_of(each.bodies):
                after = None if each.source else own.get(each.name, 0)
                own[each.name] = own.get(each.name, 0) + len(bodies)
                told = partial(each.settled, len(bodies))
                if owned.tenure is self._lease.tenure:
                    self._writes.add(owned, publish_of(each, bodies, now, after), told)
                else:
                    told()
