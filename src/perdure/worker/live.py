"""A live run: a run this worker owns, with its program in memory and its activities under way.

Most runs never have an unread message or a failed attempt; what keeps track of those
is made when it is first needed.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec

from perdure.authoring.functions import Workflow
from perdure.engine.port import OwnedRun
from perdure.kernel.commands import FireTimer, ReceiveMessage, RecordOutcome
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.stores.records import Attempt as FailedAttempt
from perdure.worker.activities import Attempt
from perdure.worker.program import Pending, PendingActivity, PendingSignal, PendingTimer, Program

Step: TypeAlias = RecordOutcome | FireTimer | ReceiveMessage


class Inbox:
    """Messages the program has not asked for yet, by name, each in their order."""

    __slots__ = ("_seen", "unread")

    def __init__(self) -> None:
        self.unread: dict[str, deque[Message]] = {}
        self._seen: set[int] = set()

    def add(self, message: Message) -> bool:
        """Take a message in; False when it is known already."""
        if message.number in self._seen:
            return False
        self._seen.add(message.number)
        self.unread.setdefault(message.body.name, deque()).append(message)
        return True

    def take_wanted(self, pending: Iterable[Pending]) -> tuple[str, Message] | None:
        """The oldest message somebody waits for, and the place that waits longest for it."""
        found: tuple[str, Message] | None = None
        for call in pending:
            if isinstance(call, PendingSignal) and call.is_waiting:
                waiting = self.unread.get(call.signal.name)
                if waiting and (found is None or waiting[0].number < found[1].number):
                    found = (call.place, waiting[0])
        if found is not None:
            name = found[1].body.name
            self.unread[name].popleft()
            if not self.unread[name]:
                del self.unread[name]
        return found


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
    # Only kept when every step replays from the start.
    history: "list[Event] | None" = None

    def __init__(self, owned: OwnedRun, workflow: Workflow[..., Any], now: int) -> None:
        self.owned = owned
        self.workflow = workflow
        self.program = Program(workflow, owned.input, owned.seed, owned.created_at)
        self.alive_since = now
        self.running: dict[str, Attempt] = {}

    @property
    def run_id(self) -> str:
        return self.owned.run_id

    def new_program(self) -> Program:
        owned = self.owned
        return Program(self.workflow, owned.input, owned.seed, owned.created_at)

    def add_message(self, message: Message) -> bool:
        """Put a message into the inbox; False when it is there already."""
        if self.inbox is None:
            self.inbox = Inbox()
        return self.inbox.add(message)

    def add_failed(self, attempt: FailedAttempt) -> None:
        """Remember a failed attempt."""
        if self.retries is None:
            self.retries = Retries()
        self.retries.add(attempt)

    def failed_attempts(self, place: str) -> int:
        return 0 if self.retries is None else self.retries.failed.get(place, 0)

    def retry_at(self, place: str) -> int | None:
        return None if self.retries is None else self.retries.next_at.get(place)

    def wake_at(self) -> int | None:
        """When the run has something to do again by itself."""
        pending = self.program.pending
        times = [call.fire_at for call in pending.values() if isinstance(call, PendingTimer)]
        if self.retries is not None:
            times += [at for place, at in self.retries.next_at.items() if place in pending]
        return min(times, default=None)

    def is_waiting_outside(self) -> bool:
        """Whether only time or a message can move the run: no step of its own is under way, or still to be begun."""
        return not self.running and all(
            isinstance(call, PendingTimer | PendingSignal) or self.retry_at(call.place) is not None
            for call in self.program.pending.values()
            if call.is_waiting
        )

    def waiting(self) -> str:
        """What the run waits for, as JSON for people and programs."""
        return msgspec.json.encode([self._shown(c) for c in self.program.pending.values() if c.is_waiting]).decode()

    def _shown(self, call: Pending) -> dict[str, object]:
        match call:
            case PendingTimer():
                return {"kind": "timer", "place": call.place, "until": call.fire_at}
            case PendingSignal():
                return {"kind": "signal", "place": call.place, "name": call.signal.name}
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
            case _:
                return {"kind": "side_effect", "place": call.place}
