"""A live run: a run this worker owns, with its program in memory and its activities under way.

Most runs never have an unread message or a failed attempt; what keeps track of those
is made when it is first needed.
"""

import heapq
from collections import deque
from enum import Enum
from typing import Any, TypeAlias, assert_never

import msgspec

from perdure.authoring.functions import Workflow
from perdure.engine.ports import OwnedRun
from perdure.errors import BadInput
from perdure.kernel.commands import FireTimer, ReceiveMessage, RecordOutcome
from perdure.kernel.events import Event
from perdure.kernel.messages import Body, ChildFailure, ChildResult, Message, SignalSent
from perdure.kernel.traits import PLAIN
from perdure.stores.records import Attempt as FailedAttempt
from perdure.worker.activities import Attempt
from perdure.worker.calls.pending import (
    Pending,
    PendingActivity,
    PendingChild,
    PendingSignal,
    PendingTask,
    PendingTimer,
    PendingValue,
)
from perdure.worker.program import Program

Step: TypeAlias = RecordOutcome | FireTimer | ReceiveMessage


def _key(body: Body) -> str:
    """What a message is waited for by."""
    match body:
        case SignalSent(name):
            return f"signal({name})"
        case ChildResult(place) | ChildFailure(place):
            return place
        case _:
            return STOP


# How often a parked run looks after one that it waits for but has not started.
LOOK_AGAIN_MS = 10_000
# So many numbers of messages that were taken are remembered: more than can be on their way to disk at once.
MOST_SEEN = 10_000
# After so many messages a run rests until they are on disk and others have had their turn.
MESSAGES_SLICE = 50
# So many waits are shown in a run's row; a parent of thousands has more.
MOST_SHOWN = 100
# How many messages a run has had, as long as that is not known: no message is the next one.
NOT_COUNTED = -(2**62)
# Requests to stop are not waited for; they come.
STOP = ""
# Calls that a message answers.
_ASKING = (PendingSignal, PendingChild)


def _misfit(call: PendingSignal, body: Body) -> str | None:
    """Why a signal is not what the call waits for; None when it is."""
    assert isinstance(body, SignalSent)
    if call.signal.payload.is_plain:
        return None
    try:
        call.signal.payload.restore(body.payload, f"the signal {body.name!r}")
    except BadInput as error:
        return str(error)
    return None


class Inbox:
    """Messages the program has not asked for yet, by what they are waited for by, each in their order.

    `_heads` holds the first message of every key that somebody may wait for, oldest first; what turns out
    not to be wanted is put there again by the call that wants it. Each message costs the same, however many
    there are.
    """

    __slots__ = (
        *("_fresh", "_heads", "_looked", "_seen", "_taken"),
        *("in_a_row", "is_resting", "misfits", "read_to", "unread"),
    )

    def __init__(self) -> None:
        self.unread: dict[str, deque[Message]] = {}
        self._heads: list[tuple[int, str]] = []
        # The calls that were looked for last, and how many of them there were.
        self._fresh: list[Pending] = []
        self._looked = 0
        # Signals whose payload is not what the code waits for, and why.
        self.misfits: list[tuple[Message, str]] = []
        # The numbers of all that are unread, and of the last ones that were taken, which may be read once more.
        self._seen: set[int] = set()
        self._taken: deque[int] = deque()
        # How many were taken since the run last rested, and whether it rests now.
        self.in_a_row = 0
        self.is_resting = False
        # Up to this number, nothing in the database is missing here.
        self.read_to = 0

    def add(self, message: Message) -> bool:
        """Take a message in; False when it is known already."""
        if message.number in self._seen:
            return False
        self._seen.add(message.number)
        key = _key(message.body)
        waiting = self.unread.get(key)
        if waiting is None:
            self.unread[key] = deque((message,))
            self._put(key)
        else:
            waiting.append(message)
        return True

    def has_seen(self, number: int) -> bool:
        return number in self._seen

    def _put(self, key: str) -> None:
        waiting = self.unread.get(key)
        if waiting and key != STOP:
            heapq.heappush(self._heads, (waiting[0].number, key))

    def look_for(self, fresh: list[Pending]) -> None:
        """These calls have begun to wait; of a list that has grown, those it has more than before."""
        if fresh is not self._fresh:
            self._fresh, self._looked = fresh, 0
        for call in fresh[self._looked :]:
            if isinstance(call, _ASKING) and call.key in self.unread:
                self._put(call.key)
        self._looked = len(fresh)

    def take_wanted(self, program: Program) -> ReceiveMessage | None:
        """The oldest message somebody waits for, for the place that waits longest for it; None for a misfit too."""
        while self._heads:
            number, key = heapq.heappop(self._heads)
            waiting = self.unread.get(key)
            if not waiting or waiting[0].number != number:
                continue
            call = program.waits_by(key)
            if call is not None:
                message = self._take(key)
                self._put(key)
                if isinstance(call, PendingSignal) and (trouble := _misfit(call, message.body)) is not None:
                    self.misfits.append((message, trouble))
                    return None
                assert isinstance(message.body, SignalSent | ChildResult | ChildFailure)
                return ReceiveMessage(call.place, number, message.message_id, message.body)
        return None

    def take_stop(self) -> Message | None:
        """The oldest request to stop."""
        return self._take(STOP) if STOP in self.unread else None

    def _take(self, key: str) -> Message:
        waiting = self.unread[key]
        message = waiting.popleft()
        if not waiting:
            del self.unread[key]
        self.in_a_row += 1
        self._taken.append(message.number)
        if len(self._taken) > MOST_SEEN:
            self._seen.discard(self._taken.popleft())
        return message


class Reading(Enum):
    """An inbox is being read, or has to be read again after that."""

    ONCE = "once"
    AND_AGAIN = "and again"


class Retries:
    """How many attempts of a call have failed, and when the next one is due, by place."""

    __slots__ = ("failed", "next_at")

    def __init__(self) -> None:
        self.failed: dict[str, int] = {}
        self.next_at: dict[str, int] = {}

    def add(self, attempt: FailedAttempt) -> None:
        if attempt.attempt > self.failed.get(attempt.place, 0):
            self.failed[attempt.place] = attempt.attempt
            if attempt.next_at is not None:
                self.next_at[attempt.place] = attempt.next_at


class LiveRun:
    """What the worker knows of one of its runs."""

    # Most runs leave these as they are: no unread message, no failed attempt, not being let go of.
    inbox: Inbox | None = None
    retries: Retries | None = None
    is_gone = False
    is_noted = False
    # While the run is being let go of, what happens to it is put aside.
    is_leaving = False
    is_replaying = False
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
    reading: "Reading | None" = None
    # What the row says of attributes and step.
    annotated: tuple[str | None, str | None] = (None, None)
    # How often its workers were lost before it got on, how often it was watched for that and lived; and the places
    # of the calls that were under way by then, as long as one of them is.
    losses = 0
    outlived = 0
    under_way: "set[str] | None" = None
    # Only kept when every step replays from the start.
    history: "list[Event] | None" = None

    def __init__(self, owned: OwnedRun, workflow: Workflow[..., Any], now: int) -> None:
        self.owned = owned
        self.workflow = workflow
        self.program = Program(workflow, owned)
        self.alive_since = now
        self.running: dict[str, Attempt] = {}

    @property
    def run_id(self) -> str:
        return self.owned.run_id

    def new_program(self) -> Program:
        return Program(self.workflow, self.owned)

    @property
    def deadline(self) -> int | None:
        """When the run has taken longer than its timeout."""
        traits = self.owned.traits
        if traits is PLAIN or traits.timeout_ms is None:
            return None
        return (traits.delayed_until or self.owned.created_at) + traits.timeout_ms

    @property
    def ends_at(self) -> int | None:
        """When the run ends by the clock, whatever its code does."""
        return min((at for at in (self.close_at, self.deadline) if at is not None), default=None)

    def calls_under_way(self, until: int) -> set[str]:
        """The places of the calls that run code, or that end by then and let the run's own code go on."""
        return {
            call.place
            for call in self.program.pending.values()
            if call.is_waiting
            and (
                isinstance(call, PendingActivity | PendingValue)
                or (isinstance(call, PendingTimer) and call.fire_at <= until)
            )
        }

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

    def add_failed(self, attempt: FailedAttempt) -> None:
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
        pending = self.program.pending
        times = [call.fire_at for call in pending.values() if isinstance(call, PendingTimer)]
        if any(isinstance(call, PendingChild) and call.attached for call in pending.values()):
            # Nobody tells it when a run ends that it has not started: it has to look.
            times.append(now + LOOK_AGAIN_MS)
        if self.retries is not None:
            times += [at for place, at in self.retries.next_at.items() if place in pending]
        return min(times, default=None)

    def is_waiting_outside(self) -> bool:
        """Whether only time or a message can move the run: no step of its own is under way, or still to be begun."""
        return (
            not self.running
            and not self.starting
            and not (self.inbox is not None and self.inbox.is_resting)
            and all(
                isinstance(call, PendingTimer | PendingSignal)
                or (isinstance(call, PendingChild) and (call.attached or call.run_id in (self.children or ())))
                or self.retry_at(call.place) is not None
                for call in self.program.pending.values()
                if call.is_waiting
            )
        )

    def waiting(self) -> str:
        """What the run waits for, as JSON for people and programs."""
        waiting = [call for call in self.program.pending.values() if call.is_waiting]
        shown = [self._shown(call) for call in waiting[:MOST_SHOWN]]
        if len(waiting) > MOST_SHOWN:
            shown.append({"kind": "more", "place": "", "name": f"and {len(waiting) - MOST_SHOWN:,} more"})
        return msgspec.json.encode(shown).decode()

    def _shown(self, call: Pending) -> dict[str, object]:
        match call:
            case PendingTimer():
                return {"kind": "timer", "place": call.place, "until": call.fire_at}
            case PendingSignal():
                schema = call.signal.accepts
                accepts = {} if schema is None else {"accepts": msgspec.Raw(schema)}
                return {"kind": "signal", "place": call.place, "name": call.signal.name, **accepts}
            case PendingActivity():
                shown: dict[str, object] = {
                    "kind": "activity",
                    "place": call.place,
                    "name": call.activity.name,
                }
                if failed := self.failed_attempts(call.place):
                    shown["failed_attempts"] = failed
                if (next_at := self.retry_at(call.place)) is not None:
                    shown["until"] = next_at
                return shown
            case PendingTask():
                queue = call.activity.settings.queue
                return {"kind": "activity", "place": call.place, "name": call.activity.name, "queue": queue}
            case PendingChild():
                return {"kind": "child", "place": call.place, "name": call.child_id}
            case PendingValue():
                return {"kind": "side_effect", "place": call.place}
            case _:
                assert_never(call)
