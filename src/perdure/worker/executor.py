"""Moving runs on: a fact at a time, live and from their histories.

In:   steps of live runs, messages in their inboxes, histories.
Out:  commands to the engine; after each commit, the effects that were asked for; ends.

One thing happens to a run at a time: a fact becomes an event, the event is handed
to the program, the program is drained, and what it asked for waits for the commit.
Knows nothing of claims, room and parking; the worker does.
"""

import asyncio
import logging
import shlex
from abc import abstractmethod
from collections.abc import Coroutine
from enum import Enum
from typing import Any

import msgspec

from perdure.authoring.calls import ContinueAsNew
from perdure.engine.held import tell_unreadable
from perdure.engine.ports import Advance, Engine, HandBack, Hold, StartRequest
from perdure.errors import RunUnreadable
from perdure.kernel import events
from perdure.kernel.commands import CloseRun, TakeNote
from perdure.kernel.events import CancelRequested, Event, Patched, RunCancelled, RunTerminated
from perdure.kernel.messages import CancelRequest, Message, TerminateRequest
from perdure.kernel.overdue import timed_out
from perdure.kernel.quarantine import is_suspect
from perdure.stores import rows
from perdure.worker.activities import ActivityRunner
from perdure.worker.calls.pending import Pending
from perdure.worker.effects import Effects
from perdure.worker.failures.failures import failure_of
from perdure.worker.live_run import MESSAGES_SLICE, Inbox, LiveRun, Step
from perdure.worker.loop.exits import EXITS
from perdure.worker.loop.loop import NeverWaits
from perdure.worker.program import UNRESTORED, Mismatch

log = logging.getLogger("perdure.worker")

REMEDY = (
    "bring back the code that wrote this history, or tell old runs from new with patched(), and restart the worker; "
    "or give the run up with `perdure terminate {id}`"
)
# How many events are replayed in one go, and for how long, since one may let the code do much.
REPLAY_SLICE, REPLAY_SLICE_MS = 200, 5
# How many turns of the loop others have before a run goes on that has much to catch up with: a step takes several.
TURNS = 4


class Read(Enum):
    """What came of looking into an inbox, when it was not an event."""

    NOTHING = "nothing in it that anybody waits for"
    DONE = "a message that changed nothing"
    ENOUGH = "so much of it was read that others are to go on first"
    ENDED = "the run is not to be moved any more"


class WorkerSettings(msgspec.Struct, frozen=True):
    """How a worker works. `replay_always` replays every run from its history at every step (for tests)."""

    queues: tuple[str, ...] = ("default",)
    max_live: int = 10_000
    max_threads: int = 64
    park_after_ms: int = 10_000
    replay_always: bool = False


class Mover:
    """Moves the runs that live in this process."""

    def __init__(self, engine: Engine, settings: WorkerSettings) -> None:
        self._owner = engine.owner
        self._clock = engine.clock
        self._settings = settings
        self._live: dict[str, LiveRun] = {}
        self._runner = ActivityRunner(self._clock, settings.max_threads)
        self._effects = Effects(engine, self._runner, self._advance, self._fail, self._expire)
        self._is_stopping = False
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    def drop(self, live: LiveRun) -> None:
        """Forget a run, and leave nothing of its code in memory."""

    @abstractmethod
    def _has_caught_up(self, live: LiveRun) -> None:
        """A run that was lost is where it was then."""

    @abstractmethod
    def _see(self, live: LiveRun) -> None:
        """A run that was lost, with calls under way, has gone a step on."""

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Bringing runs to life

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
            self._catch_up(live)
        except (Exception, *EXITS) as error:  # noqa: BLE001 - told apart, held or logged there
            self._give_up(live, error)
        else:
            self._go_on_live(live)

    async def _replay_in_slices(self, live: LiveRun, history: list[Event]) -> None:
        """A long history, with pauses in which other runs go on."""
        if self._settings.replay_always:
            live.history = history
        program = live.program
        try:
            program.replay(history)
            program.begin()
            until = self._clock.monotonic() + REPLAY_SLICE_MS
            for number, event in enumerate(history):
                self._redeliver(live, event)
                if number % REPLAY_SLICE == 0 or self._clock.monotonic() >= until:
                    program.forget_answered()
                    await others_had_their_turn()
                    if self._is_interrupted(live):
                        return
                    until = self._clock.monotonic() + REPLAY_SLICE_MS
            self._catch_up(live)
        except (Exception, *EXITS) as error:  # noqa: BLE001 - told apart, held or logged there
            self._give_up(live, error)
        else:
            live.is_leaving = live.is_replaying = False
            self._go_on_live(live)

    def _go_on_live(self, live: LiveRun) -> None:
        """Start what the code waits for; of a suspect it is written down first, for it may be its last words."""
        if live.under_way is None or not is_suspect(live.losses):
            self._settle(live, None)
            return

        def go_on() -> None:
            if not self._is_interrupted(live):
                live.is_leaving = live.is_replaying = False
                self._settle(live, None)

        live.is_leaving = live.is_replaying = True
        self._owner.note_waiting(live.owned, live.waiting(), go_on)

    def _is_interrupted(self, live: LiveRun) -> bool:
        """Whether a run was ended or let go of while it was being brought back."""
        return live.is_gone or self._is_stopping or live.program.loop.is_dead

    def _catch_up(self, live: LiveRun) -> None:
        """Up to here, what it waits for included, somebody has been before."""
        live.program.is_replaying = False
        if live.losses:
            self._has_caught_up(live)

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
        advance = self._owner.advance(live.owned, command)
        if not isinstance(advance, Advance):
            log.error("an advance was refused: %r", advance, extra={"event": "refused", "run_id": live.run_id})
            return
        if self._deliver(live, advance, restored):
            self._settle(live, advance)
            if live.under_way is not None:
                self._see(live)

    def _deliver(self, live: LiveRun, advance: Advance, restored: object = UNRESTORED) -> bool:
        """Hand an event to the program; False when that was the end of it."""
        try:
            if self._settings.replay_always:
                self._rebuild(live, advance.event)
                restored = UNRESTORED
            live.program.deliver(advance.event, restored)
        except (Exception, *EXITS) as error:  # noqa: BLE001 - told apart, held or logged there
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
            inbox = live.inbox
            if inbox is None or not inbox.unread:
                break
            read = self._read(live, inbox)
            if read is Read.ENDED or (read is Read.ENOUGH and self._rests(live, inbox, advance)):
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
        inbox.look_for(live.program.fresh)
        if inbox.is_resting or inbox.in_a_row >= MESSAGES_SLICE:
            return Read.NOTHING if inbox.is_resting else Read.ENOUGH
        stop = inbox.take_stop()
        if stop is not None:
            return self._stop(live, stop)
        wanted = inbox.take_wanted(live.program)
        if inbox.misfits:
            self._set_aside(live, inbox)
            return Read.DONE
        if wanted is None:
            return Read.NOTHING
        received = self._owner.advance(live.owned, wanted)
        return received if isinstance(received, Advance) and self._deliver(live, received) else Read.ENDED

    def _rests(self, live: LiveRun, inbox: Inbox, advance: Advance | None) -> bool:
        """Stop to read until what was read is on disk and others have had their turn; answers that it has stopped."""
        inbox.is_resting = True
        live.is_noted = False
        fresh, live.program.fresh = live.program.fresh, []
        if advance is None:
            self._start_and_read_on(live, fresh)
        else:
            advance.then(self._start_and_read_on, live, fresh)
        return True

    def _start_and_read_on(self, live: LiveRun, fresh: list[Pending]) -> None:
        self._effects.start(live, fresh)
        self._spawn(self._read_on(live))

    async def _read_on(self, live: LiveRun) -> None:
        await others_had_their_turn()
        assert live.inbox is not None
        live.inbox.is_resting = False
        live.inbox.in_a_row = 0
        if not live.is_leaving and not self._is_interrupted(live):
            self._settle(live, None)

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
            self._owner.set_aside(live.owned, message)

    def _take_asides(self, live: LiveRun, advance: Advance | None) -> Advance | None:
        """Write down the changes the code came by, and show what it says of itself."""
        program = live.program
        asides, program.asides = program.asides, None
        assert asides is not None
        for change_id in asides.patches:
            noted = self._owner.advance(live.owned, TakeNote(Patched(change_id)))
            if isinstance(noted, Advance):
                advance = noted
                if live.history is not None:
                    live.history = [*live.history, noted.event]
        annotations = (program.attributes_text, program.step)
        if asides.is_annotated and annotations != live.annotated:
            live.annotated = annotations
            self._owner.annotate(live.owned, annotations[0] or "{}", annotations[1])
        return advance

    # Being stopped, and ending

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
        noted = self._owner.advance(live.owned, TakeNote(CancelRequested(body.reason, body.close_at), message))
        return noted if isinstance(noted, Advance) and self._deliver(live, noted) else Read.ENDED

    def _expire(self, live: LiveRun) -> None:
        """The run's time may be over: that of its timeout, or that for its clean-up."""
        if live.is_gone or (live.is_leaving and not live.is_replaying):
            return
        now, cancelled = self._clock.now(), live.program.cancelled
        if live.close_at is not None and live.close_at <= now:
            self._end(live, RunCancelled(live.close_reason if cancelled is None else cancelled.reason))
        elif live.deadline is not None and live.deadline <= now:
            self._end(live, timed_out(live.owned.traits.timeout_ms))

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
        self._owner.continue_run(owned, request)
        live.is_leaving = True
        program.evict()

    def _fail(self, live: LiveRun, error: Exception) -> None:
        self._end(live, events.RunFailed(failure_of(error)))

    def _end(self, live: LiveRun, end: events.Closing) -> None:
        self._owner.advance(live.owned, CloseRun(end))
        live.is_leaving = True
        live.program.evict()

    # Giving up

    def _give_up(self, live: LiveRun, error: BaseException) -> None:
        """The run cannot be moved: its code does not fit, never waits, or something is wrong with us."""
        match error:
            case Mismatch():
                self._hold(live, error)
            case NeverWaits():
                self._fail(live, error)
            case SystemExit() | KeyboardInterrupt():
                # A signal struck this run by chance, half-way through a step: whoever has it next replays it.
                self._owner.release(live.owned, HandBack(), lambda _: None)
                self.drop(live)
                raise error
            case _:
                extra = {"event": "run_broken", "run_id": live.run_id}
                log.error("a run could not go on", exc_info=error, extra=extra)
                self.broken(live.run_id, f"{type(error).__name__}: {error}")

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
        self._owner.release(live.owned, Hold("mismatch", report), lambda _: None)
        self.drop(live)

    def broken(self, run_id: str, trouble: str) -> None:
        """The database will not take this run's event: stop the run, visibly."""
        live = self._live.get(run_id)
        if live is None:
            return
        log.error(
            "run %r is held: %s", live.owned.workflow_id, trouble, extra={"event": "run_held", "run_id": live.run_id}
        )
        remedy = f"when the cause is mended, `perdure resume {live.owned.workflow_id}`"
        report = msgspec.json.encode({"trouble": trouble, "remedy": remedy}).decode()
        live.is_leaving = True
        self._owner.release(live.owned, Hold("quarantine", report), lambda _: None)
        self.drop(live)

    def unreadable(self, error: RunUnreadable) -> None:
        """What came for this run cannot be read: stop the run, for nothing behind it may be taken before it."""
        live = self._live.get(error.run_id)
        # One that is being let go of is read again, by its next owner or when it stays after all.
        if live is None or (live.is_leaving and not live.is_replaying):
            return
        id = live.owned.workflow_id
        tell_unreadable(RunUnreadable(error.url, error.run_id, id, error.trouble))
        live.is_leaving = True
        self._owner.release(live.owned, Hold("quarantine", rows.held_report(error.trouble, id)), lambda _: None)
        self.drop(live)


async def others_had_their_turn() -> None:
    """Until the loop has turned a few times."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def _report(live: LiveRun, mismatch: Mismatch) -> str:
    event = mismatch.event
    return msgspec.json.encode(
        {
            "trouble": mismatch.trouble,
            "workflow": live.workflow.name,
            "history": None if event is None else {"seq": event.seq, "kind": event.kind, "place": event.place},
            "code_waits_at": mismatch.waiting,
            "remedy": REMEDY.format(id=shlex.quote(live.owned.workflow_id)),
        }
    ).decode()
