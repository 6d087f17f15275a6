"""Checks: what must hold in every state.

In:   a world; or a process and the world.
Out:  the promise that is broken, or None.
"""

from perdure.kernel.status import Status
from tests.small_world.model import Append, End, Fate, Inbox, Phase, Process, RunRow, Scope, World


def check_world(scope: Scope, world: World) -> str | None:
    """What everybody can see in the store."""
    if world.is_start_answered and scope.started is not None and not world.runs[scope.started].is_there:
        return "a start was answered, and the run is not there"
    if world.is_post_answered and world.inbox is Inbox.EMPTY:
        return "a message was answered, and is not there"
    first = world.runs[0]
    if first.is_open and first.owner is None and world.inbox is Inbox.UNREAD and not first.is_ripe(world.now):
        return "a run sleeps on a message it has not read"
    workers = {row.worker_id for row in world.workers}
    return next(filter(None, (_check_run(f"run {run}", row, workers) for run, row in enumerate(world.runs))), None)


def _check_run(name: str, row: RunRow, workers: set[str]) -> str | None:
    if [fact.seq for fact in row.history] != list(range(2, row.last_seq + 1)):
        return f"{name} has gaps in its history"
    places = [fact.place for fact in row.history if fact.place]
    if len(places) != len(set(places)):
        return f"{name} has two outcomes of one step"
    has_ended = any(fact.kind == "RunCompleted" for fact in row.history)
    if has_ended != (row.status is Status.COMPLETED) or (has_ended and row.owner is not None):
        return f"{name} has ended by its history and not by its row, or the other way round"
    if row.is_open and row.owner is not None and row.owner not in workers:
        return f"{name} belongs to a worker nobody knows, and nobody will rescue it"
    return None


def check_process(process: Process, worker_id: str, world: World) -> str | None:
    """What a process with a valid epoch believes of its runs, against the store."""
    if process.phase is not Phase.WORKING or world.epoch_of(worker_id) != process.epoch:
        return None
    for run, live in enumerate(process.lives):
        if live is None or live.is_leaving:
            # One that is being let go of may be somebody else's before its owner hears that it is not its own.
            continue
        row = world.runs[run]
        if row.owner != worker_id:
            return f"{worker_id} believes to own run {run}, which belongs to {row.owner}"
        if process.batch is not None and process.batch.fate in {Fate.UNKNOWN, Fate.FENCED}:
            continue
        under_way = sum(isinstance(group, Append | End) and group.run == run for group in _unwritten(process))
        if live.state.seq != row.last_seq + under_way:
            return f"{worker_id} is at event {live.state.seq} of run {run}; {row.last_seq} on disk, {under_way} to come"
    return None


def _unwritten(process: Process) -> tuple[object, ...]:
    """What is on its way to disk."""
    batch = process.batch
    return process.queue if batch is None or batch.fate is not None else (*batch.groups, *process.queue)


def is_finished(world: World) -> bool:
    """Whether all runs have completed."""
    return all(row.status is Status.COMPLETED for row in world.runs)
