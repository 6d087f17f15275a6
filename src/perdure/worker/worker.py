"""The worker: owns runs, keeps them alive in memory, and moves them on.

In:   runs to adopt, messages, ends of activities, timers that are due.
Out:  commands to the engine; and, after each commit, the effects they asked for.

One thing happens to a run at a time: a fact becomes an event, the event is handed
to the program, the program is drained, and what it asked for waits for the commit.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from perdure.authoring.functions import Workflow, workflows
from perdure.clock import Alarm
from perdure.engine.port import Advance, Engine, HandBack, Hold, OwnedRun, StartRequest
from perdure.kernel import events
from perdure.kernel.commands import CloseRun, ReceiveMessage
from perdure.kernel.events import Event
from perdure.kernel.messages import Message
from perdure.stores.records import LoadedRun
from perdure.worker.activities import ActivityRunner
from perdure.worker.claims import Claims
from perdure.worker.effects import Effects
from perdure.worker.failures import failure_of
from perdure.worker.live import LiveRun, Step
from perdure.worker.loop import NeverWaits, watch_generators
from perdure.worker.parking import SWEEP_MS, Parking
from perdure.worker.program import UNRESTORED, Mismatch

log = logging.getLogger("perdure.worker")

# How many events are replayed in one go.
REPLAY_SLICE = 500


class WorkerSettings(msgspec.Struct, frozen=True):
    """How a worker works. `replay_always` replays every run from its history at every step (for tests)."""

    queues: tuple[str, ...] = ("default",)
    max_live: int = 10_000
    max_threads: int = 64
    park_after_ms: int = 10_000
    replay_always: bool = False


class Worker:
    """Implements Host for the engine and Runtime, through programs, for workflow code."""

    def __init__(self, engine: Engine, settings: WorkerSettings, known: dict[str, Workflow[..., Any]] | None) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._settings = settings
        self._known = known
        self._workflow = workflows.get if known is None else known.get
        self._live: dict[str, LiveRun] = {}
        # Runs that room was made for and whose start is on its way to disk.
        self._expected = 0
        self._runner = ActivityRunner(self._clock, settings.max_threads)
        self._effects = Effects(engine, self._runner, self._advance, self._fail)
        self._parking = Parking(engine, self, settings.park_after_ms)
        self._claims = Claims(engine, settings.queues, lambda: settings.max_live - len(self._live), self._names)
        self._sweep_alarm: Alarm | None = None
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
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
        self._effects.is_stopped = True
        if self._sweep_alarm is not None:
            self._sweep_alarm.cancel()
        await self._claims.stop()
        await self._runner.calm(grace_ms)
        for live in list(self._live.values()):
            self._parking.hand_back(live)
        await self._engine.settle(grace_ms)
        self.drop_all()
        self._runner.close()
        self._unwatch()

    def abandon(self) -> None:
        """Forget everything at once and write nothing more, as if the process had died."""
        self._is_stopping = True
        self._claims.abandon()
        for task in self._tasks:
            task.cancel()
        self.drop_all()
        self._runner.close()
        self._unwatch()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way but activities in tasks, of which nobody can tell what they wait for."""
        return not self._tasks and self._claims.is_idle and not self._runner.in_threads

    @property
    def runs_activities(self) -> bool:
        return self._runner.in_tasks > 0

    # What the engine asks of its host

    def makes_room_for(self, request: StartRequest) -> bool:
        has_room = (
            len(self._live) + self._expected < self._settings.max_live
            and not self._is_stopping
            and request.queue in self._settings.queues
            and self._workflow(request.workflow) is not None
        )
        self._expected += has_room
        return has_room

    def forgo(self) -> None:
        self._expected -= 1

    def is_live(self, run_id: str) -> bool:
        return run_id in self._live

    def adopt(self, owned: OwnedRun, loaded: LoadedRun | None) -> None:
        """Bring a run to life that is now this worker's."""
        if loaded is None:
            self._expected -= 1
        if owned.run_id in self._live:
            return
        workflow = self._workflow(owned.workflow)
        if workflow is None:
            self._engine.release(owned, HandBack(), lambda _: None)
            return
        live = LiveRun(owned, workflow, owned.created_at if loaded is None else self._clock.now())
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
            self.drop(live)
        self._effects.clear()

    def drop(self, live: LiveRun) -> None:
        """Forget a run, and leave nothing of its code in memory."""
        live.is_gone = True
        self._live.pop(live.run_id, None)
        for attempt in live.running.values():
            attempt.call_off()
        live.running.clear()
        live.program.evict()
        if self._claims.is_wanted:
            self._claims.look()

    # Bringing runs to life

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
        except Exception as error:
            log.exception("a run could not be replayed", extra={"event": "run_broken", "run_id": live.run_id})
            self.broken(live.run_id, f"{type(error).__name__}: {error}")
        else:
            self._settle(live, None)

    async def _replay_in_slices(self, live: LiveRun, history: list[Event]) -> None:
        """A long history, with pauses in which other runs go on."""
        if self._settings.replay_always:
            live.history = history
        live.is_leaving = live.is_replaying = True
        try:
            live.program.begin()
            for number, event in enumerate(history):
                self._redeliver(live, event)
                if number % REPLAY_SLICE == 0:
                    await asyncio.sleep(0)
                    if live.is_gone or self._is_stopping:
                        return
        except Mismatch as mismatch:
            self._hold(live, mismatch)
        except NeverWaits as error:
            self._fail(live, error)
        except Exception as error:
            log.exception("a run could not be replayed", extra={"event": "run_broken", "run_id": live.run_id})
            self.broken(live.run_id, f"{type(error).__name__}: {error}")
        else:
            live.is_leaving = live.is_replaying = False
            self._settle(live, None)

    def _redeliver(self, live: LiveRun, event: Event) -> None:
        if live.program.is_done:
            raise Mismatch(event, [], f"the code has ended, but event {event.seq} is {event.kind} at {event.place!r}")
        live.program.deliver(event)

    # One fact at a time

    def _advance(self, live: LiveRun, command: Step, restored: object = UNRESTORED) -> None:
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
        if not isinstance(advance, Advance):
            log.error("an advance was refused: %r", advance, extra={"event": "refused", "run_id": live.run_id})
            return
        if self._deliver(live, advance, restored):
            self._settle(live, advance)

    def _deliver(self, live: LiveRun, advance: Advance, restored: object = UNRESTORED) -> bool:
        """Hand an event to the program; False when that was the end of it."""
        try:
            if self._settings.replay_always:
                self._rebuild(live, advance.event)
                restored = UNRESTORED
            live.program.deliver(advance.event, restored)
        except Mismatch as mismatch:
            self._hold(live, mismatch)
        except NeverWaits as error:
            self._fail(live, error)
        except Exception as error:
            log.exception("a run could not go on", extra={"event": "run_broken", "run_id": live.run_id})
            self.broken(live.run_id, f"{type(error).__name__}: {error}")
        else:
            return True
        return False

    def _rebuild(self, live: LiveRun, event: Event) -> None:
        """Throw the program away and replay a new one, up to but not including the event."""
        live.program.evict()
        live.program = live.new_program()
        live.program.begin()
        for earlier in live.history or ():
            self._redeliver(live, earlier)
        live.history = [*(live.history or ()), event]

    def _settle(self, live: LiveRun, advance: Advance | None) -> None:
        """After a drain: hand over wanted messages, close the run, or start what it asked for."""
        while True:
            program = live.program
            if program.abandoned:
                self._effects.call_off(live)
            if program.is_done:
                self._close(live)
                return
            if live.inbox is None or not live.inbox.unread:
                break
            wanted = live.inbox.take_wanted(program.pending.values())
            if wanted is None:
                break
            # What the last event made the program ask for starts with this one's effects.
            received = self._engine.advance(live.owned, ReceiveMessage(*wanted))
            if not isinstance(received, Advance) or not self._deliver(live, received):
                return
            advance = received
        live.is_noted = False
        fresh = program.fresh
        if not fresh:
            return
        program.fresh = []
        if advance is None:
            self._effects.start(live, fresh)
        else:
            advance.then(self._effects.start, live, fresh)

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
                self.drop(live)
        if self._claims.is_wanted:
            self._claims.look()

    # Letting go

    def look_around(self) -> None:
        """There may be ripe runs to claim."""
        self._claims.look()

    def _sweep(self) -> None:
        self._effects.tidy()
        is_crowded = len(self._live) >= self._settings.max_live
        self._parking.sweep(self._live.values(), self._clock.now(), is_crowded=is_crowded)
        self._schedule_sweep()

    def _schedule_sweep(self) -> None:
        if not self._is_stopping:
            self._sweep_alarm = self._clock.call_at(self._clock.now() + SWEEP_MS, self._sweep)

    def go_on(self, live: LiveRun) -> None:
        """A message came before the run could be parked: read it, and do what was put aside."""
        deferred, live.deferred = live.deferred or (), None
        self._spawn(self._engine.read_messages_of(live.run_id))
        for command in deferred:
            self._advance(live, command)
        self._settle(live, None)

    def _hold(self, live: LiveRun, mismatch: Mismatch) -> None:
        """The code does not fit the history: stop the run, with both sides in the report."""
        report = _report(live, mismatch)
        log.error(
            "run %r of %s is held: %s; bring back the code that wrote its history and restart (`perdure show %s`)",
            live.owned.workflow_id,
            live.workflow.name,
            mismatch,
            live.owned.workflow_id,
            extra={"event": "run_held", "run_id": live.run_id, "reason": "mismatch"},
        )
        live.is_leaving = True
        self._engine.release(live.owned, Hold("mismatch", report), lambda _: None)
        self.drop(live)

    def broken(self, run_id: str, trouble: str) -> None:
        """The database will not take this run's event: stop the run, visibly."""
        live = self._live.get(run_id)
        if live is None:
            return
        log.error(
            "run %r is held: %s", live.owned.workflow_id, trouble, extra={"event": "run_held", "run_id": live.run_id}
        )
        report = msgspec.json.encode({"trouble": trouble}).decode()
        live.is_leaving = True
        self._engine.release(live.owned, Hold("quarantine", report), lambda _: None)
        self.drop(live)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


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
