"""Holding runs: those that cannot go on, or that somebody paused, are stopped, visibly, until a person acts.

In:   live runs, and what is wrong with them; requests to pause and to go on.
Out:  held runs, with a report; nothing of their code is left in memory.
"""

import logging
import shlex
from collections import deque
from collections.abc import Callable

import msgspec

from perdure.engine.held import tell_unreadable
from perdure.engine.ports import Advance, Engine, Hold, Pause
from perdure.errors import RunUnreadable
from perdure.kernel.events import ResultGiven
from perdure.kernel.messages import CancelRequest, Message, PauseRequest
from perdure.stores import rows
from perdure.worker.calls.call import Mismatch, PausedRun
from perdure.worker.effects import Effects
from perdure.worker.inbox import PAUSED, STOP
from perdure.worker.live_run import LiveRun, LiveRuns
from perdure.worker.outputs.snapshots import Snapshots

log = logging.getLogger("perdure.worker")

REMEDY = (
    "bring back the code that wrote this history, or tell old runs from new with patched(), and restart the worker; "
    "or give the run up with `perdure terminate {id}`"
)

# Of a run whose own start does not fit, and of one with a result given by hand: what to do besides.
OTHER_INPUT = "to begin it with other arguments, `perdure fork {id} --at 1 --id NEW --input JSON`; "
OTHER_RESULT = (
    "to give another result, fork it before that: `perdure fork {id} --at {seq} --id NEW --result PLACE=JSON`; "
)


class Holding:
    """Holds live runs."""

    def __init__(self, engine: Engine, runs: LiveRuns) -> None:
        self._owner = engine.owner
        self._runs = runs

    def mismatch(self, live: LiveRun, mismatch: Mismatch) -> None:
        """The code does not fit the history: stop the run, with both sides in the report."""
        log.error(
            "run %r of %s is held: %s; bring back the code that wrote its history and restart (`perdure show %s`)",
            live.owned.workflow_id,
            live.workflow.name,
            mismatch,
            live.owned.workflow_id,
            extra={"event": "run_held", "run_id": live.run_id, "reason": "mismatch"},
        )
        self._hold(live, Hold("mismatch", _report(live, mismatch)))

    def broken(self, run_id: str, trouble: str) -> None:
        """The database will not take this run's event: stop the run, visibly."""
        live = self._runs.by_id.get(run_id)
        if live is None:
            return
        log.error(
            "run %r is held: %s", live.owned.workflow_id, trouble, extra={"event": "run_held", "run_id": live.run_id}
        )
        remedy = f"when the cause is mended, `perdure resume {live.owned.workflow_id}`"
        self._hold(live, Hold("quarantine", msgspec.json.encode({"trouble": trouble, "remedy": remedy}).decode()))

    def unreadable(self, error: RunUnreadable) -> None:
        """What came for this run cannot be read: stop the run, for nothing behind it may be taken before it."""
        live = self._runs.by_id.get(error.run_id)
        # One that is being let go of is read again, by its next owner or when it stays after all.
        if live is None or (live.is_leaving and not live.is_replaying):
            return
        id = live.owned.workflow_id
        tell_unreadable(RunUnreadable(error.url, error.run_id, id, error.trouble))
        self._hold(live, Hold("quarantine", rows.held_report(error.trouble, id)))

    def _hold(self, live: LiveRun, how: Hold) -> None:
        live.is_leaving = True
        self._owner.release(live.owned, how, lambda _: None)
        self._runs.evict(live)


class Pausing:
    """Keeps runs that are to be paused from beginning anything, and holds them once nothing of them is under way.

    What is under way ends and is recorded: the code goes on with it as far as it can without beginning anything.
    `held` is told what became of holding a run.
    """

    def __init__(self, engine: Engine, effects: Effects, snapshots: Snapshots) -> None:
        self._owner = engine.owner
        self._clock = engine.clock
        self._effects = effects
        self._snapshots = snapshots
        self.held: Callable[[LiveRun, bool], None] = lambda _live, _is_gone: None

    def ask(self, live: LiveRun, message: Message, body: PauseRequest) -> None:
        """A run is to be paused; asked once more, for another reason."""
        assert live.inbox is not None
        if live.pause is None:
            live.pause = PausedRun()
            live.begins_nothing = True
            live.inbox.unread[PAUSED] = deque()
        live.pause.reason = body.reason
        live.pause.taken.append(message.number)

    def take_back(self, live: LiveRun, message: Message) -> None:
        """A run is to go on that was not held yet: begin what was put off."""
        pause, live.pause = live.pause, None
        numbers = [message.number] if pause is None else [*pause.taken, message.number]
        self._owner.set_aside(live.owned, *numbers)
        if pause is None:
            return
        assert live.inbox is not None
        live.begins_nothing = False
        live.inbox.unread.pop(PAUSED, None)
        runtime = live.program.runtime
        for place, is_rung in pause.put_off.items():
            call = runtime.pending.get(place)
            if call is not None and is_rung:
                self._effects.ring_at(self._clock.now(), live, call)
            elif call is not None:
                runtime.fresh.append(call)

    def cancelled_by(self, live: LiveRun) -> CancelRequest | None:
        """The request to stop with the earliest deadline among those that wait until the run goes on."""
        assert live.inbox is not None
        waiting = (message.body for message in live.inbox.unread.get(STOP, ()))
        dated = [body for body in waiting if isinstance(body, CancelRequest) and body.close_at is not None]
        return min(dated, key=lambda body: body.close_at or 0, default=None)

    def settle(self, live: LiveRun, advance: Advance | None) -> None:
        """After a drain of a run that is to be paused: put off what the code asked for, and hold the run if it can be.

        Put off is what could begin: what made the code ask for it is on disk.
        """
        runtime = live.program.runtime
        fresh, runtime.fresh = runtime.fresh, []
        live.is_noted = False
        if advance is None:
            self._effects.start(live, fresh)
        else:
            advance.then(self._effects.start, live, fresh)
        self.hold_if_quiet(live)

    def hold_if_quiet(self, live: LiveRun) -> None:
        """Hold a run that is to be paused, unless something is under way; it is looked at again when that ends."""
        pause = live.pause
        if pause is None or live.is_leaving or live.is_committing or live.is_gone:
            return
        if live.running or live.starting or live.owned.begins:
            return
        if live.program.runtime.exposed is not None:
            self._snapshots.take(live)
        live.note_undo(self._owner)
        self._owner.note_waiting(live.owned, live.waiting())
        live.is_leaving = True
        id = live.owned.workflow_id
        how = Pause(rows.paused_report(id, pause.reason), rows.paused_with(id), tuple(pause.taken))
        self._owner.release(live.owned, how, lambda is_gone: self.held(live, is_gone))


def _report(live: LiveRun, mismatch: Mismatch) -> str:
    event = mismatch.event
    id = shlex.quote(live.owned.workflow_id)
    before = ""
    if event is None:
        before = OTHER_INPUT.format(id=id)
    elif isinstance(event.fact, ResultGiven):
        before = OTHER_RESULT.format(id=id, seq=event.seq - 1)
    return msgspec.json.encode(
        {
            "trouble": mismatch.trouble,
            "workflow": live.workflow.name,
            "history": None if event is None else {"seq": event.seq, "kind": event.kind, "place": event.place},
            "code_waits_at": mismatch.waiting,
            "remedy": before + REMEDY.format(id=id),
        }
    ).decode()
