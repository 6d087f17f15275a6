"""The world: processes on one database, and time, moved on one choice at a time.

In:   a tape of choices, a database, faults to come.
Out:  a schedule: which process does what in which order, and when it is struck.

One step is one thing that can happen in the real world on its own: a statement is
executed, an answer arrives, an activity ends, timers ring, time passes, a fault strikes.
Everything within a process that follows from it happens at once. Everything here is
decided by the tape, so the same tape is the same schedule.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from perdure.clock import LongWait
from perdure.engine.duties.finding import SinkFinder
from perdure.engine.leasing.heartbeat import Heartbeat
from perdure.engine.watch import Watch
from perdure.kernel.quarantine import QUARANTINE_FROM, SUSPECT_FROM
from perdure.stores.answers import Applied, Committed
from perdure.stores.operations import Batch, RaiseEpoch
from perdure.worker.worker import Worker
from tests.simulation.simulator.database import Database
from tests.simulation.simulator.faults import AT_COMMIT, Fault, Moment
from tests.simulation.simulator.network import Network
from tests.simulation.simulator.node import Node, State
from tests.simulation.simulator.store import ReadJob, WriteJob
from tests.simulation.simulator.tape import Tape

FIRST_MS = 1_800_000_000_000
# Time passes by no more than this at once, so that leases of idle processes are renewed in time.
LONGEST_LEAP_MS = 8000
REBOOT_MS = 1000
LONGEST_FREEZE_MS = 100_000
LONGEST_DOOM_MS = 120_000
# With one more a run that is innocent may be held.
MOST_DOOMS = SUSPECT_FROM + QUARANTINE_FROM - 1
JUMPS_MS = (1000, 60_000, 3_600_000, 86_400_000)

Action = tuple[Callable[..., None], tuple[Any, ...]]


class World:
    """Nodes, time and chance."""

    def __init__(self, tape: Tape, database: Database) -> None:
        self.tape = tape
        self.database = database
        self.now_ms = FIRST_MS
        self.nodes: list[Node] = []
        self.network = Network(self)
        self.steps = 0
        self.reached: Counter[str] = Counter()
        self.trace: list[str] | None = None
        self.effects: list[object] = []
        self._slow_until = self._broken_until = self._full_until = self.calm_since_ms = 0
        # What shall happen at a time: a process is started again, goes on, is noticed.
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0
        self.wrote_hook: Callable[[Node, Batch, object], None] = lambda *_: None

    # What nodes ask

    def is_disk_broken(self) -> bool:
        return self.now_ms < self._broken_until

    def is_disk_full(self) -> bool:
        return self.now_ms < self._full_until

    def is_in_doubt(self) -> bool:
        return self.tape.choose(2) == 1

    def reach(self, what: str) -> None:
        self.reached[what] += 1

    def wrote(self, node: Node, job: WriteJob) -> None:
        outcome = job.outcome
        self.reached[type(outcome).__name__] += 1
        if isinstance(outcome, Committed):
            for answer in outcome.answers.values():
                if not isinstance(answer, Applied):
                    self.reached[f"answer {type(answer).__name__}"] += 1
        self.effects.append((node.number, type(outcome).__name__, [len(group) for group in job.batch.groups]))
        self.say(lambda: f"node {node.number} writes {_shown(job.batch)}: {type(outcome).__name__}")
        if isinstance(outcome, Committed):
            self._wake_the_lost(job.batch)
        self.wrote_hook(node, job.batch, outcome)

    def say(self, text: Callable[[], str]) -> None:
        """Tell what happens, if anybody listens."""
        if self.trace is not None:
            self.trace.append(f"{self.steps:5} {self.now_ms - FIRST_MS:>8} ms  {text()}")

    # Processes

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.boot(node)

    def boot(self, node: Node) -> None:
        if node.state is State.DOWN:
            node.boot(self.tape.choose(1 << 30), is_quick=self.tape.choose(3) == 1 and self.database.is_quick)
            self.say(lambda: f"node {node.number} starts, {'quick' if node.is_quick else 'slow'} disk")
            self._after(node)

    def plan(self, after_ms: int, what: Callable[[], None]) -> None:
        """Do this later."""
        self._planned += 1
        self._plans.append((self.now_ms + after_ms, self._planned, what))

    def _after(self, node: Node) -> None:
        """Something happened in a process: it may be dead now."""
        if not node.is_alive and node.state is not State.DOWN:
            self.say(lambda: f"node {node.number} is gone")
            node.bury()
            self.plan(REBOOT_MS * self.tape.choose(4), lambda: self.boot(node))

    def kill(self, node: Node) -> None:
        """The process is dead as soon as it comes to it."""
        node.is_alive = False

    # One step

    def step(self, *further: Action) -> None:
        """Let one thing happen: one of what can, or of what else there is."""
        self.steps += 1
        actions = self._actions()
        actions += further
        if not actions:
            self.pass_time()
            return
        # Now and then time passes although there is something to do.
        choice = self.tape.choose(len(actions) + (self.tape.choose(8) == 1))
        if choice == len(actions):
            self.pass_time()
        else:
            act, args = actions[choice]
            act(*args)

    def _actions(self) -> list[Action]:
        now, is_slow = self.now_ms, self.now_ms < self._slow_until
        actions: list[Action] = [(self._follow_plan, (what,)) for due, _, what in self._plans if due <= now]
        for node in self.nodes:
            # Nothing of a frozen process moves.
            if not node.is_alive or node.is_frozen:
                continue
            is_hearing = not node.is_stalled
            for job in node.jobs:
                if job.is_ready:
                    if is_hearing:
                        actions.append((self._deliver, (node, job)))
                elif not is_slow and not job.is_blocked:
                    actions.append((self._do, (node, job)))
            if is_hearing and node.loop.is_due(now):
                actions.append((self._ring, (node,)))
            if now >= node.next_beat_ms and node.heart is not None:
                actions.append((self._beat, (node,)))
        return actions + self.network.actions(now)

    def _follow_plan(self, what: Callable[[], None]) -> None:
        self._plans = [plan for plan in self._plans if plan[2] is not what]
        what()

    def _do(self, node: Node, job: WriteJob | ReadJob) -> None:
        if isinstance(job, WriteJob):
            node.write(job)
        else:
            self.say(lambda: f"node {node.number} reads {job.name}")
            node.read(job)
        self._after(node)

    def _deliver(self, node: Node, job: WriteJob | ReadJob) -> None:
        self.say(lambda: f"node {node.number} is answered: {_shown_answer(job)}")
        node.deliver(job)
        self._after(node)

    def _ring(self, node: Node) -> None:
        self.say(lambda: f"node {node.number} rings")
        node.loop.fire()
        self._after(node)

    def _beat(self, node: Node) -> None:
        node.beat()
        if node.is_hearing:
            node.loop.drain()
        self._after(node)

    def call(self, node: Node, callback: Callable[..., object], *args: object) -> None:
        """Let something reach a process from outside."""
        node.loop.run(callback, *args)
        self._after(node)

    def pass_time(self) -> None:
        """Let time pass: to the next thing that is due, or past what only looks after things."""
        due = [plan[0] for plan in self._plans] + self.network.due()
        nearest = None
        for node in self.nodes:
            if node.is_hearing:
                for at, callback in node.loop.timers():
                    if nearest is None or at < nearest:
                        nearest = at
                    waiting = getattr(callback, "__self__", None)
                    if isinstance(waiting, LongWait) and not node.app._clock.is_over(waiting.at):
                        due.append(self.now_ms + waiting.at + 1 - node.app._clock.now())
                    elif getattr(callback, "__func__", None) not in _HOUSEKEEPING:
                        due.append(at)
        disk = (self._slow_until, self._broken_until, self._full_until)
        due += [until for until in disk if until > self.now_ms]
        latest = self.now_ms + LONGEST_LEAP_MS
        leap_to = max(self.now_ms + 1, min([*due, latest]))
        if nearest is not None and nearest < leap_to and self.tape.choose(4) == 1:
            leap_to = max(nearest, self.now_ms + 1)
        self.now_ms = leap_to

    # Faults

    def strike(self, fault: Fault, node: Node, moment: Moment = Moment.ANY) -> None:
        """Let a fault happen to a process, or to the disk they share; with a commit of that moment, if with one."""
        self.say(lambda: f"FAULT {fault.name} on node {node.number}, {moment.name}")
        self.effects.append((fault.name, node.number, moment.name))
        if fault in AT_COMMIT:
            if node.is_alive:
                node.armed, node.moment = fault, moment
            return
        self.reach(fault.name)
        _STRIKES[fault](self, node)
        self._after(node)

    def freeze(self, node: Node) -> None:
        """Stop a process as a whole: for a hiccup, for several leases, or until somebody takes its runs."""
        node.is_frozen = True
        ms = self.tape.one_of(200, 3000, 40_000, 80_000, None, None)
        node.is_frozen_until_lost = ms is None
        self._pause(node, LONGEST_FREEZE_MS if ms is None else ms)

    def _stall(self, node: Node) -> None:
        node.is_stalled = True
        self._pause(node, self.tape.one_of(3000, 20_000, 120_000, 200_000))

    def _pause(self, node: Node, ms: int) -> None:
        node.paused_since_ms = self.now_ms
        self.plan(ms, partial(self._thaw, node, node.boots))

    def _wake_the_lost(self, batch: Batch) -> None:
        """Who was frozen until its runs were taken goes on now: a late writer is most dangerous right then."""
        for node in self.nodes:
            if node.is_frozen and node.is_frozen_until_lost and node.state is State.UP:
                worker_id, boots = node.engine.worker_id, node.boots
                if any(type(op) is RaiseEpoch and op.worker_id == worker_id for group in batch.groups for op in group):
                    self.plan(0, partial(self._thaw, node, boots))

    def _thaw(self, node: Node, boots: int) -> None:
        if node.boots == boots and node.is_alive:
            node.is_frozen = node.is_stalled = False
            node.calm_since_ms = self.now_ms
            node.loop.drain()
            self._after(node)

    def _slow_disk(self, _: Node) -> None:
        self._slow_until = self.calm_since_ms = self.now_ms + self.tape.one_of(100, 2000, 15_000)

    def _break_disk(self, _: Node) -> None:
        self._broken_until = self.calm_since_ms = self.now_ms + self.tape.one_of(100, 2000, 15_000)

    def _fill_disk(self, _: Node) -> None:
        self._full_until = self.calm_since_ms = self.now_ms + self.tape.one_of(100, 2000, 15_000)

    def _lose_hints(self, node: Node) -> None:
        node.misses_hints = True
        boots = node.boots

        def notice() -> None:
            if node.boots == boots:
                node.misses_hints = False

        self.plan(self.tape.one_of(200, 3000, 40_000, 50_000, 80_000), notice)

    def _doom(self, node: Node) -> None:
        node.dooms = self.tape.one_of(2, MOST_DOOMS, MOST_DOOMS)
        # There may be nothing for it to do.
        self.plan(LONGEST_DOOM_MS, partial(setattr, node, "dooms", 0))

    def _set_back(self, node: Node) -> None:
        node.offset_ms -= self.tape.one_of(*JUMPS_MS)

    def _set_forward(self, node: Node) -> None:
        node.offset_ms += self.tape.one_of(*JUMPS_MS)

    def _stop(self, node: Node) -> None:
        if node.state is State.UP and node.is_hearing:
            node.stop()

    def _change_code(self, node: Node) -> None:
        node.version = 2 if node.version == 1 else 1
        node.is_alive = False

    def heal(self) -> None:
        """No fault lasts any longer; every process runs, with the right code."""
        self._slow_until = self._broken_until = self._full_until = self.network.per_mille = 0
        for node in self.nodes:
            node.armed, node.dooms = None, 0
            node.is_frozen = node.is_stalled = node.misses_hints = False
            if node.version != 1:
                node.version = 1
                node.is_alive = False
            self._after(node)


_STRIKES: dict[Fault, Callable[[World, Node], None]] = {
    Fault.CRASH: lambda world, node: world.kill(node),
    Fault.CRASH_LOOP: World._doom,
    Fault.FREEZE: World.freeze,
    Fault.STALL: World._stall,
    Fault.SLOW_DISK: World._slow_disk,
    Fault.BROKEN_DISK: World._break_disk,
    Fault.FULL_DISK: World._fill_disk,
    Fault.LOST_HINTS: World._lose_hints,
    Fault.CLOCK_BACK: World._set_back,
    Fault.CLOCK_FORWARD: World._set_forward,
    Fault.STOP: World._stop,
    Fault.OTHER_CODE: World._change_code,
}

LONGEST_SHOWN = 300
_OF_THIS_PROCESS = re.compile(r'"host":"[^"]*","pid":\d+,')
_HOUSEKEEPING = {Watch.wake, Worker.sweep, Heartbeat._turn, SinkFinder.wake}


def _shown(batch: Batch) -> str:
    return "; ".join(", ".join(_shown_operation(operation) for operation in group) for group in batch.groups)


def _shown_operation(operation: Any) -> str:
    name = type(operation).__name__
    run_id = getattr(operation, "run_id", None)
    shown = [run_id[-4:]] if run_id else []
    for field in ("kind", "place", "seq", "status", "limit", "worker_id"):
        value = getattr(operation, field, None)
        if value is not None:
            shown.append(f"{field}={value}" if field != "worker_id" else f"worker={value[:4]}")
    return f"{name}({' '.join(shown)})"


def _shown_answer(job: WriteJob | ReadJob) -> str:
    if isinstance(job, WriteJob):
        return f"{type(job.outcome).__name__} to {_shown(job.batch)}"
    if job.error is not None:
        return f"{job.name}: {job.error!r}"
    if job.name == "secret":
        # Of a real database it is another one each time.
        return job.name
    # As JSON, for a repr may hold addresses; and without what differs between two processes that do the same.
    answer = sorted(job.answer.items()) if job.name == "values" else job.answer
    text = msgspec.json.encode(answer, order="deterministic").decode()
    return f"{job.name}: {_OF_THIS_PROCESS.sub('', text)}"[:LONGEST_SHOWN]
