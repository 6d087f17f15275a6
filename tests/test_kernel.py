"""The rules as tables: state and command in, event or refusal out."""

import msgspec
import pytest

from perdure.errors import BadOption
from perdure.kernel.commands import CloseRun, Command, FireTimer, ReceiveMessage, RecordOutcome, TakeNote
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
    RunCompleted,
    RunContinued,
    RunFailed,
    RunStarted,
    RunTerminated,
    RunTimedOut,
    SignalReceived,
    TimeoutReached,
    TimerFired,
    ValueRecorded,
)
from perdure.kernel.failure import Failure
from perdure.kernel.messages import ChildFailure, ChildResult, SignalSent
from perdure.kernel.retry import Retry, is_retryable, next_attempt_at
from perdure.kernel.run import AlreadyClosed, Refusal, RunState, TooEarly, decide, evolve
from perdure.kernel.status import OPEN, Status

ONE = msgspec.Raw(b"1")
RUNNING = RunState(Status.RUNNING, 3, 1000)
DONE = ActivityCompleted("step", ONE, ONE, 990)
BAD = Failure("builtins.ValueError", "no")
FAILED = ActivityFailed("step", ONE, Failure("builtins.ValueError", "no"), 990, 3)

DECISIONS: list[tuple[str, RunState, Command, int, Event | Refusal]] = [
    ("an outcome is recorded", RUNNING, RecordOutcome("step", DONE), 1200, Event(4, 1200, "step", DONE)),
    ("a failure too", RUNNING, RecordOutcome("step", FAILED), 1200, Event(4, 1200, "step", FAILED)),
    ("a value too", RUNNING, RecordOutcome("v", ValueRecorded(ONE)), 1200, Event(4, 1200, "v", ValueRecorded(ONE))),
    ("time never goes back", RUNNING, RecordOutcome("step", DONE), 5, Event(4, 1000, "step", DONE)),
    ("a timer fires at its time", RUNNING, FireTimer("t", 1200), 1200, Event(4, 1200, "t", TimerFired(1200))),
    ("and later", RUNNING, FireTimer("t", 1200), 9999, Event(4, 9999, "t", TimerFired(1200))),
    ("never a millisecond early", RUNNING, FireTimer("t", 1200), 1199, TooEarly(1200, 1199)),
    ("a clock set back does not lose it", RUNNING, FireTimer("t", 1000), 5, Event(4, 1000, "t", TimerFired(1000))),
    (
        "a message becomes an event",
        RUNNING,
        ReceiveMessage("signal(go)", 7, "m-1", SignalSent("go", ONE)),
        1200,
        Event(4, 1200, "signal(go)", SignalReceived("go", ONE, "m-1")),
    ),
    (
        "a child's result too",
        RUNNING,
        ReceiveMessage("kid", 8, "m-2", ChildResult("kid", "wf", "k", "r", ONE)),
        1200,
        Event(4, 1200, "kid", ChildCompleted("wf", "k", "r", ONE)),
    ),
    (
        "and its failure",
        RUNNING,
        ReceiveMessage("kid", 8, "m-2", ChildFailure("kid", "wf", "k", "r", BAD)),
        1200,
        Event(4, 1200, "kid", ChildFailed("wf", "k", "r", BAD)),
    ),
    ("a note has no place", RUNNING, TakeNote(Patched("c")), 1200, Event(4, 1200, "", Patched("c"))),
    ("a cancel is a note", RUNNING, TakeNote(CancelRequested("r")), 1200, Event(4, 1200, "", CancelRequested("r"))),
    ("so is a timeout", RUNNING, TakeNote(TimeoutReached("r")), 1200, Event(4, 1200, "", TimeoutReached("r"))),
    ("a run is terminated", RUNNING, CloseRun(RunTerminated("x")), 1200, Event(4, 1200, "", RunTerminated("x"))),
    ("a run completes", RUNNING, CloseRun(RunCompleted(ONE)), 1200, Event(4, 1200, "", RunCompleted(ONE))),
]


@pytest.mark.parametrize(
    ("state", "command", "now", "expected"), [row[1:] for row in DECISIONS], ids=[r[0] for r in DECISIONS]
)
def test_decide(state: RunState, command: Command, now: int, expected: Event | Refusal) -> None:
    assert decide(state, command, now) == expected


@pytest.mark.parametrize("status", [status for status in Status if status not in OPEN])
@pytest.mark.parametrize("command", [row[2] for row in DECISIONS], ids=[row[0] for row in DECISIONS])
def test_a_closed_run_refuses_everything(status: Status, command: Command) -> None:
    assert decide(RunState(status, 9, 1000), command, 5000) == AlreadyClosed(status)


@pytest.mark.parametrize(
    ("fact", "status"),
    [
        (RunStarted("wf", ONE, 1), Status.RUNNING),
        (DONE, Status.RUNNING),
        (FAILED, Status.RUNNING),
        (TimerFired(1), Status.RUNNING),
        (RunCompleted(ONE), Status.COMPLETED),
        (RunFailed(Failure("builtins.ValueError", "no")), Status.FAILED),
        (RunCancelled("x"), Status.CANCELLED),
        (RunTerminated("x"), Status.TERMINATED),
        (RunTimedOut("x"), Status.TIMED_OUT),
        (RunContinued("r"), Status.CONTINUED),
        (CancelRequested("x"), Status.RUNNING),
        (TimeoutReached("x"), Status.RUNNING),
    ],
)
def test_evolve(fact: Fact, status: Status) -> None:
    assert evolve(RUNNING, Event(4, 1200, "", fact)) == RunState(status, 4, 1200)


def test_a_status_is_open_or_closed() -> None:
    assert [status for status in Status if not status.is_closed] == [Status.PENDING, Status.RUNNING, Status.SUSPENDED]


@pytest.mark.parametrize(
    ("retry", "attempt", "expected"),
    [
        (Retry(), 1, 1000 + 1000),
        (Retry(), 2, 1000 + 2000),
        (Retry(), 3, None),
        (Retry(max_attempts=1), 1, None),
        (Retry(max_attempts=20, max_interval=5), 10, 1000 + 5000),
        (Retry(max_attempts=10**9, max_interval=7), 10**6, 1000 + 7000),
        (Retry(initial_interval=0.0004), 1, 1000 + 1),
        (Retry(initial_interval=0), 1, 1000),
    ],
)
def test_next_attempt_at(retry: Retry, attempt: int, expected: int | None) -> None:
    assert next_attempt_at(retry, attempt, 1000) == expected


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), True),
        ((ValueError,), False),
        ((Exception,), False),
        ((KeyError,), True),
        (("ValueError",), False),
        (("builtins.ValueError",), False),
        (("Value",), True),
    ],
)
def test_is_retryable(kinds: tuple[type[BaseException] | str, ...], *, expected: bool) -> None:
    error = ValueError("no")
    failure = Failure("builtins.ValueError", "no")
    assert is_retryable(Retry(non_retryable=kinds), error, failure) is expected


@pytest.mark.parametrize(
    "options", [{"max_attempts": 0}, {"initial_interval": -1}, {"backoff": 0.5}, {"max_interval": -1}]
)
def test_a_retry_that_makes_no_sense_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(BadOption):
        Retry(**options)  # type: ignore[arg-type]  # numbers only
