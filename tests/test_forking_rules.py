"""The rules of retry and fork: which events of a history are kept."""

import msgspec
import pytest

from perdure.ids import stamp_of
from perdure.kernel.events import (
    ActivityCompleted,
    ActivityFailed,
    CancelRequested,
    ChildCompleted,
    ChildFailed,
    Event,
    Fact,
    Patched,
    RunCancelled,
    RunFailed,
    RunStarted,
    RunTerminated,
    RunTimedOut,
    SignalReceived,
    TimeoutReached,
    TimerFired,
)
from perdure.kernel.failure import Failure
from perdure.kernel.forking import Kept, kept_up_to, last_of, point_before, retried, waiting_after

RAW = msgspec.Raw(b"1")
BOOM = Failure("builtins.ValueError", "boom")
OTHER = Failure("builtins.KeyError", "'x'")
WAITING, DONE = '[{"name":"f","state":"waiting"}]', '[{"name":"f","state":"done"}]'


def ok(started_at: int = 0) -> ActivityCompleted:
    return ActivityCompleted("a", RAW, RAW, started_at)


def bad(failure: Failure = BOOM, started_at: int = 0) -> ActivityFailed:
    return ActivityFailed("a", RAW, failure, started_at)


def child(fact: type[ChildCompleted | ChildFailed], made_at: int) -> ChildCompleted | ChildFailed:
    run_id = f"{made_at:011x}{0:017x}"
    return ChildCompleted("c", "c", run_id, RAW) if fact is ChildCompleted else ChildFailed("c", "c", run_id, BOOM)


def caused_by(failure: Failure) -> Failure:
    """An error that was raised from another one."""
    traceback = f"Traceback\n{failure.summary}\n\nThe above exception was the direct cause of ...\n\nKeyError: 'x'\n"
    return msgspec.structs.replace(OTHER, traceback=traceback)


def history(*answers: tuple[str, int, Fact], end: Fact | None = None) -> list[Event]:
    """Events at places and times, after the first one and before an end."""
    facts = [("", 0, RunStarted("w", RAW, 7)), *answers, *([("", 99, end)] if end is not None else [])]
    return [Event(seq, at, place, fact) for seq, (place, at, fact) in enumerate(facts, start=1)]


def numbers(kept: tuple[Kept, ...] | None) -> list[int] | None:
    """The numbers of the events that are kept after the first."""
    return None if kept is None else [seq for each in kept for seq in range(each.first, each.last + 1)]


FAILED = RunFailed(BOOM)
RETRIES = {
    "nothing but a start": (history(end=FAILED), None, []),
    "the failed call is left out": (history(("a", 1, ok()), ("b", 2, bad()), end=FAILED), None, [2]),
    "an error of the code itself leaves all": (history(("a", 1, ok()), end=RunFailed(OTHER)), None, [2]),
    "what was handled stays": (
        history(("a", 1, bad(OTHER)), ("b", 2, ok(1)), ("c", 3, bad(BOOM, 2)), end=FAILED),
        None,
        [2, 3],
    ),
    "what followed the failure goes with it": (
        history(("a", 1, bad()), ("notify", 2, ok(1)), end=FAILED),
        None,
        [],
    ),
    "so it does in the same moment": (history(("a", 1, bad(started_at=1)), ("b", 1, ok(1)), end=FAILED), None, []),
    "the failure that an error was raised from is one that led to it": (
        history(("a", 1, ok()), ("b", 2, bad()), ("notify", 3, ok(2)), end=RunFailed(caused_by(BOOM))),
        None,
        [2],
    ),
    "a handled one beside an error of the code stays": (
        history(("a", 1, bad()), ("b", 2, ok(1)), end=RunFailed(OTHER)),
        None,
        [2, 3],
    ),
    "of many that say the same the last one": (
        history(("a", 1, bad()), ("a#2", 2, bad(started_at=1)), ("a#3", 3, bad(started_at=2)), end=FAILED),
        None,
        [2, 3],
    ),
    "what runs beside it stays": (
        history(("x/a", 1, ok()), ("y/a", 2, bad()), ("z/a", 3, ok(1)), end=RunFailed(OTHER)),
        None,
        [2, 4],
    ),
    "so does what a task does next that has gone on beside it": (
        history(("y/a", 2, bad()), ("z/a", 3, ok(1)), ("z/timer()", 9, TimerFired(9)), ("z/b", 12, ok(9)), end=FAILED),
        None,
        [3, 4, 5],
    ),
    "not what a task does that was cancelled with it": (
        history(("y/a", 2, bad()), ("z/clean", 3, ok(2)), end=RunFailed(Failure("g", "g", errors=(BOOM,)))),
        None,
        [],
    ),
    "every failure nobody handled is left out": (
        history(("x/a", 5, bad()), ("y/a", 6, bad(OTHER)), ("z/a", 7, ok()), end=RunFailed(Failure("e", "2 failed"))),
        None,
        [4],
    ),
    "children that ended beside it stay": (
        history(("x/c", 5, child(ChildFailed, 1)), ("y/c", 6, child(ChildCompleted, 1)), end=FAILED),
        None,
        [3],
    ),
    "a signal after it is taken again": (
        history(("a", 5, bad()), ("signal(go)", 6, SignalReceived("go", RAW, "m")), end=FAILED),
        None,
        [],
    ),
    "calls with keys are told apart": (
        history(("a(1)", 5, bad()), ("a(2)", 6, ok(1)), end=RunFailed(Failure("e", "1 failed"))),
        None,
        [3],
    ),
    "a failure after which another call was made was handled": (
        history(("a(1)", 5, bad()), ("a(2)", 6, ok(1)), ("a(3)", 7, ok(6)), end=RunFailed(Failure("e", "1 failed"))),
        None,
        [2, 3, 4],
    ),
    "the failure of a race that the code went on from stays, with all that followed": (
        history(
            ("way/a", 5, bad(OTHER)),
            ("way#3/a", 7, ok(6)),
            ("way#4/c", 9, child(ChildCompleted, 5)),
            end=FAILED,
        ),
        None,
        [2, 3, 4],
    ),
    "a child of the same moment follows what alone happened in it": (
        history(("x/a", 5, bad(OTHER)), ("y/c", 9, child(ChildCompleted, 5)), end=FAILED),
        None,
        [2, 3],
    ),
    "where more happened in that moment it may be from before": (
        history(("z/a", 5, ok()), ("x/a", 5, bad(OTHER)), ("y/c", 9, child(ChildCompleted, 5)), end=FAILED),
        None,
        [2, 4],
    ),
    "a task that was there before goes on beside a failure": (
        history(
            ("y/a", 2, bad(OTHER)),
            ("z/a", 3, ok(1)),
            ("z/b", 12, ok(9)),
            ("z/c/b", 14, ok(13)),
            end=FAILED,
        ),
        None,
        [3, 4, 5],
    ),
    "a clock that was set back tells nothing": (
        history(("x/a", 5, bad()), ("y/a", 8, ok(-3600)), end=FAILED),
        None,
        [],
    ),
    "a timer beside it does not tell": (
        history(("x/a", 5, bad(OTHER)), ("y/timer()", 6, TimerFired(6)), ("y/a", 8, ok(7)), end=FAILED),
        None,
        [],
    ),
    "a change noted before stays": (history(("", 1, Patched("p")), ("b", 2, bad()), end=FAILED), None, [2]),
    "a terminated run goes on where it was": (
        history(("a", 1, bad()), ("b", 2, ok(1)), end=RunTerminated()),
        None,
        [2, 3],
    ),
    "so does one that took too long": (history(("a", 1, ok()), end=RunTimedOut()), None, [2]),
    "a cancelled one goes on where it was told": (
        history(("a", 1, ok()), ("", 2, CancelRequested()), ("clean", 3, ok(2)), end=RunCancelled()),
        None,
        [2],
    ),
    "what is left to undo is no undo": (history(("a", 1, ok()), end=RunTerminated()), WAITING, [2]),
    "nor is what was dropped": (history(("a", 1, ok()), ("b", 2, bad()), end=FAILED), "[]", [2]),
    "after an undo it begins anew": (
        history(("a", 1, ok()), ("b", 2, bad()), ("undo/f", 3, ok(2)), end=FAILED),
        DONE,
        None,
    ),
    "after one that was never recorded as well": (
        history(("a", 1, ok()), ("", 2, CancelRequested()), end=RunTerminated()),
        WAITING,
        None,
    ),
    "and after one that time began": (history(("", 2, TimeoutReached()), end=RunTimedOut()), WAITING, None),
}


@pytest.mark.parametrize("name", RETRIES)
def test_a_retry_keeps_what_does_not_depend_on_what_failed(name: str) -> None:
    """Recorded results stay, and what failed runs again; what is kept fits the code."""
    events, undo, kept = RETRIES[name]

    assert numbers(retried(events, undo, stamp_of)) == kept


def test_numbers_fall_behind_what_is_left_out() -> None:
    """A history has no gaps."""
    events = history(("x/a", 5, bad()), ("y/a", 6, ok()), ("z/a", 7, ok()), end=RunFailed(BOOM))

    kept = retried(events, None, stamp_of)

    assert kept == (Kept(3, 4, 1),)
    assert last_of(kept) == 3


def test_a_retry_of_many_failures_takes_no_time() -> None:
    """Half of ten thousand calls have failed: each is compared with the few that matter."""
    answers = [(f"a#{n}/a", 10_000 + n, bad() if n % 2 else ok()) for n in range(10_000)]

    kept = retried(history(*answers, end=RunFailed(Failure("e", "many failed"))), None, stamp_of)

    assert len(numbers(kept) or ()) == 5000


def test_a_fork_keeps_the_beginning() -> None:
    """Up to and with a number; the first event is always there."""
    assert kept_up_to(1) == ()
    assert kept_up_to(4) == (Kept(2, 4, 0),)
    assert last_of(kept_up_to(1)) == 1
    assert last_of(kept_up_to(4)) == 4


def test_a_place_is_where_its_first_event_is() -> None:
    events = history(("a", 1, ok()), ("b", 2, ok()))

    assert point_before(events, "b") == 2
    assert point_before(events, "c") is None


def test_code_waits_at_the_next_place_of_each_task() -> None:
    """Of one task only the next call can have been made by then."""
    events = history(("a", 1, ok()), ("x/a", 2, ok()), ("y/a", 3, ok()), ("x/b", 4, ok()), ("c", 5, ok()))

    assert waiting_after(events, 2) == ["x/a", "y/a", "c"]
