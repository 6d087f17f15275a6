"""The worker: owns runs, keeps them alive in memory, and moves them on.

In:   runs to adopt, messages, ends of activities, timers that are due.
Out:  commands to the engine; and, after each commit, the effects they asked for.

One thing happens to a run at a time: a fact becomes an event, the event is handed
to the program, the program is drained, and what it asked for waits for the commit.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perdure import codec
from perdure.authoring.functions import Workflow, workflows
from perdure.clock import Alarm
from perdure.engine.port import HandBack, Hold, OwnedRun, Park, StartRequest
from perdure.engine.store_engine import StoreAdvance, StoreEngine
from perdure.errors import BadInput, PerdureError
from perdure.kernel import events
from perdure.kernel.commands import CloseRun, FireTimer, ReceiveMessage, RecordOutcome
from perdure.kernel.events import ActivityCompleted, Event, ValueRecorded
from perdure.kernel.messages import Message
from perdure.kernel.retry import is_retryable, next_attempt_at
from perdure.stores.port import Attempt as FailedAttempt
from perdure.stores.port import LoadedRun
from perdure.worker.activities import ActivityRunner, Manner, manner_of, run_at_once
from perdure.worker.failures import failure_of
from perdure.worker.live import LiveRun, Step
from perdure.worker.loop import NeverWaits, watch_generators
from perdure.worker.program import (
    Mismatch,
    Pending,
    PendingActivity,
    PendingSignal,
    PendingTimer,
    PendingValue,
)

log = logging.getLogger("perdure.worker")

Raw = msgspec.Raw

SWEEP_MS = 1000
# After so long without an event a run shows what it waits for.
NOTE_AFTER_MS = 1000
# How many ripe runs are claimed at once, and how many events are replayed in one go.
CLAIM = 200
REPLAY_SLICE = 500
CLAIM_AGAIN_MS = 10
SIDE_EFFECT_TIMEOUT = 60.0


class WorkerSettings(msgspec.Struct, frozen=True):
    """How a worker works. `replay_always` replays every run from its history at every step (for tests)."""

    queues: tuple[str, ...] = ("default",)
    max_live: int = 10_000
    max_threads: int = 64
    park_after_ms: int = 10_000
    replay_always: bool = False


class Worker:
    """Implements Host for the engine and Runtime, through programs, for workflow code."""

    def __init__(
        self, engine: StoreEngine, settings: WorkerSettings, known: dict[str, Workflow[..., Any]] | None
    ) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._settings = settings
        self._known = known
        self._live: dict[str, LiveRun] = {}
        self._manners: dict[Callable[..., Any], Manner] = {}
        self._runner = ActivityRunner(self._clock, settings.max_threads)
        self._timers: list[tuple[int, int, LiveRun, PendingTimer]] = []
        self._retries: list[tuple[int, int, LiveRun, PendingActivity]] = []
        self._numbers = itertools.count()
        self._alarm: Alarm | None = None
        self._alarm_at = 0
        self._sweep_alarm: Alarm | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._wants_claim = False
        self._claim_alarm: Alarm | None = None
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._calm: list[asyncio.Future[None]] = []
        self._unwatch: Callable[[], None] = lambda: None

    # Beginning and ending

    async def begin(self) -> None:
        """Start to work, once the engine is open."""
        self._unwatch = watch_generators()
        await self._engine.free_mismatches(self._names())
        self.look_around()
        self._schedule_sweep()

    async def end(self, grace_ms: int) -> None:
        """Stop claiming, let activities finish for a while, then hand everything back."""
        self._is_stopping = True
        for alarm in (self._sweep_alarm, self._claim_alarm):
            if alarm is not None:
                alarm.cancel()
        if self._claiming is not None:
            await self._claiming
        await self._calm_down(grace_ms)
        if self._alarm is not None:
            self._alarm.cancel()
        for live in list(self._live.values()):
            self._hand_back(live)
        await self._engine.settle()
        self.drop_all()
        self._runner.close()
        self._unwatch()

    def abandon(self) -> None:
        """Forget everything at once and write nothing more, as if the process had died."""
        self._is_stopping = True
        for task in [*self._tasks, *([self._claiming] if self._claiming is not None else [])]:
            task.cancel()
        self.drop_all()
        self._runner.close()
        self._unwatch()

    async def _calm_down(self, grace_ms: int) -> None:
        """Until no activity runs, or the grace is over."""
        if not any(live.running for live in self._live.values()) or grace_ms <= 0:
            return
        calm = asyncio.get_running_loop().create_future()
        self._calm.append(calm)
        alarm = self._clock.call_at(self._clock.now() + grace_ms, self._say_calm)
        await calm
        alarm.cancel()

    def _tell_calm(self) -> None:
        if self._calm and not any(live.running for live in self._live.values()):
            self._say_calm()

    def _say_calm(self) -> None:
        for future in self._calm:
            if not future.done():
                future.set_result(None)
        self._calm.clear()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way but activities in tasks, of which nobody can tell what they wait for."""
        return not self._tasks and self._claiming is None and not self._runner.in_threads

    @property
    def runs_activities(self) -> bool:
        return any(live.running for live in self._live.values())

    # What the engine asks of its host

    def has_room_for(self, request: StartRequest) -> bool:
        return (
            len(self._live) < self._settings.max_live
            and not self._is_stopping
            and request.queue in self._settings.queues
            and self._workflow(request.workflow) is not None
        )

    def is_live(self, run_id: str) -> bool:
        return run_id in self._live

    def adopt(self, owned: OwnedRun, loaded: LoadedRun | None) -> None:
        """Bring a run to life that is now this worker's."""
        if owned.run_id in self._live:
            return
        workflow = self._workflow(owned.workflow)
        if workflow is None:
            self._engine.release(owned, HandBack(), lambda _: None)
            return
        live = LiveRun(owned, workflow, self._clock.now())
        self._live[owned.run_id] = live
        if loaded is None:
            self._replay(live, [])
            return
        for failed in loaded.attempts:
            live.add_failed(failed)
        for message in loaded.messages:
            live.add_message(message)
        if len(loaded.events) <= REPLAY_SLICE:
            self._replay(live, list(loaded.events))
        else:
            self._spawn(self._replay_in_slices(live, list(loaded.events)))

    def notice(self, run_id: str, message: Message, count: int | None) -> bool:
        live = self._live.get(run_id)
        if live is None:
            return False
        if count is not None and count != live.owned.messages + 1:
            # Another process's message came between: read all of them, in their order.
            self._spawn(self._engine.read_messages_of(run_id))
        elif live.add_message(message):
            live.owned.messages += 1
            if not live.is_leaving:
                self._settle(live, None)
        return True

    def drop_all(self) -> None:
        """Forget every run; what their activities still do has no effect any more."""
        for live in list(self._live.values()):
            self._drop(live)
        self._timers.clear()
        self._retries.clear()

    def _drop(self, live: LiveRun) -> None:
        live.is_gone = True
        self._live.pop(live.run_id, None)
        for attempt in live.running.values():
            attempt.call_off()
        live.running.clear()
        live.program.evict()

    # Bringing runs to life

    def _workflow(self, name: str) -> Workflow[..., Any] | None:
        return workflows.get(name) if self._known is None else self._known.get(name)

    def _names(self) -> tuple[str, ...]:
        return workflows.names() if self._known is None else tuple(sorted(self._known))

    def _replay(self, live: LiveRun, history: list[Event]) -> None:
        """Run the code against its history, then go on live."""
        if self._settings.replay_always:
            live.history = history
        try:
            live.program.begin(live.owned.arguments)
            live.owned.arguments = None
            for event in history:
                self._redeliver(live, event)
        except Mismatch as mismatch:
            self._hold(live, mismatch)
        except NeverWaits as error:
            self._fail(live, error)
        else:
            self._settle(live, None)

    async def _replay_in_slices(self, live: LiveRun, history: list[Event]) -> None:
        """A long history, with pauses in which other runs go on."""
        if self._settings.replay_always:
            live.history = history
        live.is_leaving = True
        try:
            live.program.begin()
            for number, event in enumerate(history):
                self._redeliver(live, event)
                if number % REPLAY_SLICE == 0:
                    await asyncio.sleep(0)
                    if live.is_gone:
                        return
        except Mismatch as mismatch:
            self._hold(live, mismatch)
        except NeverWaits as error:
            self._fail(live, error)
        else:
            live.is_leaving = False
            self._settle(live, None)

    def _redeliver(self, live: LiveRun, event: Event) -> None:
        if live.program.is_done:
            raise Mismatch(event, [], f"the code has ended, but event {event.seq} is {event.kind} at {event.place!r}")
        live.program.deliver(event)

    # One fact at a time

    def _advance(self, live: LiveRun, command: Step) -> None:
        """Turn a fact into an event, hand it to the program, and see what it wants next."""
        if live.is_gone:
            return
        if live.is_leaving:
            live.deferred = [*(live.deferred or ()), command]
            return
        waiting = live.program.pending.get(command.place)
        if waiting is None or not waiting.is_waiting:
            # Nobody waits for it any more: a fact without a taker is not written.
            return
        advance = self._engine.advance(live.owned, command)
        if not isinstance(advance, StoreAdvance):
            log.error("an advance was refused: %r", advance, extra={"event": "refused", "run_id": live.run_id})
            return
        try:
            if self._settings.replay_always:
                self._rebuild(live, advance.event)
            live.program.deliver(advance.event)
        except Mismatch as mismatch:
            self._hold(live, mismatch)
        except NeverWaits as error:
            self._fail(live, error)
        else:
            self._settle(live, advance)

    def _rebuild(self, live: LiveRun, event: Event) -> None:
        """Throw the program away and replay a new one, up to but not including the event."""
        live.program.evict()
        live.program = live.new_program()
        live.program.begin()
        for earlier in live.history or ():
            self._redeliver(live, earlier)
        live.history = [*(live.history or ()), event]

    def _settle(self, live: LiveRun, advance: StoreAdvance | None) -> None:
        """After a drain: hand over wanted messages, close the run, or start what it asked for."""
        program = live.program
        if program.abandoned:
            self._call_off(live)
        if program.is_done:
            self._close(live)
            return
        if live.inbox is not None and live.inbox.unread:
            wanted = live.inbox.take_wanted(program.pending.values())
            if wanted is not None:
                # What the last event made the program ask for starts with this one's effects.
                self._advance(live, ReceiveMessage(*wanted))
                return
        live.is_noted = False
        fresh = program.fresh
        if not fresh:
            return
        program.fresh = []
        if advance is None:
            self._start(live, fresh)
        else:
            advance.then(self._start, live, fresh)

    def _close(self, live: LiveRun) -> None:
        self._end(live, live.program.end())

    def _fail(self, live: LiveRun, error: Exception) -> None:
        self._end(live, events.RunFailed(failure_of(error)))

    def _end(self, live: LiveRun, end: events.Closing) -> None:
        self._engine.advance(live.owned, CloseRun(end))
        live.is_leaving = True
        live.program.evict()

    def ended(self, run_id: str) -> None:
        """The end of a run is on disk: forget it."""
        live = self._live.pop(run_id, None)
        if live is not None:
            live.is_gone = True
            if live.running:
                self._drop(live)
        if self._wants_claim:
            self.look_around()

    def _call_off(self, live: LiveRun) -> None:
        """Cancel the activities nobody waits for any more."""
        for call in live.program.abandoned or ():
            attempt = live.running.pop(call.place, None)
            if attempt is not None:
                attempt.call_off()
        live.program.abandoned = None
        self._tell_calm()

    # Effects

    def _start(self, live: LiveRun, calls: list[Pending]) -> None:
        """Start what the program asked for; the event that made it ask is on disk."""
        for call in calls:
            if live.is_gone:
                return
            if not call.is_waiting:
                continue
            match call:
                case PendingActivity():
                    self._start_activity(live, call)
                case PendingTimer():
                    self._push(self._timers, call.fire_at, live, call)
                case PendingValue():
                    self._start_value(live, call)
                case PendingSignal():
                    pass

    def _start_activity(self, live: LiveRun, call: PendingActivity) -> None:
        place = call.place
        began = self._clock.now()
        if place in live.running:
            return
        if live.retries is not None:
            next_at = live.retries.next_at.get(place)
            if next_at is not None and next_at > began:
                self._push(self._retries, next_at, live, call)
                return
            live.retries.next_at.pop(place, None)
        activity = call.activity
        fn = activity.fn
        manner = self._manners.get(fn)
        if manner is None:
            manner = self._manners[fn] = manner_of(fn)
        if manner is Manner.AT_ONCE:
            error, value = run_at_once(fn, call.args, call.kwargs)
            self._activity_ended(live, call, began, error, value)
        else:
            ended = partial(self._activity_ended, live, call, began)
            live.running[place] = self._runner.run(fn, call.args, call.kwargs, activity.settings.timeout, ended)

    def _activity_ended(
        self, live: LiveRun, call: PendingActivity, began: int, error: BaseException | None, value: Any
    ) -> None:
        """Record what the activity returned; or try again later; or record that it failed."""
        if live.is_gone:
            return
        place = call.place
        if live.running:
            live.running.pop(place, None)
        if error is None:
            try:
                data, _ = call.activity.signature.result.record(value, "the result")
            except BadInput as refused:
                error = refused
            else:
                number = 1 if live.retries is None else live.failed_attempts(place) + 1
                outcome = ActivityCompleted(call.activity.name, Raw(call.data), Raw(data), began, number)
                self._advance(live, RecordOutcome(place, outcome))
        if error is not None:
            self._activity_failed(live, call, began, error)
        if self._calm:
            self._tell_calm()

    def _activity_failed(self, live: LiveRun, call: PendingActivity, began: int, error: BaseException) -> None:
        place, activity = call.place, call.activity
        number = live.failed_attempts(place) + 1
        failure = failure_of(error)
        retry = activity.settings.retry
        now = self._clock.now()
        next_at = next_attempt_at(retry, number, now) if is_retryable(retry, error, failure) else None
        if next_at is None:
            failed = events.ActivityFailed(activity.name, Raw(call.data), failure, began, number)
            self._advance(live, RecordOutcome(place, failed))
            return
        record = FailedAttempt(place, number, activity.name, failure, now, next_at)
        live.add_failed(record)
        self._engine.record_attempt(live.owned, record, partial(self._start, live, [call]))

    def _start_value(self, live: LiveRun, call: PendingValue) -> None:
        if call.place in live.running:
            return

        def ended(error: BaseException | None, value: Any) -> None:
            live.running.pop(call.place, None)
            if live.is_gone:
                return
            if error is None:
                try:
                    data, _ = codec.ValueType(Any).record(value, "the value of side_effect()")
                except BadInput as refused:
                    error = refused
                else:
                    self._advance(live, RecordOutcome(call.place, ValueRecorded(Raw(data))))
                    return
            self._fail(live, _as_exception(error))

        live.running[call.place] = self._runner.run(call.fn, (), {}, SIDE_EFFECT_TIMEOUT, ended)

    # Time

    def _push(self, heap: list[Any], at: int, live: LiveRun, call: Pending) -> None:
        heapq.heappush(heap, (at, next(self._numbers), live, call))
        if self._alarm is None or at < self._alarm_at:
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        earliest = min((heap[0][0] for heap in (self._timers, self._retries) if heap), default=None)
        if earliest is not None:
            self._alarm_at = earliest
            self._alarm = self._clock.call_at(earliest, self._ring)

    def _ring(self) -> None:
        """Fire every timer whose time has come, and try again what is due."""
        self._alarm = None
        now = self._clock.now()
        while self._timers and self._timers[0][0] <= now:
            fire_at, _, live, timer = heapq.heappop(self._timers)
            # After a rebuild the timer that waits is another one at the same place.
            waiting = live.program.pending.get(timer.place)
            if isinstance(waiting, PendingTimer):
                self._advance(live, FireTimer(timer.place, fire_at))
        while self._retries and self._retries[0][0] <= now:
            _, _, live, call = heapq.heappop(self._retries)
            waiting_call = live.program.pending.get(call.place)
            if not live.is_gone and not live.is_leaving and isinstance(waiting_call, PendingActivity):
                self._start(live, [waiting_call])
        self._set_alarm()

    # Letting go

    def _schedule_sweep(self) -> None:
        self._sweep_alarm = self._clock.call_at(self._clock.now() + SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        self.sweep(self._clock.now())
        if not self._is_stopping:
            self._schedule_sweep()

    def sweep(self, now: int) -> None:
        """Show what quiet runs wait for, and park those that have been quiet for long."""
        crowded = len(self._live) >= self._settings.max_live
        for live in list(self._live.values()):
            idle = now - max(live.owned.state.at, live.alive_since)
            if idle < NOTE_AFTER_MS and not crowded:
                continue
            if (idle >= self._settings.park_after_ms or crowded) and not live.running:
                self._park(live)
            elif not live.is_noted and not live.is_leaving and idle >= NOTE_AFTER_MS:
                live.is_noted = True
                self._engine.note_waiting(live.owned, live.waiting())

    def _park(self, live: LiveRun) -> None:
        if live.is_leaving or live.is_gone or live.program.is_done:
            return
        wake_at = live.wake_at()
        if wake_at is not None and wake_at <= self._clock.now() + SWEEP_MS:
            return
        live.is_leaving = True
        self._engine.release(live.owned, Park(wake_at, live.waiting()), partial(self._left, live))

    def _left(self, live: LiveRun, is_gone: bool) -> None:
        """The run is let go of; or a message came first, and it goes on."""
        if is_gone:
            self._drop(live)
            self.look_around()
            return
        live.is_leaving = False
        live.alive_since = self._clock.now()
        deferred, live.deferred = live.deferred or (), None
        self._spawn(self._engine.read_messages_of(live.run_id))
        for command in deferred:
            self._advance(live, command)
        self._settle(live, None)

    def _hand_back(self, live: LiveRun) -> None:
        if live.is_leaving:
            return
        live.is_leaving = True
        how: Park | HandBack = HandBack()
        if not live.running and (live.inbox is None or not live.inbox.unread):
            how = Park(live.wake_at(), live.waiting())
        self._engine.release(live.owned, how, partial(self._handed_back, live))

    def _handed_back(self, live: LiveRun, is_gone: bool) -> None:
        if is_gone:
            self._drop(live)
        else:
            # A message came first: then it is ripe at once.
            self._engine.release(live.owned, HandBack(), lambda _: self._drop(live))

    def _hold(self, live: LiveRun, mismatch: Mismatch) -> None:
        """The code does not fit the history: stop the run, with both sides in the report."""
        report = _report(live, mismatch)
        log.error(
            "run %s is held: %s",
            live.run_id,
            mismatch,
            extra={"event": "run_held", "run_id": live.run_id, "reason": "mismatch"},
        )
        live.is_leaving = True
        self._engine.release(live.owned, Hold("mismatch", report), lambda _: None)
        self._drop(live)

    def broken(self, run_id: str, trouble: str) -> None:
        """The database will not take this run's event: stop the run, visibly."""
        live = self._live.get(run_id)
        if live is None:
            return
        log.error("run %s is held: %s", live.run_id, trouble, extra={"event": "run_held", "run_id": live.run_id})
        report = msgspec.json.encode({"trouble": trouble}).decode()
        live.is_leaving = True
        self._engine.release(live.owned, Hold("quarantine", report), lambda _: None)
        self._drop(live)

    # Claiming

    def look_around(self) -> None:
        """There may be ripe runs: claim them, if there is room."""
        if self._is_stopping:
            return
        self._wants_claim = True
        if self._claiming is None:
            self._claiming = asyncio.get_running_loop().create_task(self._claim())

    async def _claim(self) -> None:
        try:
            while self._wants_claim and not self._is_stopping:
                room = self._settings.max_live - len(self._live)
                if room <= 0:
                    return
                self._wants_claim = False
                names = self._names()
                if await self._engine.claim(self._settings.queues, names, min(room, CLAIM)) > 0:
                    self._wants_claim = True
                    continue
                self._wake_later(await self._engine.next_wake(self._settings.queues, names))
        except PerdureError:
            log.warning("claiming failed, will try again", exc_info=True, extra={"event": "claim_failed"})
            self._wake_later(self._clock.now() + SWEEP_MS)
        finally:
            self._claiming = None

    def _wake_later(self, at: int | None) -> None:
        if self._claim_alarm is not None:
            self._claim_alarm.cancel()
            self._claim_alarm = None
        if at is not None:
            now = self._clock.now()
            # One that is ripe already could not be claimed just now; look again in a moment.
            self._claim_alarm = self._clock.call_at(at if at > now else now + CLAIM_AGAIN_MS, self.look_around)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")


def _report(live: LiveRun, mismatch: Mismatch) -> str:
    event = mismatch.event
    return msgspec.json.encode(
        {
            "trouble": mismatch.trouble,
            "workflow": live.workflow.name,
            "history": None if event is None else {"seq": event.seq, "kind": event.kind, "place": event.place},
            "code_waits_at": mismatch.waiting,
            "remedy": "bring back the code that wrote this history and restart the worker",
        }
    ).decode()
