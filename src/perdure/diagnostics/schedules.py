"""Schedules that start nothing, or what nobody can run: told, for they are silent.

In:   the schedules that have times ahead, and the workers that are alive.
Out:  what is in their way, each with what helps.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.diagnostics.findings import Finding, Hint, command, ok, warning
from perdure.diagnostics.runs import DEFAULT_NAMESPACE, DEFAULT_QUEUE, SHOWN
from perdure.diagnostics.unworked import living
from perdure.stores.health import Contents, ScheduleSeen, WorkerSeen
from perdure.views.schedules import ScheduleInfo
from perdure.views.words import counted


class Obstacle(NamedTuple):
    """What is in the way of schedules, and what helps."""

    found: str
    remedy: str


def check_schedules(health: Contents, now: int, hint: Hint = command) -> Iterator[Finding]:
    """Whether somebody decides schedules, and has the code of what they start; nothing where there are none."""
    if not health.schedules:
        return
    alive = [each for each in health.workers if each.is_alive is not False and each.lease_until >= now]
    found = f"{counted(len(health.schedules), 'schedule')} with times ahead"
    obstacles = list(obstacles_of(health.schedules, alive, hint))
    if not obstacles:
        yield ok("schedules", found)
        return
    told, more = obstacles[:SHOWN], len(obstacles) - SHOWN
    texts = [found, *(each.found for each in told), *([f"{more} more such things"] if more > 0 else [])]
    yield warning("schedules", "; ".join(texts), "; ".join(dict.fromkeys(each.remedy for each in told)))


async def unstarted(url: str, namespace: str, schedules: Sequence[ScheduleInfo], hint: Hint = command) -> list[str]:
    """A sentence for each thing that is in the way of these schedules; none where workers cannot be asked."""
    wanted = [
        ScheduleSeen(namespace, each.name, each.source, each.workflow, each.queue)
        for each in schedules
        if each.next_times and not each.paused
    ]
    workers = await living(url, namespace) if wanted else None
    if workers is None:
        return []
    return [f"{each.found}; {each.remedy}" for each in obstacles_of(wanted, workers, hint)]


def obstacles_of(
    schedules: Sequence[ScheduleSeen], alive: Sequence[WorkerSeen], hint: Hint = command
) -> Iterator[Obstacle]:
    """What keeps schedules from starting runs, or their runs from going on."""
    for namespace in dict.fromkeys(each.namespace for each in schedules):
        workers = [each for each in alive if each.namespace == namespace]
        here = [] if namespace == DEFAULT_NAMESPACE else ["--namespace", namespace]
        if not workers:
            start = hint("worker", "MODULE", *here)
            yield Obstacle(
                f"no worker is alive in the namespace {namespace}, so that none has the duty `schedules`: nothing "
                "starts until one opens",
                f"start one with `{start}`, or let a cron of yours call `{hint('tick', *here)}`",
            )
            continue
        for each in schedules:
            if each.namespace == namespace and not any(_serves(worker, each) for worker in workers):
                yield _without_code(each, here, hint)


def _serves(worker: WorkerSeen, schedule: ScheduleSeen) -> bool:
    return schedule.queue in worker.queues and (worker.workflows is None or schedule.workflow in worker.workflows)


def _without_code(schedule: ScheduleSeen, here: list[str], hint: Hint) -> Obstacle:
    # A worker removes what its code no longer declares only of workflows that it has: others may be deployed elsewhere.
    declared = ", declared in code that no worker has now" if schedule.source == "code" else ""
    queue = [] if schedule.queue == DEFAULT_QUEUE else ["--queue", schedule.queue]
    return Obstacle(
        f"no living worker has code for {schedule.workflow} on the queue {schedule.queue}, which the schedule "
        f"{schedule.name}{declared} starts",
        f"start one that has it with `{hint('worker', 'MODULE', *queue, *here)}`, or remove the schedule with "
        f"`{hint('schedule', 'delete', schedule.name, *here)}`",
    )
