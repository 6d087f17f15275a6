"""A node: one simulated process with a real Perdure in it, which can die, freeze and lose its way.

In:   what the world hands it: answers, ends of activities, due timers.
Out:  jobs for the database, and the faults it was struck by.
"""

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Protocol, cast

from perdure.app import Perdure
from perdure.app.network.mounted import MountedApplication
from perdure.clock import SystemClock
from perdure.engine.engine import StoreEngine
from perdure.engine.leasing.heartbeat import Heartbeat
from perdure.engine.outbox.sinks import EventSenders
from perdure.errors import StoreUnavailable
from perdure.http.access import anybody
from perdure.http.remote.engine import RemoteEngine
from perdure.ids import RandomIds
from perdure.stores.answers import Applied, Committed, Failed, Outcome, Undone, Unknown
from perdure.stores.operations import AppendEvent, Batch, ClaimRuns, RecordAttempt
from perdure.worker.worker import Worker
from tests.simulation.simulator.database import Database, answered
from tests.simulation.simulator.faults import DEADLY, Fault, Moment
from tests.simulation.simulator.loop import NodeLoop
from tests.simulation.simulator.store import URL, ReadJob, SimulatedStore, WriteJob

# More often than a lease has to be renewed.
BEAT_MS = 3000


class State(Enum):
    """Where a process stands."""

    DOWN = "not running"
    OPENING = "starting"
    UP = "at work"
    CLOSING = "told to stop"


class Surroundings(Protocol):
    """What a node knows of its world."""

    now_ms: int
    database: Database

    def is_disk_broken(self) -> bool: ...

    def is_disk_full(self) -> bool: ...

    def is_in_doubt(self) -> bool:
        """Whether nobody shall know of a write that a broken disk did not do."""

    def wrote(self, node: "Node", job: WriteJob) -> None:
        """A batch was written, or not; its outcome is in the job."""

    def freeze(self, node: "Node") -> None:
        """Stop a process as a whole, and let it go on later."""

    def reach(self, what: str) -> None:
        """Count that this happened."""


class Node:
    """A simulated process; `running` is the one whose turn it is."""

    running: "Node | None" = None
    # Whether it works over a server.
    is_remote = False

    def __init__(
        self, world: Surroundings, number: int, options: dict[str, Any], resources: tuple[object, ...]
    ) -> None:
        self._world = world
        self._options = options
        self.resources = resources
        # How it sends events to sinks, if it can.
        self.senders: EventSenders | None = None
        self.number = number
        # Whether others work over it.
        self.is_server = False
        # How far its wall clock is off, in milliseconds.
        self.offset_ms = 0
        self.boots = 0
        self.state = State.DOWN
        self.is_alive = False
        self.is_quick = False
        self.misses_hints = False
        self.is_frozen = self.is_stalled = self.is_frozen_until_lost = False
        # Since when it has been paused, and since when it has not been struck by anything.
        self.paused_since_ms = self.calm_since_ms = 0
        # What strikes with a commit, and with which.
        self.armed: Fault | None = None
        self.moment = Moment.ANY
        # How often it is yet to die with work in its hands.
        self.dooms = 0
        self.jobs: list[WriteJob | ReadJob] = []
        self.version = 1

    # Starting and stopping

    def boot(self, seed: int, *, is_quick: bool) -> None:
        """Start a new process."""
        self.boots += 1
        self.is_alive, self.is_quick, self.misses_hints = True, is_quick, False
        self.is_frozen = self.is_stalled = False
        self.armed = None
        self.jobs = []
        self.state = State.OPENING
        self.heart: Heartbeat | None = None
        self.next_beat_ms = 0
        self._closing: tuple[object, Worker | None] | None = None
        # What it lacks of a loop, the engine does not use.
        self.loop = NodeLoop(lambda: self._world.now_ms, self._begin_turn)  # type: ignore[abstract]
        self.app = self._new_app(seed)
        self.asgi = cast("MountedApplication", self.app.asgi(authenticate=anybody)) if self.is_server else None
        self.spawn(self.app.__aenter__(), self._opened)

    def _new_app(self, seed: int) -> Perdure:
        self.store = SimulatedStore(self, self._world.database.store(self))
        app = Perdure(URL, resources=self.resources, grace=0, **self._options)
        app._store = self.store
        app._clock = SystemClock(self._wall_ns, self._monotonic_ns)
        app._ids = RandomIds(seed)
        app._shutdown = None
        if self.senders is not None:
            app._senders = self.senders
        app._heartbeat = self._heart_kind()
        return app

    def _heart_kind(self) -> type[Heartbeat]:
        """A heart that beats when the world says so, not in a thread."""
        node = self

        class Heart(Heartbeat):
            @staticmethod
            def now() -> float:
                return node._world.now_ms / 1000

            def begin(self) -> None:
                node.heart = self

            def _warn(self, stalled: float) -> None:
                """A leap in time is no stall, and nobody reads this."""

            def cancel(self) -> None:
                super().cancel()
                node.heart = None
                if not self._ended.done():
                    self._ended.set_result(None)

        return Heart

    def beat(self) -> None:
        """The heart's thread does its work, whatever the loop does."""
        self.next_beat_ms = self._world.now_ms + BEAT_MS
        if self.heart is not None:
            self.heart.tick()

    def _begin_turn(self) -> None:
        Node.running = self

    def _wall_ns(self) -> int:
        return (self._world.now_ms + self.offset_ms) * 1_000_000

    def _monotonic_ns(self) -> int:
        return self._world.now_ms * 1_000_000

    def _opened(self, task: "asyncio.Task[Any]") -> None:
        if not self.is_alive:
            return
        if task.cancelled() or task.exception() is not None:
            if not task.cancelled() and not isinstance(task.exception(), StoreUnavailable):
                self.loop.troubles.append(f"opening failed: {task.exception()!r}")
            self._world.reach("opening failed")
            self.is_alive = False
        else:
            self.state = State.UP
            self.calm_since_ms = self._world.now_ms

    def stop(self) -> None:
        """Tell the process to stop."""
        self.state = State.CLOSING
        if self.asgi is not None:
            self.loop.run(self.asgi.stop)
        # One that is closing does not know them any more.
        self._closing = (self.app._engine, self.app._worker)
        self.spawn(self.app.__aexit__(None, None, None), self._closed)

    def _closed(self, task: "asyncio.Task[Any]") -> None:
        if self.is_alive:
            if not task.cancelled() and task.exception() is not None:
                self.loop.troubles.append(f"closing failed: {task.exception()!r}")
            self._world.reach("closed")
            self.is_alive = False

    def bury(self) -> None:
        """Remove what is left of a dead process: its memory, its locks, its plans."""
        self.is_alive = False
        self.state = State.DOWN
        for job in self.jobs:
            if isinstance(job, WriteJob):
                job.abandon()
        self.jobs = []
        holders = self._world.database.holders
        for worker_id in [worker_id for worker_id, holder in holders.items() if holder is self]:
            del holders[worker_id]
        engine, worker = self._closing or (self.app._engine, self.app._worker)
        if isinstance(engine, StoreEngine | RemoteEngine):
            self.loop.call_now(engine.abandon)
        self.app._home.close()
        self.loop.end()
        # After everything else: what was on its way to the worker is dropped as well.
        if worker is not None:
            self.loop.call_now(worker.abandon)

    @property
    def is_writing(self) -> bool:
        """Whether it is in the middle of a transaction."""
        return any(isinstance(job, WriteJob) and job.write is not None and not job.is_ready for job in self.jobs)

    @property
    def is_waiting(self) -> bool:
        """Whether something it writes waits for a row that another transaction holds."""
        return any(job.is_blocked for job in self.jobs)

    @property
    def is_hearing(self) -> bool:
        """Whether anything can reach its event loop."""
        return self.is_alive and not self.is_frozen and not self.is_stalled

    @property
    def engine(self) -> StoreEngine | RemoteEngine:
        assert isinstance(self.app._engine, StoreEngine | RemoteEngine)
        return self.app._engine

    def spawn(self, work: Coroutine[Any, Any, Any], done: "Callable[[asyncio.Task[Any]], None]") -> None:
        """Let the process do this, and be told when it has."""

        def begin() -> None:
            task: asyncio.Task[Any] = self.loop.create_task(work)
            task.add_done_callback(done)

        self.loop.run(begin)

    # The database

    def put(self, job: WriteJob | ReadJob) -> None:
        if self.is_alive:
            self.jobs.append(job)

    def reads(self) -> None:
        if self._world.is_disk_broken():
            self._world.reach("read failed")
            raise _unavailable("the disk is broken")

    def renews(self) -> None:
        if not self.is_alive or self._world.is_disk_broken() or self._world.is_disk_full():
            raise _unavailable("the lease could not be renewed")

    def write_now(self, job: WriteJob) -> None:
        while job.outcome is None:
            self.write(job)
            if not self.is_alive:
                return
        job.done(job.outcome)

    def write(self, job: WriteJob) -> None:
        """Move a write on; struck by a fault, it may never get its outcome."""
        is_begun = job.write is not None
        armed = self.armed if self.armed is not None and self.moment.is_in(job.batch, has_code=job.has_code) else None
        if job.write is None:
            if armed is not None and job.has_code:
                self._world.reach("struck with the rows of an activity")
            if armed is Fault.FREEZE_AT:
                self._strike(armed)
                self._world.freeze(self)
                # Where commits are quick there is no getting in between: it stops when it has done what it is about.
                if not self.is_quick:
                    return
            if (outcome := self._trouble(armed)) is not None:
                job.abandon()
                job.outcome = outcome
                self._world.wrote(self, job)
                return
            if not self.is_alive:
                return
            job.begin(self._world.database, self.store.inner)
            assert job.write is not None
        # One that takes several steps is left in the middle of them.
        if armed is Fault.CRASH_IN and (is_begun or self._world.database.is_quick):
            self._strike(Fault.CRASH_IN)
            job.abandon()
            self.is_alive = False
            return
        said = job.write.step()
        if said is None:
            return
        job.outcome = said
        self._world.wrote(self, job)
        self._strike_after(job, said, armed)

    def _strike_after(self, job: WriteJob, outcome: Outcome | Undone, armed: Fault | None) -> None:
        if armed is Fault.CRASH_AFTER:
            self._strike(armed)
            self.is_alive = False
        elif armed is Fault.LOST_ANSWER:
            self._strike(armed)
            job.outcome = Unknown(_unavailable("the answer was lost"))
        elif self.dooms and _has_work(job.batch, outcome):
            self.dooms -= 1
            self._world.reach("died in a loop")
            self.is_alive = False

    def _trouble(self, armed: Fault | None) -> Outcome | None:
        """What keeps the next batch from being written, if anything does; a deadly fault leaves no process."""
        world = self._world
        if world.is_disk_full():
            return Failed(_unavailable("the disk is full"))
        if world.is_disk_broken():
            error = _unavailable("the disk is broken")
            return Unknown(error) if world.is_in_doubt() else Failed(error)
        match armed:
            case Fault.CRASH_BEFORE as fault:
                self._strike(fault)
                self.is_alive = False
            case Fault.LOST_COMMIT as fault:
                self._strike(fault)
                return Unknown(_unavailable("the commit was lost"))
            case Fault.REFUSED as fault:
                self._strike(fault)
                return Failed(_unavailable("the commit was refused"))
        return None

    def _strike(self, fault: Fault) -> None:
        self.armed = None
        self._world.reach(fault.name)
        if fault in DEADLY:
            self._world.reach("died at a commit")

    def read(self, job: ReadJob) -> None:
        """Answer a question, as of now."""
        job.is_ready = True
        try:
            self.reads()
            job.answer = answered(job.read())
        except StoreUnavailable as error:
            job.error = error

    def deliver(self, job: WriteJob | ReadJob) -> None:
        """Tell the process what became of a job, and let it go on."""
        self.jobs.remove(job)
        if isinstance(job, WriteJob):
            self.loop.run(job.done, job.outcome)
        elif not job.future.done():
            if job.error is not None:
                self.loop.run(job.future.set_exception, job.error)
            else:
                self.loop.run(job.future.set_result, job.answer)


def _has_work(batch: Batch, outcome: Outcome | Undone) -> bool:
    """Whether the worker that wrote this owns a run, as far as can be seen from it."""
    answers = outcome.answers if isinstance(outcome, Committed) else {}
    for number, group in enumerate(batch.groups):
        match group[0] if group else None:
            case ClaimRuns():
                answer = answers.get(number)
                if isinstance(answer, Applied) and answer.value:
                    return True
            case AppendEvent() | RecordAttempt():
                return isinstance(outcome, Committed)
    return False


def _unavailable(trouble: str) -> StoreUnavailable:
    return StoreUnavailable(URL, f"simulated: {trouble}")
