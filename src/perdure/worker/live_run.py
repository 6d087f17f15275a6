"""A live run: a run this worker owns, with its program in memory and its activities under way.

Most runs never have an unread message or a failed attempt; what keeps track of those
is made when it is first needed.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from perdure.authoring.workflow import Workflow
from perdure.engine.ports import OwnedRun, Owner
from perdure.kernel.attributes import AttributeChange, change_of
from perdure.kernel.commands import FireTimer, ReceiveMessage, RecordOutcome
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.kernel.traits import PLAIN
from perdure.stores.records import AttemptRow
from perdure.worker.activities import Retries, RunningAttempt
from perdure.worker.calls.call import PausedRun
from perdure.worker.inbox import Inbox, InboxReading
from perdure.worker.program import Program

Step: TypeAlias = RecordOutcome | FireTimer | ReceiveMessage

# So many waits are shown in a run's row; a parent of thousands has more.
MOST_SHOWN = 100


class LastShown:
    """What a run was last seen to show of itself, and when it may be looked at again."""

    __slots__ = ("again_at", "is_due", "is_told", "text")

    def __init__(self) -> None:
        self.text: str | None = None
        self.again_at = 0
        self.is_due = False
        self.is_told = False


class LiveRun:
    """What the worker knows of one of its runs."""

    # Most runs leave these as they are: no unread message, no failed attempt, not being let go of.
    inbox: Inbox | None = None
    retries: Retries | None = None
    is_gone = False
    # Whether no call of it may begin: it is gone, or is to be paused.
    begins_nothing = False
    pause: PausedRun | None = None
    is_noted = False
    # While the run is being let go of, what happens to it is put aside.
    is_leaving = False
    is_replaying = False
    # While the transaction of an activity is being committed, what happens to the run is put aside, too.
    is_committing = False
    deferred: "list[Step] | None" = None
    # The children this run has started, by their run_ids, and how many of them are not on disk yet.
    children: set[str] | None = None
    starting = 0
    # When there is no more waiting for clean-up.
    close_at: int | None = None
    close_reason: str | None = None
    # Of one whose last event lies in the future, by a clock that was ahead: that event, and when it was first seen.
    quiet_since: tuple[int, int] = (0, 0)
    # Whether its inbox is being read.
    reading: InboxReading | None = None
    # What the code has last said of attributes and step; and the attributes of the row, when some are from outside.
    annotated: tuple[str | None, str | None] = (None, None)
    attributes_in_row: str | None = None
    # What the row says of its undos.
    undo_noted: str | None = None
    # Whether it came with a long history, or people were told of it.
    is_long = False
    # What it was last seen to show of itself.
    shown: LastShown | None = None
    # How often its workers were lost before it got on, how often it was watched for that and lived; and the places
    # of the calls that were under way by then, as long as one of them is.
    losses = 0
    outlived = 0
    under_way: "set[str] | None" = None
    # The number of its newest event when it came to live here.
    first_seq = 1
    # Only kept when every step replays from the start.
    history: "list[Event] | None" = None

    def __init__(self, owned: OwnedRun, workflow: Workflow[..., Any], now: int) -> None:
        self.owned = owned
        self.workflow = workflow
        self.program = Program(workflow, owned)
        self.alive_since = now
        self.running: dict[str, RunningAttempt] = {}

    @property
    def run_id(self) -> str:
        return self.owned.run_id

    def rebuild(self, event: Event) -> None:
        """Throw the program away and replay a new one, up to but not including the event."""
        self.program.evict()
        program = self.program = Program(self.workflow, self.owned)
        program.replay([*(self.history or ()), event])
        program.begin()
        for earlier in self.history or ():
            program.redeliver(earlier)
        program.runtime.is_replaying = False
        self.history = [*(self.history or ()), event]

    def cancel_attempts(self) -> None:
        """Want to know of no activity any more how it ends; the next owner of the run runs it again."""
        for attempt in self.running.values():
            attempt.cancel()

    @property
    def deadline(self) -> int | None:
        """When the run has taken longer than its timeout."""
        traits = self.owned.traits
        if traits is PLAIN or traits.timeout_ms is None:
            return None
        runtime = self.program.runtime
        if runtime.timed_out is not None or (runtime.undos is not None and runtime.undos.is_unwinding):
            return None
        return (traits.delayed_until or self.owned.created_at) + traits.timeout_ms

    @property
    def has_undos(self) -> bool:
        """Whether there is something to undo, should it not end well."""
        undos = self.program.runtime.undos
        return undos is not None and bool(undos.waiting)

    def attributes_changed(self, own: str | None) -> AttributeChange | None:
        """What the code has changed of the run's attributes since it last said so."""
        change = change_of(self.annotated[0], own, self.attributes_in_row)
        if change is not None and self.attributes_in_row is not None:
            self.attributes_in_row = change.attributes
        return change

    def note_undo(self, owner: Owner) -> None:
        """Show what the run would have to undo, and what it has undone, unless its row says so already."""
        undos = self.program.runtime.undos
        if undos is not None and not self.is_replaying and (text := undos.text()) != self.undo_noted:
            self.undo_noted = text
            owner.note_undo(self.owned, text)

    @property
    def ends_at(self) -> int | None:
        """When the run ends by the clock, whatever its code does."""
        return min((at for at in (self.close_at, self.deadline) if at is not None), default=None)

    def calls_under_way(self, until: int) -> set[str]:
        """The places of the calls that run code, or that end by then and let the run's own code go on."""
        pending = self.program.pending.values()
        return {call.place for call in pending if call.is_waiting and call.is_under_way(until)}

    def quiet_for(self, now: int) -> int:
        """How long nothing has happened to the run, as far as those who ask have seen; for when events cannot tell."""
        last = self.owned.state.seq
        if self.quiet_since[0] != last:
            self.quiet_since = (last, now)
        return now - self.quiet_since[1]

    def add_message(self, message: Message) -> bool:
        """Put a message into the inbox; False when it is there already."""
        if self.inbox is None:
            self.inbox = Inbox()
        return self.inbox.add(message)

    def knows(self, message: Message) -> bool:
        """Whether the message was put into the inbox before."""
        return self.inbox is not None and self.inbox.has_seen(message.number)

    def add_failed(self, attempt: AttemptRow) -> None:
        """Remember a failed attempt."""
        if self.retries is None:
            self.retries = Retries()
        self.retries.add(attempt)

    def failed_attempts(self, place: str) -> int:
        return 0 if self.retries is None else self.retries.failed.get(place, 0)

    def retry_at(self, place: str) -> int | None:
        return None if self.retries is None else self.retries.next_at.get(place)

    def wake_at(self, now: int) -> int | None:
        """When the run has something to do again by itself."""
        times = [call.wake_at(self, now) for call in self.program.pending.values()]
        if self.program.runtime.undos is not None and self.has_undos:
            # Nobody else may end it when its time is over.
            times.append(self.deadline)
        if self.inbox is not None and self.inbox.delayed is not None:
            times.append(self.inbox.delayed.next_at)
        return min((at for at in times if at is not None), default=None)

    def is_waiting_outside(self) -> bool:
        """Whether only time or a message can move the run: no step of its own is under way, or still to be begun."""
        return (
            not self.running
            and not self.starting
            and not (self.inbox is not None and self.inbox.is_resting)
            and all(call.is_waiting_outside(self) for call in self.program.pending.values() if call.is_waiting)
        )

    def waiting(self) -> str:
        """What the run waits for, as JSON for people and programs."""
        waiting = [call for call in self.program.pending.values() if call.is_waiting]
        shown = [call.shown(self) for call in waiting[:MOST_SHOWN]]
        if len(waiting) > MOST_SHOWN:
            shown.append({"kind": "more", "place": "", "name": f"and {len(waiting) - MOST_SHOWN:,} more"})
        return msgspec.json.encode(shown).decode()


class LiveRuns:
    """The runs that live in this process, by their run_ids; `left` is called when one of them has left."""

    def __init__(self, left: Callable[[], None]) -> None:
        self.by_id: dict[str, LiveRun] = {}
        # How many events those have had here that left.
        self.steps = 0
        self.is_stopping = False
        self._left = left

    def evict(self, live: LiveRun) -> None:
        """Forget a run, and leave nothing of its code in memory."""
        live.is_gone = live.begins_nothing = True
        if self.by_id.pop(live.run_id, None) is not None:
            self.steps += live.owned.state.seq - live.first_seq
        live.cancel_attempts()
        live.running.clear()
        live.program.evict()
        self._left()

    def is_interrupted(self, live: LiveRun) -> bool:
        """Whether a run was ended or let go of while it was being brought back."""
        return live.is_gone or self.is_stopping or live.program.loop.is_dead
