"""An environment for tests: real engine and real database, virtual time, faults on demand, no sleeps.

`settle` runs everything that can run without time passing; `pass_time` lets time pass.
`crash` is a kill -9 of the one process in it: whatever was not committed is gone.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, Self, TypeVar, cast

from perdure.app import Perdure, Run, RunEvent
from perdure.app.internals import abandon, engine_of, furnish, worker_of
from perdure.authoring.durations import Duration, seconds
from perdure.authoring.workflow import Workflow
from perdure.engine.duties.duties import DutyLoop
from perdure.engine.duties.finding import SinkFinder
from perdure.engine.duties.housekeeping import HousekeepingDuty
from perdure.engine.engine import StoreEngine
from perdure.engine.ports import MAX_UNREAD
from perdure.engine.subscriptions.subscriptions import StoreSubscriptions
from perdure.engine.watch import Watch
from perdure.errors import StoreUnavailable
from perdure.ids import RandomIds
from perdure.stores.answers import Outcome
from perdure.stores.operations import Batch, Operation
from perdure.stores.sqlite.new_files import make_missing
from perdure.stores.urls import store_for
from perdure.testing.clock import VirtualClock
from perdure.testing.faults import Crash, Fault, FaultyStore
from perdure.testing.real_work import Patience, busy_threads, is_about_to_go_on, real_work
from perdure.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# So many turns of the loop without anything left to do count as settled; while activities
# run in tasks, which may be about to go on, some more.
CALM_TURNS = 5
CALM_TURNS_WITH_ACTIVITIES = 30
# How often it is looked whether something real is over.
LOOK_SECONDS = 0.005


_seeds = itertools.count(1)


class Environment:
    """One simulated process over one database, a file or the URL of a Postgres schema; opened with `async with`."""

    def __init__(
        self,
        path: str | None = None,
        *,
        clock: VirtualClock | None = None,
        seed: int | None = None,
        replay_always: bool = False,
        workflows: Sequence[Workflow[..., Any]] | None = None,
        park_after: Duration = 10.0,
        max_live: int = 10_000,
        max_unread: int = MAX_UNREAD,
        worker: bool = True,
        queues: Sequence[str] = ("default",),
        namespace: str = "main",
        resources: Sequence[object] = (),
    ) -> None:
        self.path = path
        self.clock = clock or VirtualClock()
        self.workflows = workflows
        # Two processes must not make the same ids; one and the same test makes the same ones every time.
        self._ids = RandomIds(next(_seeds) if seed is None else seed)
        self._replay_always = replay_always
        self._park_after = park_after
        self._max_live = max_live
        self._max_unread = max_unread
        self._is_worker = worker
        self._queues = queues
        self._namespace = namespace
        self._resources = resources
        self.commits = 0
        self.crashes = 0

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.has_died:
            self.bury()
        else:
            await self.alive(self.app.__aexit__(None, None, None))

    async def open(self, fault: tuple[int, Fault] | None = None) -> None:
        """Start the process; with a fault, one that is to come at that of its commits."""
        app = self._app()
        if self.path is not None and not self._is_postgres:
            make_missing(self.path)
        self.store: FaultyStore = _faulty(self._url) if self._is_postgres else FaultyStore(self.path)
        if fault is not None:
            self.store.fail_at(*fault)
        furnish(app, self.store, self.clock, self._ids, replay_always=self._replay_always)
        self.app = app
        self._died = asyncio.Event()
        self.store.crashed = self._died.set
        opening = asyncio.ensure_future(app.__aenter__())
        while engine_of(app) is None and not opening.done() and not self._died.is_set():  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)
        try:
            await self.alive(opening)
        except (Crash, StoreUnavailable):
            # A process that cannot open its database ends.
            self._died.set()

    @property
    def _is_postgres(self) -> bool:
        return self.path is not None and self.path.startswith("postgres")

    @property
    def _url(self) -> str:
        if self.path is None:
            return "sqlite://"
        return self.path if self._is_postgres else f"sqlite:///{self.path}"

    def _app(self) -> Perdure:
        return Perdure(
            self._url,
            workflows=self.workflows,
            park_after=self._park_after,
            max_live=self._max_live,
            max_unread=self._max_unread,
            grace=0,
            worker=self._is_worker,
            queues=self._queues,
            namespace=self._namespace,
            resources=self._resources,
        )

    # Running

    async def alive(self, work: Awaitable[T], patience: Duration = timedelta(minutes=10)) -> T:
        """Wait for work of the simulated process, letting time pass; Crash when the process dies first.

        Time goes straight to what is due next. When nothing is, it passes by seconds, as many as there is patience.
        """
        task = asyncio.ensure_future(work)
        idle = 0
        try:
            while idle < seconds(patience, "patience"):
                await self.settle()
                if task.done():
                    return await task
                if self.has_died:
                    raise Crash
                due_in = self.clock.due_in(_is_housekeeping)
                idle += due_in is None
                await self._pass(max(due_in or 0, 1000), task.done)
            name = getattr(work, "__qualname__", repr(work))
            raise TimeoutError(f"nothing came of {name} within {patience}, and nothing is due that could bring it on")
        finally:
            # More than once, for closing goes on after the first: it cannot know that its process has died.
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.gather(task, return_exceptions=True)

    async def start(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> Run[R]:
        """Start a run."""
        return await self.app.start(workflow, *args, **kwargs)

    async def run(self, workflow: Workflow[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Start a run and wait for its result, with time passing until it is there."""
        return await self.result(await self.start(workflow, *args, **kwargs))

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        calm, patience = 0, Patience()
        while calm < self._enough() and not self._died.is_set():
            await asyncio.sleep(0)
            if self.store.under_way:
                await self.store.next_answer()
            calm = calm + 1 if self._is_idle() else 0
            if calm == 0 and patience.is_over and (where := busy_threads()):
                patience.tell(where)

    async def _stand_still(self) -> None:
        """Let no time pass while an activity waits for something real; it would be out of time before that is over."""
        patience = Patience()
        while self._runs_activities and not self.has_died and (what := await self._real_work()) is not None:
            if patience.is_over:
                patience.tell(what)
            await asyncio.sleep(LOOK_SECONDS)
            await self.settle()

    async def _real_work(self) -> str | None:
        """What is waited for once nothing is about to go on: what is over is not waited for, nor known to all yet."""
        for _ in range(CALM_TURNS_WITH_ACTIVITIES):
            if not is_about_to_go_on():
                break
            await asyncio.sleep(0)
        return real_work()

    @property
    def _runs_activities(self) -> bool:
        worker = worker_of(self.app)
        return worker is not None and worker.runs_activities

    def _enough(self) -> int:
        return CALM_TURNS_WITH_ACTIVITIES if self._runs_activities else CALM_TURNS

    @property
    def _engine(self) -> StoreEngine | None:
        engine = engine_of(self.app)
        return engine if isinstance(engine, StoreEngine) else None

    @property
    def engine(self) -> StoreEngine:
        """The open process's engine."""
        assert self._engine is not None
        return self._engine

    @property
    def worker(self) -> Worker:
        """The open process's worker."""
        worker = worker_of(self.app)
        assert worker is not None
        return worker

    def _is_idle(self) -> bool:
        engine, worker = self._engine, worker_of(self.app)
        if self.store.under_way:
            return False
        if engine is None or engine.is_stalled:
            return True
        return engine.is_idle and (worker is None or worker.is_idle)

    async def pass_time(self, duration: Duration) -> None:
        """Let time pass, and everything happen that is due by then, in its order and each at its time.

        What comes again and again by itself, such as the look for runs to park, comes once.
        """
        await self.settle()
        await self._pass(round(seconds(duration, "duration") * 1000))

    async def _pass(self, ms: int, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Go from one call that is due to the next, until so much time has passed or it is enough."""
        until = self.clock.monotonic() + ms
        while not is_enough() and not self.has_died:
            await self._stand_still()
            due_in, left = self.clock.due_in(_is_housekeeping), until - self.clock.monotonic()
            if left == 0 and (due_in is None or due_in > 0):
                return
            self.clock.advance(left if due_in is None else min(max(due_in, 0), left))
            await self.settle()

    async def result(self, run: Run[R], patience: Duration = timedelta(minutes=10)) -> R:
        """The run's result, with time passing until it is there."""
        return await self.alive(run.result(), patience)

    async def events(self, id: str) -> list[RunEvent]:
        """The history of a run."""
        run = await self.app.get(id)
        return [event async for event in run.events()]

    async def elsewhere(self, *groups: Sequence[Operation]) -> Outcome:
        """What becomes of a batch that another process writes: nobody here is told of it."""
        store = self.store if self.path is None else store_for(self._url)
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if store is not self.store:
            await store.open()
        store.commit(Batch(groups, None, 0), told.set_result)
        try:
            return await told
        finally:
            if store is not self.store:
                await store.close()

    # Dying

    @property
    def has_died(self) -> bool:
        return self._died.is_set()

    def bury(self) -> None:
        """Remove what is left of a dead process: its plans, its memory, its locks and connections."""
        self.commits += self.store.commits
        self.crashes += 1
        self.store.has_crashed = True
        self._died.set()
        self.clock.forget_alarms()
        abandon(self.app)
        self.store.abandon()

    async def crash(self, fault: tuple[int, Fault] | None = None) -> None:
        """Kill the process and start another one, which may be doomed as well."""
        self.bury()
        await asyncio.sleep(0)
        await self.open(fault)


def _faulty(url: str) -> FaultyStore:
    """A store over Postgres; what an environment does with it, it does with either."""
    from perdure.testing.postgres_faults import FaultyPostgres  # noqa: PLC0415 - its driver is an extra

    return cast("FaultyStore", FaultyPostgres(url))


def _is_housekeeping(callback: Callable[[], None]) -> bool:
    """What comes again and again by itself, and brings no run on."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, DutyLoop):
        return owner.name == HousekeepingDuty.name
    return getattr(callback, "__func__", None) in _HOUSEKEEPING


_HOUSEKEEPING = {Watch.wake, Worker.sweep, StoreSubscriptions.wake, SinkFinder.wake}
