"""What every durable call has, what the worker asks of it, and what it may use itself.

In:   what workflow code asks for; later the event that answers it.
Out:  a result or an error for the code that waits; for the worker, how the call starts, wakes, is shown and cancelled.

A kind of call is one file beside this one, with a class that gives its name: `class SignalCall(AwaitedCall,
kind="signal")`. Authoring asks for a call by that name, and messages find it by what the class says they carry;
nobody else knows which kinds there are.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from msgspec import Raw

from perdure.clock import Clock
from perdure.engine.ports import Engine, OwnedRun
from perdure.kernel.events import Answer, CancelRequested, DeferredFailed, DeferredResolved, Event, ResultGiven
from perdure.kernel.failure import Failure
from perdure.kernel.messages import Body
from perdure.stores.records import AttemptRow
from perdure.worker.activities import ActivityRunner, Retries, RunningAttempt
from perdure.worker.loop.loop import RunLoop

S = TypeVar("S")

# What stands for a result that has to be restored from its event.
UNRESTORED = object()

# How authoring asks for a call of a kind, by its name: with the runtime of the code, and what the kind takes.
KINDS: dict[str, Callable[..., "DurableCall"]] = {}
# What a message is waited for by: a name, or the place of the call.
FOUND_BY: dict[type[Body], Callable[[Any], str]] = {}


class Mismatch(Exception):
    """The code does not fit the history: the event finds nobody waiting at its place."""

    def __init__(self, event: Event | None, waiting: list[str], trouble: str) -> None:
        super().__init__(event, waiting, trouble)
        self.event = event
        self.waiting = waiting
        self.trouble = trouble

    def __str__(self) -> str:
        return self.trouble


class CallingCode(Protocol):
    """The runtime of the code that makes a call, as the call sees it."""

    loop: RunLoop
    owned: OwnedRun
    pending: "dict[str, DurableCall]"
    fresh: "list[DurableCall]"
    cancelled: CancelRequested | None
    last_failure: Failure | None
    # Which calls listen to a key, in the order they began to; and the deferreds that the code has waited for.
    listening: "dict[str, deque[DurableCall]] | None"
    resolved: dict[str, DeferredResolved | DeferredFailed] | None

    # The place of a call of this name, made now.
    def place(self, name: str) -> str: ...

    # The call begins to wait; messages of a key are for it, in its turn; nobody waits for it any more.
    def add(self, call: "DurableCall") -> None: ...
    def listen(self, call: "DurableCall", key: str) -> None: ...
    def cancel_call(self, call: "DurableCall") -> None: ...

    # Where the code waits.
    def places(self) -> list[str]: ...


class PausedRun:
    """Of a run that is to be paused: why, the numbers of the messages that asked for it, and the calls put off.

    Of each of these, by its place, whether a time had come that it wanted to be told of.
    """

    __slots__ = ("put_off", "reason", "taken")

    def __init__(self) -> None:
        self.reason: str | None = None
        self.taken: list[int] = []
        self.put_off: dict[str, bool] = {}


class CallingRun(Protocol):
    """The live run that a call belongs to, as the call sees it."""

    owned: OwnedRun
    is_gone: bool
    is_leaving: bool
    is_committing: bool
    pause: PausedRun | None
    running: dict[str, RunningAttempt]
    retries: Retries | None
    children: set[str] | None
    starting: int

    @property
    def run_id(self) -> str: ...
    def add_failed(self, attempt: AttemptRow) -> None: ...
    def failed_attempts(self, place: str) -> int: ...
    def retry_at(self, place: str) -> int | None: ...


class Commits(Protocol):
    """Who goes on with a run to which nothing else happened while the transaction of an activity was committed."""

    def deliver_written(self, live: Any, event: Event, restored: object) -> None:
        """With an event that is on disk already, and what was put aside."""

    def go_on(self, live: Any) -> None:
        """With what was put aside, for nothing came of the transaction."""


class CallServices(Protocol):
    """What a worker does for calls.

    `advance` takes the run, a step of it, and the result if that is restored already; `fail` the run and an error;
    `ring_at` a time, the run and the call to ring; `start` the run and calls. `part` is what calls of a kind share in
    this worker, made with these services when it is first asked for.
    """

    engine: Engine
    clock: Clock
    runner: ActivityRunner
    advance: Callable[..., None]
    fail: Callable[..., None]
    commits: Commits
    ring_at: Callable[..., None]

    def start(self, live: Any, calls: "list[DurableCall]") -> None: ...
    def part(self, kind: type[S]) -> S: ...


class NeededCode(NamedTuple):
    """Code that a call waits for another worker to run; `activity` when only a worker of the queue will do."""

    what: str
    workflow: str
    queue: str
    activity: str | None = None


class DurableCall:
    """A call that waits for its answer; what a kind does not say differently holds for it."""

    __slots__ = ("place", "runtime")

    kind: ClassVar[str]
    # How messages find calls of this kind, by what they are.
    messages: ClassVar[dict[type[Body], Callable[[Any], str]]] = {}
    # Whether messages find it by its place, and not by a key that it listens to.
    is_found_by_place: ClassVar[bool] = False
    # Whether it starts before others that were asked for together with it, which may end the run.
    starts_first: ClassVar[bool] = False
    ask: ClassVar[Callable[..., "DurableCall"]]

    place: str
    runtime: CallingCode

    def __init_subclass__(cls, kind: str = "", **options: Any) -> None:
        super().__init_subclass__(**options)
        if kind:
            cls.kind = kind
            KINDS[kind] = cls.ask
            FOUND_BY.update(cls.messages)

    # The answer

    @property
    def is_waiting(self) -> bool:
        raise NotImplementedError

    def answer(self, event: Event, restored: object) -> None:
        """Turn the event into a result or an error; Mismatch when it is no answer to this call.

        `restored` is the result as a replay would restore it, or UNRESTORED.
        """
        raise NotImplementedError

    def as_answer(self, event: Event) -> Answer:
        """The answer that a result is which was given by hand; Mismatch when nobody can give one to such a call."""
        raise unexpected(event, self.runtime)

    # Messages

    def listens_to(self) -> tuple[str, ...]:
        """What its messages are found by."""
        return ()

    def misfit(self, body: Any) -> str | None:
        """Why a message is not what the call waits for; None when it is."""
        return None

    # The worker's side

    def start(self, live: CallingRun, services: CallServices) -> None:
        """Have done what was asked for; what made the code ask is on disk."""

    def ring(self, live: CallingRun, services: CallServices) -> None:
        """A time has come that the call wanted to be told of."""

    def cancel_effect(self, live: CallingRun, services: CallServices) -> None:
        """Nobody waits for the call any more: cancel what it has under way."""
        attempt = live.running.pop(self.place, None)
        if attempt is not None:
            attempt.cancel()

    def is_under_way(self, until: int) -> bool:
        """Whether it runs code, or ends by then and lets the run's own code go on."""
        return False

    def is_waiting_outside(self, live: CallingRun) -> bool:
        """Whether only time or a message can bring the answer, so that the run may be parked."""
        return False

    @property
    def outlives_its_run(self) -> bool:
        """Whether it is started even if the run ends in the moment of the call."""
        return False

    def wake_at(self, live: CallingRun, now: int) -> int | None:
        """When a parked run has to be woken for it."""
        return None

    # What people are told

    def shown(self, live: CallingRun) -> dict[str, object]:
        """What the run waits for, in its row."""
        return {"kind": self.kind, "place": self.place}

    @property
    def activity_here(self) -> str | None:
        """The activity whose code it runs in this process, if it does."""
        return None

    def needs(self, live: CallingRun) -> NeededCode | None:
        """The code that another worker has to have, if it waits for that."""
        return None


class AwaitedCall(DurableCall):
    """A call whose answer code awaits."""

    __slots__ = ("future",)

    def __init__(self, runtime: CallingCode, place: str) -> None:
        self.runtime = runtime
        self.place = place
        self.future: asyncio.Future[Any] = runtime.loop.create_future()

    @property
    def is_waiting(self) -> bool:
        return not self.future.done()

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        self.runtime.cancel_call(self)


def given_in(event: Event) -> Raw:
    """The value that was given by hand."""
    assert isinstance(event.fact, ResultGiven)
    return event.fact.value


def unexpected(event: Event, runtime: CallingCode) -> Mismatch:
    """The error for an event that no call waits for, or a call of another kind."""
    at = f"event {event.seq} is {event.kind} at {event.place!r}"
    return Mismatch(event, runtime.places(), f"{at}, but the code waits there for nothing of the kind")


def unreadable(event: Event, runtime: CallingCode, error: Exception, what: str = "result") -> Mismatch:
    """The error for an answer whose value is not what the code expects."""
    return Mismatch(event, runtime.places(), f"the recorded {what} does not fit the code: {error}")
