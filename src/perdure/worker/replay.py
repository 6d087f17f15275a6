"""Replay: brings runs to life, new ones and those that have a past.

In:   runs that are now this worker's, their histories, unread messages and failed attempts.
Out:  programs that are where they were, and go on live from there.
"""

from perdure.engine.ports import Engine
from perdure.kernel.events import Event
from perdure.kernel.quarantine import is_suspect
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN
from perdure.stores.records import LoadedRun
from perdure.worker import warnings
from perdure.worker.executor import Executor, others_had_their_turn
from perdure.worker.inbox import NOT_COUNTED, InboxReading
from perdure.worker.live_run import LiveRun
from perdure.worker.loop.exits import EXITS
from perdure.worker.messages import IncomingMessages

# How many events are replayed in one go, and for how long, since one may let the code do much.
REPLAY_SLICE, REPLAY_SLICE_MS = 200, 5


class Replay:
    """Runs code against its history, then lets it go on live."""

    def __init__(self, engine: Engine, executor: Executor, messages: IncomingMessages) -> None:
        self._owner = engine.owner
        self._clock = engine.clock
        self._executor = executor
        self._messages = messages
        # How many runs were brought back that had begun before.
        self.count = 0

    def bring_back(self, live: LiveRun, loaded: LoadedRun) -> None:
        """Give a run its past."""
        if loaded.row.losses:
            self._executor.suspects.bring_back(live, loaded.row)
        live.first_seq = live.owned.state.seq
        self.count += live.owned.has_begun_before
        live.is_long = len(loaded.events) >= warnings.LONG_HISTORY
        row = loaded.row
        live.annotated = (row.attributes if row.own_attributes is None else row.own_attributes, row.step)
        live.attributes_in_row = None if row.own_attributes is None else row.attributes
        live.undo_noted = loaded.row.undo
        live.children = set(loaded.children) or None
        if loaded.row.close_at is not None and loaded.row.close_as == Status.CANCELLED:
            live.close_at, live.close_reason = loaded.row.close_at, loaded.row.cancel_reason
            self._executor.effects.end_by(live, loaded.row.close_at)
        if loaded.unanswered:
            live.program.runtime.unanswered = loaded.unanswered
        for failed in loaded.attempts:
            live.add_failed(failed)
        for message in loaded.messages or ():
            live.add_message(message)
        if loaded.messages is not None and len(loaded.events) <= REPLAY_SLICE:
            self.replay(live, list(loaded.events))
            return
        # Before anything else can happen to it: what came for it in the meantime waits.
        live.is_leaving = live.is_replaying = True
        self._executor.background.spawn(self._bring_back_in_slices(live, loaded))

    async def _bring_back_in_slices(self, live: LiveRun, loaded: LoadedRun) -> None:
        """A run with a long past, or a full inbox, all of which is read before its code goes on."""
        if loaded.messages is None:
            live.owned.messages = NOT_COUNTED
            live.reading = InboxReading.ONCE
            await self._messages.read_until_calm(live)
        if not self._executor.runs.is_interrupted(live):
            await self._replay_in_slices(live, list(loaded.events))

    def replay(self, live: LiveRun, history: list[Event]) -> None:
        """Run the code against its history, then go on live."""
        if self._executor.replays_always:
            live.history = history
        program = live.program
        try:
            if live.owned.has_begun_before:
                program.replay(history)
            program.begin(live.owned.arguments)
            live.owned.arguments = None
            for event in history:
                program.redeliver(event)
            self._catch_up(live)
        except (Exception, *EXITS) as error:  # noqa: BLE001 - told apart, held or logged there
            self._executor.give_up(live, error)
        else:
            self._go_on_live(live)

    async def _replay_in_slices(self, live: LiveRun, history: list[Event]) -> None:
        """A long history, with pauses in which other runs go on."""
        if self._executor.replays_always:
            live.history = history
        program = live.program
        try:
            program.replay(history)
            program.begin()
            until = self._clock.monotonic() + REPLAY_SLICE_MS
            for number, event in enumerate(history):
                program.redeliver(event)
                if number % REPLAY_SLICE == 0 or self._clock.monotonic() >= until:
                    program.forget_answered()
                    await others_had_their_turn()
                    if self._executor.runs.is_interrupted(live):
                        return
                    until = self._clock.monotonic() + REPLAY_SLICE_MS
            self._catch_up(live)
        except (Exception, *EXITS) as error:  # noqa: BLE001 - told apart, held or logged there
            self._executor.give_up(live, error)
        else:
            live.is_leaving = live.is_replaying = False
            self._go_on_live(live)

    def _go_on_live(self, live: LiveRun) -> None:
        """Start what the code waits for; of a suspect it is written down first, for it may be its last words."""
        if live.under_way is None or not is_suspect(live.losses):
            self._executor.settle(live, None)
            if live.owned.traits is not PLAIN:
                # Its time may have come while it was not known yet what it has to undo.
                self._executor.expire(live)
            return

        def go_on() -> None:
            if not self._executor.runs.is_interrupted(live):
                live.is_leaving = live.is_replaying = False
                self._executor.settle(live, None)
                self._executor.expire(live)

        live.is_leaving = live.is_replaying = True
        self._owner.note_waiting(live.owned, live.waiting(), go_on)

    def _catch_up(self, live: LiveRun) -> None:
        """Up to here, what it waits for included, the code has been before."""
        live.program.runtime.is_replaying = False
        if live.losses:
            self._executor.suspects.caught_up(live)
