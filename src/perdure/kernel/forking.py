"""Forking: which events of a run's history a retry or a fork of it keeps.

In:   a history, and for a fork the point up to which it is wanted.
Out:  the events that are kept, as ranges of their numbers; the places at which code can wait after a point.

A fork keeps a prefix. A retry leaves out the end and the failed outcomes that led to it, and keeps of what was recorded
after those only what does not depend on them: the answer to a call that was made before, and what follows that in the
same task. What cannot be told apart is left out, and its calls run again; kept without what it follows from, it would
not fit the code.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    causes = _causes(answers, end.failure)
    return _ranges(_without(answers, causes, made_at, is_group=bool(end.failure.errors)))


def _is_undone(answers: Sequence[Event], undo: str | None, *, failed: bool) -> bool:
    """Whether undos ran, or may have begun to."""
    if any(event.place.startswith(("undo/", "undo#")) for event in answers):
        return True
    if undo is None or '"state"' not in undo:
        return False
    told_to_stop = any(isinstance(event.fact, CancelRequested | TimeoutReached) for event in answers)
    return failed or told_to_stop or '"state":"done"' in undo or '"state":"failed"' in undo


def _causes(answers: Sequence[Event], failure: Failure) -> set[int]:
    """The failed outcomes that led to this failure.

    They are those that the failure is about, the last one of each; and those that nothing followed in their own task
    or one above it, so that no code can have handled them.
    """
    followed: set[str] = set()
    named: set[str] = set()
    # Its own text, those of the errors in a group, and in the traceback those of the errors that it was raised from.
    texts = [*(each.summary for each in _members(failure)), *failure.traceback.splitlines()]
    causes: set[int] = set()
    for event in reversed(answers):
        if isinstance(event.fact, ActivityFailed | ChildFailed):
            told = event.fact.failure.summary
            is_named = told not in named and any(text.endswith(told) for text in texts)
            if is_named or followed.isdisjoint(_tasks_of(event)):
                causes.add(event.seq)
                named.add(told)
        if event.place:
            followed.add(_task_of(event))
    return causes


def _members(failure: Failure) -> Iterator[Failure]:
    yield failure
    for each in failure.errors:
        yield from _members(each)


def _without(answers: Sequence[Event], causes: set[int], made_at: Callable[[str], int], *, is_group: bool) -> list[int]:
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
        if known == len(left_out) or _was_called_before(event, _called_at(event, made_at), others, is_group=is_group):
            kept.append(event.seq)
            outlived[_task_of(event)] = len(left_out)
    return kept


def _was_called_before(event: Event, called_at: int | None, causes: Iterable[Event], *, is_group: bool) -> bool:
    """Whether the call that the event answers was surely made before any of these failures was known to the code."""
    if called_at is None:
        return False
    for cause in causes:
        if cause.at > called_at:
            return True
        # In the same millisecond: another task did not wait for the failure, unless its group was cancelled by it.
        is_beside = not is_group and "/" in event.place and _task_of(event) not in _tasks_of(cause)
        if cause.at < called_at or not is_beside:
            return False
    return True


def _called_at(event: Event, made_at: Callable[[str], int]) -> int | None:
    """When the call that the event answers was made, at the latest; None when that is not known."""
    match event.fact:
        case ActivityCompleted() | ActivityFailed():
            return event.fact.started_at
        case ChildCompleted() | ChildFailed():
            return made_at(event.fact.run_id)
        case _:
            return None


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
