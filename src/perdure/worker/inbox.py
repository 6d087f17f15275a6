"""The inbox of a live run: messages that wait until its code asks for them.

In:   messages, in any order and some of them twice; calls that begin to wait.
Out:  the oldest message that a call waits for; requests to stop before all others.
A message that was sent with a delay is kept back until its time is over. Then it stands behind what was sent before
that time, and before what was sent after it.
"""

import heapq
from bisect import bisect
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from perdure.kernel.commands import ReceiveMessage
from perdure.kernel.messages import Body, CancelRequest, Message, SignalSent
from perdure.worker.calls.call import FOUND_BY, DurableCall
from perdure.worker.runtime import RunRuntime

# So many numbers of messages that were taken are remembered: more than can be on their way to disk at once.
MOST_SEEN = 10_000
# After so many messages a run rests until they are on disk and others have had their turn.
MESSAGES_SLICE = 50
# How many messages a run has had, as long as that is not known: no message is the next one.
NOT_COUNTED = -(2**62)
# Requests to stop are not waited for; they come.
STOP = ""
# Of a run that is to be paused something always seems to be unread, so that its inbox is looked at before it goes on.
PAUSED = "\0paused"
# So much later than the message before it stands one that has come due: more than can be unread stand between two.
STEP = 2.0**-18


def key_of(body: Body) -> str:
    """What a message is waited for by."""
    found_by = FOUND_BY.get(type(body))
    return STOP if found_by is None else found_by(body)


class Inbox:
    """Messages the program has not asked for yet, by what they are waited for by, each in their order.

    `_heads` holds the first message of every key that a call may wait for, oldest first; what turns out
    not to be wanted is put there again by the call that wants it. Each message costs the same, however many
    there are.
    """

    __slots__ = (
        *("_fresh", "_heads", "_looked", "_seen", "_taken"),
        *("delayed", "in_a_row", "is_resting", "misfits", "read_to", "rings_at", "unread"),
    )

    def __init__(self) -> None:
        self.unread: dict[str, deque[Message]] = {}
        # Where a message stands, which is its number unless it was delayed, and its key.
        self._heads: list[tuple[float, str]] = []
        # Those that are due later, and when it is looked for them next.
        self.delayed: Delayed | None = None
        self.rings_at: int | None = None
        # The calls that were looked for last, and how many of them there were.
        self._fresh: list[DurableCall] = []
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
        body = message.body
        if type(body) is SignalSent and body.due_at is not None:
            if self.delayed is None:
                self.delayed = Delayed(max(self._seen, default=0))
            self._seen.add(message.number)
            self.delayed.add(message, body.due_at)
            return True
        self._seen.add(message.number)
        if self.delayed is not None:
            self.delayed.pass_by(message)
        key = key_of(body)
        waiting = self.unread.get(key)
        if waiting is None:
            self.unread[key] = deque((message,))
            self._put(key)
        else:
            waiting.append(message)
        return True

    def release(self, is_over: Callable[[int], bool]) -> int | None:
        """Let go of the delayed messages whose time is over; answers when it has to be looked for the next one."""
        assert self.delayed is not None
        for message in self.delayed.take(is_over):
            key = key_of(message.body)
            waiting = self.unread.setdefault(key, deque())
            waiting.insert(bisect(waiting, self._place(message), key=self._place), message)
            self._put(key)
        at, rings_at = self.delayed.next_at, self.rings_at
        self.rings_at = at
        return None if at == rings_at else at

    def _place(self, message: Message) -> float:
        """Where a message stands among the others."""
        return message.number if self.delayed is None else self.delayed.places.get(message.number, message.number)

    def has_seen(self, number: int) -> bool:
        return number in self._seen

    def _put(self, key: str) -> None:
        waiting = self.unread.get(key)
        if waiting and key != STOP:
            heapq.heappush(self._heads, (self._place(waiting[0]), key))

    def look_for(self, fresh: list[DurableCall]) -> None:
        """These calls have begun to wait; of a list that has grown, those it has more than before."""
        if fresh is not self._fresh:
            self._fresh, self._looked = fresh, 0
        for call in fresh[self._looked :]:
            for key in call.listens_to():
                if key in self.unread:
                    self._put(key)
        self._looked = len(fresh)

    def take_wanted(self, runtime: RunRuntime) -> ReceiveMessage | None:
        """The oldest message a call waits for, for the place that waits longest for it; None for a misfit too."""
        while self._heads:
            place, key = heapq.heappop(self._heads)
            waiting = self.unread.get(key)
            if not waiting or self._place(waiting[0]) != place:
                continue
            call = runtime.listener(key)
            if call is not None:
                message = self._take(key)
                self._put(key)
                body: Any = message.body
                if (trouble := call.misfit(body)) is not None:
                    self.misfits.append((message, trouble))
                    return None
                return ReceiveMessage(call.place, message.number, message.message_id, body)
        return None

    def take_stop(self) -> Message | None:
        """The oldest request to stop, or to pause; while it is to be paused, requests to cancel wait."""
        if STOP not in self.unread:
            return None
        if PAUSED in self.unread:
            others = [message for message in self.unread[STOP] if not isinstance(message.body, CancelRequest)]
            if not others:
                return None
            self.unread[STOP].remove(others[0])
            self.unread[STOP].appendleft(others[0])
        return self._take(STOP)

    def _take(self, key: str) -> Message:
        waiting = self.unread[key]
        message = waiting.popleft()
        if not waiting:
            del self.unread[key]
        self.in_a_row += 1
        self._taken.append(message.number)
        if self.delayed is not None:
            self.delayed.places.pop(message.number, None)
        if len(self._taken) > MOST_SEEN:
            self._seen.discard(self._taken.popleft())
        return message


class Delayed:
    """The messages whose time has not come; `last` is the highest number among all others."""

    __slots__ = ("_last", "_later", "_place", "_unplaced", "places")

    def __init__(self, last: int) -> None:
        self._last = last
        # Where the next one stands that comes due behind the last message.
        self._place = last + STEP
        self._later: list[tuple[int, int, Message]] = []
        # Those of them of which it is not known yet where they stand.
        self._unplaced: list[tuple[int, int]] = []
        # Where those stand of which it is, by their numbers.
        self.places: dict[int, float] = {}

    def add(self, message: Message, due_at: int) -> None:
        """Keep a message back."""
        heapq.heappush(self._later, (due_at, message.number, message))
        heapq.heappush(self._unplaced, (due_at, message.number))

    def pass_by(self, message: Message) -> None:
        """One that is not delayed has come: what is due by the time it was sent stands before it."""
        self._place_until(message.at)
        if message.number > self._last:
            self._last, self._place = message.number, message.number + STEP

    def take(self, is_over: Callable[[int], bool]) -> list[Message]:
        """The messages whose time is over."""
        due = []
        while self._later and is_over(self._later[0][0]):
            due_at, _, message = heapq.heappop(self._later)
            self._place_until(due_at)
            due.append(message)
        return due

    @property
    def next_at(self) -> int | None:
        """When the next one is due."""
        return self._later[0][0] if self._later else None

    def _place_until(self, at: int) -> None:
        while self._unplaced and self._unplaced[0][0] <= at:
            _, number = heapq.heappop(self._unplaced)
            self.places[number] = self._place
            self._place += STEP


class InboxReading(Enum):
    """An inbox is being read, or has to be read again after that."""

    ONCE = "once"
    AND_AGAIN = "and again"
