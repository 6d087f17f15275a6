"""Planted bugs: each one a mistake that such engines make, to prove that the simulator would find it.

A mutant changes one thing of the engine while it is switched on. Every one of them has
to be caught by some seed; if none does, the simulator is blind there.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec

from perdure import ids
from perdure.authoring.undo import Undo
from perdure.clock import SystemClock
from perdure.engine import committer, groups, ownership
from perdure.engine.committer import CallbackGroup, Committer, OwnersGroup
from perdure.engine.duties import duties
from perdure.engine.duties.sinks import SinkDuty
from perdure.engine.keys import writing
from perdure.engine.leasing import claims, heartbeat, lease, takeover
from perdure.engine.schedules import deciding
from perdure.engine.steering import bulk, forking
from perdure.engine.subscriptions.subscriptions import StoreSubscriptions
from perdure.engine.transactions import transactor
from perdure.kernel import run as kernel_run
from perdure.kernel import schedules as kernel_schedules
from perdure.kernel.commands import FireTimer
from perdure.kernel.events import Event, TimerFired
from perdure.kernel.position import Position
from perdure.kernel.retry import Retry
from perdure.stores.answers import Applied, Committed, Failed, Fenced, Unknown
from perdure.stores.operations import Batch, FreeRuns, TakeDuty
from perdure.stores.queries import TURN, queries
from perdure.stores.rules import batch as batch_rules
from perdure.stores.rules import inbox as inbox_rules
from perdure.stores.rules import outbox as outbox_rules
from perdure.stores.sqlite import activity_transactions, executor, transactions, writes
from perdure.worker import activities, effects, live_run, program, timers
from perdure.worker import executor as moving
from perdure.worker.calls import activity, child, interrupted, task
from perdure.worker.calls.activity import ActivityCall
from perdure.worker.calls.timer import TimerCall
from perdure.worker.executor import Executor
from perdure.worker.inbox import Delayed, Inbox, key_of
from perdure.worker.loop.places import Branch
from perdure.worker.loop.undo import UndoStack
from perdure.worker.outputs.snapshots import Snapshots
from perdure.worker.program import Program
from perdure.worker.replay import Replay
from perdure.worker.worker import Worker
from tests.simulation.memory import (
    CodeTransaction,
    Tables,
    fork_statements,
    key_statements,
    run_statements,
    schedule_statements,
    worker_statements,
)
from tests.simulation.memory import executor as memory
from tests.simulation.simulator.database import ProcessStore
from tests.simulation.simulator.store import SimulatedStore

Patch = tuple[object, str, Any]
Make: TypeAlias = "Callable[[], list[Patch]]"
MUTANTS: dict[str, Make] = {}
# Those that were in the engine, and were found and mended; see mended.py.
MENDED: dict[str, Make] = {}


def mutant(make: Make) -> Make:
    """One planted bug, known by what its function's docstring says."""
    assert make.__doc__ is not None
    MUTANTS[make.__doc__.rstrip(".")] = make
    return make


def mended(make: Make) -> Make:
    """One that was no mere thought."""
    assert make.__doc__ is not None
    MENDED[make.__doc__.rstrip(".")] = make
    return make


@contextmanager
def switched_on(name: str) -> Iterator[None]:
    """While this lasts, the engine has the bug."""
    patches = (MUTANTS | MENDED)[name]()
    before = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in patches]
    for owner, attribute, value in patches:
        setattr(owner, attribute, value)
    _forget_sql()
    try:
        yield
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)
        _forget_sql()


class _Sql:
    """Named queries as attributes, so that they can be replaced like anything else."""

    def __getattr__(self, name: str) -> str:
        return queries("sqlite")[name]

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # what is replaced is looked up here
        return queries("sqlite")

    def __setattr__(self, name: str, value: str) -> None:
        queries("sqlite")[name] = value
        _forget_sql()


_sql = _Sql()


def _forget_sql() -> None:
    executor.forget_statements()


def changed(name: str, old: str, new: str) -> Patch:
    text = queries("sqlite")[name]
    assert old in text, (name, old)
    return (_sql, name, text.replace(old, new))


# Fencing and epochs


@mutant
def _() -> list[Patch]:
    """No epoch check."""

    def has_epoch(view: Any, worker_id: str, _: int) -> bool:
        return view.workers.get(worker_id) is not None

    return [
        changed("fence", "and epoch = :epoch", "and epoch > 0"),
        (worker_statements, "_has_epoch", has_epoch),
    ]


@mutant
def _() -> list[Patch]:
    """Epoch checked outside the transaction."""

    def commit(self: SimulatedStore, batch: Batch, done: Callable[[Any], None]) -> None:
        if isinstance(self.inner, ProcessStore) and batch.worker_id is not None:
            asked = {"worker_id": batch.worker_id, "epoch": batch.epoch}
            if self.inner.transactions.db.execute(fence, asked).fetchone() is None:
                done(Fenced())
                return
        real_commit(self, batch, done)

    fence, real_commit = queries("sqlite")["fence"], SimulatedStore.commit
    return [(SimulatedStore, "commit", commit), (_sql, "fence", "select 1")]


@mutant
def _() -> list[Patch]:
    """Reused worker id."""

    async def register(self: lease.Lease) -> None:
        ids, self._ids = self._ids, _SameToken()  # type: ignore[assignment]  # only its token is asked for
        try:
            await real_register(self)
        finally:
            self._ids = ids

    real_register = lease.Lease._register
    return [(lease.Lease, "_register", register)]


class _SameToken:
    def token(self) -> str:
        return "local"


@mutant
def _() -> list[Patch]:
    """Takeover without epoch bump."""

    async def take_over(self: takeover.Takeover, worker: Any) -> int:
        await self._committer.apply(FreeRuns(worker.worker_id, self._clock.now(), takeover.BITE))
        return 0

    return [(takeover.Takeover, "take_over", take_over)]


@mutant
def _() -> list[Patch]:
    """Rescue that ignores what it read."""
    read = "and epoch = :epoch"
    return [changed(name, read, "and epoch > 0") for name in ("raise_epoch", "raise_own_epoch")]


# Commits and answers


@mutant
def _() -> list[Patch]:
    """Answer before commit."""

    def submit(self: Committer, group: committer.Group) -> None:
        if isinstance(group, groups.StartGroup) and not group.of_owner and not group.settled.done():
            group.settled.set_result(Applied())
        if type(group) is CallbackGroup and len(group.operations) == 1:
            group.settle(Applied())
        real_submit(self, group)

    real_submit = Committer.submit
    return [(Committer, "submit", submit)]


@mutant
def _() -> list[Patch]:
    """Effect before commit."""

    def then(self: groups.StoreAdvance, effect: Callable[..., None], *args: Any) -> None:
        effect(*args)

    return [(groups.StoreAdvance, "then", then)]


@mutant
def _() -> list[Patch]:
    """Unknown outcome treated as failure."""

    def done(self: Committer, outcome: Any) -> None:
        real_done(self, Failed(outcome.error) if isinstance(outcome, Unknown) else outcome)

    real_done = Committer._done
    return [(Committer, "_done", done)]


@mutant
def _() -> list[Patch]:
    """Unknown outcome treated as success."""

    def done(self: Committer, outcome: Any) -> None:
        real_done(self, Committed({}) if isinstance(outcome, Unknown) else outcome)

    real_done = Committer._done
    return [(Committer, "_done", done)]


@mutant
def _() -> list[Patch]:
    """Group half applied."""
    return [(store, "is_torn", lambda *_: False) for store in (transactions, batch_rules, memory)]


@mutant
def _() -> list[Patch]:
    """Refusal that aborts neighbours."""

    def transact_singly(self: transactions.Transactions, batch: Batch) -> Any:
        self.db.execute("begin immediate")
        answers = writes.apply_singly(self.db, batch.groups)
        self.db.execute("rollback")
        return Committed({index: answer for index, answer in answers.items() if not isinstance(answer, Applied)})

    return [(transactions.Transactions, "_transact_singly", transact_singly)]


# Time


@mutant
def _() -> list[Patch]:
    """> for >= in timers."""

    def decide(state: Any, command: Any, now: int) -> Any:
        if isinstance(command, FireTimer) and max(now, state.at) == command.fire_at:
            return kernel_run.TooEarly(command.fire_at, now)
        return real_decide(state, command, now)

    real_decide = kernel_run.decide
    # To the millisecond: where moments are finer than that, being equal does not happen.
    exact = (SystemClock, "is_over", lambda self, at: self.now() >= at)
    return [(ownership, "decide", decide), exact]


@mutant
def _() -> list[Patch]:
    """Delayed signal received early."""

    def release(self: Inbox, _: Any) -> int | None:
        return real_release(self, lambda _: True)

    real_release = Inbox.release
    return [(Inbox, "release", release)]


@mutant
def _() -> list[Patch]:
    """Delayed signal for which a parked run does not wake."""
    return [(Delayed, "next_at", None)]


@mutant
def _() -> list[Patch]:
    """Timer fired early by skew."""

    def decide(state: Any, command: Any, now: int) -> Any:
        if isinstance(command, FireTimer):
            return Event(state.seq + 1, max(now, state.at), command.place, TimerFired(command.fire_at))
        return real_decide(state, command, now)

    def add(self: timers.Alarms, at: int, run: live_run.LiveRun, call: Any) -> None:
        real_add(self, at - 60_000 if isinstance(call, TimerCall) else at, run, call)

    real_decide, real_add = kernel_run.decide, timers.Alarms.add
    return [(ownership, "decide", decide), (timers.Alarms, "add", add)]


# Undo


@mutant
def _() -> list[Patch]:
    """Undo repeated."""

    def fail(self: UndoStack, entry: Undo, error: Exception) -> None:
        real_fail(self, entry, error)
        if self._failed == 1:
            self.waiting[Undo(entry.function, entry.args, entry.kwargs, self.waiting)] = None

    real_fail = UndoStack._fail
    return [(UndoStack, "_fail", fail)]


@mutant
def _() -> list[Patch]:
    """Undo skipped."""

    def is_unwell(self: Program, undos: UndoStack) -> bool:
        return self.runtime.cancelled is None and real_is_unwell(self, undos)

    real_is_unwell = Program._is_unwell
    return [(Program, "_is_unwell", is_unwell)]


# What runs show and publish


@mutant
def _() -> list[Patch]:
    """Stale snapshot shown."""

    def take(self: Snapshots, live: live_run.LiveRun) -> None:
        if live.shown is None or self._clock.now() >= live.shown.again_at:
            real_take(self, live)

    real_take = Snapshots.take
    return [(Snapshots, "take", take)]


@mutant
def _() -> list[Patch]:
    """Value published again by a replay."""

    def know_published(owned: Any, loaded: Any) -> None:
        real_know(owned, loaded)
        owned.published = None

    real_know = claims.know_published
    return [(claims, "know_published", know_published)]


@mutant
def _() -> list[Patch]:
    """Values of a lost attempt taken for those of the next."""

    def know_published(owned: Any, loaded: Any) -> None:
        real_know(owned, loaded)
        owned.lost_attempts = None

    real_know = claims.know_published
    return [(claims, "know_published", know_published)]


# Messages and parking


@mutant
def _() -> list[Patch]:
    """Park without the counter."""
    return [changed("park_runs", "and (park.column6 is null or messages = park.column6)", "")]


@mutant
def _() -> list[Patch]:
    """Message deleted before its event."""

    def read(self: moving.Executor, run: live_run.LiveRun, inbox: Inbox) -> Any:
        for waiting in inbox.unread.values():
            for message in waiting:
                if message.number not in gone:
                    gone.add(message.number)
                    self._owner.set_aside(run.owned, message.number)
        return real_read(self, run, inbox)

    gone: set[int] = set()
    real_read = moving.Executor._read
    return [(moving.Executor, "_read", read)]


@mutant
def _() -> list[Patch]:
    """Two messages swapped."""

    def add(self: Inbox, message: Any) -> bool:
        is_new = real_add(self, message)
        waiting = self.unread.get(key_of(message.body), deque())
        if is_new and len(waiting) > 1:
            waiting[-1], waiting[-2] = waiting[-2], waiting[-1]
            self._put(key_of(message.body))
        return is_new

    real_add = Inbox.add
    return [(Inbox, "add", add)]


@mutant
def _() -> list[Patch]:
    """Post that does not wake."""
    return [changed("count_posted", f"else min(coalesce(wake_at, {TURN}), {TURN})", "else wake_at")]


@mutant
def _() -> list[Patch]:
    """Ripe by the clock of the sender."""
    return [changed("count_posted", TURN, "told.column4")]


# Attempts


@mutant
def _() -> list[Patch]:
    """Attempt counted twice."""

    def add(self: activities.Retries, attempt: Any) -> None:
        real_add(self, msgspec.structs.replace(attempt, attempt=attempt.attempt + 1))

    real_add = activities.Retries.add
    return [(activities.Retries, "add", add)]


@mutant
def _() -> list[Patch]:
    """Attempt not counted."""

    def record_attempt(self: Any, owned: Any, attempt: Any, then: Callable[[], None]) -> None:
        self._ask_as_owner(owned, lambda answer: then() if isinstance(answer, Applied) else None)

    return [(ownership.Ownership, "record_attempt", record_attempt)]


@mutant
def _() -> list[Patch]:
    """Only attempt begun twice."""

    def has_begun(*_: object) -> bool:
        return True

    return [(activity, "has_begun", has_begun)]


# Transactional activities


@mutant
def _() -> list[Patch]:
    """User's rows without outcome."""

    def groups(self: transactor._Attempt) -> Any:
        found = real_groups(self)
        if found is not None:
            *earlier, outcome = found
            self._transactor.committer.submit(OwnersGroup(outcome, lambda _: None))
            return earlier
        return None

    real_groups = transactor._Attempt.groups
    return [(transactor._Attempt, "groups", groups)]


@mutant
def _() -> list[Patch]:
    """Outcome without rows."""

    def write(transactions: Any, groups: Any) -> Any:
        transactions.roll_back()
        transactions.db.execute("begin immediate")
        return real_write(transactions, groups)

    def record(self: CodeTransaction, batch: Batch) -> None:
        self.begin_again()
        real_record(self, batch)

    real_write, real_record = activity_transactions._write, CodeTransaction.record
    return [(activity_transactions, "_write", write), (CodeTransaction, "record", record)]


@mutant
def _() -> list[Patch]:
    """Unknown commit of an activity's rows taken for a failed one."""

    async def transacted(self: Any, owned: Any, event: Any, epoch: int, told: Any) -> Any:
        return await real(self, owned, event, epoch, Failed(told.error) if isinstance(told, Unknown) else told)

    real = transactor.StoreTransactor._transacted
    return [(transactor.StoreTransactor, "_transacted", transacted)]


# Children and cancelling


@mutant
def _() -> list[Patch]:
    """Request to stop raised where it is awaited."""

    def tell_interrupted(runtime: Any, cancelled: Any) -> bool:
        real(runtime, cancelled)
        return False

    real = interrupted.tell_interrupted
    return [(program, "tell_interrupted", tell_interrupted)]


@mutant
def _() -> list[Patch]:
    """Child started twice."""

    def child_run_id(parent_id: str, place: str, at: int) -> tuple[str, int]:
        return real(f"{parent_id}{next(numbers)}", place, at)

    numbers, real = itertools.count(), ids.child_run_id
    return [(child, "child_run_id", child_run_id)]


@mutant
def _() -> list[Patch]:
    """Child end lost."""

    def close_in_company(self: Any, owned: Any, event: Any, end: Any, operation: Any, beside: Any) -> Any:
        traits, owned.traits = owned.traits, msgspec.structs.replace(owned.traits, parent_place=None)
        try:
            return real(self, owned, event, end, operation, beside)
        finally:
            owned.traits = traits

    real = ownership.Ownership._close_in_company
    return [(ownership.Ownership, "_close_in_company", close_in_company)]


@mutant
def _() -> list[Patch]:
    """Cancel lost after completion race."""

    def stop(self: moving.Executor, run: live_run.LiveRun, message: Any) -> Any:
        if run.program.runtime.fresh and not run.running:
            self._owner.set_aside(run.owned, message)
            return moving.Read.DONE
        return real(self, run, message)

    real = moving.Executor._stop
    return [(moving.Executor, "_stop", stop)]


# Queues


@mutant
def _() -> list[Patch]:
    """Task begun where its queue is not worked."""

    def makes_room_for(self: Worker, request: Any) -> bool:
        return real(self, msgspec.structs.replace(request, queue=self._settings.queues[0]))

    real = Worker.makes_room_for
    return [(Worker, "makes_room_for", makes_room_for)]


@mutant
def _() -> list[Patch]:
    """Task not tried as its caller wants."""

    def input_of(activity: Any, arguments: bytes, called_at: int) -> bytes:
        return real(activity.options(retry=Retry(max_attempts=1)), arguments, called_at)

    real = task.input_of
    return [(task, "input_of", input_of)]


@mutant
def _() -> list[Patch]:
    """Task given up although a worker has begun it."""
    free, or_not = "and owner is null", "and (owner is null or :only_unbegun)"
    asked = "and (not :only_unbegun or (begun_at is null and status = 'PENDING'))"
    return [
        (_sql, "close_free_run", queries("sqlite")["close_free_run"].replace(asked, "").replace(free, or_not)),
    ]


# Schedules and duties


@mutant
def _() -> list[Patch]:
    """Next run of a schedule started before the old one has ended."""

    def decide(schedule: Any, now: int, open_runs: int, *taken: Any) -> Any:
        is_waiting = schedule.when.overlap in {"cancel_old", "terminate_old"}
        return real_decide(schedule, now, 0 if is_waiting else open_runs, *taken)

    real_decide = kernel_schedules.decide
    return [(deciding, "decide", decide)]


@mutant
def _() -> list[Patch]:
    """Mark of a schedule moved in another transaction."""

    async def write(self: deciding.Deciding, row: Any, decided: Any) -> Any:
        move, *rest = self._operations(row, decided)
        answer = await self._committer.apply(move)
        return await self._committer.apply(*rest) if rest and isinstance(answer, Applied) else answer

    return [(deciding.Deciding, "_write", write), (deciding.Deciding, "_plainly", lambda *_: None)]


@mutant
def _() -> list[Patch]:
    """Decision without its condition."""

    def find(view: Any, schedule_id: str, _: int) -> Any:
        yield from view.schedules.wait(schedule_id)
        return view.schedules.get(schedule_id)

    condition = "\n   and revision = moved.column2"
    return [changed("move_schedules", condition, ""), (schedule_statements, "_find", find)]


@mutant
def _() -> list[Patch]:
    """Duty taken from the living."""

    async def take(self: duties.DutyLoop, now: int, _: int) -> bool:
        self._held_as = self._lease.worker_id
        wanted = TakeDuty(self._namespace, self._duty.name, self._held_as, now, None)
        return isinstance(await self._committer.apply(wanted), Applied)

    is_free = "where duties.holder is null"
    return [changed("take_duty", is_free, "where true"), (duties.DutyLoop, "_take", take)]


# Sinks


@mutant
def _() -> list[Patch]:
    """Outbox row outside the batch: written by the transaction after it."""

    def queue_applied(*told: Any) -> Any:
        *changes, now, listeners = told
        earlier, late[:] = list(late), [changes]
        for each in earlier:
            yield from real(*each, now, listeners)

    late: list[Any] = []
    real: Any = outbox_rules.queue_applied
    return [(batch_rules, "queue_applied", queue_applied)]


@mutant
def _() -> list[Patch]:
    """Rows of the outbox gone before they are delivered."""

    async def chains(self: SinkDuty, now: int) -> Any:
        found = await real(self, now)
        self._outcomes.delivered += [row.n for chain in found for row in chain]
        await self._note(now)
        return found

    real = SinkDuty._chains
    return [(SinkDuty, "_chains", chains)]


@mutant
def _() -> list[Patch]:
    """Two events of a run swapped."""

    def chain(self: SinkDuty, rows: Any) -> Any:
        found = real(self, rows)
        return [*found[:-2], *found[:-3:-1]]

    real = SinkDuty._chain
    return [(SinkDuty, "_chain", chain)]


@mutant
def _() -> list[Patch]:
    """Event sent past one of its run that is tried again."""
    return [(SinkDuty, "_chain", lambda _, rows: sorted(rows))]


# Idempotency keys


@mutant
def _() -> list[Patch]:
    """Key without its effect: taken first, in a transaction of its own."""

    def submit(self: Any, group: Any) -> None:
        key = self._with_key(group.operations)[0]
        self._committer.submit(CallbackGroup([key], lambda _: self._committer.submit(group)))

    return [(writing.KeyedCommitter, "submit", submit)]


@mutant
def _() -> list[Patch]:
    """Effect without its key: noted when it is known to be done."""
    real = writing.KeyedCommitter.apply

    async def apply(self: Any, *operations: Any, **rest: Any) -> Any:
        counts, self._counts = self._counts, lambda _: False
        try:
            return await real(self, *operations, **rest)
        finally:
            self._counts = counts

    return [(writing.KeyedCommitter, "apply", apply)]


@mutant
def _() -> list[Patch]:
    """Key that is taken from whoever has it."""
    return [
        changed("take_keys", "where idempotency_keys.keep_until <= excluded.taken_at", "where true"),
        (key_statements, "is_free", lambda *_: True),
    ]


# Replay


@mutant
def _() -> list[Patch]:
    """Place counter shared between branches."""
    return [(Branch, "child", lambda self, _: Branch(self.path))]


@mutant
def _() -> list[Patch]:
    """Results delivered two per drain."""

    def start(self: effects.Effects, run: live_run.LiveRun, calls: list[Any]) -> None:
        loop = run.program.loop
        for number, call in enumerate(calls):
            is_first = number + 1 < len(calls) and isinstance(calls[number + 1], ActivityCall)
            if is_first:
                loop.__dict__["drain"] = lambda: None
            try:
                real_start(self, run, [call])
            finally:
                loop.__dict__.pop("drain", None)

    real_start = effects.Effects.start
    return [(effects.Effects, "start", start)]


@mutant
def _() -> list[Patch]:
    """Replay that re-runs a recorded step."""

    def replay(self: Replay, run: live_run.LiveRun, history: list[Event]) -> None:
        real_replay(self, run, history)
        for event in history[:1]:
            if event.kind == "ActivityCompleted" and not run.is_gone:
                call = recorded.get((run.run_id, event.place))
                if call is not None:
                    call.start(run, self._executor.effects)

    def init(self: ActivityCall, *args: Any) -> None:
        real_init(self, *args)
        recorded[self.runtime.owned.run_id, self.place] = self

    recorded: dict[tuple[str, str], Any] = {}
    real_replay, real_init = Replay.replay, ActivityCall.__init__
    return [(Replay, "replay", replay), (ActivityCall, "__init__", init)]


# Poison and hearts


@mutant
def _() -> list[Patch]:
    """Quarantine of the innocent."""
    anybody = (
        "select run_id, workflow_id, deaths, losses, outlived from runs "
        "where owner = :worker_id and closed_at is null limit 1"
    )
    return [(_sql, "suspects_of", anybody), (worker_statements, "is_suspect", lambda _: True)]


@mutant
def _() -> list[Patch]:
    """Lease renewed by a stalled loop."""
    return [(heartbeat, "GIVE_UP_SECONDS", math.inf)]


# Deferreds and requests


@mutant
def _() -> list[Patch]:
    """Deferred overwritten."""

    def is_same(post: Any, kind: str, body: str) -> bool:
        return True

    return [(inbox_rules, "_is_same", is_same)]


@mutant
def _() -> list[Patch]:
    """Answer to a request lost."""
    take_asides = Executor._take_asides

    def forgets(self: Any, live: Any, advance: Any) -> Any:
        program = live.program
        if program.runtime.asides is not None and program.main is not None and program.main.done():
            program.runtime.asides.answers.clear()
        return take_asides(self, live, advance)

    return [(Executor, "_take_asides", forgets)]


@mutant
def _() -> list[Patch]:
    """Answer to a request before its commit."""
    answer = ownership.Ownership.answer

    def tells_first(self: Any, owned: Any, answers: Any, *refused: Any) -> None:
        for message_id, said in answers.items():
            self._waiters.askers.tell(owned.run_id, message_id, said)
        answer(self, owned, answers, *refused)

    return [(ownership.Ownership, "answer", tells_first)]


# Retry and fork


@mutant
def _() -> list[Patch]:
    """Fork that drops a late signal."""
    return [
        changed("copy_messages", "where run_id = :run_id", "where run_id = :run_id and taken_by is not null"),
        (fork_statements, "_is_sent", lambda row: row.kind in inbox_rules.SENT and row.taken_by is not None),
    ]


@mutant
def _() -> list[Patch]:
    """Retry twice."""
    retry = forking.StoreForker.retry

    async def again(self: Any, namespace: str, run_id: str, id: str, reason: str | None) -> Any:
        row = await self._reader.newest(namespace, run_id)
        latest = await self._reader.find(namespace, row.workflow_id)
        if latest.run_id == row.run_id or latest.closed_at is None:
            return await retry(self, namespace, run_id, id, reason)
        request = msgspec.structs.replace(forking._again(row, row.workflow_id), supersedes=latest.run_id)
        return await self._make(row, request, forking.RETRY, reason, None)

    return [(forking.StoreForker, "retry", again)]


# Pausing, and many at once


@mutant
def _() -> list[Patch]:
    """Pause freed at start."""
    return [
        changed("free_mismatches", "held = 'mismatch'", "held in ('mismatch', 'paused')"),
        (run_statements, "TRIED_AGAIN", {"mismatch", "paused"}),
    ]


@mutant
def _() -> list[Patch]:
    """Bulk that skips at a bite's border."""
    real = bulk.StoreBulk.act

    async def act(self: Any, namespace: str, action: Any, where: Any, told: Any) -> Any:
        reader = self._reader
        self._reader = _Skipping(reader)
        try:
            return await real(self, namespace, action, where, told)
        finally:
            self._reader = reader

    return [(bulk.StoreBulk, "act", act)]


class _Skipping:
    """Reads bites, and forgets the first run of each but the first."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._bites = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    @property
    def matching(self) -> Any:
        return self

    async def keys(self, wanted: Any) -> Any:
        return await self._reader.matching.keys(wanted)

    async def among(self, wanted: Any, keys: Any) -> Any:
        found = await self._reader.matching.among(wanted, keys)
        self._bites += 1
        return found if self._bites == 1 else found[1:]


@mutant
def _() -> list[Patch]:
    """Subscriber that misses a late commit."""
    return [(Tables, "position", lambda self: Position(self.last_transaction + 1))]


@mutant
def _() -> list[Patch]:
    """Subscriber that begins at the end, whatever its cursor."""

    async def begin(self: Any, subscriber: Any, after: Any) -> None:
        subscriber.unlogged = frozenset()

    return [(StoreSubscriptions, "_begin", begin)]
