"""The model of a process: what worker, committer and lease do in one turn of their event loop.

In:   a process and the world.
Out:  what they are after the turn, and which promise it breaks, if one.
Each method says which function of the engine it mirrors; the events are made by the kernel itself.
"""

import msgspec
from msgspec.structs import replace

from perdure.kernel.commands import CloseRun, Command, FireTimer, ReceiveMessage, RecordOutcome
from perdure.kernel.events import ActivityCompleted, Event, RunCompleted
from perdure.kernel.messages import SignalSent
from perdure.kernel.run import RunState, decide, evolve
from perdure.kernel.status import Status
from tests.small_world import store
from tests.small_world.model import (
    FIRE_AT,
    Answer,
    Append,
    Batch,
    Claim,
    End,
    Fact,
    Fate,
    Fence,
    Group,
    Inbox,
    Live,
    Move,
    OnUnknown,
    Park,
    Phase,
    Post,
    Process,
    Rules,
    Scope,
    Start,
    Step,
    TakeOver,
    World,
    is_of_owner,
    is_patient,
    worker_id_of,
)

_NOTHING = msgspec.Raw(b"null")
_STARTED = RunState(Status.RUNNING, 1, 0)


class Turn:
    """One turn of a process: what it has become, what it did to the world, and what that breaks."""

    def __init__(self, scope: Scope, rules: Rules, slot: int, process: Process, world: World) -> None:
        self.scope = scope
        self.rules = rules
        self.slot = slot
        self.process = process
        self.world = world
        self.breaks: str | None = None
        self._name = self.worker_id
        self._had_begun = process.phase is not Phase.DEAD

    @property
    def worker_id(self) -> str:
        return worker_id_of(self.slot, self.process.generation)

    @property
    def is_valid(self) -> bool:
        """Whether the epoch the process believes in is the one in its row."""
        return self.world.epoch_of(self.worker_id) == self.process.epoch

    def move(self, what: str, *, is_fault: bool = False) -> Move:
        world = replace(self.world, faults=self.world.faults - 1) if is_fault else self.world
        name = self._name if self._had_begun else self.worker_id
        return Move(f"{name} {what}", store.tidied(world), self.process, is_fault, self.breaks)

    def become(self, **fields: object) -> None:
        self.process = replace(self.process, **fields)

    def change(self, **fields: object) -> None:
        self.world = replace(self.world, **fields)

    def submit(self, *groups: Group) -> None:
        """Mirrors `Committer.submit`; groups of different runs are put in one order, which makes no difference."""
        self.become(queue=tuple(sorted((*self.process.queue, *groups), key=_run_of)))

    def live(self, run: int) -> Live | None:
        return self.process.lives[run]

    def _owned(self, run: int) -> Live:
        live = self.live(run)
        assert live is not None
        return live

    def keep(self, run: int, live: Live | None) -> None:
        self.become(lives=(*self.process.lives[:run], live, *self.process.lives[run + 1 :]))

    # Being born and dying

    def register(self) -> None:
        """Mirrors `Lease.begin`: an id nobody had before, a lock, a row with epoch 1."""
        self.become(generation=store.free_generation(self.world, self.slot), epoch=1, phase=Phase.WORKING)
        self.world = store.registered(self.world, self.worker_id)

    def die(self) -> None:
        """Mirrors a kill -9: memory, the lock and an unwritten batch are gone; clients see the connection break."""
        self._let_die()
        self._hang_up()
        self.process = Process((None,) * len(self.scope.plans))

    def _let_die(self) -> None:
        self.change(locks=tuple(lock for lock in self.world.locks if lock != self.worker_id))

    def _hang_up(self) -> None:
        if self.world.start_at == self.slot:
            self.change(start_at=None)
        if self.world.post_at == self.slot:
            self.change(post_at=None)
        self.change(reads=self._reads(None))

    def _reads(self, read: TakeOver | None) -> tuple[TakeOver | None, ...]:
        return (*self.world.reads[: self.slot], read, *self.world.reads[self.slot + 1 :])

    def read_gone(self, read: TakeOver) -> None:
        """Mirrors the first half of `Lease.rescue`: who is gone, and under which epoch."""
        self.change(reads=self._reads(read))

    # Moving runs on

    def advance(self, run: int) -> None:
        """Mirrors `Executor.advance`: what the run waits for has come; the program is drained."""
        live = self._owned(run)
        command = _command(self.scope.plans[run], live.state.seq - 1)
        self._settle(run, *self._decided(run, replace(live, is_running=False), command))

    def _decided(self, run: int, live: Live, command: Command) -> tuple[Live, Append | End]:
        """Mirrors `OwningEngine.advance`: the rules decide, and memory is ahead of the disk."""
        event = decide(live.state, command, self.world.now)
        assert isinstance(event, Event), event
        fact = Fact(event.seq, event.kind, event.place)
        after = evolve(live.state, event)
        # Times are left out of the model.
        live = replace(live, state=RunState(after.status, after.seq, 0))
        if isinstance(command, CloseRun):
            return replace(live, is_leaving=True), End(run, fact)
        if isinstance(command, ReceiveMessage):
            return replace(live, has_message=False), Append(run, fact, takes_message=True)
        return live, Append(run, fact)

    def _settle(self, run: int, live: Live, *groups: Append | End) -> None:
        """Mirrors `Executor.settle`: think ahead on what is not on disk; effects wait for the last event's commit."""
        while (command := self._next_command(run, live)) is not None:
            live, group = self._decided(run, live, command)
            groups = (*groups, group)
        has_effect = not live.is_leaving and self.scope.plans[run][live.state.seq - 1] is not Step.SIGNAL
        if has_effect and (not groups or not self.rules.effects_wait_for_the_commit):
            live = self._start_effect(run, live)
        elif has_effect and isinstance(groups[-1], Append):
            groups = (*groups[:-1], replace(groups[-1], starts=True))
        self.keep(run, live)
        self.submit(*groups)

    def _next_command(self, run: int, live: Live) -> Command | None:
        """What the program asks for that needs nothing from outside."""
        plan, at = self.scope.plans[run], live.state.seq - 1
        if live.is_leaving:
            return None
        if at == len(plan):
            return CloseRun(RunCompleted(_NOTHING))
        return _command(plan, at) if plan[at] is Step.SIGNAL and live.has_message else None

    def _start_effect(self, run: int, live: Live) -> Live:
        """Mirrors `Effects.start`, and looks whether it may."""
        row, at = self.world.runs[run], live.state.seq - 1
        place = _place(self.scope.plans[run], at)
        if live.state.seq > row.last_seq:
            self.breaks = f"{place} was started, and event {live.state.seq}, which asks for it, is not on disk"
        elif live.is_leaving or not self.is_valid:
            # An alarm of a run that is being parked rings for nobody. And one that has lost its lease without knowing
            # may begin a step once more; it cannot write what comes of it.
            pass
        elif any(fact.place == place for fact in row.history):
            self.breaks = f"{place} was executed again though its outcome is recorded"
        return replace(live, is_running=True)

    def adopt(self, run: int) -> None:
        """Mirrors `StoreEngine._load` and `Worker.adopt`: replay the history, then go on live."""
        row = self.world.runs[run]
        seq = row.last_seq if self.rules.replay_reads_the_whole_history else max(1, row.last_seq - 1)
        has_message = run == 0 and self.world.inbox is Inbox.UNREAD
        self._settle(run, Live(RunState(Status.RUNNING, seq, 0), row.messages, has_message))

    def notice(self) -> None:
        """Mirrors `Worker.notice`: the message is there, and taken if the run waits for it."""
        live = self._owned(0)
        live = replace(live, has_message=True, messages=live.messages + 1)
        command = self._next_command(0, live)
        if command is None:
            self.keep(0, live)
        else:
            self._settle(0, *self._decided(0, live, command))

    def park(self, run: int) -> None:
        """Mirrors `Parking._park`."""
        live = self._owned(run)
        plan = self.scope.plans[run]
        wake_at = FIRE_AT if plan[live.state.seq - 1] is Step.TIMER else None
        self.keep(run, replace(live, is_leaving=True))
        self.submit(Park(run, live.messages, wake_at))

    # Writing

    def ask(self, group: Start | Post) -> None:
        """A client asks for something; only under a wrong rule is it answered before that is written."""
        self.change(**{"start_at" if isinstance(group, Start) else "post_at": self.slot})
        if not self.rules.answers_wait_for_the_commit:
            self._answer_client(group, is_done=True)

    def send(self, beside: Group | TakeOver | None) -> None:
        """Mirrors `Committer._flush`: everything that waits, and what comes in just now."""
        if isinstance(beside, Start | Post):
            self.ask(beside)
        takes_over = isinstance(beside, TakeOver)
        groups = self.process.queue if beside is None or isinstance(beside, TakeOver) else (*self.process.queue, beside)
        is_vouched_for = self.rules.fence is not Fence.BEFORE or self.is_valid
        self.become(queue=(), batch=Batch(groups, self.process.epoch, takes_over, is_vouched_for))

    def write(self) -> None:
        """Mirrors `Store.commit`; a batch of which nothing was written is heard of at once."""
        read = self.world.reads[self.slot]
        self.world, batch, self.breaks = store.write(self.world, self._batch, self.worker_id, read, self.rules)
        self.become(batch=batch)
        if batch.fate is Fate.FENCED:
            self.hear()

    def write_unheard(self) -> None:
        """Written, and the answer is lost."""
        self.write()
        if self.process.batch is not None:
            self.become(batch=replace(self.process.batch, fate=Fate.UNKNOWN, answers=()))

    def miss(self, fate: Fate) -> None:
        """Nothing is written; the process hears that, or hears nothing."""
        self.become(batch=replace(self._batch, fate=fate))
        self.hear()

    @property
    def _batch(self) -> Batch:
        batch = self.process.batch
        assert batch is not None
        return batch

    def hear(self) -> None:
        """Mirrors `Committer._done`."""
        batch = self._batch
        self.become(batch=None)
        if batch.takes_over and batch.fate in {Fate.COMMITTED, Fate.FAILED}:
            # After any other fate it is written again, under the next epoch.
            self.change(reads=self._reads(None))
        match batch.fate:
            case Fate.COMMITTED:
                for group, answer in zip(batch.groups, batch.answers, strict=True):
                    self._answer(group, answer)
            case Fate.FAILED:
                self._fail(batch)
            case Fate.UNKNOWN if self.rules.on_unknown is OnUnknown.SUCCESS:
                for group in batch.groups:
                    self._answer(group, () if isinstance(group, Claim) else True)
            case Fate.UNKNOWN if self.rules.on_unknown is OnUnknown.FAILURE:
                self._fail(batch)
            case _:
                self.lose(batch.groups)

    def _answer(self, group: Group, answer: Answer) -> None:
        """Mirrors `Group.settle` after a commit."""
        self._answer_client(group, is_done=True)
        match group:
            case Append(run, fact, _, True):
                live = self.live(run)
                if live is not None and live.state.seq == fact.seq:
                    self.keep(run, self._start_effect(run, live))
            case End(run):
                self.keep(run, None)
            case Park(run):
                self._parked(run, is_gone=bool(answer))
            case Claim() if isinstance(answer, tuple):
                self.become(arriving=tuple(sorted({*self.process.arriving, *answer})))
            case Start(run, True) if answer:
                self._settle(run, Live(_STARTED))

    def _parked(self, run: int, *, is_gone: bool) -> None:
        """Mirrors `Parking._parked`."""
        live = self.live(run)
        if live is not None:
            self.keep(run, None if is_gone else replace(live, is_leaving=False))

    def _answer_client(self, group: Group, *, is_done: bool) -> None:
        """Tell whoever asked; one who hears of a failure may ask again."""
        if isinstance(group, Start):
            self.change(start_at=None, is_start_answered=is_done)
        elif isinstance(group, Post):
            self.change(post_at=None, is_post_answered=is_done)

    def _fail(self, batch: Batch) -> None:
        """Mirrors `Committer._fail`: what owned runs did stays in front of the queue, callers learn it at once."""
        waiting, self.process = self.process.queue, replace(self.process, queue=())
        self.submit(*filter(is_patient, batch.groups), *waiting)
        for group in batch.groups:
            if not is_patient(group):
                self._answer_client(group, is_done=False)

    def lose(self, groups: tuple[Group, ...] = ()) -> None:
        """Mirrors `Committer._lose` and `StoreEngine._on_lost`; a start that was dropped is written again, unowned."""
        waiting = (*groups, *self.process.queue)
        dropped = [replace(g, is_hosted=False) for g in waiting if isinstance(g, Start) and g.is_hosted]
        self.become(phase=Phase.LOST, queue=(), arriving=())
        self.submit(*(g for g in waiting if not is_of_owner(g)), *dropped)
        if self.rules.loss_drops_what_was_owned:
            self.become(lives=(None,) * len(self.scope.plans))

    def recover(self) -> None:
        """Mirrors `Lease.recover`: a new epoch, and another look at what is ours; or a new id."""
        if not self.is_valid:
            self._let_die()
            self.register()
            return
        epoch = store.next_epoch(self.world, self.worker_id, self.process.epoch)
        self.world = store.raised(self.world, self.worker_id, epoch)
        ours = tuple(run for run, row in enumerate(self.world.runs) if row.is_open and row.owner == self.worker_id)
        is_asked_for = self.rules.recovery_loads_what_is_owned
        arriving = tuple(run for run in ours if is_asked_for and self.live(run) is None)
        self.become(epoch=epoch, phase=Phase.WORKING, arriving=arriving)

    def raise_unheard(self) -> None:
        """Its epoch is raised, and it does not learn of that: the next attempt will find it moved."""
        self.world = store.raised(self.world, self.worker_id)

    def load(self) -> None:
        """Mirrors `StoreEngine._load`: those that are still ours come to life."""
        arriving = self.process.arriving
        self.become(arriving=())
        for run in arriving:
            row = self.world.runs[run]
            if row.is_open and row.owner == self.worker_id:
                self.adopt(run)


def _run_of(group: Group) -> int:
    """Those that concern no owned run come first."""
    return group.run if isinstance(group, Append | End | Park) else -1


def _place(plan: tuple[Step, ...], at: int) -> str:
    return f"{plan[at].value} {at + 1}"


def _command(plan: tuple[Step, ...], at: int) -> Command:
    """What ends the wait at this step."""
    place = _place(plan, at)
    match plan[at]:
        case Step.ACTIVITY:
            return RecordOutcome(place, ActivityCompleted("step", _NOTHING, _NOTHING, 0))
        case Step.TIMER:
            return FireTimer(place, FIRE_AT)
        case Step.SIGNAL:
            return ReceiveMessage(place, 1, "the message", SignalSent("go", _NOTHING))
