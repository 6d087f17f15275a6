"""Forking: which events of a run's history a retry or a fork of it keeps.

In:   a history, and for a fork the point up to which it is wanted.
Out:  the events that are kept, as ranges of their numbers; the places at which code can wait after a point.

A fork keeps a prefix. A retry leaves out the end and the failed outcomes that led to it, and keeps of what was recorded
after those only what does not depend on them: the answer to a call that was made before, and what follows that in the
same task. What cannot be told apart is left out, and its calls run again; kept without what it follows from, it would
not fit the code.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from perdure.kernel.events import (
    CLOSINGS,
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    Event,
    RunFailed,
    TimeoutReached,
)
from perdure.kernel.failure import Failure


class Kept(NamedTuple):
    """Events of these numbers are kept, each with a number that is lower by `shift`."""

    first: int
    last: int
    shift: int


def kept_up_to(seq: int) -> tuple[Kept, ...]:
    """The events up to and with this number; the first one is in the run's row and goes with it."""
    return (Kept(2, seq, 0),) if seq >= 2 else ()  # noqa: PLR2004 - the first one after that


def last_of(kept: Sequence[Kept]) -> int:
    """The number of the last event of a run that has these."""
    return kept[-1].last - kept[-1].shift if kept else 1


def kept_events(history: Sequence[Event], kept: Sequence[Kept]) -> list[Event]:
    """The first event and these, with the numbers that they had."""
    return [history[0], *(event for each in kept for event in history[each.first - 1 : each.last])]


# Retry


def retried(history: Sequence[Event], undo: str | None, made_at: Callable[[str], int]) -> tuple[Kept, ...] | None:
    """What a retry keeps of a history with its end; None when its undos ran, and it begins from the beginning.

    `undo` is what the run's row says of them; `made_at` tells from a run's id when that run was made.
    """
    answers = [event for event in history if event.seq > 1 and type(event.fact) not in CLOSINGS]
    end = history[-1].fact
    if _is_undone(answers, undo, failed=isinstance(end, RunFailed)):
        return None
    if not isinstance(end, RunFailed):
        # It was stopped from outside: what it did once it was told to is no part of what it is for.
        stops = [event.seq for event in answers if isinstance(event.fact, CancelRequested)]
        return kept_up_to(stops[0] - 1 if stops else max((event.seq for event in answers), default=1))
    calls = _Calls(history, made_at, is_group=bool(end.failure.errors))
    return _ranges(_without(answers, _causes(answers, end.failure, calls), calls))


def _is_undone(answers: Sequence[Event], undo: str | None, *, failed: bool) -> bool:
    """Whether undos ran, or may have begun to."""
    if any(event.place.startswith(("undo/", "undo#")) for event in answers):
        return True
    if undo is None or '"state"' not in undo:
        return False
    told_to_stop = any(isinstance(event.fact, CancelRequested | TimeoutReached) for event in answers)
    return failed or told_to_stop or '"state":"done"' in undo or '"state":"failed"' in undo


def _causes(answers: Sequence[Event], failure: Failure, calls: "_Calls") -> set[int]:
    """The failed outcomes that led to this failure.

    They are those that the failure is about, the last one of each; and those after which nothing shows that the code
    has gone on: no event of their own task or one above it, and no task that began with a call made afterwards.
    """
    followed: set[str] = set()
    named: set[str] = set()
    # Its own text, those of the errors in a group, and in the traceback those of the errors that it was raised from.
    texts = [*(each.summary for each in _members(failure)), *failure.traceback.splitlines()]
    causes: set[int] = set()
    begun = _Begun(calls)
    for event in reversed(answers):
        if isinstance(event.fact, ActivityFailed | ChildFailed):
            told = event.fact.failure.summary
            is_named = told not in named and any(text.endswith(told) for text in texts)
            if is_named or (followed.isdisjoint(_tasks_of(event)) and not begun.since(event)):
                causes.add(event.seq)
                named.add(told)
        if event.place:
            followed.add(_task_of(event))
            begun.add(event)
    return causes


def _members(failure: Failure) -> Iterator[Failure]:
    yield failure
    for each in failure.errors:
        yield from _members(each)


def _without(answers: Sequence[Event], causes: set[int], calls: "_Calls") -> list[int]:
    """The numbers of the events that do not depend on these."""
    first = min(causes, default=answers[-1].seq + 1 if answers else 0)
    kept = [event.seq for event in answers if event.seq < first]
    left_out: list[Event] = []
    # How many of those that are left out a task is known to have outlived.
    outlived: dict[str, int] = {}
    for event in answers[len(kept) :]:
        if event.seq in causes:
            left_out.append(event)
            continue
        known = max(outlived.get(task, 0) for task in _tasks_of(event))
        others = islice(left_out, known, None)
        if known == len(left_out) or calls.was_made_before(event, others):
            kept.append(event.seq)
            outlived[_task_of(event)] = len(left_out)
    return kept


class _Calls:
    """When the calls of a history were made, as far as it tells: a time, and the number of an event of that time.

    `is_group` says that the run failed with a group of errors: the first of them may have cancelled its tasks.
    """

    def __init__(self, history: Sequence[Event], made_at: Callable[[str], int], *, is_group: bool) -> None:
        self._made_at = made_at
        self._is_group = is_group
        self._first_of = {event.at: event.seq for event in reversed(history)}
        self._began_at = history[0].at

    def made(self, event: Event) -> tuple[int, float] | None:
        """The call that this event answers was made at this time, after that event or, below zero, before any of it."""
        match event.fact:
            case ActivityCompleted() | ActivityFailed():
                # Another task did not wait for what failed in the same millisecond.
                at, seq = event.fact.started_at, -1
            case ChildCompleted() | ChildFailed():
                # Its time is that of the event after which it was called.
                at = self._made_at(event.fact.run_id)
                seq = self._first_of.get(at, -1)
            case _:
                return None
        if at < self._began_at:
            # By a clock that was set back.
            return None
        return (at, math.inf) if self._is_group or "/" not in event.place else (at, seq)

    def was_made_before(self, event: Event, causes: Iterable[Event]) -> bool:
        """Whether the call that the event answers was surely made before the code knew of any of these failures."""
        made = self.made(event)
        if made is None:
            return False
        for cause in causes:
            if cause.at > made[0]:
                return True
            if made >= (cause.at, cause.seq) or _task_of(event) in _tasks_of(cause):
                return False
        return True


class _Begun:
    """What tasks first did after an event; events are added from the last one to the first."""

    def __init__(self, calls: _Calls) -> None:
        self._calls = calls
        self._first: dict[str, int] = {}
        # The latest calls first, also those that are no longer the first ones of their tasks.
        self._made: list[tuple[float, float, int, Event]] = []

    def add(self, event: Event) -> None:
        self._first[_task_of(event)] = event.seq
        if (made := self._calls.made(event)) is not None:
            heappush(self._made, (-made[0], -made[1], event.seq, event))

    def since(self, failed: Event) -> bool:
        """Whether a task first did something by a call that was made after this failure."""
        while self._made:
            at, number, seq, event = self._made[0]
            if all(self._first.get(task, seq) >= seq for task in _tasks_of(event)):
                return (-at, -number) >= (failed.at, failed.seq)
            heappop(self._made)
        return False


def _task_of(event: Event) -> str:
    """The task that a call was made in; one with a key may be made in any, and counts as a task of its own."""
    path, _, name = event.place.rpartition("/")
    is_call = isinstance(event.fact, ActivityCompleted | ActivityFailed | ChildCompleted | ChildFailed)
    return event.place if is_call and "(" in name else path


def _tasks_of(event: Event) -> list[str]:
    """The same, and all tasks above it."""
    path = _task_of(event)
    found = [path]
    while path:
        path = path.rpartition("/")[0]
        found.append(path)
    return found


def _ranges(numbers: Sequence[int]) -> tuple[Kept, ...]:
    found: list[Kept] = []
    for nth, seq in enumerate(numbers, start=2):
        if found and found[-1].last == seq - 1:
            found[-1] = found[-1]._replace(last=seq)
        else:
            found.append(Kept(seq, seq, seq - nth))
    return tuple(found)


# Fork


def point_before(history: Sequence[Event], place: str) -> int | None:
    """The number of the event before the first one of this place; None when there is none of it."""
    return next((event.seq - 1 for event in history if event.place == place), None)


def last_before_end(history: Sequence[Event]) -> int:
    """The number of the last event that can be kept."""
    return next(event.seq for event in reversed(history) if type(event.fact) not in CLOSINGS)


def waiting_after(history: Sequence[Event], seq: int) -> list[str]:
    """The places at which code can wait after this event, as the history tells: the next one of every task."""
    found: dict[str, str] = {}
    for event in history:
        if event.seq > seq and event.place:
            found.setdefault(_task_of(event), event.place)
    return list(found.values())
