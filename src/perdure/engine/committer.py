"""The committer: one queue, one transaction at a time, many runs in each.

In:   groups of operations, from all runs and callers of this process.
Out:  each group's answer, after its commit.

While one batch is being written the next one gathers. Only here is anything
committed; what a group wants to happen after its commit, it does in `settle`.
"""

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice, takewhile
from typing import TypeAlias, TypeVar, assert_never

import msgspec

from perdure.clock import Alarm, Clock
from perdure.engine.outages import Outage
from perdure.errors import NotOpen, PerdureError, StoreError, StoreUnavailable
from perdure.stores.answers import APPLIED, Answer, Broken, Busy, Committed, Failed, Fenced, Outcome, Undone, Unknown
from perdure.stores.operations import Batch, Operation
from perdure.stores.port import Store
from perdure.stores.rules.batch import touched_runs
from perdure.stores.rules.table import News, news_of

log = logging.getLogger("perdure.engine")

LARGEST_BATCH = 2048
# Above this many waiting groups callers are made to wait.
FULL_QUEUE = 8192
FIRST_RETRY_MS, LAST_RETRY_MS = 50, 2000
# What a transaction outside the engine holds is tried again after this time, by callers for so long.
BUSY_AGAIN_MS, BUSY_MS = 20, 5000


T = TypeVar("T")


class Unavailable(msgspec.Struct, frozen=True):
    """The database could not be written; nothing of the group was, or nobody knows what became of it."""

    error: StoreUnavailable


class Dropped(msgspec.Struct, frozen=True):
    """The group was for runs this worker does not own any more."""


Settlement: TypeAlias = Answer | Unavailable | Dropped


def refusal_of(answer: Settlement, url: str) -> PerdureError:
    """The error for an answer that no caller expects: the database could not or would not take the change."""
    match answer:
        case Unavailable(error):
            return error
        case Dropped():
            # It was closed while the database could not be written.
            return NotOpen()
        case Broken(trouble):
            return StoreError(url, f"the change was refused: {trouble}")
        case _:
            return StoreError(url, f"the change was refused: {answer}")


class Group:
    """Operations that stand or fall together, and what to do when that is known.

    A group `of_owner` is only good for the epoch it was made under and is dropped when
    that moves; any other may be written under a new epoch, and is safe to write twice.
    A `patient` group is tried again while the database is unavailable, in its place in
    the queue; any other is told at once.
    """

    __slots__ = ("operations",)

    of_owner = False
    patient = False
    # Whether it may be written again when nobody knows what became of it; else who asked is told that.
    is_repeatable = True
    # Whether it has the database for itself when its turn has come.
    is_alone = False
    operations: Sequence[Operation]

    def settle(self, answer: Settlement) -> None:
        """Called once, when the answer is known."""


class AloneGroup(Group):
    """A group that does its work itself while nothing else is written, and puts others into it that belong to it."""

    __slots__ = ()

    of_owner = True
    is_alone = True

    def take(self, worker_id: str | None, epoch: int, done: Callable[[Outcome | Undone], None]) -> None:
        """Its turn has come; `done` is called when it is over."""
        raise NotImplementedError

    def undone(self, undone: Undone) -> None:
        """Called in place of `settle` when nothing came of it, and the database is not to blame."""
        raise NotImplementedError


class CallbackGroup(Group):
    """A group whose answer goes to a function."""

    __slots__ = ("_tell",)

    def __init__(self, operations: Sequence[Operation], tell: Callable[[Settlement], object]) -> None:
        self.operations = operations
        self._tell = tell

    def settle(self, answer: Settlement) -> None:
        self._tell(answer)


class OwnersGroup(CallbackGroup):
    """One that only the owner of a run may ask, and will wait for."""

    __slots__ = ()

    of_owner = True
    patient = True


class Committer:
    """Gathers groups and writes them, one batch at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # Called when the epoch is lost, or that is not known.
        self.on_lost: Callable[[Outcome], None] = lambda _: None
        # Called when something was written, and when that may be work for somebody, if anybody wants to know.
        self.on_written: Callable[[], None] | None = None
        self.on_work: Callable[[], None] | None = None
        self._queue: deque[Group] = deque()
        self._in_flight: list[Group] = []
        self._is_busy = False
        self._is_scheduled = False
        # Whether a batch waits while more comes at each turn of the loop: what comes over sockets comes one by one,
        # and a server that wrote at once would write three batches in place of one. And how many there were last turn.
        self.gathers = False
        self._gathered = 0
        # Whether the epoch was lost and there is no new one yet.
        self.is_stopped = False
        self._is_abandoned = False
        self._is_in_doubt = False
        # How many in front of the queue could not be written a moment ago, and since when that is so.
        self._aside = 0
        self._busy_since: dict[Group, int] = {}
        self._retry_ms = FIRST_RETRY_MS
        self._retry_alarm: Alarm | None = None
        self._outage = Outage(
            clock, "store_unavailable", "the database is unavailable", "the database can be written again"
        )
        self._idle: list[asyncio.Future[None]] = []
        self._room: list[asyncio.Future[None]] = []
        self._free: list[asyncio.Future[None]] = []
        # How many in the queue want the database for themselves.
        self._alone = 0
        self.worker_id: str | None = None
        self.epoch = 0

    # Giving work in

    def submit(self, group: Group) -> None:
        """Put a group into the next batch; what an owner wants after a loss is void, whatever epoch comes next.

        So is whatever comes after this was abandoned.
        """
        if self.is_stopped and (group.of_owner or self._is_abandoned):
            group.settle(Dropped())
            return
        self._queue.append(group)
        if group.is_alone:
            self._alone += 1
        if not self._is_scheduled and not self._is_busy:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    async def apply(self, *operations: Operation, kind: type[CallbackGroup] = CallbackGroup) -> Settlement:
        """Write a group and wait for its answer."""
        return await self.ask(*operations, kind=kind)

    def ask(self, *operations: Operation, kind: type[CallbackGroup] = CallbackGroup) -> "asyncio.Future[Settlement]":
        """Put a group into the next batch; its answer comes."""
        future: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
        self.submit(kind(operations, partial(_tell, future)))
        return future

    @property
    def is_full(self) -> bool:
        return len(self._queue) > FULL_QUEUE

    async def write_alone(self, *operations: Operation) -> Outcome:
        """Write outside the queue and without a fence: how a worker gets its epoch in the first place."""
        await self.unbusy()
        self._is_busy = True
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._store.commit(Batch([operations], None, 0), partial(_tell, future))
        try:
            return await future
        finally:
            self._is_busy = False
            self._go_on()

    async def room(self) -> None:
        """Wait while the queue is full."""
        while self.is_full:
            future = asyncio.get_running_loop().create_future()
            self._room.append(future)
            await future

    async def idle(self) -> None:
        """Until everything given in so far is settled, or the database turns out to be unavailable."""
        if (self._queue or self._is_busy) and not self.is_stalled and not self.is_stopped:
            future = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future

    async def unbusy(self) -> None:
        """Until nothing is being written; what waits is not before the caller had a turn."""
        while self._is_busy:
            future = asyncio.get_running_loop().create_future()
            self._free.append(future)
            await future

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._is_busy

    @property
    def is_stalled(self) -> bool:
        """Whether the database was unavailable, or holds back all that is left, and only time can help."""
        return self._retry_alarm is not None or 0 < self._aside == len(self._queue)

    # Writing

    def _flush(self) -> None:
        self._is_scheduled = False
        self._retry_alarm = None
        self._aside = 0
        if self._is_busy or not self._queue or self.is_stopped:
            return
        queue = self._queue
        if self.gathers and self._gathered < len(queue) < LARGEST_BATCH:
            self._gathered = len(queue)
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)
            return
        self._gathered = 0
        most = LARGEST_BATCH if not self._alone else _up_to_turn(queue)
        if len(queue) <= most:
            self._in_flight = list(queue)
            queue.clear()
        else:
            self._in_flight = [queue.popleft() for _ in range(most)]
        self._is_busy = True
        if self._alone and isinstance(turn := self._in_flight[0], AloneGroup):
            self._alone -= 1
            turn.take(self.worker_id, self.epoch, self._done)
            return
        batch = Batch([group.operations for group in self._in_flight], self.worker_id, self.epoch)
        self._store.commit(batch, self._done)

    def waiting_of(self, run_id: str) -> list[Group]:
        """What a run has done that is not on disk yet, as far as it concerns that run alone."""
        return [group for group in (*self._in_flight, *self._queue) if is_of(group, run_id)]

    def join_turn(self, groups: Collection[Group]) -> None:
        """Let groups of the queue be written, or fail, with the one whose turn it is."""
        self._queue = deque(group for group in self._queue if group not in groups)
        self._in_flight = [*groups, *self._in_flight]

    def _done(self, outcome: Outcome | Undone) -> None:
        groups, self._in_flight = self._in_flight, []
        self._is_busy = False
        match outcome:
            case Committed(answers):
                self._retry_ms = FIRST_RETRY_MS
                self._is_in_doubt = False
                self._outage.is_over()
                self._settle(groups, answers)
                if self.on_written is not None:
                    self.on_written()
                if self.on_work is not None and news_of(group.operations for group in groups) & News.WORK:
                    self.on_work()
            case Failed(error):
                self._fail(groups, error)
            case Unknown(error):
                groups = _repeatable(groups, error)
                if self.worker_id is None:
                    self._doubt(groups, error)
                else:
                    self._lose(groups, outcome)
            case Fenced():
                self._lose(groups, outcome)
            case Undone():
                *joined, turn = groups
                self._queue.extendleft(reversed(joined))
                assert isinstance(turn, AloneGroup)
                turn.undone(outcome)
            case _:
                assert_never(outcome)
        if self._is_abandoned:
            # What was to be tried again will not be.
            self.abandon()
        self._go_on()

    def _settle(self, groups: list[Group], answers: Mapping[int, Answer]) -> None:
        # Written by another thread, the next batch may go as soon as a third of this one's
        # runs have answered: then writing and computing overlap instead of taking turns.
        # One that is written in place would be settled in here, one inside the other, until the stack is full.
        is_inline = self._store.is_inline
        early = max(32, len(groups) // 3)
        if answers and (busy := {index: a for index, a in answers.items() if isinstance(a, Busy)}):
            groups, answers = self._wait_for(groups, answers, busy)
        with collecting_later():
            for index, group in enumerate(groups):
                try:
                    group.settle(answers.get(index, APPLIED) if answers else APPLIED)
                except Exception:
                    log.exception("a settled group failed", extra={"event": "settle_failed"})
                if not is_inline and len(self._queue) >= early and not self._is_busy and not self._free:
                    self._flush()

    def _wait_for(
        self, groups: list[Group], answers: Mapping[int, Answer], busy: Mapping[int, Busy]
    ) -> tuple[list[Group], Mapping[int, Answer]]:
        """Those that could not be written go to the front again, in their order; callers do not wait for long.

        Answers the others, with theirs.
        """

        def look_again() -> None:
            self._aside = 0
            self._go_on()

        now, before = self._clock.monotonic(), len(self._queue)
        # Of those that are busy now alone: what was written, dropped or told meanwhile is forgotten with it.
        self._busy_since = {groups[index]: self._busy_since.get(groups[index], now) for index in busy}
        for index in sorted(busy, reverse=True):
            group = groups[index]
            if group.patient or now - self._busy_since[group] < BUSY_MS:
                self._queue.appendleft(group)
            else:
                group.settle(Unavailable(StoreUnavailable(self._store.url, busy[index].trouble)))
        self._aside = len(self._queue) - before
        _wake(self._idle)
        self._clock.call_at(self._clock.now() + BUSY_AGAIN_MS, look_again)
        left = [(index, group) for index, group in enumerate(groups) if index not in busy]
        told = {place: answers[index] for place, (index, _) in enumerate(left) if index in answers}
        return [group for _, group in left], told

    def _fail(self, groups: list[Group], error: StoreUnavailable) -> None:
        """Callers learn it at once; what owned runs have done stays in front of the queue and is tried again."""
        self._queue.extendleft(reversed([group for group in groups if group.patient]))
        for group in groups:
            if not group.patient:
                group.settle(Unavailable(error))
        self._outage.fails(error)
        _wake(self._idle)
        self._is_scheduled = True
        self._retry_alarm = self._clock.call_at(self._clock.now() + self._retry_ms, self._flush)
        self._retry_ms = min(self._retry_ms * 2, LAST_RETRY_MS)

    def _doubt(self, groups: list[Group], error: StoreUnavailable) -> None:
        """Nobody's epoch is at stake: what may be written already is written again, once; then callers are told."""
        if self._is_in_doubt:
            self._fail(groups, error)
        else:
            self._is_in_doubt = True
            self._queue.extendleft(reversed(groups))

    def _lose(self, groups: list[Group], outcome: Outcome) -> None:
        """Nothing is written before the owner has a new epoch; what owned runs wanted is void."""
        waiting = [*groups, *self._queue]
        self._queue.clear()
        self._queue.extend(group for group in waiting if not group.of_owner)
        self.is_stopped = True
        self._alone = 0
        for group in waiting:
            if group.of_owner:
                group.settle(Dropped())
        self.on_lost(outcome)

    def stop_for(self, outcome: Outcome) -> None:
        """Lose everything that waits, as if a batch had met this outcome."""
        if not self._is_busy and not self.is_stopped:
            self._lose([], outcome)

    def refuse_waiting(self, error: StoreUnavailable) -> None:
        """Tell callers who wait for a new epoch that there is none to be had now."""
        waiting, self._queue = self._queue, deque(group for group in self._queue if group.patient)
        for group in waiting:
            if not group.patient:
                group.settle(Unavailable(error))
        _wake(self._idle)
        self._go_on()

    def abandon(self) -> None:
        """Write nothing more; callers that wait, or come, are told that it was not written."""
        self.is_stopped = self._is_abandoned = True
        waiting = [*self._queue]
        self._queue.clear()
        self._alone = 0
        for group in waiting:
            group.settle(Dropped())
        _wake(self._idle)
        _wake(self._room)

    def resume(self, worker_id: str | None, epoch: int) -> None:
        """Write on, under this epoch."""
        self.worker_id = worker_id
        self.epoch = epoch
        self.is_stopped = self._is_abandoned
        self._go_on()

    def _go_on(self) -> None:
        if self._free and not self._is_busy:
            _wake(self._free)
        if len(self._queue) > self._aside:
            if not self._is_scheduled and not self._is_busy and not self.is_stopped:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._flush)
        elif not self._is_busy and not self._queue:
            _wake(self._idle)
        if self._room and len(self._queue) <= FULL_QUEUE // 2:
            _wake(self._room)


@contextmanager
def collecting_later() -> Iterator[None]:
    """No garbage collection meanwhile: many runs move on here, and each would otherwise see to that itself."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _up_to_turn(queue: deque[Group]) -> int:
    """How many of the queue are written together: those before one that wants to be alone, or that one."""
    before = sum(1 for _ in takewhile(lambda group: not group.is_alone, islice(queue, LARGEST_BATCH)))
    return max(before, 1)


def _repeatable(groups: list[Group], error: StoreUnavailable) -> list[Group]:
    """Those that may be written again; the others are told that nobody knows what became of them."""
    for group in groups:
        if not group.is_repeatable:
            group.settle(Unavailable(error))
    return [group for group in groups if group.is_repeatable]


def is_of(group: Group, run_id: str) -> bool:
    """Whether a group is about this run alone, and of its owner."""
    return group.of_owner and touched_runs(group.operations) == {run_id}


def _tell(future: "asyncio.Future[T]", answer: T) -> None:
    if not future.done():
        future.set_result(answer)


def _wake(futures: list["asyncio.Future[None]"]) -> None:
    for future in futures:
        _tell(future, None)
    futures.clear()
