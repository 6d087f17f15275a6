"""Moves: everything that can happen in a state.

In:   the world and its processes.
Out:  every move that one of them can make now, faults included while there are some left.

What the engine does within one turn of its event loop is one move; whatever can happen between
two turns, or before and after a transaction, is a move of its own. A process that is paused is
one that makes no move: what a long pause adds is that others take it for gone.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tests.small_world.model import (
    FIRE_AT,
    Append,
    Claim,
    End,
    Fate,
    Fence,
    Group,
    Live,
    Move,
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
)
from tests.small_world.turn import Turn


def moves_of_time(scope: Scope, world: World) -> Iterator[Move]:
    """Time passes, once."""
    if world.now < FIRE_AT and any(Step.TIMER in plan for plan in scope.plans):
        yield Move("time passes", replace(world, now=FIRE_AT))


def moves(scope: Scope, rules: Rules, slot: int, process: Process, world: World) -> Iterator[Move]:
    """Everything this process can do now, and everything that can be done to it."""

    def turn() -> Turn:
        return Turn(scope, rules, slot, process, world)

    if process.phase is Phase.DEAD:
        yield _move(turn(), Turn.register, "starts")
        return
    if world.faults:
        yield _fault(turn(), Turn.die, "crashes")
    if process.phase is Phase.LOST:
        yield from _recoveries(turn, world)
        return
    if process.batch is None:
        for beside in _beside(turn(), process, world):
            yield from _writes(turn, rules, beside, world)
    elif process.batch.fate is None:
        yield _move(turn(), Turn.write, "has its batch written")
    else:
        yield _move(turn(), Turn.hear, f"hears that its batch is {process.batch.fate.value}")
    yield from _looks(turn, process, world)
    for run, live in enumerate(process.lives):
        if live is not None and not live.is_leaving:
            yield from _steps(turn, run, live, world)


Turns = Callable[[], Turn]


def _move(turn: Turn, act: Callable[[Turn], None], what: str) -> Move:
    act(turn)
    return turn.move(what)


def _fault(turn: Turn, act: Callable[[Turn], None], what: str) -> Move:
    act(turn)
    return turn.move(what, is_fault=True)


def _beside(turn: Turn, process: Process, world: World) -> Iterator[Group | TakeOver | None]:
    """What a batch can hold beside what waits: nothing, a claim, a takeover, or what a client asks for just now.

    A group that only waits in memory makes no difference to anybody; so these come in when they are written.
    """
    if process.queue:
        yield None
    if Claim() not in process.queue and any(row.is_ripe(world.now) for row in world.runs):
        yield Claim()
    read = world.reads[turn.slot]
    if read is not None:
        yield read
    started = turn.scope.started
    if started is not None and not world.is_start_answered and world.start_at is None:
        yield Start(started, is_hosted=True)
    if Step.SIGNAL in turn.scope.plans[0] and not world.is_post_answered and world.post_at is None:
        yield Post()


def _writes(turn: Turns, rules: Rules, beside: Group | TakeOver | None, world: World) -> Iterator[Move]:
    """A batch; between sending and writing it nothing can happen that could not happen before."""
    waiting = turn().process.queue if beside is None else (*turn().process.queue, beside)
    batch = f"a batch of {', '.join(map(_shown, waiting))}"
    is_early = not rules.answers_wait_for_the_commit and isinstance(beside, Start | Post)
    if rules.fence is Fence.BEFORE or is_early:
        yield _move(turn(), lambda t: t.send(beside), f"sends {batch}")
        return

    def sent() -> Turn:
        sending = turn()
        sending.send(beside)
        return sending

    yield _move(sent(), Turn.write, f"writes {batch}")
    if world.faults:
        yield _fault(sent(), Turn.write_unheard, f"writes {batch}; the answer is lost")
        yield _fault(sent(), lambda t: t.miss(Fate.UNKNOWN), f"loses {batch}, and the answer")
        yield _fault(sent(), lambda t: t.miss(Fate.FAILED), f"has {batch} refused")


def _shown(group: Group | TakeOver) -> str:
    match group:
        case Append(run, fact) | End(run, fact):
            return f"event {fact.seq} of run {run}"
        case Start(run) | Park(run):
            return f"{type(group).__name__.lower()} of run {run}"
        case TakeOver(worker_id):
            return f"takeover of {worker_id}"
        case _:
            return type(group).__name__.lower()


def _recoveries(turn: Turns, world: World) -> Iterator[Move]:
    yield _move(turn(), Turn.recover, "asks for a new epoch")
    if world.faults and turn().is_valid:
        yield _fault(turn(), Turn.raise_unheard, "raises its epoch; the answer is lost")


def _looks(turn: Turns, process: Process, world: World) -> Iterator[Move]:
    """Mirrors `StoreEngine._load`, `StoreEngine._on_renewal_refused` and `Lease.rescue`."""
    if process.arriving:
        yield _move(turn(), Turn.load, "loads its runs")
    if process.batch is None and not turn().is_valid:
        yield _move(turn(), Turn.lose, "cannot renew its lease")
    if world.reads[turn().slot] is None:
        yield from _rescues(turn, world)


def _rescues(turn: Turns, world: World) -> Iterator[Move]:
    for row in world.workers:
        read = TakeOver(row.worker_id, row.epoch)
        if row.worker_id == turn().worker_id:
            continue
        reading = turn()
        reading.read_gone(read)
        if row.worker_id not in world.locks:
            yield reading.move(f"finds {row.worker_id} dead")
        elif world.faults:
            yield reading.move(f"takes {row.worker_id} for gone, which is only paused", is_fault=True)


def _steps(turn: Turns, run: int, live: Live, world: World) -> Iterator[Move]:
    step = turn().scope.plans[run][live.state.seq - 1]
    match step:
        case Step.ACTIVITY if live.is_running:
            yield _move(turn(), lambda t: t.advance(run), f"ends step {live.state.seq} of run {run}")
        case Step.TIMER if live.is_running and world.now >= FIRE_AT:
            yield _move(turn(), lambda t: t.advance(run), f"fires the timer of run {run}")
    if run == 0 and world.runs[0].messages > live.messages:
        yield _move(turn(), Turn.notice, "notices the message")
    if (step is Step.SIGNAL and not live.has_message) or (step is Step.TIMER and world.now < FIRE_AT):
        yield _move(turn(), lambda t: t.park(run), f"lets go of run {run}")
