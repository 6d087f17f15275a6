"""The worker: owns runs, keeps them alive in memory, and lets go of those that wait.

In:   runs to adopt, messages for them, room, time.
Out:  claims, parked runs; what moves a run on is in `moving.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from perdure.authoring.functions import Workflow, workflows
from perdure.clock import Alarm
from perdure.engine.ports import Engine, HandBack, OwnedRun, StartRequest
from perdure.kernel.messages import Message
from perdure.kernel.status import Status
from perdure.kernel.traits import PLAIN
from perdure.stores.records import LoadedRun
from perdure.worker.calls.tasks import task_names, with_tasks
from perdure.worker.claims import Claims
from perdure.worker.executor import REPLAY_SLICE, Mover, WorkerSettings
from perdure.worker.live_run import NOT_COUNTED, LiveRun, Reading
from perdure.worker.loop.generators import watch_generators
from perdure.worker.loop.guards import guarded
from perdure.worker.parking import MANY, SOON_MS, SWEEP_MS, Parking
from perdure.worker.suspects import Suspects
from perdure.worker.unawaited import watch_calls
from perdure.worker.unfinished import tell_unfinished


class Worker(Mover):
    """Implements Host for the engine and Runtime, through programs, for workflow code."""

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        settings: WorkerSettings,
        known: dict[str, Workflow[..., Any]] | None,
        resources: Sequence[object] = (),
    ) -> None:
        super().__init__(engine, settings)
        self._engine = engine
        self._namespace = namespace
        self._resources = tuple(resources)
        self._known = known
        find = workflows.get if known is None else known.get
        self._workflow: Callable[[str], Workflow[..., Any] | None] = with_tasks(find)
        # Runs that room was made for and whose start is on its way to disk.
        self._expected = 0
        self._parking = Parking(engine, self, settings.park_after_ms)
        self._suspects = Suspects(engine, self.look_around)
        self._claims = Claims(
            engine,
            namespace,
            settings.queues,
            room=lambda: settings.max_live - len(self._live),
            suspects=lambda: self._suspects.room,
            names=self.names,
        )
        self._sweep_alarm: Alarm | None = None
        self._hurries = False
        self._unwatch: Callable[[], None] = lambda: None

    # Beginning and ending

    async def begin(self) -> None:
        """Start to work, once the engine is open."""
        self._unwatch = watch_generators()
        watch_calls()
        self._workflow = guarded(self._workflow)
        await self._engine.claimer.free_mismatches(self._namespace, self.names())
        self.look_around()
        self._schedule_sweep()

    async def end(self, grace_ms: int) -> None:
        """Stop claiming, let activities finish for a while, then hand everything back."""
        self._is_stopping = True
        self._effects.is_stopped = True
        if self._sweep_alarm is not None:
            self._sweep_alarm.cancel()
        self._suspects.stop()
        if grace_ms <= 0:
            # Before anybody else has a turn: who ends the loop cancels activities, too, and they have not failed.
            self._call_off()
        await self._claims.stop()
        await self._runner.calm(0 if self._hurries else grace_ms)
        if grace_ms > 0 and not self._hurries:
            tell_unfinished(self._live.values(), grace_ms)
        for live in list(self._live.values()):
            self._parking.hand_back(live)
        await self._engine.settle(grace_ms)
        self._effects.abandon()
        self.drop_all()
        self._runner.close()
        self._unwatch()

    def _call_off(self) -> None:
        """Want to know of no activity any more how it ends; whoever has its run next runs it again."""
        for live in self._live.values():
            for attempt in live.running.values():
                attempt.call_off()

    def hurry(self) -> None:
        """Wait for no activity any more, if this is ending."""
        self._hurries = True
        self._runner.hurry()

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
            self._owner.release(owned, HandBack(), lambda _: None)
            return
        if self._resources:
            owned.resources = self._resources
        live = LiveRun(owned, workflow, owned.created_at if loaded is None else self._clock.now())
        self._live[owned.run_id] = live
        if len(self._live) == MANY:
            self._schedule_sweep(SOON_MS)
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
        if loaded.row.losses:
            self._suspects.bring_back(live, loaded.row)
        live.annotated = (loaded.row.attributes, loaded.row.step)
        live.children = set(loaded.children) or None
        if loaded.row.close_at is not None and loaded.row.close_as == Status.CANCELLED:
            live.close_at, live.close_reason = loaded.row.close_at, loaded.row.cancel_reason
            self._effects.end_by(live, loaded.row.close_at)
        for failed in loaded.attempts:
            live.add_failed(failed)
        for message in loaded.messages or ():
            live.add_message(message)
        if loaded.messages is not None and len(loaded.events) <= REPLAY_SLICE:
            self._replay(live, list(loaded.events))
            return
        # Before anything else can happen to it: what came for it in the meantime waits.
        live.is_leaving = live.is_replaying = True
        self._spawn(self._bring_back_in_slices(live, loaded))

    async def _bring_back_in_slices(self, live: LiveRun, loaded: LoadedRun) -> None:
        """A run with a long past, or a full inbox, all of which is read before its code goes on."""
        if loaded.messages is None:
            live.owned.messages = NOT_COUNTED
            live.reading = Reading.ONCE
            await self._read_until_calm(live)
        if not self._is_interrupted(live):
            await self._replay_in_slices(live, list(loaded.events))

    def notice(self, run_id: str, message: Message, count: int | None) -> bool:
        live = self._live.get(run_id)
        if live is None:
            return False
        if live.knows(message):
            return True
        if count is not None and count != live.owned.messages + 1:
            # Another message came between, of another process: read all of them, in their order.
            self._read_inbox(live)
        elif live.add_message(message):
            live.owned.messages += 1
            if not live.is_leaving:
                self._settle(live, None)
        return True

    def notice_unread(self, run_id: str, messages: Sequence[Message], had: int | None) -> None:
        live = self._live.get(run_id)
        if live is None:
            return
        for message in messages:
            live.owned.messages += live.add_message(message)
        if live.inbox is not None and messages:
            live.inbox.read_to = max(live.inbox.read_to, messages[-1].number)
        if had is not None:
            # Nothing that came up to then is missing here; whatever this is behind by was known before it was counted.
            live.owned.messages = max(live.owned.messages, had)
        if messages and not live.is_leaving:
            self._settle(live, None)

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
                await self._engine.claimer.read_messages_of(
                    live.run_id, 0 if live.inbox is None else live.inbox.read_to
                )
                if live.reading is Reading.ONCE:
                    return
        finally:
            live.reading = None

    def drop_all(self) -> None:
        """Forget every run; what their activities still do has no effect any more."""
        for live in list(self._live.values()):
            self.drop(live)
        self._effects.clear()
        self._suspects.clear()

    def drop(self, live: LiveRun) -> None:
        """Forget a run, and leave nothing of its code in memory."""
        live.is_gone = True
        self._live.pop(live.run_id, None)
        for attempt in live.running.values():
            attempt.call_off()
        live.running.clear()
        live.program.evict()
        self._make_room()

    def names(self) -> tuple[str, ...]:
        return (*(workflows.names() if self._known is None else tuple(sorted(self._known))), *task_names())

    def ended(self, run_id: str) -> None:
        """The end of a run is on disk: forget it."""
        live = self._live.pop(run_id, None)
        if live is not None:
            live.is_gone = True
            if live.running:
                self.drop(live)
        self._make_room()

    def _make_room(self) -> None:
        """A run has left."""
        self._suspects.look_again()
        if self._claims.is_wanted:
            self._claims.look()

    # Runs that were lost

    def _has_caught_up(self, live: LiveRun) -> None:
        self._suspects.caught_up(live)

    def _see(self, live: LiveRun) -> None:
        self._suspects.see(live)

    # Letting go

    def look_around(self) -> None:
        """There may be ripe runs to claim."""
        self._claims.look()

    def _sweep(self) -> None:
        self._effects.tidy()
        is_crowded = len(self._live) >= self._settings.max_live
        is_worth_it = self._parking.sweep(self._live.values(), self._clock.now(), is_crowded=is_crowded)
        self._schedule_sweep(SOON_MS if is_worth_it else SWEEP_MS)

    def _schedule_sweep(self, ms: int = SWEEP_MS) -> None:
        if self._sweep_alarm is not None:
            self._sweep_alarm.cancel()
        if not self._is_stopping:
            self._sweep_alarm = self._clock.call_at(self._clock.now() + ms, self._sweep)

    def go_on(self, live: LiveRun) -> None:
        """A message came before the run could be parked: read it, and do what was put aside."""
        deferred, live.deferred = live.deferred or (), None
        self._read_inbox(live)
        for command in deferred:
            self._advance(live, command)
        self._expire(live)
        if not live.is_leaving:
            self._effects.try_again(live)
            self._settle(live, None)
