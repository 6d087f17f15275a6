"""The worker: owns runs, keeps them alive in memory, and lets go of those that wait.

In:   runs to adopt, messages for them, room, time.
Out:  claims, parked runs. Makes its parts and joins them; what moves a run on is the executor.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from perdure.authoring.workflow import Workflow, workflows
from perdure.clock import Alarm
from perdure.engine.background import Background
from perdure.engine.ports import Engine, HandBack, OwnedRun, StartRequest
from perdure.errors import StoreUnavailable
from perdure.kernel.traits import PLAIN
from perdure.stores.records import LoadedRun
from perdure.views.run import moment
from perdure.views.workers import WorkerStats
from perdure.worker.calls.task import task_names, with_tasks
from perdure.worker.claims import Claims
from perdure.worker.executor import Executor, WorkerSettings
from perdure.worker.held import Holding
from perdure.worker.live_run import LiveRun, LiveRuns
from perdure.worker.loop.generators import watch_generators
from perdure.worker.loop.guards import guarded
from perdure.worker.loop.unawaited import watch_calls
from perdure.worker.messages import IncomingMessages
from perdure.worker.outputs.publishing import Publishing
from perdure.worker.parking import MANY, SOON_MS, SWEEP_MS, Parking
from perdure.worker.replay import Replay
from perdure.worker.suspects import Suspects
from perdure.worker.warnings import tell_unfinished

# How often to look for runs that are due and that nobody has the code of.
LOOK_MS = 30_000


class Worker:
    """Implements Host for the engine."""

    def __init__(
        self,
        engine: Engine,
        namespace: str,
        settings: WorkerSettings,
        known: dict[str, Workflow[..., Any]] | None,
        resources: Sequence[object] = (),
    ) -> None:
        self._engine = engine
        self._namespace = namespace
        self._clock = engine.clock
        self._settings = settings
        self._resources = tuple(resources)
        self._known = known
        find = workflows.get if known is None else known.get
        self._workflow: Callable[[str], Workflow[..., Any] | None] = with_tasks(find)
        # Runs that room was made for and whose start is on its way to disk.
        self._expected = 0
        self._background = background = Background(engine.clock)
        self._runs = runs = LiveRuns(self._make_room)
        self._live = runs.by_id
        self._suspects = suspects = Suspects(engine, self.look_around)
        holding = Holding(engine, runs)
        self._executor = executor = Executor(engine, settings, runs, holding, suspects, background)
        self._effects, self._runner = executor.effects, executor.runner
        messages = IncomingMessages(engine, executor)
        self._replay = Replay(engine, executor, messages)
        self._parking = Parking(engine, runs, messages, executor.snapshots, executor.pausing, settings.park_after_ms)
        executor.pausing.held = self._parking.paused
        self._claims = Claims(
            engine,
            namespace,
            settings.queues,
            room=lambda: settings.max_live - len(self._live),
            suspects=lambda: suspects.room,
            names=self.names,
        )
        self._started_at = engine.clock.now()
        self._closed = 0
        self._publishing: Publishing | None = None
        self._sweep_alarm: Alarm | None = None
        self._next_look_at = self._clock.now() + LOOK_MS
        self._hurries = False
        self._unwatch: Callable[[], None] = lambda: None
        # What the engine tells its host goes straight to the part it is for.
        self.notice = messages.notice
        self.notice_unread = messages.notice_unread
        self.broken = holding.broken
        self.unreadable = holding.unreadable

    def stats(self, worker_id: str) -> WorkerStats:
        """What this worker has done since it began."""
        here = self._live.values()
        return WorkerStats(
            worker_id=worker_id,
            started_at=moment(self._started_at),
            claimed=self._claims.claimed,
            closed=self._closed,
            steps=self._runs.steps + sum(live.owned.state.seq - live.first_seq for live in here),
            replays=self._replay.count,
            live=len(self._live),
            is_stopping=self._runs.is_stopping,
        )

    # Beginning and ending

    async def begin(self) -> None:
        """Start to work, once the engine is open."""
        self._publishing = Publishing(self._engine.outputs)
        self._unwatch = watch_generators()
        watch_calls()
        self._workflow = guarded(self._workflow)
        await self._engine.claimer.free_mismatches(self._namespace, self._settings.queues, self.names())
        self.look_around()
        self._schedule_sweep()

    async def close(self, grace_ms: int) -> None:
        """Stop claiming, let activities finish for a while, then hand everything back.

        A cancellation ends the while, and nothing else: a run that is not handed back looks as if this had died of it.
        """
        self._runs.is_stopping = True
        self._effects.is_stopped = True
        if self._sweep_alarm is not None:
            self._sweep_alarm.cancel()
        self._suspects.close()
        if grace_ms <= 0 or self._hurries:
            self.hurry()
        try:
            await self._claims.close()
            await self._runner.calm(0 if self._hurries else grace_ms)
        except asyncio.CancelledError:
            self.hurry()
        with suppress(asyncio.CancelledError):
            await self._engine.transactor.calm()
        if not self._hurries:
            tell_unfinished(self._live.values(), grace_ms)
        self._parking.hand_back_all(self._live.values())
        await self._engine.settle(0 if self._hurries else grace_ms)
        self._effects.abandon()
        self.evict_all()
        self._background.cancel()
        self._runner.close()
        self._unwatch()

    def hurry(self) -> None:
        """Wait for no activity any more, if this is ending."""
        self._hurries = True
        # Before anybody else has a turn: who ends the loop cancels activities, too, and they have not failed.
        for live in self._live.values():
            live.cancel_attempts()
        self._runner.hurry()

    def abandon(self) -> None:
        """Forget everything at once and write nothing more, as if the process had died."""
        self._runs.is_stopping = True
        self._claims.abandon()
        self._background.cancel()
        self._effects.abandon()
        self.evict_all()
        self._runner.close()
        self._unwatch()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way but activities in tasks, of which nobody can tell what they wait for."""
        return self._background.is_idle and self._claims.is_idle and not self._runner.in_threads

    @property
    def runs_activities(self) -> bool:
        return self._runner.in_tasks > 0

    # What the engine asks of its host

    def makes_room_for(self, request: StartRequest) -> bool:
        has_room = (
            len(self._live) + self._expected < self._settings.max_live
            and not self._runs.is_stopping
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
            self._engine.owner.release(owned, HandBack(), lambda _: None)
            return
        owned.publishing = self._publishing
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
            self._replay.replay(live, [])
        else:
            self._replay.bring_back(live, loaded)

    def evict(self, run_id: str) -> None:
        """Forget a run; what its activities still do has no effect any more."""
        live = self._live.get(run_id)
        if live is not None:
            self._runs.evict(live)

    def evict_all(self) -> None:
        """Forget every run; what their activities still do has no effect any more."""
        for live in list(self._live.values()):
            self._runs.evict(live)
        self._effects.clear()
        self._executor.snapshots.clear()
        self._suspects.clear()

    def names(self) -> tuple[str, ...]:
        return (*(workflows.names() if self._known is None else tuple(sorted(self._known))), *task_names())

    def ended(self, run_id: str) -> None:
        """The end of a run is on disk: forget it."""
        live = self._live.pop(run_id, None)
        if live is not None:
            self._closed += 1
            self._runs.steps += live.owned.state.seq - live.first_seq
            live.is_gone = live.begins_nothing = True
            if live.running:
                self._runs.evict(live)
        self._make_room()

    def _make_room(self) -> None:
        """A run has left."""
        self._suspects.look_again()
        if self._claims.is_wanted:
            self._claims.look()

    def look_around(self) -> None:
        """There may be ripe runs to claim."""
        self._claims.look()

    async def claim(self, limit: int) -> list[str]:
        """Take ripe runs now, for who looks for none by itself; answers their ids."""
        settings = self._settings
        claimed = await self._engine.claimer.claim(
            self._namespace, settings.queues, self.names(), limit, self._suspects.room
        )
        self._claims.claimed += len(claimed)
        return claimed

    async def claim_one(self, run_id: str) -> bool:
        """Take this run now; False when it is not due, or somebody else has it."""
        is_taken = await self._engine.claimer.claim_one(self._namespace, run_id, self.names())
        self._claims.claimed += is_taken
        return is_taken

    # Letting go

    def park_waiting(self) -> None:
        """Park all runs that only wait now, but for those that go on within a second."""
        self._parking.sweep(self._live.values(), self._clock.now(), is_crowded=True)

    def sweep(self) -> None:
        """Park runs that have been quiet for long; comes again by itself, whatever fails in it."""
        self._schedule_sweep()
        self._effects.tidy()
        self._executor.snapshots.tidy()
        is_crowded = len(self._live) >= self._settings.max_live
        is_worth_it = self._parking.sweep(self._live.values(), self._clock.now(), is_crowded=is_crowded)
        if is_worth_it:
            self._schedule_sweep(SOON_MS)
        if self._clock.now() >= self._next_look_at:
            self._next_look_at = self._clock.now() + LOOK_MS
            self._background.spawn(self._look_for_missing_code())

    async def _look_for_missing_code(self) -> None:
        """Say which runs have become due that nobody has the code of; while the database is away others say so."""
        with suppress(StoreUnavailable):
            await self._engine.claimer.tell_missing(self._namespace, self._settings.queues)

    def _schedule_sweep(self, ms: int = SWEEP_MS) -> None:
        if self._sweep_alarm is not None:
            self._sweep_alarm.cancel()
        if not self._runs.is_stopping:
            self._sweep_alarm = self._clock.call_at(self._clock.now() + ms, self.sweep)
