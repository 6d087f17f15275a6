"""One schedule: programs, requests and faults drawn from a tape, let loose on a world, watched and judged.

In:   a tape.
Out:  a report: how many steps and faults, what was reached, a digest of all that happened; or Violation.
"""

import asyncio
import hashlib
import json
from collections import Counter
from functools import partial
from typing import Any

import msgspec

from perdure.engine.leasing.heartbeat import GIVE_UP_SECONDS
from perdure.engine.outbox.sinks import EventSender
from perdure.engine.steering import pace
from perdure.errors import IdConflict, NotAnswered
from perdure.kernel.outbox import OutboxEvent
from perdure.kernel.quarantine import QUARANTINE_FROM, SUSPECT_FROM
from perdure.kernel.traits import TASK_PREFIX
from perdure.stores.answers import Applied, Committed
from perdure.stores.operations import Batch, HoldRun, ParkRun, RaiseEpoch, RegisterWorker, SupersedeRun
from perdure.stores.rules import finding
from tests.simulation import model, plans
from tests.simulation.clients import (
    ENDS,
    FORKED,
    AskRun,
    AwaitResult,
    BroadcastAll,
    CancelRun,
    ForkRunAt,
    OfRun,
    PauseAll,
    PauseOne,
    Request,
    ResolveDeferred,
    ResumeOne,
    RetryRun,
    SendSignal,
    SignalAnew,
    StartRun,
    TerminateRun,
)
from tests.simulation.followers import LATE_MS, FollowRuns, rare_looks
from tests.simulation.invariants import Violation, Witness
from tests.simulation.keyed import UNDER_KEY, KeyWitness, SignalUnderKey, StartUnderKey, drawn_starts
from tests.simulation.programs import (
    FAR,
    MOST_ATTEMPTS,
    NEAR,
    NOT_BEGUN,
    Drawer,
    WorkFailed,
    Workshop,
    answer_to,
    outcome_of,
    sim_far_poison,
    sim_once,
    sim_run,
)
from tests.simulation.sight import SeenRun
from tests.simulation.simulator import Fault, MemoryDatabase, Node, RemoteNode, SqliteDatabase, State, Tape, World
from tests.simulation.simulator.loop import NeverCalm
from tests.simulation.sinks import AddSink, Delivery, SinkWitness
from tests.simulation.timetables import ScheduleWitness, TriggerSchedule, drawn_schedule

# After the faults are over, everything ends within so much time and so many steps. Two poisoned runs are the longest:
# nine deaths each, and where a dead process holds no lock each is seen a lease later. That came to 956 s, and to
# 2,014 s where one of them was retried.
PATIENCE_MS = 2_700_000
MOST_STEPS = 30_000
LEASE_S = 30
# So many schedules of a thousand have servers, and workers that work over them; `hunting.over_http` has all of them so.
OVER_HTTP_PER_MILLE = 0
# There is a sink in so many schedules of a thousand; with one they take longer.
SINKS_PER_MILLE = 80
# Who was the only suspect each time so many workers died of something else is held as well: nobody can tell.
LOST_TOO_OFTEN = SUSPECT_FROM + QUARANTINE_FROM
# Longer than a look around takes, with all its answers, however late these come: 40 s were seen.
CALM_MS = 60_000


class Report(msgspec.Struct, frozen=True):
    """What a schedule was like."""

    seed: int
    steps: int
    faults: int
    runs: int
    reached: dict[str, int]
    digest: str


class Job:
    """An activity that is being carried out."""

    __slots__ = ("fails", "future", "node", "number")

    def __init__(self, node: Node, number: int, fails: int) -> None:
        self.node = node
        self.number = number
        self.fails = fails
        self.future: asyncio.Future[int] = node.loop.create_future()

    def end(self) -> None:
        if self.future.done():
            return
        if self.fails:
            self.future.set_exception(WorkFailed(f"step {self.number}"))
        else:
            self.future.set_result(outcome_of(self.number))


class NodeShop(Workshop):
    """The workshop of one node."""

    def __init__(self, schedule: "Schedule", queues: plans.Queues) -> None:
        self._schedule = schedule
        self._queues = queues
        self.node: Node | None = None
        self.has_sql = isinstance(schedule.database, SqliteDatabase)

    def begin(self, key: str, number: int, after: int) -> None:
        assert self.node is not None
        self._schedule.began(self.node, key, number, after, self._queues)

    def work(self, number: int, fails: int) -> "asyncio.Future[int]":
        assert self.node is not None
        job = Job(self.node, number, fails)
        self._schedule.work.append(job)
        return job.future

    def hang(self) -> "asyncio.Future[int]":
        assert self.node is not None
        return self.node.loop.create_future()

    def die(self) -> "asyncio.Future[int]":
        assert self.node is not None
        self._schedule.poisoned(self.node)
        return self.node.loop.create_future()


class Schedule:
    """One seed's life."""

    def __init__(self, tape: Tape, *, traces: bool = False) -> None:
        self.tape = tape
        self.database: SqliteDatabase | MemoryDatabase = SqliteDatabase() if tape.choose(2) == 0 else MemoryDatabase()
        self.database.has_locks = tape.choose(3) != 1
        self.world = World(tape, self.database)
        if traces:
            self.world.trace = []
        self.witness = Witness(self.database)
        self.timetables = ScheduleWitness(self.database)
        self.keys = KeyWitness(self.database)
        self.sink = SinkWitness(self.database, tape, self.world.reach)
        self.world.wrote_hook = self._wrote
        self.work: list[Job | Delivery] = []
        self.requests: list[Request] = []
        self._undone: list[Request] = []
        self.starts: dict[str, StartRun] = {}
        self.sent: dict[str, dict[str, set[str]]] = {}
        self.violation: Violation | None = None
        self.faults = 0
        self._locked_until_ms = -CALM_MS
        self._signals = 0
        self._quarantined: set[str] = set()
        self._follower: FollowRuns | None = None
        self._quiet_since_ms: int | None = None

    # Running

    def run(self) -> Report:
        """Let it happen, and judge it."""
        sizes, page = (pace.LARGE, pace.SMALL), finding.LARGEST_BITE
        # There are few runs: their pages and bites are to have borders.
        pace.LARGE = pace.SMALL = 2
        finding.LARGEST_BITE = 3
        try:
            self._draw()
            with rare_looks():
                self._play()
                self._heal()
            self._judge()
        except NeverCalm:
            raise Violation("I44", "a process ran on and on without waiting for anything") from None
        finally:
            (pace.LARGE, pace.SMALL), finding.LARGEST_BITE = sizes, page
            self._bury()
        return Report(
            self.tape.seed,
            self.world.steps,
            self.faults,
            len(self.witness.seen.runs),
            dict(self.world.reached),
            self._digest(),
        )

    def _draw(self) -> None:
        tape = self.tape
        options = {
            "workflows": [sim_run],
            "lease": LEASE_S,
            "park_after": tape.one_of(1, 4),
            "max_live": tape.one_of(100, 2),
        }
        over_http = tape.happens(OVER_HTTP_PER_MILLE)
        self._plan = plans.drawn_over_http(tape) if over_http else plans.drawn(tape)
        for number, queues in enumerate(self._plan.nodes):
            self._add_node(number, queues, options | {"queues": queues})
        drawer = Drawer(tape, has_rows=not over_http)
        for number in range(tape.between(2, 4)):
            self._draw_run(f"run-{number}", drawer)
        self._draw_steering()

    def _add_node(self, number: int, queues: plans.Queues, options: dict[str, Any]) -> None:
        """A process: a worker, a server that may be one as well, or a worker over a server."""
        shop, servers = NodeShop(self, queues), self._plan.servers
        kind = RemoteNode if servers and number >= servers else Node
        is_worker = kind is RemoteNode or not self._plan.serve_only
        shop.node = node = kind(self.world, number, options | {"worker": is_worker}, (shop,))
        node.is_server = number < servers
        if not servers:
            node.senders = partial(self._sender, node)
        self.world.add(node)

    def _draw_steering(self) -> None:
        """What people do with runs beyond starting and stopping them."""
        tape = self.tape
        for key, start in list(self.starts.items()):
            if tape.happens(300):
                retry = RetryRun(key, start.after_step + tape.choose(150))
                self._ask(retry)
                if tape.choose(2) == 1:
                    # Another client wants the same at once or later, and each asks until it is answered.
                    self._ask(RetryRun(key, start.after_step + tape.choose(150), retry))
            if tape.happens(250):
                paused = start.after_step + tape.choose(200)
                self._ask(PauseOne(key, paused))
                if tape.choose(2) == 1:
                    self._ask(ResumeOne(key, paused + tape.choose(60)))
            if tape.happens(200):
                self._ask(ForkRunAt(key, start.after_step + tape.choose(250), 1 + tape.choose(6)))
        # Servers that are no workers have no duties; `perdure serve` has a worker for these beside it.
        if tape.happens(250) and not self._plan.serve_only:
            for request in drawn_schedule(tape):
                self._ask(request)
        self._draw_bulk()
        self._draw_under_keys()
        self._draw_sink()

    def _draw_sink(self) -> None:
        """Who is told of everything."""
        if self.tape.happens(SINKS_PER_MILLE) and not self._plan.servers:
            for request in self.sink.draw():
                self._ask(request)

    def _draw_under_keys(self) -> None:
        """What several callers ask, to be done once."""
        tape = self.tape
        if tape.happens(300):
            for request in drawn_starts(tape):
                self._ask(request)
        for number, (key, start) in enumerate(list(self.starts.items())):
            if tape.happens(150):
                self._ask(SignalUnderKey(key, start.after_step + tape.choose(150), f"{UNDER_KEY}{number}"))

    def _draw_bulk(self) -> None:
        """What is asked of all runs at once."""
        tape = self.tape
        if tape.happens(150):
            self._ask(PauseAll("all", tape.choose(250)))
        if tape.happens(250):
            self._signals += 1
            self._ask(BroadcastAll(tape.choose(250), f"s{self._signals}"))
        # Whether anybody listens still is told by clocks, which are to be right within a minute for that.
        are_set = any(planned.fault in {Fault.CLOCK_BACK, Fault.CLOCK_FORWARD} for planned in self._plan.faults)
        if tape.happens(600 if self._plan.servers else 300) and not are_set:
            self._follower = FollowRuns(tape.choose(250), lambda: self.witness.seen.runs)
            self._ask(self._follower)

    def _draw_run(self, key: str, drawer: Drawer) -> None:  # noqa: C901 - a line for each kind of request
        tape = self.tape
        options: dict[str, Any] = {}
        if tape.happens(80):
            options["timeout"] = drawer.ms() / 1000
        if tape.happens(80):
            options["delay"] = drawer.ms() / 1000
        start = StartRun(key, tape.choose(120), drawer.program(), options)
        self.starts[key] = start
        self.sent[key] = {name: set() for name in model.SENT}
        self._ask(start)
        self._draw_delayed(start)
        if tape.happens(150):
            self._ask(StartRun(key, tape.choose(300), start.program, options))
        if tape.happens(150):
            policy = tape.one_of("return", "reject", "replace", "terminate")
            program = tape.one_of(start.program, drawer.program())
            self._ask(StartRun(key, start.after_step + tape.choose(300), program, options | {"on_conflict": policy}))
        for _ in range(tape.choose(4)):
            self._ask(self._signal(key, start.after_step + tape.choose(200)))
        for _ in range(tape.choose(3) if self._plan.servers else 0):
            self._signals += 1
            self._ask(SignalAnew(key, start.after_step + tape.choose(200), f"s{self._signals}"))
        for _ in range(tape.choose(3)):
            self._ask(self._word(key, start.after_step + tape.choose(200)))
        if tape.happens(400 if model.may_be_stopped(start.program) else 120):
            self._ask(CancelRun(key, start.after_step + tape.choose(250), tape.one_of(None, None, 3.0)))
        if tape.happens(40):
            self._ask(TerminateRun(key, start.after_step + tape.choose(250)))
        if tape.happens(400):
            self._ask(AwaitResult(key, start.after_step))

    def _signal(self, key: str, after_step: int) -> SendSignal:
        self._signals += 1
        return SendSignal(key, after_step, self.tape.one_of("red", "blue"), f"s{self._signals}")

    def _draw_delayed(self, start: StartRun) -> None:
        """A run that begins by waiting for a signal, which is due before the run is parked or after that."""
        tape = self.tape
        if not tape.happens(250):
            return
        name, delay = tape.one_of("red", "blue"), tape.one_of(2.0, 6.0, 20.0, 0.5)
        start.program.insert(0, ["receive", name, None])
        self._signals += 1
        after_step = start.after_step + tape.choose(100)
        self._ask(SendSignal(start.key, after_step, name, f"s{self._signals}", delay))

    def _word(self, key: str, after_step: int) -> ResolveDeferred | AskRun:
        """A value for a deferred, which may be another one than it has, or a question."""
        self._signals += 1
        name = self.tape.one_of("asked", "north", "south")
        payload = f"w{self._signals}"
        return AskRun(key, after_step, payload) if name == "asked" else ResolveDeferred(key, after_step, name, payload)

    def _ask(self, request: Request) -> None:
        request.acknowledged = self._acknowledged  # type: ignore[method-assign]  # what this schedule does with it
        self.requests.append(request)
        self._undone.append(request)

    def _play(self) -> None:
        """Until all faults have struck and are over, and all requests were made once."""
        plan = list(self._plan.faults)
        self.world.network.per_mille = self._plan.mishaps
        while plan or self._is_struck() or any(r.tries == 0 and self._can_ask(r) for r in self.requests):
            if plan and plan[0].after_step <= self.world.steps:
                _, fault, number, moment = plan.pop(0)
                self.faults += 1
                self.world.strike(fault, self.world.nodes[number % len(self.world.nodes)], moment)
            self._step()

    def _is_struck(self) -> bool:
        """Whether somebody is yet to go on, or to die."""
        nodes = self.world.nodes
        return any(node.dooms or (node.is_alive and (node.is_frozen or node.is_stalled)) for node in nodes)

    def _can_ask(self, request: Request) -> bool:
        if isinstance(request, RetryRun) and request.after is not None:
            return bool(request.after.run_id)
        if isinstance(request, RetryRun) and not request.run_id:
            runs = self.witness.seen.runs.values()
            return any(run.workflow_id == request.key and run.is_latest and run.closed_at is not None for run in runs)
        return not isinstance(request, OfRun) or self.starts[request.key].is_done

    def _step(self) -> None:
        world = self.world
        if world.steps > MOST_STEPS:
            raise Violation("I44", f"after {MOST_STEPS} steps there is no end of it: {self._open_runs()}")
        self.work = [job for job in self.work if not job.future.done() and job.node.is_alive]
        further: list[Any] = [(self._end_work, (job,)) for job in self.work if job.node.is_hearing]
        ready = [node for node in world.nodes if node.state is State.UP and node.is_hearing]
        self._undone = [request for request in self._undone if not request.is_done]
        if ready:
            further += [
                (self._make_request, (request, by))
                for request in self._undone
                if (by := self._askable(request, ready))
                and request.after_step <= world.steps
                and request.is_free
                and self._can_ask(request)
            ]
        world.step(*further)
        if self.violation is not None:
            raise self.violation
        for node in world.nodes:
            if node.is_frozen or node.is_stalled:
                self._check_paused(node)
            if node.boots and node.loop.troubles:
                raise Violation("I44", f"in node {node.number}: {node.loop.troubles[0]}")

    def _askable(self, request: Request, ready: list[Node]) -> list[Node]:
        """Those who can ask this: over a server or not, unless one of these is what it is about."""
        if self._plan.servers and isinstance(request, StartUnderKey | SignalUnderKey):
            # How long a key is kept is said to the database alone.
            return [node for node in ready if not node.is_remote]
        if self._plan.servers and isinstance(request, FollowRuns | SignalAnew):
            return [node for node in ready if node.is_remote]
        return ready

    def _check_paused(self, node: Node) -> None:
        """Nothing stays long with a process that does not go on, when another one is there to take it."""
        if node.is_writing and any(other.is_waiting for other in self.world.nodes):
            # Whoever has something for a run that it is writing waits, with all else that he has to write; ending that
            # is up to the database.
            self._locked_until_ms = self.world.now_ms
        if node.state is not State.UP or not node.is_alive or node.is_writing:
            return
        given_up_ms = (GIVE_UP_SECONDS if node.is_stalled else 0) * 1000 + 2 * LEASE_S * 1000 + CALM_MS
        if self.world.now_ms - node.paused_since_ms > given_up_ms and self._is_looked_after(node):
            left = [r.run_id for r in self.witness.seen.runs.values() if r.owner == node.engine.worker_id]
            if left:
                raise Violation("I41", f"runs stay with node {node.number}, which does not go on: {left}")

    def _is_looked_after(self, paused: Node) -> bool:
        """Whether some other process has been well for long enough to notice."""
        world, since = self.world, self.world.now_ms - 2 * LEASE_S * 1000 - CALM_MS
        others = [
            node
            for node in world.nodes
            if node is not paused and node.state is State.UP and node.is_hearing and not node.is_remote
        ]
        is_free = max(world.calm_since_ms, self._locked_until_ms) < since
        return is_free and any(node.calm_since_ms < since for node in others)

    def _sender(self, node: Node, *_: object) -> EventSender | None:
        """How a process sends to the sink; another deployment has no code for it."""
        return self.sink.sender(node, partial(self._sent, node), self._took) if node.version == 1 else None

    def _sent(self, node: Node, delivery: Delivery) -> None:
        self.world.say(lambda: f"node {node.number} sends {delivery.number}")
        self.work.append(delivery)

    def _took(self, event: OutboxEvent) -> None:
        self.world.effects.append(("took", event.type, event.number))
        self.world.say(lambda: f"the sink takes {event.type} {event.id}")
        try:
            self.sink.took(event)
        except Violation as violation:
            self.violation = self.violation or violation

    def _end_work(self, job: Job | Delivery) -> None:
        self.world.say(
            lambda: f"node {job.node.number} ends {'step' if isinstance(job, Job) else 'sending'} {job.number}"
        )
        self.world.call(job.node, job.end)

    def _make_request(self, request: Request, ready: list[Node]) -> None:
        node = ready[self.tape.choose(len(ready))]
        if isinstance(request, SendSignal | SignalAnew | ResolveDeferred | AskRun | SignalUnderKey):
            self.sent[request.key][request.name].add(request.payload)
        if isinstance(request, BroadcastAll):
            self._note_broadcast(request)
        self.world.say(lambda: f"node {node.number} is asked: {type(request).__name__} {request.key}")
        request.begin(node)
        self.world._after(node)

    def _note_broadcast(self, request: BroadcastAll) -> None:
        """Any run may get it that is there by now, or is started under an id that is known."""
        runs = [run for run in self.witness.seen.runs.values() if not run.is_task]
        request.open_runs = [run.run_id for run in runs if run.closed_at is None]
        for key in (*self.starts, *(run.workflow_id for run in runs)):
            self.sent.setdefault(key, {name: set() for name in model.SENT})[request.name].add(request.payload)

    # What is seen

    def _wrote(self, node: Node, batch: Batch, outcome: object) -> None:
        self.witness.latest_clock = max(self.witness.latest_clock, node.app._clock.now())
        try:
            if isinstance(outcome, Committed):
                self._count(batch, outcome)
            before = self.witness.seen
            self.witness.wrote(batch, outcome)
            self.sink.wrote(outcome, before, self.witness.seen)
            self.timetables.wrote(batch, outcome, self.witness.seen)
            self.keys.wrote(batch, outcome, self.witness.seen)
            for what in sorted(self.timetables.news()):
                self.world.reach(what)
            self._check_held()
        except Violation as violation:
            self.violation = self.violation or violation

    def _check_held(self) -> None:
        for run in self.witness.seen.runs.values():
            if run.held == "quarantine" and run.run_id not in self._quarantined:
                self._quarantined.add(run.run_id)
                self.world.reach("quarantine")
                is_unlucky = self.world.reached.get("takeover", 0) >= LOST_TOO_OFTEN
                if not is_unlucky and not _is_poisoned(run):
                    raise Violation("I19", f"run {run.run_id} is held, though nothing is wrong with it")

    def _count(self, batch: Batch, outcome: Committed) -> None:
        """What was come by."""
        reach = self.world.reach
        for number, group in enumerate(batch.groups):
            is_applied = isinstance(outcome.answers.get(number, Applied()), Applied)
            for operation in group:
                match operation:
                    case RegisterWorker() if is_applied:
                        self.witness.registered(operation.worker_id, is_remote=operation.is_remote)
                    case RaiseEpoch() if is_applied:
                        is_own = batch.worker_id is None and not self.witness.is_remote(operation.worker_id)
                        reach("recovery of the own runs" if is_own else "takeover")
                    case ParkRun():
                        reach("parked" if is_applied else "not parked")
                    case HoldRun() if is_applied:
                        reach(operation.reason)
                    case SupersedeRun() if is_applied:
                        reach("took over the id" if operation.owner is None else "a generation followed")
                    case _:
                        pass

    def began(self, node: Node, key: str, number: int, after: int, queues: plans.Queues) -> None:
        """An attempt of an activity begins."""
        if not node.is_alive:
            return
        run_id, _, place = key.partition("/")
        self.world.effects.append(("began", node.number, place, number))
        self.world.say(lambda: f"node {node.number} begins {place} of {run_id[-4:]}, attempt {number}")
        run = self.witness.seen.runs.get(run_id)
        if run is not None and run.owner != node.engine.worker_id:
            self.world.reach("a zombie computed")
        if number > 1:
            self.world.reach("an attempt failed" if run is None or not run.is_task else "a task was tried again")
        try:
            self._check_queue(run, queues)
            self.witness.began(run_id, place, number, after, node.engine.worker_id)
        except Violation as violation:
            self.violation = self.violation or violation

    def _check_queue(self, run: SeenRun | None, queues: plans.Queues) -> None:
        if run is not None and (FAR if run.is_task else NEAR) not in queues:
            raise Violation("I43", f"a step of run {run.run_id} began where only {queues} are worked")

    def poisoned(self, node: Node) -> None:
        """An activity takes its process down."""
        self.world.reach("poison")
        self.world.kill(node)

    def _acknowledged(self, request: Request) -> None:
        self.world.effects.append((type(request).__name__, request.key, type(request.refusal).__name__))
        self.world.say(lambda: f"{type(request).__name__} {request.key}: {request.refusal or request.answer!r}")
        try:
            self._check_answer(request)
        except Violation as violation:
            self.violation = self.violation or violation

    def _check_answer(self, request: Request) -> None:  # noqa: C901, PLR0912 - a line for each kind of request
        refusal = request.refusal
        if request.is_surprised:
            raise Violation("I17", f"{type(request).__name__} of {request.key} was answered with {refusal!r}")
        if refusal is not None:
            self.world.reach(type(refusal).__name__)
        match request:
            case StartRun() if refusal is None:
                self._check_started(request)
            case StartRun():
                if not isinstance(refusal, IdConflict):
                    raise Violation("I10", f"the start of {request.key} was refused: {refusal!r}")
            case SendSignal() | ResolveDeferred() | AskRun():
                self._check_word(request)
            case SignalAnew() if refusal is None:
                self._check_sent(request)
            case CancelRun() | TerminateRun() if refusal is None:
                self._check_stopped(request)
            case AwaitResult():
                self._check_result(request)
            case RetryRun() | ForkRunAt() if refusal is None:
                self._check_forked(request)
            case PauseOne() if refusal is None:
                self._check_paused_run(request)
            case StartUnderKey() if refusal is None:
                self.keys.answered(request, self.witness.seen)
                self.world.reach("a start under a key")
            case TriggerSchedule() if refusal is None:
                self.timetables.answered(request, self.witness.seen)
            case BroadcastAll() | PauseAll():
                self._check_bulk(request)
            case AddSink() if refusal is None:
                self.sink.promised()

    def _check_word(self, request: SendSignal | ResolveDeferred | AskRun) -> None:
        refusal = request.refusal
        if isinstance(request, SendSignal) and refusal is None:
            if not any(m.message_id == f"signal:{request.payload}" for m in self.witness.seen.messages.values()):
                raise Violation("I01", f"the signal {request.payload} was acknowledged, but it is not on disk")
            return
        if isinstance(request, AskRun) and (refusal is None or isinstance(refusal, NotAnswered)):
            self._check_asked(request)
        elif isinstance(request, ResolveDeferred) and refusal is None:
            self._check_resolved(request)

    def _check_sent(self, request: SignalAnew) -> None:
        """It is there, and no more often than it was asked for; a run that is made from another one has it as well."""
        sent = Counter(
            message.run_id
            for message in self.witness.seen.messages.values()
            if message.kind == "SignalSent" and json.loads(message.body).get("payload") == request.payload
        )
        if not sent:
            raise Violation("I01", f"the signal {request.payload} was acknowledged, but it is not on disk")
        if max(sent.values()) > request.tries:
            raise Violation("I62", f"the signal {request.payload} was sent {request.tries} times, and is there {sent}")

    def _check_resolved(self, request: ResolveDeferred) -> None:
        """The value of a deferred that was acknowledged is the one on disk, in one of the runs of its id."""
        found = [
            json.loads(message.body)["value"]
            for message in self.witness.seen.messages.values()
            if message.message_id == f"deferred:sim-{request.name}"
            and self.witness.seen.runs[message.run_id].workflow_id == request.key
        ]
        if request.payload not in found:
            raise Violation("I48", f"{request.payload} for {request.name} was acknowledged, but on disk is {found}")

    def _check_asked(self, request: AskRun) -> None:
        """The answer that a caller heard is on disk; one that hears that there is none is right."""
        # Asked again after its run has ended, it may have gone to the next run of that id as well.
        asked = [m for m in self.witness.seen.messages.values() if m.message_id == f"request:{request.payload}"]
        if request.refusal is None:
            self.world.reach("a request was answered")
            answers = [json.loads(message.answer).get("value") for message in asked if message.answer is not None]
            if request.answer not in answers or request.answer != answer_to(request.payload):
                raise Violation("I49", f"{request.payload} was answered {request.answer!r}, but on disk is {answers}")
        elif not any(m.answer is None and self.witness.seen.runs[m.run_id].closed_at is not None for m in asked):
            raise Violation("I49", f"{request.payload} was said to have no answer, but on disk is {asked}")

    def _check_started(self, request: StartRun) -> None:
        run = self.witness.seen.runs.get(request.answer.run_id)
        if run is None:
            raise Violation("I01", f"the start of {request.key} was acknowledged, but it is not on disk")
        first = run
        while first.continued_from is not None:
            first = self.witness.seen.runs[first.continued_from]
        if json.loads(first.input)["parts"] != request.program:
            raise Violation("I10", f"the start of {request.key} was given run {run.run_id}, which has another program")
        if request is not self.starts[request.key]:
            self.world.reach("given the run that has the id")

    def _check_forked(self, request: RetryRun | ForkRunAt) -> None:
        run = self.witness.seen.runs.get(request.answer)
        if run is None or run.forked_from is None:
            raise Violation("I55", f"{request.key} was said to be made anew, but on disk is {run}")
        self.world.reach("a retry" if isinstance(request, RetryRun) else "a fork")

    def _check_paused_run(self, request: PauseOne) -> None:
        """It is held, has ended, or its owner was told; or it was let go on since."""
        row = self._newest(request.answer)
        asked = [m for m in self.witness.seen.messages.values() if m.run_id == row.run_id and m.kind == "PauseRequest"]
        if row.closed_at is None and row.held is None and not asked and not self._is_resumed(request.key):
            raise Violation("I58", f"{request.key} was said to be paused, but nothing is on disk: {row}")

    def _is_resumed(self, key: str) -> bool:
        return any(isinstance(other, ResumeOne) and other.tries and other.key == key for other in self.requests)

    def _check_bulk(self, request: "BroadcastAll | PauseAll") -> None:
        """Every run that was there at the beginning was asked, but for those that have ended; none was refused."""
        if request.refusal is not None or request.answer.errors:
            raise Violation("I59", f"{type(request).__name__} was answered with {request.refusal or request.answer}")
        self.world.reach("all were asked")
        if isinstance(request, PauseAll):
            return
        message_id, seen = f"signal:{request.payload}", self.witness.seen
        told = Counter(m.run_id for m in seen.messages.values() if m.message_id == message_id)
        for run_id in request.open_runs:
            if told[run_id] != 1 and seen.runs[run_id].closed_at is None:
                raise Violation("I59", f"run {run_id} was open, and was told {told[run_id]} times of {message_id}")

    def _check_stopped(self, request: Request) -> None:
        row = self._newest(request.answer)
        asked = [
            m
            for m in self.witness.seen.messages.values()
            if m.run_id == row.run_id and m.kind in {"CancelRequest", "TerminateRequest"}
        ]
        if row.closed_at is None and not asked and row.cancel_requested_at is None:
            raise Violation(
                "I29", f"{type(request).__name__} of {request.key} was acknowledged, but nothing is on disk"
            )

    def _check_result(self, request: AwaitResult) -> None:
        refusal = request.refusal
        if refusal is not None and not isinstance(refusal, ENDS):
            return
        run = self._newest(request.run_id)
        if run.closed_at is None:
            raise Violation("I06", f"{request.key} was said to have ended, but is open on disk")
        wanted = "COMPLETED" if refusal is None else _STATUS[type(refusal).__name__]
        if run.status != wanted:
            raise Violation("I06", f"{request.key} was said to be {wanted}, but is {run.status}")

    def _newest(self, run_id: str) -> SeenRun:
        """The run itself, or the last of those that continue it."""
        run = self.witness.seen.runs[run_id]
        while run.status == "CONTINUED":
            heirs = [heir for heir in self.witness.seen.runs.values() if heir.continued_from == run.run_id]
            run = next(heir for heir in heirs if heir.forked_from is None)
        return run

    # The end

    def _open_runs(self) -> list[Any]:
        return [
            (r.run_id, r.status, r.held, r.owner, r.wake_at, r.waiting)
            for r in self.witness.seen.runs.values()
            if r.closed_at is None
        ]

    def _heal(self) -> None:
        """Faults are over: everything that can end does."""
        world = self.world
        world.heal()
        self.sink.per_mille = 0
        world.say(lambda: "HEALED")
        latest = max(node.offset_ms for node in world.nodes)
        # Also what is about to be written goes by a clock that was ahead; its timers wait for that time to come.
        clocks = [node.app._clock.now() for node in world.nodes if node.state is State.UP]
        for node in world.nodes:
            node.offset_ms = max(latest, max([self.witness.latest_clock, *clocks]) - world.now_ms)
        until, fed_at = world.now_ms + PATIENCE_MS, world.now_ms + 5000
        while not self._is_over():
            if world.now_ms > until:
                raise Violation("I40", f"still open {PATIENCE_MS // 1000} s after the last fault: {self._open_runs()}")
            if world.now_ms >= fed_at:
                self._feed()
                fed_at = world.now_ms + 15_000
            self._step()

    def _is_over(self) -> bool:
        runs = self.witness.seen.runs.values()
        is_done = all(request.is_done or request is self._follower for request in self._undone)
        is_over = (
            is_done and self.timetables.is_over and self.sink.is_over and all(run.closed_at is not None for run in runs)
        )
        return is_over and self._is_told()

    def _is_told(self) -> bool:
        """Whether the subscriber knows how all ended; that may take it a while, but not for ever."""
        if self._follower is None:
            return True
        if not (missed := self._follower.missed()):
            self._see_followed(self._follower)
            return True
        if self._quiet_since_ms is None:
            self._quiet_since_ms = self.world.now_ms
        if self.world.now_ms - self._quiet_since_ms > LATE_MS:
            raise Violation("I60", f"whoever follows runs was not told how these stand: {missed}")
        return False

    def _see_followed(self, follower: FollowRuns) -> None:
        self.world.reach("runs were followed")
        if follower.went_on:
            self.world.reach("a subscriber went on after its cursor")
        if follower.expired:
            self.world.reach("a cursor was too old")

    def _feed(self) -> None:
        """Send what runs wait for; not those that were told to stop, which must end without it."""
        for run in list(self.witness.seen.runs.values()):
            rests = run.closed_at is None and run.losses >= LOST_TOO_OFTEN and _is_poisoned(run)
            if rests and run.run_id not in self._quarantined:
                # It was alone with its workers, and would be tried again for ever.
                self._quarantined.add(run.run_id)
                self.world.reach("a rest")
            is_poison = run.held == "quarantine" or rests
            if is_poison or (run.held == "mismatch" and model.changes_with_the_code(_parts_of(run))):
                # Nobody will mend its code, or bring back the one that wrote its history.
                self.starts.setdefault(run.workflow_id, self._known(run.workflow_id))
                self._ask(TerminateRun(run.workflow_id, 0))
            is_asked = any(
                m.run_id == run.run_id and m.kind == "PauseRequest" and m.taken_by is None
                for m in self.witness.seen.messages.values()
            )
            if run.closed_at is None and not run.is_task and (run.held == "paused" or is_asked):
                self.starts.setdefault(run.workflow_id, self._known(run.workflow_id))
                # Whoever has asked for it waits for the answer.
                if not any(isinstance(other, ResumeOne) and other.key == run.workflow_id for other in self._undone):
                    self._ask(ResumeOne(run.workflow_id, 0))
            is_stopped = self._is_told_to_stop(run) and not model.may_be_stopped(_parts_of(run))
            if run.closed_at is None and run.held is None and not is_stopped and not run.is_task:
                self.sent.setdefault(run.workflow_id, {name: set() for name in model.SENT})
                self.starts.setdefault(run.workflow_id, self._known(run.workflow_id))
                for name in ("red", "blue"):
                    self._signals += 1
                    self._ask(SendSignal(run.workflow_id, 0, name, f"s{self._signals}"))
                self._feed_waits(run)

    def _is_told_to_stop(self, run: SeenRun) -> bool:
        """Whether its code is to end for that; of a run that continues another one, that may have taken the request."""
        if run.cancel_requested_at is None or run.continued_from is None:
            return run.cancel_requested_at is not None
        return any(m.run_id == run.run_id and m.kind == "CancelRequest" for m in self.witness.seen.messages.values())

    def _feed_waits(self, run: SeenRun) -> None:
        """Resolve the deferreds that a run waits for, and ask what it waits to be asked."""
        waits = json.loads(run.waiting or "[]")
        for wait in waits:
            self._signals += 1
            payload = f"w{self._signals}"
            if wait["kind"] == "deferred":
                name = wait["name"].removeprefix("sim-")
                self._ask(ResolveDeferred(run.workflow_id, 0, name, payload))
            elif wait["kind"] == "request":
                self._ask(AskRun(run.workflow_id, 0, payload))

    def _known(self, key: str) -> StartRun:
        start = StartRun(key, 0, [], {})
        start.is_done = True
        return start

    def _judge(self) -> None:
        """What every run came to must be what its program may come to."""
        runs = self.witness.seen.runs
        for run in runs.values():
            self.world.effects.append((run.workflow_id, run.status, _without_traceback(run.outcome), run.last_seq))
            if run.is_task:
                self._judge_task(run)
                continue
            parts, done = _parts_of(run), json.loads(run.input)["done"]
            if run.status == "COMPLETED":
                value = json.loads(run.outcome or "null")[len(done) :]
                sent = self._sent_to(run.workflow_id)
                if (trouble := model.trouble_with(parts, value, sent)) is not None:
                    raise Violation("I25", f"run {run.run_id}: {trouble}")
                self._judge_outputs(run, parts, len(done))
                self._judge_stopped(run, value)
            self._judge_end(run, parts)
            self._see_undos(run)
            if run.status == "CANCELLED":
                self.world.reach("a cancelled run")
        self._judge_requests()
        self.sink.judge()
        if self.witness.received_delayed:
            self.world.reach("a delayed signal was received")
        if any(message.kind == "ChildResult" and message.taken_by for message in self.witness.seen.messages.values()):
            self.world.reach("a child told its parent")
        for run_id, history in self.witness.histories.items():
            if len(history) + 2 != (runs[run_id].last_seq or len(history) + 2):
                raise Violation(
                    "I02", f"run {run_id} has {len(history)} events, but ended with {runs[run_id].last_seq}"
                )

    def _judge_outputs(self, run: SeenRun, parts: list[Any], before: int) -> None:
        """What a run shows at its end is all that it did, and all is there that its workflow has published."""
        if (shown := self.witness.shown_by(run)) != before + len(parts):
            raise Violation("I50", f"run {run.run_id} has ended, and shows {shown} of {before + len(parts)} parts")
        if missing := {part[1] for part in parts if part[0] == "say"} - self.witness.said_by(run):
            raise Violation("I51", f"run {run.run_id} has ended, and {missing} were not published")

    def _judge_stopped(self, run: SeenRun, value: Any) -> None:
        """Only a run that was asked to stop is told so where it waits for that."""
        if model.was_stopped(value):
            self.world.reach("told to stop where it waited for that")
            if run.cancel_requested_at is None:
                raise Violation("I54", f"run {run.run_id} was told to stop, but nobody asked for it: {value}")

    def _see_undos(self, run: SeenRun) -> None:
        """How runs were undone, or not."""
        for state in ("done", "failed", "waiting"):
            if run.status not in {"COMPLETED", "CONTINUED"} and f'"state":"{state}"' in (run.undo or ""):
                self.world.reach("left undone" if state == "waiting" else f"undone, {run.status}")

    def _judge_requests(self) -> None:
        """A program answers what it takes, in the same breath; only one that was stopped from outside may not."""
        for request in self.requests:
            if isinstance(request, SignalAnew) and request.is_done and request.refusal is None:
                self._check_sent(request)
        for message in self.witness.seen.messages.values():
            is_answered = message.answer is not None and "answered" in message.answer
            status = self.witness.seen.runs[message.run_id].status
            if (
                message.kind == "RequestSent"
                and message.taken_by
                and not is_answered
                and status in {"COMPLETED", "FAILED"}
            ):
                raise Violation("I49", f"{message} was taken by a run that is {status}, and has no answer")

    def _judge_task(self, run: SeenRun) -> None:
        """An activity on a queue came to what it was asked for, or was stopped by whoever may."""
        given = json.loads(run.input)["arguments"]
        caller, fails = self.witness.seen.runs[run.parent_id or ""], given.get("fails", 0)
        if run.run_id in self.witness.lost:
            self.world.reach("a task's worker was lost")
        match run.status:
            case "COMPLETED":
                self.world.reach("a task completed")
                if json.loads(run.outcome or "null") != outcome_of(given["number"]) or fails >= MOST_ATTEMPTS:
                    raise Violation("I25", f"the task {run.run_id} of {given} came to {run.outcome}")
            case "FAILED":
                is_late = "longer than its timeout of" in (run.outcome or "")
                is_unbegun = NOT_BEGUN in (run.outcome or "")
                self.world.reach(
                    "a task was not begun in time"
                    if is_unbegun
                    else "a task was too slow"
                    if is_late
                    else "a task failed for good"
                )
                if "perdure.errors.AttemptLost" in (run.outcome or "") and run.workflow.endswith(sim_once.name):
                    self.world.reach("an only attempt was lost")
                elif not is_late and not is_unbegun and fails != MOST_ATTEMPTS:
                    raise Violation("I25", f"the task {run.run_id} of {given} failed: {run.outcome}")
            case "CANCELLED":
                is_with_caller = caller.cancel_requested_at is not None
                self.world.reach("a task was cancelled with its caller" if is_with_caller else "a task was called off")
            case _ if run.run_id not in self._quarantined and caller.status not in {"TERMINATED", "TIMED_OUT"}:
                raise Violation("I29", f"the task {run.run_id} is {run.status}, but nobody asked for it")

    def _sent_to(self, key: str) -> dict[str, set[str]]:
        """What was sent to the runs of an id, and to those that they were forked from."""
        mine, theirs = self.sent.get(key, {}), self.sent.get(key.removesuffix(FORKED), {})
        return {name: mine.get(name, set()) | theirs.get(name, set()) for name in model.SENT}

    def _judge_end(self, run: Any, parts: list[Any]) -> None:
        match run.status:
            case "FAILED":
                is_late = "longer than its timeout of 60 s" in (run.outcome or "")
                if not model.fails(parts) and not is_late:
                    raise Violation("I25", f"run {run.run_id} failed: {run.outcome}")
            case "TIMED_OUT":
                # A fork may have it from another run that its time is over.
                is_told = any(event.kind == "TimeoutReached" for event in self.witness.histories.get(run.run_id, ()))
                is_early = run.timeout_ms is None or run.closed_at < run.created_at + run.timeout_ms
                if is_early and not (is_told and run.forked_from is not None):
                    raise Violation("I24", f"run {run.run_id} timed out after {run.closed_at - run.created_at} ms")
            case "CANCELLED":
                # A schedule may ask its old runs to make room for the next one.
                if (
                    run.parent_id is None
                    and run.schedule is None
                    and not any(
                        isinstance(r, CancelRun) and r.tries and r.key == run.workflow_id.removesuffix(FORKED)
                        for r in self.requests
                    )
                ):
                    raise Violation("I29", f"run {run.run_id} was cancelled, but nobody asked for it")
                self._judge_cancelled(run, parts)
            case _:
                pass

    def _judge_cancelled(self, run: SeenRun, parts: list[Any]) -> None:
        """A request to stop ends no code that waits for it, unless by its deadline."""
        done = self.witness.shown_by(run) - len(json.loads(run.input)["done"])
        if not self.witness.has_deadline(run) and 0 <= done < len(parts) and parts[done][0] == "until stopped":
            raise Violation("I54", f"run {run.run_id} was cancelled where it waited to be told to stop")

    def _digest(self) -> str:
        return hashlib.blake2b(repr(self.world.effects).encode(), digest_size=8).hexdigest()

    def _bury(self) -> None:
        for node in self.world.nodes:
            if node.state is not State.DOWN:
                node.bury()


def _parts_of(run: SeenRun) -> list[Any]:
    """The program of a run; an activity on a queue has none."""
    return [] if run.is_task else list(json.loads(run.input)["parts"])


def _without_traceback(outcome: str | None) -> Any:
    """What a run came to, but not in which folders its code lies."""
    found = json.loads(outcome or "null")
    return {key: found[key] for key in sorted(found) if key != "traceback"} if isinstance(found, dict) else found


def _is_poisoned(run: SeenRun) -> bool:
    return run.workflow == f"{TASK_PREFIX}{sim_far_poison.name}" or model.is_poisoned(_parts_of(run))


_STATUS = {
    "RunFailed": "FAILED",
    "RunCancelled": "CANCELLED",
    "RunTerminated": "TERMINATED",
    "RunTimedOut": "TIMED_OUT",
}
