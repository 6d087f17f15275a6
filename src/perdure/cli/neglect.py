"""Runs that nobody works: told to whoever starts one or waits for it, for nothing else would tell.

In:   the URL, and a run as it stands.
Out:  a warning when no living worker has its queue.
"""

from typing import TYPE_CHECKING

from perdure.cli.exits import warn
from perdure.cli.hints import hint
from perdure.cli.opening import file_of, is_postgres
from perdure.cli.options import DEFAULT_QUEUE
from perdure.stores import sqlite_health

if TYPE_CHECKING:
    from perdure.app import RunInfo
    from perdure.stores.health import WorkerSeen


async def warn_if_nobody_works(url: str, info: "RunInfo", module: str = "MODULE") -> None:
    """Say so when an open run can only wait, and name the command that helps."""
    if info.closed_at is not None or info.held is not None:
        return
    worked = {queue for each in await _workers(url) if _is_fit(each, url, info.namespace) for queue in each.queues}
    if info.queue == DEFAULT_QUEUE and info.queue not in worked:
        warn(f"no worker is alive that could take the run; start one with `{hint('worker', module)}`")
    elif info.queue not in worked:
        _warn("the run is", info.queue, worked, module)
    for queue in sorted({wait.queue for wait in info.waiting_for if wait.queue is not None} - worked):
        _warn("the run waits for an activity", queue, worked, "MODULE")


def _is_fit(worker: "WorkerSeen", url: str, namespace: str) -> bool:
    # On Postgres a worker without a lock may be one behind a pooler; in a file it is none.
    fit = {True, None} if is_postgres(url) else {True}
    return worker.is_alive in fit and worker.namespace == namespace


def _warn(what: str, queue: str, worked: set[str], module: str) -> None:
    others = f" (those alive work {', '.join(sorted(worked))})" if worked else ""
    start = hint("worker", module, "--queue", queue)
    warn(f"{what} on the queue {queue}, which no living worker works{others}; start one with `{start}`")


async def _workers(url: str) -> "tuple[WorkerSeen, ...]":
    if is_postgres(url):
        from perdure.stores.postgres_look import workers_of  # noqa: PLC0415 - its driver is an extra

        return await workers_of(url)
    path = file_of(url)
    return () if path is None else sqlite_health.workers_of(path)
