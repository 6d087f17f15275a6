"""The worker: owns runs, keeps them alive in memory, and moves them on.

In:   runs to adopt, messages, ends of activities, timers that are due.
Out:  commands to the engine; and, after each commit, the effects they asked for.

One thing happens to a run at a time: a fact becomes an event, the event is handed
to the program, the program is drained, and what it asked for waits for the commit.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any

import msgspec

from perdure.authoring.calls import ContinueAsNew
from perdure.authoring.functions import Workflow, workflows
from perdure.clock import Alarm
from perdure.engine.port import Advance, Engine, HandBack, Hold, OwnedRun, StartRequest
from perdure.kernel import events
from perdure.kernel.commands import CloseRun, TakeNote
from perdure.kernel.events import CancelRequested, Event, Patched, RunCancelled, RunTerminated, RunTimedOut
from perdure.kernel.messages import CancelRequest, Message, TerminateRequest
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN
from perdure.stores.records import LoadedRun
from perdure.worker.activities import ActivityRunner
from perdure.worker.claims import Claims
from perdure.worker.effects import Effects
from perdure.worker.failures import failure_of
from perdure.worker.generators import watch_generators
from perdure.worker.guards import guarded
from perdure.worker.live import Inbox, LiveRun, Reading, Step
from perdure.worker.loop import NeverWaits
from perdure.worker.parking import SWEEP_MS, Parking
from perdure.worker.program import UNRESTORED, Mismatch

log = logging.getLogger("perdure.worker")

# How many events are replayed in one go.
REPLAY_SLICE = 500


class Read(Enum):
    """What came of looking into an inbox, when it was not an event."""

    NOTHING = "nothing in it that anybody waits for"
    DONE = "a message that changed nothing"
    ENDED = "the run is not to be moved any more"


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
        self,
        engine: Engine,
        settings: WorkerSettings,
        known: dict[str, Workflow[..., Any]] | None,
        resources: Sequence[object] = (),
    ) -> None:
        self._engine = engine
        self._resources = tuple(resources)
        self._clock = engine.clock
        self._settings = settings
        self._known = known
        self._workflow: Callable[[str], Workflow[..., Any] | None] = workflows.get if known is None else known.get
        self._live: dict[str, LiveRun] = {}
        # Runs that room was made for and whose start is on its way to disk.
        self._expected = 0
        self._runner = ActivityRunner(self._clock, settings.max_threads)
        self._effects = Effects(engine, self._runner, self._advance, self._fail, self._expire)
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
        self._workflow = guarded(self._workflow)
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
        self._effects.abandon()
        self.drop_all()
        self._runner.close()
        self._unwatch()

    def abandon(self) -> None:
        """Forget everything at once and write nothing more, as if the process had died."""
        self._is_stopping = True
        self._claims.abandon()
        for task in self._tasks:
            task.cancel()
        self._effects.abandon()
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
        if self._resources:
            owned.resources = self._resources
        live = LiveRun(owned, workflow, owned.created_at if loaded is None else self._clock.now())
        self._live[owned.run_id] = live
        if owned.traits is not PLAIN:
            live.annotated = (owned.traits.attributes, None)
            if live.deadline is not None:
                self._effects.end_by(live, live.deadline)
        if loaded is None:
            self._replay(live, [])
        else:
            self._bring_back(live, loaded)

    def _bring_back(self, live: LiveRun, loaded: LoadedRun) -> None:
        """Give a run its past."""
        live.annotated = (loaded.row.attributes, loaded.row.step)
        live.children = set(loaded.children) or None
        if loaded.row.close_at is not None and loaded.row.close_as == Status.CANCELLED:
            live.close_at, live.close_reason = loaded.row.close_at, loaded.row.cancel_reason
            self._effects.end_by(live, loaded.row.close_at)
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
            self._read_inbox(live)
        elif live.add_message(message):
            live.owned.messages += 1
            if not live.is_leaving:
                self._settle(live, None)
        return True

    def _read_inbox(self, live: LiveRun) -> None:
        """Read a run's inbox; one reading at a time, and another one if more came meanwhile."""
        if live.reading:
            live.reading = Reading.AND_AGAIN
        else:
            live.reading = Reading.ONCE
            self._spawn(self._read_until_calm(live))

    async def _read_until_calm(self, live: LiveRun) -> None:
        try:
            while not live.is_gone:
                live.reading = Reading.ONCE
                await self._engine.read_messages_of(live.run_id)
                if live.reading is Reading.ONCE:
                    return
        finally:
            live.reading = None

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
        program = live.program
        try:
            if live.owned.has_begun_before:
                program.replay(history)
            program.begin(live.owned.arguments)
            live.owned.arguments = None
            for event in history:
                self._redeliver(live, event)
            # Up to here, what it waits for included, somebody has been before.
            program.is_replaying = False
        except Exception as error:  # noqa: BLE001 - told apart, held or logged there
            self._give_up(live, error)
        else:
            if history:
                self._mind_deadline(live)
            self._settle(live, None)

    def _mind_deadline(self, live: LiveRun) -> None:
        """A run that was asked to stop, by a history, goes on having to end by then."""
        cancelled = live.program.cancelled
        if cancelled is not None and cancelled.close_at is not None:
            live.close_at = cancelled.close_at
            self._effects.end_by(live, cancelled.close_at)

    async def _replay_in_slices(self, live: LiveRun, history: list[Event]) -> None:
        """A long history, with pauses in which other runs go on."""
        if self._settings.replay_always:
            live.history = history
        live.is_leaving = live.is_replaying = True
        program = live.program
        try:
            program.replay(history)
            program.begin()
            for number, event in enumerate(history):
                self._redeliver(live, event)
                if number % REPLAY_SLICE == 0:
                    await asyncio.sleep(0)
                    if live.is_gone or self._is_stopping or program.loop.is_dead:
                        return
            program.is_replaying = False
        except Exception as error:  # noqa: BLE001 - told apart, held or logged there
            self._give_up(live, error)
        else:
            live.is_leaving = live.is_replaying = False
            self._mind_deadline(live)
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
            if live.deferred is None:
                live.deferred = []
            live.deferred.append(command)
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
        except Exception as error:  # noqa: BLE001 - told apart, held or logged there
            self._give_up(live, error)
        else:
            return True
        return False

    def _rebuild(self, live: LiveRun, event: Event) -> None:
        """Throw the program away and replay a new one, up to but not including the event."""
        live.program.evict()
        program = live.program = live.new_program()
        program.replay([*(live.history or ()), event])
        program.begin()
        for earlier in live.history or ():
            self._redeliver(live, earlier)
        program.is_replaying = False
        live.history = [*(live.history or ()), event]

    def _settle(self, live: LiveRun, advance: Advance | None) -> None:
        """After a drain: note what was said, do what messages ask for, close the run, or start what it asked for."""
        while True:
            program = live.program
            if program.asides is not None:
                # Before any further event: a replay up to there must know of it.
                advance = self._take_asides(live, advance)
            if program.abandoned:
                self._effects.call_off(live)
            if program.is_done:
                self._close(live)
                return
            if live.inbox is None or not live.inbox.unread:
                break
            read = self._read(live, live.inbox)
            if read is Read.ENDED:
                return
            if read is Read.NOTHING:
                break
            # What the last event made the program ask for starts with this one's effects.
            advance = read if isinstance(read, Advance) else advance
        live.is_noted = False
        if program.fresh:
            fresh, program.fresh = program.fresh, []
            if advance is None:
                self._effects.start(live, fresh)
            else:
                advance.then(self._effects.start, live, fresh)

    def _read(self, live: LiveRun, inbox: Inbox) -> "Advance | Read":
        """One message: a request to stop before all others, else the oldest that somebody waits for."""
        stop = inbox.take_stop()
        if stop is not None:
            return self._stop(live, stop)
        inbox.look_for(live.program.fresh)
        wanted = inbox.take_wanted(live.program)
        if inbox.misfits:
            self._set_aside(live, inbox)
        if wanted is None:
            return Read.NOTHING
        received = self._engine.advance(live.owned, wanted)
        return received if isinstance(received, Advance) and self._deliver(live, received) else Read.ENDED

    def _set_aside(self, live: LiveRun, inbox: Inbox) -> None:
        """A payload that is not what the code waits for is somebody's mistake, and not the run's."""
        misfits, inbox.misfits = inbox.misfits, []
        for message, trouble in misfits:
            log.error(
                "run %r waits on: %s; the signal was set aside, send another one",
                live.owned.workflow_id,
                trouble,
                extra={"event": "signal_set_aside", "run_id": live.run_id},
            )
            self._engine.set_aside(live.owned, message)

    def _take_asides(self, live: LiveRun, advance: Advance | None) -> Advance | None:
        """Write down the changes the code came by, and show what it says of itself."""
        program = live.program
        asides, program.asides = program.asides, None
        assert asides is not None
        for change_id in asides.patches:
            noted = self._engine.advance(live.owned, TakeNote(Patched(change_id)))
            if isinstance(noted, Advance):
                advance = noted
                if live.history is not None:
                    live.history = [*live.history, noted.event]
        annotations = (program.attributes_text, program.step)
        if asides.is_annotated and annotations != live.annotated:
            live.annotated = annotations
            self._engine.annotate(live.owned, annotations[0] or "{}", annotations[1])
        return advance

    # Being stopped

    def _stop(self, live: LiveRun, message: Message) -> "Advance | Read":
        """Do what a request to stop asks for."""
        body = message.body
        if isinstance(body, TerminateRequest):
            self._end(live, RunTerminated(body.reason))
            return Read.ENDED
        assert isinstance(body, CancelRequest)
        if body.close_at is not None:
            if body.close_at <= self._clock.now():
                self._end(live, RunCancelled(body.reason))
                return Read.ENDED
            live.close_at = min(body.close_at, live.close_at or body.close_at)
            self._effects.end_by(live, body.close_at)
        if live.program.cancelled is not None:
            # Asked once is enough: whoever cleans up must not be disturbed. Only the end may come sooner.
            return Read.DONE
        noted = self._engine.advance(live.owned, TakeNote(CancelRequested(body.reason, body.close_at), message))
        return noted if isinstance(noted, Advance) and self._deliver(live, noted) else Read.ENDED

    def _expire(self, live: LiveRun) -> None:
        """The run's time may be over: that of its timeout, or that for its clean-up."""
        if live.is_gone or (live.is_leaving and not live.is_replaying):
            return
        now, cancelled = self._clock.now(), live.program.cancelled
        if live.close_at is not None and live.close_at <= now:
            self._end(live, RunCancelled(live.close_reason if cancelled is None else cancelled.reason))
        elif live.deadline is not None and live.deadline <= now:
            timeout = (live.owned.traits.timeout_ms or 0) / 1000
            self._end(live, RunTimedOut(f"it took longer than its timeout of {timeout:g} s"))

    def _close(self, live: LiveRun) -> None:
        end = live.program.end()
        if live.program.fresh:
            self._effects.start_abandoned(live, live.program.fresh)
        if isinstance(end, ContinueAsNew):
            self._continue(live, end.call.arguments[0].decode())
        else:
            self._end(live, end)

    def _continue(self, live: LiveRun, input: str) -> None:
        """Close the run, and start the one that goes on in its place."""
        owned, program = live.owned, live.program
        traits = msgspec.structs.replace(
            owned.traits, attributes=program.attributes_text, continued_from=owned.run_id, delayed_until=None
        )
        request = StartRequest(owned.workflow, input, owned.workflow_id, owned.queue, owned.priority, traits=traits)
        self._engine.continue_run(owned, request)
        live.is_leaving = True
        program.evict()

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
        self._read_inbox(live)
        for command in deferred:
            self._advance(live, command)
        self._expire(live)
        if not live.is_leaving:
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

    def _give_up(self, live: LiveRun, error: Exception) -> None:
        """The run cannot be moved: its code does not fit, never waits, or something is wrong with us."""
        match error:
            case Mismatch():
                self._hold(live, error)
            case NeverWaits():
                self._fail(live, error)
            case _:
                extra = {"event": "run_broken", "run_id": live.run_id}
                log.error("a run could not go on", exc_info=error, extra=extra)
                self.broken(live.run_id, f"{type(error).__name__}: {error}")

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
