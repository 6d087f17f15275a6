"""The executor: moves live runs on, one fact at a time.

In:   steps of live runs, messages in their inboxes.
Out:  commands to the engine; after each commit, the effects that were asked for; ends.

One thing happens to a run at a time: a fact becomes an event, the event is handed
to the program, the program is drained, and what it asked for waits for the commit.
Knows nothing of claims, room and parking; the worker does.
"""

import asyncio
import logging
from enum import Enum
from itertools import groupby

import msgspec

from perdure.authoring.calls import ContinueAsNew
from perdure.engine.background import Background
from perdure.engine.ports import Advance, Engine, HandBack, Published, StartRequest
from perdure.kernel import events
from perdure.kernel.commands import CloseRun, TakeNote
from perdure.kernel.events import CancelRequested, Event, Patched, RunCancelled, RunTerminated, TimeoutReached
from perdure.kernel.messages import CancelRequest, Message, PauseRequest, RequestSent, ResumeRequest, TerminateRequest
from perdure.kernel.requests import Refused
from perdure.kernel.run import timed_out
from perdure.worker.activities import ActivityRunner
from perdure.worker.calls.call import UNRESTORED, DurableCall, Mismatch
from perdure.worker.effects import Effects
from perdure.worker.failures.failures import failure_of
from perdure.worker.held import Holding, Pausing
from perdure.worker.inbox import MESSAGES_SLICE, Inbox
from perdure.worker.live_run import LiveRun, LiveRuns, Step
from perdure.worker.loop.exits import EXITS
from perdure.worker.loop.loop import NeverWaits
from perdure.worker.loop.undo import NOTHING, UNKNOWN, WAITING
from perdure.worker.outputs.snapshots import Snapshots
from perdure.worker.suspects import Suspects

log = logging.getLogger("perdure.worker")

# How many turns of the loop others have before a run goes on that has much to catch up with: a step takes several.
TURNS = 4


class Read(Enum):
    """What came of looking into an inbox, when it was not an event."""

    NOTHING = "nothing in it that a call waits for"
    PAUSED = "the run is to be paused, and takes nothing"
    DONE = "a message that changed nothing"
    ENOUGH = "so much of it was read that others are to go on first"
    ENDED = "the run is not to be moved any more"


ENDS = (Read.ENDED, Read.PAUSED)


class WorkerSettings(msgspec.Struct, frozen=True):
    """How a worker works. `replay_always` replays every run from its history at every step (for tests)."""

    queues: tuple[str, ...] = ("default",)
    max_live: int = 10_000
    max_threads: int = 64
    park_after_ms: int = 10_000
    replay_always: bool = False


class Executor:
    """Moves the runs that live in this process."""

    def __init__(
        self,
        engine: Engine,
        settings: WorkerSettings,
        runs: LiveRuns,
        holding: Holding,
        suspects: Suspects,
        background: Background,
    ) -> None:
        self._owner = engine.owner
        self._outputs = engine.outputs
        self._clock = engine.clock
        self.replays_always = settings.replay_always
        self.runs = runs
        self.suspects = suspects
        self.background = background
        self._holding = holding
        self.runner = ActivityRunner(self._clock, settings.max_threads)
        self.snapshots = Snapshots(engine)
        self.effects = Effects(engine, self.runner, self.advance, self.fail, self.expire, self.settle, self)
        self.pausing = Pausing(engine, self.effects, self.snapshots)

    # One fact at a time

    def advance(self, live: LiveRun, command: Step, restored: object = UNRESTORED) -> None:
        """Turn a fact into an event, hand it to the program, and see what it wants next."""
        if live.is_gone:
            return
        if live.is_leaving or live.is_committing:
            if live.deferred is None:
                live.deferred = []
            live.deferred.append(command)
            return
        waiting = live.program.pending.get(command.place)
        if waiting is None or not waiting.is_waiting:
            # Nobody waits for it any more: a fact without a taker is not written.
            return
        advance = self._owner.advance(live.owned, command)
        if not isinstance(advance, Advance):
            log.error("an advance was refused: %r", advance, extra={"event": "refused", "run_id": live.run_id})
            return
        if self._deliver(live, advance.event, restored):
            self.settle(live, advance)
            if live.under_way is not None:
                self.suspects.see(live)

    def _deliver(self, live: LiveRun, event: Event, restored: object = UNRESTORED) -> bool:
        """Hand an event to the program; False when that was the end of it."""
        try:
            if self.replays_always:
                live.rebuild(event)
                restored = UNRESTORED
            live.program.deliver(event, restored)
        except (Exception, *EXITS) as error:  # noqa: BLE001 - told apart, held or logged there
            self.give_up(live, error)
        else:
            return True
        return False

    def settle(self, live: LiveRun, advance: Advance | None) -> None:  # noqa: C901 - one call for every step
        """After a drain: note what was said, do what messages ask for, close the run, or start what it asked for."""
        while True:
            program = live.program
            runtime, main = program.runtime, program.main
            if runtime.asides is not None:
                # Before any further event: a replay up to there must know of it.
                advance = self._take_asides(live, advance)
            if runtime.given_up:
                self.effects.cancel(live)
            is_over = main is not None and main.done() and (runtime.undos is None or not runtime.undos.is_unwinding)
            if is_over and live.pause is None:
                self._close(live)
                return
            inbox = live.inbox
            if inbox is None or not (inbox.unread if inbox.delayed is None else self.effects.release_due(live, inbox)):
                break
            read = self._read(live, inbox)
            if read is Read.PAUSED:
                self.pausing.settle(live, advance)
            if read in ENDS or (read is Read.ENOUGH and self._rests(live, inbox, advance)):
                return
            if read is Read.NOTHING:
                break
            # What the last event made the program ask for starts with this one's effects.
            advance = read if isinstance(read, Advance) else advance
        live.is_noted = False
        if runtime.exposed is not None:
            self.snapshots.moved(live)
        if runtime.fresh:
            fresh, runtime.fresh = runtime.fresh, []
            if advance is None:
                self.effects.start(live, fresh)
            else:
                advance.then(self.effects.start, live, fresh)

    def _read(self, live: LiveRun, inbox: Inbox) -> "Advance | Read":
        """One message: a request to stop before all others, else the oldest that a call waits for."""
        inbox.look_for(live.program.runtime.fresh)
        if inbox.is_resting or inbox.in_a_row >= MESSAGES_SLICE:
            return Read.NOTHING if inbox.is_resting else Read.ENOUGH
        stop = inbox.take_stop()
        if stop is not None:
            return self._stop(live, stop)
        if live.pause is not None:
            return self._stays_paused(live)
        wanted = inbox.take_wanted(live.program.runtime)
        if inbox.misfits:
            self._set_aside(live, inbox)
            return Read.DONE
        if wanted is None:
            return Read.NOTHING
        received = self._owner.advance(live.owned, wanted)
        return received if isinstance(received, Advance) and self._deliver(live, received.event) else Read.ENDED

    def _rests(self, live: LiveRun, inbox: Inbox, advance: Advance | None) -> bool:
        """Stop to read until what was read is on disk and others have had their turn; answers that it has stopped."""
        inbox.is_resting = True
        live.is_noted = False
        runtime = live.program.runtime
        fresh, runtime.fresh = runtime.fresh, []
        if advance is None:
            self._start_and_read_on(live, fresh)
        else:
            advance.then(self._start_and_read_on, live, fresh)
        return True

    def _start_and_read_on(self, live: LiveRun, fresh: list[DurableCall]) -> None:
        self.effects.start(live, fresh)
        self.background.spawn(self._read_on(live))

    async def _read_on(self, live: LiveRun) -> None:
        await others_had_their_turn()
        assert live.inbox is not None
        live.inbox.is_resting = False
        live.inbox.in_a_row = 0
        if not live.is_leaving and not live.is_committing and not self.runs.is_interrupted(live):
            self.settle(live, None)

    def _set_aside(self, live: LiveRun, inbox: Inbox) -> None:
        """A payload that is not what the code waits for is its sender's mistake, and not the run's.

        The caller of a request hears of it.
        """
        misfits, inbox.misfits = inbox.misfits, []
        for message, trouble in misfits:
            if isinstance(message.body, RequestSent):
                self._owner.answer(live.owned, {message.message_id: Refused(trouble)}, message)
                continue
            log.error(
                "run %r waits on: %s; the signal was set aside, send another one",
                live.owned.workflow_id,
                trouble,
                extra={"event": "signal_set_aside", "run_id": live.run_id},
            )
            self._owner.set_aside(live.owned, message.number)

    def _take_asides(self, live: LiveRun, advance: Advance | None) -> Advance | None:
        """Write down the changes the code came by, and show what it says of itself."""
        runtime = live.program.runtime
        asides, runtime.asides = runtime.asides, None
        assert asides is not None
        for change_id in asides.patches:
            noted = self._owner.advance(live.owned, TakeNote(Patched(change_id)))
            if isinstance(noted, Advance):
                advance = noted
                if live.history is not None:
                    live.history = [*live.history, noted.event]
        if runtime.undos is not None and WAITING not in (live.undo_noted or ""):
            live.undo_noted = UNKNOWN
            self._owner.note_undo(live.owned, UNKNOWN)
        if asides.published:
            self._publish(live, asides.published)
        if asides.is_annotated and (annotations := (runtime.attributes_text, runtime.step)) != live.annotated:
            self._owner.annotate(live.owned, annotations[1], live.attributes_changed(annotations[0]))
            live.annotated = annotations
        if asides.answers:
            self._owner.answer(live.owned, asides.answers)
        return advance

    def _publish(self, live: LiveRun, values: list[tuple[str, int, str]]) -> None:
        """Write what the code has published: a row of values for each stream it goes to, in the order they came."""
        owned = live.owned
        known = owned.published = owned.published or {}
        published: list[Published] = []
        for (name, at), of_stream in groupby(values, lambda value: value[:2]):
            bodies = tuple(body for _, _, body in of_stream)
            known[name] = known.get(name, 0) + len(bodies)
            published.append(Published(owned.run_id, name, bodies, at=at))
        self._outputs.publish(owned, published)

    # Transactions of activities

    def deliver_written(self, live: LiveRun, event: Event, restored: object) -> None:
        """Go on with an event that is on disk already, and then with what was put aside meanwhile."""
        live.is_committing = False
        if live.is_gone:
            return
        if self._deliver(live, event, restored):
            self.settle(live, None)
            if live.under_way is not None:
                self.suspects.see(live)
        self.go_on(live)

    def go_on(self, live: LiveRun) -> None:
        """Do what was put aside while a transaction was being committed."""
        live.is_committing = False
        deferred, live.deferred = live.deferred or (), None
        for command in deferred:
            self.advance(live, command)
        self.expire(live)
        if not live.is_gone and not live.is_leaving:
            self.settle(live, None)

    # Being stopped, and ending

    def _stop(self, live: LiveRun, message: Message) -> "Advance | Read":
        """Do what a request to stop asks for."""
        body = message.body
        if isinstance(body, TerminateRequest):
            self._end(live, RunTerminated(body.reason))
            return Read.ENDED
        if isinstance(body, PauseRequest):
            self.pausing.ask(live, message, body)
            return Read.DONE
        if isinstance(body, ResumeRequest):
            self.pausing.take_back(live, message)
            return Read.DONE
        assert isinstance(body, CancelRequest)
        if self._is_to_end(live, body):
            return Read.ENDED
        if live.program.is_ending:
            # Asked once is enough: code that cleans up must not be disturbed. Only the end may come sooner.
            return Read.DONE
        noted = self._owner.advance(live.owned, TakeNote(CancelRequested(body.reason, body.close_at), message))
        return noted if isinstance(noted, Advance) and self._deliver(live, noted.event) else Read.ENDED

    def _is_to_end(self, live: LiveRun, cancel: CancelRequest) -> bool:
        """Heed the deadline of a request to stop, if it has one; answers whether it is over, and the run has ended."""
        if cancel.close_at is None:
            return False
        if cancel.close_at <= self._clock.now():
            self._end(live, RunCancelled(cancel.reason))
            return True
        live.close_at = min(cancel.close_at, live.close_at or cancel.close_at)
        live.close_reason = live.close_reason or cancel.reason
        self.effects.end_by(live, cancel.close_at)
        return False

    def _stays_paused(self, live: LiveRun) -> Read:
        """A run that is to be paused takes no message; of a request to stop only the deadline is heeded."""
        cancel = self.pausing.cancelled_by(live)
        is_new = cancel is not None and (live.close_at is None or (cancel.close_at or 0) < live.close_at)
        return Read.ENDED if cancel is not None and is_new and self._is_to_end(live, cancel) else Read.PAUSED

    def expire(self, live: LiveRun) -> None:
        """The run's time may be over: that of its timeout, or that for its clean-up."""
        if live.is_gone or live.is_committing or (live.is_leaving and not live.is_replaying):
            return
        now, cancelled = self._clock.now(), live.program.runtime.cancelled
        if live.close_at is not None and live.close_at <= now:
            self._end(live, RunCancelled(live.close_reason if cancelled is None else cancelled.reason))
        elif live.deadline is not None and live.deadline <= now:
            self._time_out(live)

    def _time_out(self, live: LiveRun) -> None:
        """End a run whose timeout is over, or have it undo first what it has done."""
        if live.is_replaying:
            # What there is to undo is known when the code has caught up; it is looked again then.
            return
        end = timed_out(live.owned.traits.timeout_ms)
        if live.has_undos:
            self._reach_timeout(live, TimeoutReached(end.reason))
        else:
            self._end(live, end)

    def _reach_timeout(self, live: LiveRun, reached: TimeoutReached) -> None:
        """Tell the code that its time is over, for what it has done is undone before the run ends."""
        noted = self._owner.advance(live.owned, TakeNote(reached))
        if isinstance(noted, Advance) and self._deliver(live, noted.event):
            self.settle(live, noted)

    def _close(self, live: LiveRun) -> None:
        end = live.program.end()
        if live.program.runtime.fresh:
            self.effects.start_outliving(live, live.program.runtime.fresh)
        if isinstance(end, ContinueAsNew):
            self._continue(live, end.call.arguments[0].decode())
        else:
            self._end(live, end)

    def _continue(self, live: LiveRun, input: str) -> None:
        """Close the run, and start the one that goes on in its place."""
        owned, program = live.owned, live.program
        traits = msgspec.structs.replace(
            owned.traits, attributes=program.runtime.attributes_text, continued_from=owned.run_id, delayed_until=None
        )
        request = StartRequest(owned.workflow, input, owned.workflow_id, owned.queue, owned.priority, traits=traits)
        self.snapshots.take(live)
        self._owner.continue_run(owned, request)
        live.is_leaving = True
        program.evict()

    def fail(self, live: LiveRun, error: Exception) -> None:
        self._end(live, events.RunFailed(failure_of(error)))

    def _end(self, live: LiveRun, end: events.Closing) -> None:
        undos, undo = live.program.runtime.undos, None
        # Of a run that has ended well, what waits is of no interest any more.
        if (
            undos is not None
            and not live.is_replaying
            and (undos.has_undone or not isinstance(end, events.RunCompleted))
        ):
            undo = undos.text() or NOTHING
        if live.program.runtime.exposed is not None:
            self.snapshots.take(live)
        self._owner.advance(live.owned, CloseRun(end, undo))
        live.is_leaving = True
        live.program.evict()

    def give_up(self, live: LiveRun, error: BaseException) -> None:
        """The run cannot be moved: its code does not fit, never waits, or something is wrong with us."""
        match error:
            case Mismatch():
                self._holding.mismatch(live, error)
            case NeverWaits():
                self.fail(live, error)
            case SystemExit() | KeyboardInterrupt():
                # A signal struck this run by chance, half-way through a step: its next owner replays it.
                self._owner.release(live.owned, HandBack(), lambda _: None)
                self.runs.evict(live)
                raise error
            case _:
                extra = {"event": "run_broken", "run_id": live.run_id}
                log.error("a run could not go on", exc_info=error, extra=extra)
                self._holding.broken(live.run_id, f"{type(error).__name__}: {error}")


async def others_had_their_turn() -> None:
    """Until the loop has turned a few times."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
