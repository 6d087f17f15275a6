"""The small world: everything in it, as values that can be compared and counted.

In:   how large the world is, and which rules hold in it.
Out:  the values of a state: a store with its rows, and two processes.

A state is one World and one Process per slot. Processes touch each other only through
the world, so a move is made by one process and the world alone.
"""

from enum import Enum
from typing import TypeAlias

import msgspec

from perdure.kernel.run import RunState
from perdure.kernel.status import OPEN, Status

# The moment at which every timer is due; time is either before it or not.
FIRE_AT = 1
SLOTS = 2


class Step(Enum):
    """What a workflow waits for at one of its steps."""

    ACTIVITY = "activity"
    SIGNAL = "signal"
    TIMER = "timer"


class Scope(msgspec.Struct, frozen=True):
    """How large the world is. `started` is the run a client starts; the others are there, and ripe.

    The message is for the first run.
    """

    plans: tuple[tuple[Step, ...], ...]
    faults: int
    started: int | None


ACTIVITY, SIGNAL, TIMER = Step.ACTIVITY, Step.SIGNAL, Step.TIMER
# Two workers, two runs, three steps each, two faults.
FULL = Scope(((ACTIVITY, SIGNAL, ACTIVITY), (ACTIVITY, ACTIVITY, ACTIVITY)), faults=2, started=None)
# The same with a timer and a client that starts the second run; with two faults this would be too many states.
TIMED = Scope(((ACTIVITY, SIGNAL, ACTIVITY), (ACTIVITY, TIMER, ACTIVITY)), faults=1, started=1)
# One run that is started, sleeps and ends, with two faults.
ALONE = Scope(((ACTIVITY, TIMER, ACTIVITY),), faults=2, started=0)
# What the tests look at every time.
SMALL = Scope(((SIGNAL, ACTIVITY),), faults=2, started=None)


class Fence(Enum):
    """When a batch's epoch is compared."""

    INSIDE = "in the transaction that writes"
    BEFORE = "when the batch is sent"
    NEVER = "never"


class OnUnknown(Enum):
    """What an outcome nobody knows is taken for."""

    ASK = "a reason for a new epoch and another look at the database"
    SUCCESS = "a success"
    FAILURE = "a failure"


class Rules(msgspec.Struct, frozen=True):
    """The rules of the engine; each can be switched off to see that the world falls apart without it."""

    fence: Fence = Fence.INSIDE
    on_unknown: OnUnknown = OnUnknown.ASK
    effects_wait_for_the_commit: bool = True
    answers_wait_for_the_commit: bool = True
    parking_compares_the_counter: bool = True
    takeover_raises_the_epoch: bool = True
    takeover_compares_the_epoch: bool = True
    loss_drops_what_was_owned: bool = True
    recovery_loads_what_is_owned: bool = True
    messages_are_written_once: bool = True
    replay_reads_the_whole_history: bool = True


# The store


class Fact(msgspec.Struct, frozen=True):
    """An event as it stands in a history; times are left out, they would only multiply the states."""

    seq: int
    kind: str
    place: str


def worker_id_of(slot: int, generation: int) -> str:
    return f"{'ab'[slot]}{generation}"


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker as the others see it."""

    worker_id: str
    epoch: int


class RunRow(msgspec.Struct, frozen=True):
    """A run as it stands in its row, with its history; event 1 is the row itself."""

    is_there: bool = False
    status: Status = Status.PENDING
    owner: str | None = None
    wake_at: int | None = 0
    messages: int = 0
    history: tuple[Fact, ...] = ()

    @property
    def is_open(self) -> bool:
        return self.is_there and self.status in OPEN

    @property
    def last_seq(self) -> int:
        return 1 + len(self.history)

    def is_ripe(self, now: int) -> bool:
        return self.is_open and self.owner is None and self.wake_at is not None and self.wake_at <= now


class Inbox(Enum):
    """Where the one message is."""

    EMPTY = "not written"
    UNREAD = "written"
    TAKEN = "turned into an event"


class World(msgspec.Struct, frozen=True):
    """The store, the locks that show who lives, what clients were told, and how many faults are left.

    `start_at` and `post_at` say in which slot a client's request is under way; `reads` is, for each slot,
    the worker it has read to be gone and has not yet taken over.
    """

    faults: int
    runs: tuple[RunRow, ...]
    now: int = 0
    workers: tuple[WorkerRow, ...] = ()
    locks: tuple[str, ...] = ()
    inbox: Inbox = Inbox.EMPTY
    is_start_answered: bool = False
    is_post_answered: bool = False
    start_at: int | None = None
    post_at: int | None = None
    reads: "tuple[TakeOver | None, ...]" = (None,) * SLOTS

    def epoch_of(self, worker_id: str) -> int | None:
        return next((row.epoch for row in self.workers if row.worker_id == worker_id), None)


# What goes into a batch


class Start(msgspec.Struct, frozen=True):
    """Insert a run, owned already when the process that writes it will host it."""

    run: int
    is_hosted: bool


class Append(msgspec.Struct, frozen=True):
    """Write an event; after the commit the next step's effect starts, if it has one."""

    run: int
    fact: Fact
    takes_message: bool = False
    starts: bool = False


class End(msgspec.Struct, frozen=True):
    """Write the last event."""

    run: int
    fact: Fact


class Claim(msgspec.Struct, frozen=True):
    """Take what is ripe."""


class Park(msgspec.Struct, frozen=True):
    """Let go of a run, if no message came since the owner looked."""

    run: int
    messages: int
    wake_at: int | None


class Post(msgspec.Struct, frozen=True):
    """Put the message into the inbox."""


class TakeOver(msgspec.Struct, frozen=True):
    """Raise the epoch that was read, and free the runs; kept in the world, so that processes know no names."""

    worker_id: str
    epoch: int


Group: TypeAlias = Start | Append | End | Claim | Park | Post
# Applied, refused, or the runs that were claimed.
Answer: TypeAlias = bool | tuple[int, ...]


def is_of_owner(group: Group) -> bool:
    """Void under another epoch. Mirrors `Group.of_owner`."""
    return isinstance(group, Append | End | Claim | Park) or (isinstance(group, Start) and group.is_hosted)


def is_patient(group: Group) -> bool:
    """Tried again while the database is unavailable. Mirrors `Group.patient`."""
    return isinstance(group, Append | End | Claim | Park)


class Fate(Enum):
    """What became of a batch. Mirrors `Outcome`."""

    COMMITTED = "committed"
    FENCED = "fenced"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Batch(msgspec.Struct, frozen=True):
    """Groups on their way: sent, or written and not heard of. Only a fence BEFORE looks at `is_vouched_for`."""

    groups: tuple[Group, ...]
    epoch: int
    takes_over: bool = False
    is_vouched_for: bool = True
    fate: Fate | None = None
    answers: tuple[Answer, ...] = ()


def mirrored(world: World) -> World:
    """The same world with the two slots in each other's place."""
    return World(
        faults=world.faults,
        runs=tuple(msgspec.structs.replace(row, owner=row.owner and _other_id(row.owner)) for row in world.runs),
        now=world.now,
        workers=tuple(sorted((WorkerRow(_other_id(row.worker_id), row.epoch) for row in world.workers), key=_id_of)),
        locks=tuple(sorted(map(_other_id, world.locks))),
        inbox=world.inbox,
        is_start_answered=world.is_start_answered,
        is_post_answered=world.is_post_answered,
        start_at=None if world.start_at is None else 1 - world.start_at,
        post_at=None if world.post_at is None else 1 - world.post_at,
        reads=tuple(read and TakeOver(_other_id(read.worker_id), read.epoch) for read in reversed(world.reads)),
    )


def _other_id(worker_id: str) -> str:
    return ("b" if worker_id[0] == "a" else "a") + worker_id[1:]


def _id_of(row: WorkerRow) -> str:
    return row.worker_id


# The processes


class Live(msgspec.Struct, frozen=True):
    """A run in a process's memory: the kernel's state of it, and what the worker knows besides."""

    state: RunState
    messages: int = 0
    has_message: bool = False
    is_running: bool = False
    is_leaving: bool = False


class Phase(Enum):
    """Where a process stands."""

    DEAD = "dead"
    WORKING = "working"
    LOST = "without a valid epoch"


class Process(msgspec.Struct, frozen=True):
    """What one process believes. `generation` tells the ids of its slot apart."""

    lives: tuple[Live | None, ...]
    arriving: tuple[int, ...] = ()
    generation: int = 0
    phase: Phase = Phase.DEAD
    epoch: int = 0
    queue: tuple[Group, ...] = ()
    batch: Batch | None = None


class Move(msgspec.Struct, frozen=True):
    """Something that can happen: what, what is different then, and which promise that breaks, if one."""

    what: str
    world: World
    process: Process | None = None
    is_fault: bool = False
    breaks: str | None = None
