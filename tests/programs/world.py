"""The world around a generated program: answers its calls, kills it, and replays it.

In:   a program and a seed.
Out:  a recording: its history, what every drain asked for, and its end; or Differs.

It drives `Program` as a worker does, with the kernel making the events: one fact at a
time, only for calls that still wait, in an order and at times that chance decides.
Between facts the garbage collector may come, or a crash.
"""

import gc
import hashlib
import inspect
import random
import re
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType
from typing import Any

import msgspec

import tests.programs.abilities  # noqa: F401 - what programs are drawn from
from perdure.authoring.calls import ContinueAsNew
from perdure.engine.ports.owned_run import OwnedRun, Tenure
from perdure.errors import AttemptLost
from perdure.kernel import events
from perdure.kernel.commands import Command, FireTimer, ReceiveMessage, RecordOutcome, TakeNote
from perdure.kernel.events import (
    ActivityCompleted,
    CancelRequested,
    ChildCompleted,
    Event,
    Patched,
    RequestReceived,
    TimeoutReached,
    ValueRecorded,
)
from perdure.kernel.messages import DeferredFailure, DeferredResult, RequestSent, SignalSent
from perdure.kernel.run import RunState, decide, evolve
from perdure.kernel.status import Status
from perdure.worker.calls.activity import ActivityCall
from perdure.worker.calls.call import UNRESTORED, AwaitedCall, DurableCall, Mismatch
from perdure.worker.calls.child import ChildCall
from perdure.worker.calls.deferred import DeferredCall
from perdure.worker.calls.interrupted import InterruptedCall
from perdure.worker.calls.request import RequestCall
from perdure.worker.calls.signal import SignalCall
from perdure.worker.calls.task import TaskCall
from perdure.worker.calls.timer import TimerCall
from perdure.worker.calls.transaction import TransactionCall
from perdure.worker.calls.value import ValueCall
from perdure.worker.failures.failures import failure_of
from perdure.worker.loop.eviction import graveyard
from perdure.worker.program import Program
from tests.programs.drawing import Part
from tests.programs.performing import Broken, drawn_program, really_run

Raw = msgspec.Raw

STARTED_AT = 1_000_000
# A history that is longer is cut off there; it must replay all the same.
MOST_EVENTS = 80
CRASHES = 0.06
CANCELS = 0.3
TIMEOUTS = 0.1
COLLECTIONS = 0.2
FAILURES = 0.15
LATEST_MS = 4000
FAR_MS = 600_000
DIGITS = 8
# What tokens are made from.
SECRET = b"of no database"


class Drain(msgspec.Struct, frozen=True, array_like=True):
    """What one drain showed: calls made and what was said by the way, calls given up, where the code waits."""

    calls: list[list[Any]]
    given_up: list[str]
    waits_at: list[str]


class Digest(msgspec.Struct, frozen=True):
    """What is kept in files of a drain or an end: enough to tell whether another one is the same."""

    text: str

    @classmethod
    def of(cls, value: object) -> "Digest":
        return cls(hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:DIGITS])


class Recording(msgspec.Struct):
    """A program's life: `drains` has one more than `events`, since one comes before the first event."""

    program: Part
    seed: int
    events: list[Event]
    drains: list[Drain | Digest]
    end: str | Digest | None


class Differs(Exception):  # noqa: N818 - it names the trouble
    """A replay did not do what was recorded."""


class Incarnation:
    """A program in memory, from its beginning until it is killed."""

    def __init__(self, program: Part, seed: int) -> None:
        data, _, _ = drawn_program.signature.record((program,), {})
        owned = OwnedRun("run-1", "drawn", drawn_program.name, data.decode(), seed, STARTED_AT)
        owned.tenure = Tenure("", SECRET)
        self.program = Program(drawn_program, owned)

    def begin(self, history: list[Event]) -> Drain:
        """Run up to the first wait, as a replay if there is a history."""
        if history:
            self.program.replay(history)
            # As if no answer was on disk, so that each is said again, and seen.
            taken = [event.fact.message_id for event in history if isinstance(event.fact, RequestReceived)]
            self.program.runtime.unanswered = frozenset(taken)
        self.program.begin()
        return self._drain()

    def deliver(self, event: Event, restored: object = UNRESTORED) -> Drain:
        self.program.deliver(event, restored)
        return self._drain()

    def go_on(self) -> None:
        """The history is over: from here on the code is where nobody has been before."""
        self.program.runtime.is_replaying = False

    def _drain(self) -> Drain:
        runtime = self.program.runtime
        fresh, runtime.fresh = runtime.fresh, []
        given_up, runtime.given_up = runtime.given_up or [], None
        calls = [shown(call) for call in fresh] + self._said()
        return Drain(calls, [call.place for call in given_up], list(self.waiting()))

    def _said(self) -> list[list[Any]]:
        """What the code has published and answered since the last drain, and what it shows now."""
        runtime = self.program.runtime
        said: list[list[Any]] = []
        if runtime.asides is not None:
            published, runtime.asides.published = runtime.asides.published, []
            answers, runtime.asides.answers = runtime.asides.answers, {}
            said += [["published", *value] for value in published]
            said += [["answered", message_id, answer] for message_id, answer in answers.items()]
        return said + [["shows", name, function()] for name, function in (runtime.exposed or {}).items()]

    def take_patches(self) -> list[str]:
        """The changes the code came by for the first time."""
        runtime = self.program.runtime
        asides, runtime.asides = runtime.asides, None
        return [] if asides is None else asides.patches

    def waiting(self) -> dict[str, DurableCall]:
        return {place: call for place, call in self.program.pending.items() if call.is_waiting}

    def end(self) -> str | None:
        """How the program ended; addresses in the texts of errors are of no interest."""
        if not self.program.is_done:
            return None
        closing = self.program.end()
        match closing:
            case events.RunCompleted(result):
                return bytes(result).decode()
            case events.RunFailed(failure):
                return re.sub("0x[0-9a-f]+", "0x", failure.summary)
            case events.RunCancelled(reason, ()):
                # As those have it that were recorded before there were notes.
                return f"RunCancelled(reason={reason!r})"
            case ContinueAsNew(call=call):
                return f"continued with {call.arguments[0].decode()}"
            case _:
                return repr(closing)

    def kill(self) -> None:
        buried = len(graveyard)
        self.program.evict()
        loop = self.program.loop
        if len(graveyard) > buried or loop._tasks or loop._generators or loop._ready or not loop.is_dead:
            raise Differs("code was left in memory")


def shown(call: DurableCall) -> list[Any]:  # noqa: PLR0911 - one for each
    """A call as it is compared."""
    match call:
        case ActivityCall():
            return ["activity", call.place, call.activity.name, call.data.decode()]
        case TimerCall():
            return ["timer", call.place, call.fire_at]
        case SignalCall():
            return ["signal", call.place, call.signal.name]
        case DeferredCall():
            return ["deferred", call.place, call.deferred.name]
        case RequestCall():
            return ["request", call.place, call.request.name]
        case InterruptedCall():
            return ["interrupted", call.place]
        case ChildCall():
            return ["child", call.place, call.workflow.name, call.data.decode(), call.run_id]
        case ValueCall():
            return ["value", call.place]
        case _:
            raise AssertionError(call)


class World:
    """Chance, time, and what it has said so far."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = STARTED_AT
        self.state = RunState(Status.RUNNING, 1, STARTED_AT)
        self._messages = 0
        self._cancels_at = self.chance.randint(1, 15) if self.chance.random() < CANCELS else None
        self._times_out_at = self.chance.randint(1, 15) if self.chance.random() < TIMEOUTS else None

    def next_event(self, waiting: dict[str, DurableCall]) -> tuple[Event, object]:
        """An event for one of the calls, and its value as restored already, if it is an activity's."""
        self.now += self.chance.choice([0, 1, self.chance.randrange(LATEST_MS)])
        if self._cancels_at == self.state.seq:
            return self.event(TakeNote(CancelRequested("enough"))), UNRESTORED
        if self._times_out_at == self.state.seq:
            return self.event(TakeNote(TimeoutReached("too long"))), UNRESTORED
        calls = [call for call in waiting.values() if not isinstance(call, InterruptedCall)]
        if not calls:
            return self.event(TakeNote(CancelRequested("nothing else to wait for"))), UNRESTORED
        call = self._choose(calls)
        answer: Callable[[World, Any], tuple[Command, object]] = ANSWERS[type(call)]
        command, restored = answer(self, call)
        return self.event(command), restored

    def event(self, command: Command) -> Event:
        """What the rules make of a command."""
        event = decide(self.state, command, self.now)
        assert isinstance(event, Event)
        self.state = evolve(self.state, event)
        return event

    def _choose(self, calls: list[DurableCall]) -> DurableCall:
        """Timers mostly in their order, the far ones last of all; messages to whoever waits longest."""
        timers = sorted((call for call in calls if isinstance(call, TimerCall)), key=lambda timer: timer.fire_at)
        others: list[DurableCall] = [call for call in calls if not isinstance(call, TimerCall)]
        if others or len(timers) > 1:
            timers = [timer for timer in timers if timer.fire_at < self.now + FAR_MS] or timers[: not others]
        if timers and (not others or self.chance.random() < 0.3):
            return timers[0] if self.chance.random() < 0.95 else self.chance.choice(timers)
        chosen = self.chance.choice(others)
        if not isinstance(chosen, AwaitedCall) or not (keys := chosen.listens_to()):
            return chosen
        return next(c for c in others if isinstance(c, AwaitedCall) and c.listens_to() == keys)

    def answer_activity(self, call: ActivityCall) -> tuple[Command, object]:
        name, data = call.activity.name, Raw(call.data)
        if self.chance.random() < FAILURES:
            error = self.chance.choice([Broken("broken"), KeyError("lost"), TimeoutError("late")])
            if name == "step_made_once":
                error = AttemptLost(name, call.place)
            return RecordOutcome(call.place, events.ActivityFailed(name, data, failure_of(error), self.now)), UNRESTORED
        value = self.chance.randrange(100)
        kind = call.activity.signature.result
        result, restored = kind.record(str(value) if name == "other_drawn_step" else value, name)
        return RecordOutcome(call.place, ActivityCompleted(name, data, Raw(result), self.now)), restored

    def answer_timer(self, call: TimerCall) -> tuple[Command, object]:
        self.now = max(self.now, call.fire_at)
        return FireTimer(call.place, call.fire_at), UNRESTORED

    def answer_signal(self, call: SignalCall) -> tuple[Command, object]:
        self._messages += 1
        payload = Raw(str(self.chance.randrange(100)).encode())
        body = SignalSent(call.signal.name, payload)
        return ReceiveMessage(call.place, self._messages, f"m{self._messages}", body), UNRESTORED

    def answer_deferred(self, call: DeferredCall) -> tuple[Command, object]:
        self._messages += 1
        name, value = call.deferred.name, Raw(str(self.chance.randrange(100)).encode())
        is_refused = self.chance.random() < FAILURES
        body = DeferredFailure(name, "declined") if is_refused else DeferredResult(name, value)
        return ReceiveMessage(call.place, self._messages, f"deferred:{name}", body), UNRESTORED

    def answer_request(self, call: RequestCall) -> tuple[Command, object]:
        self._messages += 1
        body = RequestSent(call.request.name, Raw(str(self.chance.randrange(100)).encode()))
        return ReceiveMessage(call.place, self._messages, f"request:r{self._messages}", body), UNRESTORED

    def answer_child(self, call: ChildCall) -> tuple[Command, object]:
        name, child_id, run_id = call.workflow.name, call.child_id, call.run_id
        if self.chance.random() < FAILURES:
            failed = events.ChildFailed(name, child_id, run_id, failure_of(Broken("child")))
            return RecordOutcome(call.place, failed), UNRESTORED
        result = Raw(str(self.chance.randrange(100)).encode())
        return RecordOutcome(call.place, ChildCompleted(name, child_id, run_id, result)), UNRESTORED

    def answer_value(self, call: ValueCall) -> tuple[Command, object]:
        return RecordOutcome(call.place, ValueRecorded(Raw(msgspec.json.encode(call.fn())))), UNRESTORED


# How the world answers each kind of call.
ANSWERS: dict[type[Any], Callable[..., tuple[Command, object]]] = {
    ActivityCall: World.answer_activity,
    TransactionCall: World.answer_activity,
    TimerCall: World.answer_timer,
    SignalCall: World.answer_signal,
    DeferredCall: World.answer_deferred,
    RequestCall: World.answer_request,
    ChildCall: World.answer_child,
    TaskCall: World.answer_child,
    ValueCall: World.answer_value,
}


def record(program: Part, seed: int) -> Recording:
    """Let a program live, with crashes; every recovery must bring it back as it was."""
    world = World(seed)
    live = Incarnation(program, seed)
    recording = Recording(program, seed, [], [live.begin([])], None)
    write_patches(recording, world, live)
    while not live.program.is_done and (waiting := live.waiting()) and len(recording.events) < MOST_EVENTS:
        event, restored = world.next_event(waiting)
        recording.events.append(event)
        recording.drains.append(live.deliver(event, restored))
        write_patches(recording, world, live)
        if world.chance.random() < COLLECTIONS:
            gc.collect(0)
        if world.chance.random() < CRASHES:
            live.kill()
            live = replayed(recording, len(recording.events))
    recording.end = live.end()
    live.kill()
    return recording


def write_patches(recording: Recording, world: World, live: Incarnation) -> None:
    """Write down the changes the last drain came by, before anything else happens."""
    for change_id in live.take_patches():
        event = world.event(TakeNote(Patched(change_id)))
        recording.events.append(event)
        recording.drains.append(live.deliver(event))


def leftovers() -> list[object]:
    """Code of programs that is still suspended somewhere, and steps that ran although only the world answers."""
    gc.collect()
    suspended = [
        code
        for code in gc.get_objects()
        # By type: to ask some objects for their class is to wake them up.
        if (type(code) is CoroutineType and inspect.getcoroutinestate(code) == inspect.CORO_SUSPENDED)
        or (type(code) is AsyncGeneratorType and code.ag_frame is not None)
    ]
    return [code for code in suspended if "tests.programs" in _module_of(code)] + [*really_run]


def _module_of(code: Any) -> str:
    frame: Any = code.cr_frame if inspect.iscoroutine(code) else code.ag_frame
    return str(frame.f_globals.get("__name__"))


def replayed(recording: Recording, count: int) -> Incarnation:
    """A new incarnation after the first `count` events, having done after each what was recorded."""
    again = Incarnation(recording.program, recording.seed)
    try:
        history = recording.events[:count]
        _compare(recording, 0, again.begin(history))
        for number, event in enumerate(history, start=1):
            _compare(recording, number, again.deliver(event))
        again.go_on()
    except (Mismatch, Differs) as difference:
        again.kill()
        raise Differs(f"replaying {count} of {len(recording.events)} events: {difference}") from None
    return again


def _compare(recording: Recording, number: int, drain: Drain) -> None:
    _compare_one(f"after event {number}", recording.drains[number], drain)


def _compare_one(where: str, recorded: object, again: object) -> None:
    if recorded != (Digest.of(again) if isinstance(recorded, Digest) else again):
        raise Differs(f"{where}\n recorded {recorded}\n replayed {again}")


def check_prefixes(recording: Recording) -> None:
    """Replay every prefix of the history, each from the start; a change is written together with what came by it."""
    for count, following in enumerate(recording.events):
        if not isinstance(following.fact, Patched):
            replayed(recording, count).kill()
    check_whole(recording)


def check_whole(recording: Recording) -> None:
    """Replay the whole history, to the same end."""
    again = replayed(recording, len(recording.events))
    end = again.end()
    again.kill()
    _compare_one("at the end", recording.end, end)
