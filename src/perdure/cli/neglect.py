"""Runs that nobody works: told to whoever starts one or waits for it, for nothing else would tell.

In:   the URL, and a run as it stands.
Out:  a warning when no living worker has its queue.
"""

from typing import TYPE_CHECKING

from perdure.cli.exits import warn
from perdure.cli.hints import hint
from perdure.cli.opening import file_of, is_postgres
from perdure.stores import sqlite_health

if TYPE_CHECKING:
    from perdure.app import RunInfo
    from perdure.stores.health import WorkerSeen


async def warn_if_nobody_works(url: str, info: "RunInfo", module: str = "MODULE") -> None:
    """Say so when an open run can only wait, and name the command that helps."""
    if info.closed_at is not None or info.held is not None:
        return
    # On Postgres a worker without a lock may be one behind a pooler; in a file it is none.
    fit = {True, None} if is_postgres(url) else {True}
    if not any(
        worker.is_alive in fit and worker.namespace == info.namespace and info.queue in worker.queues
        for worker in await _workers(url)
    ):
        warn(f"no worker is alive that could take the run; start one with `{hint('worker', module)}`")


async def _workers(url: str) -> "tuple[WorkerSeen, ...]":
    if is_postgres(url):
        from perdure.stores.postgres_look import workers_of  # noqa: PLC0415 - its driver is an extra

        return await workers_of(url)
    path = file_of(url)
    return () if path is None else sqlite_health.workers_of(path)
