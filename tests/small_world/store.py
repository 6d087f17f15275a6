"""The model of the store: a batch is one transaction, a group stands or falls as one.

In:   a world, a batch, who wrote it.
Out:  the world after it, what became of the batch, and the promise it breaks, if one.
Mirrors `Transactions._transact_together` and the statements of `stores/sql` and `stores/sqlite/sql`.
"""

from itertools import count

from msgspec.structs import replace

from perdure.kernel.status import Status
from tests.small_world.model import (
    Answer,
    Append,
    Batch,
    Claim,
    End,
    Fate,
    Fence,
    Group,
    Inbox,
    Park,
    Post,
    Rules,
    RunRow,
    Start,
    TakeOver,
    WorkerRow,
    World,
    worker_id_of,
)

# Starts first, ends last, as `apply_groups` does it.
_ORDER: tuple[tuple[type[Group], ...], ...] = ((Start,), (Post,), (Append,), (Claim, Park), (End,))


def write(
    world: World, batch: Batch, worker_id: str, read: TakeOver | None, rules: Rules
) -> tuple[World, Batch, str | None]:
    """The batch in one transaction: fence first, then all its groups, and the takeover of what was read to be gone."""
    is_stale = world.epoch_of(worker_id) != batch.epoch
    is_fenced = {Fence.INSIDE: is_stale, Fence.BEFORE: not batch.is_vouched_for, Fence.NEVER: False}[rules.fence]
    if is_fenced:
        return world, replace(batch, fate=Fate.FENCED), None
    after, answers, trouble = world, dict[int, Answer](), None
    for kinds in _ORDER:
        for index, group in enumerate(batch.groups):
            if isinstance(group, kinds):
                after, answers[index], broken = _apply(after, group, worker_id, rules)
                trouble = trouble or broken
    if batch.takes_over and read is not None:
        after, broken = _take_over(after, read, rules)
        trouble = trouble or broken
    told = tuple(answers[index] for index in range(len(batch.groups)))
    if is_stale and after != world:
        trouble = f"worker {worker_id} wrote under epoch {batch.epoch}, which is not its own any more"
    return after, replace(batch, fate=Fate.COMMITTED, answers=told), trouble or _harm(world, after)


def _apply(world: World, group: Group, worker_id: str, rules: Rules) -> tuple[World, Answer, str | None]:
    match group:
        case Start(run, is_hosted):
            return _start(world, run, worker_id if is_hosted else None)
        case Post():
            return _post(world, rules)
        case Append(run, fact, takes_message):
            row = world.runs[run]
            after = _with(world, run, replace(row, history=(*row.history, fact)))
            after = replace(after, inbox=Inbox.TAKEN) if takes_message else after
            return after, True, _trouble(row, fact.seq, worker_id)
        case End(run, fact):
            row = world.runs[run]
            ended = RunRow(True, Status.COMPLETED, None, None, row.messages, (*row.history, fact))
            return _with(world, run, ended), True, _trouble(row, fact.seq, worker_id)
        case Claim():
            return _claim(world, worker_id)
        case Park():
            return _park(world, group, worker_id, rules)


def _start(world: World, run: int, owner: str | None) -> tuple[World, Answer, str | None]:
    """`insert_runs`: one that is there stays as it is; refused to whoever would begin it as its own."""
    row = world.runs[run]
    if row.is_there:
        return world, owner is None, None
    status = Status.PENDING if owner is None else Status.RUNNING
    inserted = RunRow(True, status, owner, 0)
    return _with(world, run, inserted), True, None


def _post(world: World, rules: Rules) -> tuple[World, Answer, str | None]:
    """`post_messages` and `count_posted`: one that is there is not put twice; a new one makes its run ripe."""
    row = world.runs[0]
    if world.inbox is not Inbox.EMPTY and rules.messages_are_written_once:
        return world, True, None
    trouble = None if world.inbox is Inbox.EMPTY else "one message was written twice"
    woken = replace(row, messages=row.messages + 1, wake_at=0)
    return replace(_with(world, 0, woken), inbox=Inbox.UNREAD), True, trouble


def _claim(world: World, worker_id: str) -> tuple[World, Answer, str | None]:
    ripe = tuple(run for run, row in enumerate(world.runs) if row.is_ripe(world.now))
    for run in ripe:
        world = _with(world, run, replace(world.runs[run], owner=worker_id, status=Status.RUNNING))
    return world, ripe, None


def _park(world: World, park: Park, worker_id: str, rules: Rules) -> tuple[World, Answer, str | None]:
    row = world.runs[park.run]
    if row.owner != worker_id or (rules.parking_compares_the_counter and row.messages != park.messages):
        return world, False, None
    parked = replace(row, owner=None, status=Status.SUSPENDED, wake_at=park.wake_at)
    return _with(world, park.run, parked), True, None


def _take_over(world: World, taken: TakeOver, rules: Rules) -> tuple[World, str | None]:
    """`raise_epoch` and `free_runs`, in one group."""
    epoch = world.epoch_of(taken.worker_id)
    if epoch is None or (rules.takeover_compares_the_epoch and epoch != taken.epoch):
        return world, None
    trouble = None if epoch == taken.epoch else f"worker {taken.worker_id} was taken over though it had moved on"
    if rules.takeover_raises_the_epoch:
        world = raised(world, taken.worker_id)
    for run, row in enumerate(world.runs):
        if row.is_open and row.owner == taken.worker_id:
            world = _with(world, run, replace(row, owner=None, status=Status.PENDING, wake_at=0))
    return world, trouble


def raised(world: World, worker_id: str, epoch: int | None = None) -> World:
    """`raise_epoch`: whatever this worker still has under way is void."""
    rows = (replace(w, epoch=epoch or w.epoch + 1) if w.worker_id == worker_id else w for w in world.workers)
    return replace(world, workers=tuple(rows))


def next_epoch(world: World, worker_id: str, epoch: int) -> int:
    """The epoch that follows; numbers are only compared, so that one nobody holds any more may come again."""
    is_held = any(read is not None and read.worker_id == worker_id for read in world.reads)
    return epoch + 1 if is_held else 1


def free_generation(world: World, slot: int) -> int:
    """The number for a new id; ids are random in the engine, here those nobody knows any more come again."""
    known = {row.worker_id for row in world.workers} | {read.worker_id for read in world.reads if read is not None}
    return next(number for number in count(1) if worker_id_of(slot, number) not in known)


def registered(world: World, worker_id: str) -> World:
    """`insert_worker`, and the lock that shows that it lives."""
    rows = tuple(sorted((*world.workers, WorkerRow(worker_id, 1)), key=lambda row: row.worker_id))
    return replace(world, workers=rows, locks=tuple(sorted((*world.locks, worker_id))))


def tidied(world: World) -> World:
    """`delete_worker`: one that is dead and owns nothing makes no difference to anybody."""
    needed = {*world.locks, *(row.owner for row in world.runs if row.is_open)}
    kept = tuple(row for row in world.workers if row.worker_id in needed)
    return world if kept == world.workers else replace(world, workers=kept)


def _with(world: World, run: int, row: RunRow) -> World:
    """With this row instead; nobody looks at when an owned run wakes, so that makes no difference here."""
    row = row if row.owner is None else replace(row, wake_at=None)
    return replace(world, runs=(*world.runs[:run], row, *world.runs[run + 1 :]))


def _trouble(row: RunRow, seq: int, worker_id: str) -> str | None:
    """What is wrong with an event: a database would refuse some of it, and hold an innocent run for that."""
    if row.owner != worker_id:
        return f"worker {worker_id} wrote event {seq} of a run that belongs to {row.owner}"
    if seq != row.last_seq + 1:
        return f"event {seq} was written after event {row.last_seq}"
    return None


def _harm(before: World, after: World) -> str | None:
    """What no transaction may do to what is there."""
    for old, new in zip(before.runs, after.runs, strict=True):
        if new.history[: len(old.history)] != old.history:
            return "a history was changed"
        if old.is_there and not old.is_open and new != old:
            return "a run that had ended was changed"
    return None
