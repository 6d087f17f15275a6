"""Runs that nobody works: told to whoever starts one or waits for it, for nothing else would tell.

In:   the URL, and a run as it stands.
Out:  a warning when no living worker has its queue, or that of an activity it waits for.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from perdure.cli.input.database import MEMORY, file_of, is_postgres
from perdure.cli.input.options import DEFAULT_QUEUE
from perdure.cli.output.errors import warn
from perdure.cli.output.suggestions import hint
from perdure.errors import StoreError
from perdure.stores.sqlite.checks import health

if TYPE_CHECKING:
    from perdure.app import RunInfo
    from perdure.stores.health import WorkerSeen

# How often whoever waits asks again.
ASK_SECONDS = 5.0
UNKNOWN = "MODULE"


async def warn_if_nobody_works(url: str, info: "RunInfo", module: str = UNKNOWN) -> None:
    """Say so when an open run can only wait, and name the command that helps."""
    for text in (await neglected(url, info, module)).values():
        warn(text)


async def neglected(
    url: str, info: "RunInfo", module: str = UNKNOWN, own: frozenset[str] = frozenset()
) -> dict[str, str]:
    """A sentence for each queue that an open run needs and nobody works; those of its `own` see to themselves."""
    wanted = needed(info) - own
    if not wanted or url == MEMORY:
        return {}
    try:
        workers = await _workers(url)
    except StoreError:
        # It is there to help; that the database cannot be asked is told by those who cannot do without.
        return {}
    worked = {queue for each in workers if _is_fit(each, url, info.namespace) for queue in each.queues}
    others = sorted(worked - own)
    told = {queue: _sentence(info, queue, others, module) for queue in sorted(wanted - worked)}
    # Somebody works it, but has not the code.
    return told | {
        wait.queue: f"{wait.name}: {wait.reason}"
        for wait in info.waiting_for
        if wait.reason is not None and wait.queue in wanted & worked
    }


def needed(info: "RunInfo") -> set[str]:
    """The queues that somebody must work so that the run goes on."""
    if info.closed_at is not None or info.held is not None:
        return set()
    return {info.queue, *(wait.queue for wait in info.waiting_for if wait.queue is not None)}


class Neglect:
    """Asks now and then whether anybody works what a run waits for; says once of each queue that nobody does."""

    def __init__(self, url: str, module: str = UNKNOWN, own: frozenset[str] = frozenset()) -> None:
        self._url = url
        self._module = module
        self._own = own
        self._asked: set[str] = set()
        self._told: set[str] = set()
        self._ask_at = 0.0
        self._rest_until = 0.0

    async def look(self, info: "RunInfo", say: Callable[[str], None]) -> None:
        """Ask when the run needs a queue that it did not need before, or when it was not asked for long."""
        wanted, now = needed(info) - self._own - self._told, time.monotonic()
        if now < self._rest_until or not wanted or (now < self._ask_at and wanted <= self._asked):
            return
        self._asked, self._ask_at = wanted, now + ASK_SECONDS
        for queue, text in (await neglected(self._url, info, self._module, self._own)).items():
            if queue in wanted:
                self._told.add(queue)
                say(text)

    def rest(self) -> None:
        """After an outage workers get some time to come back."""
        self._rest_until = time.monotonic() + ASK_SECONDS


def _is_fit(worker: "WorkerSeen", url: str, namespace: str) -> bool:
    # On Postgres a worker without a lock may be one behind a pooler; in a file it is none.
    fit = {True, None} if is_postgres(url) else {True}
    return worker.is_alive in fit and worker.namespace == namespace


def _sentence(info: "RunInfo", queue: str, others: list[str], module: str) -> str:
    """That nobody works the queue, and what helps."""
    if queue == info.queue == DEFAULT_QUEUE:
        return f"no worker is alive that could take the run; start one with `{hint('worker', module)}`"
    what = "the run is" if queue == info.queue else "the run waits for an activity"
    alive = f" (those alive work {', '.join(others)})" if others else ""
    start = hint("worker", module, "--queue", queue)
    return f"{what} on the queue {queue}, which no living worker works{alive}; start one with `{start}`"


async def _workers(url: str) -> "tuple[WorkerSeen, ...]":
    if is_postgres(url):
        from perdure.stores.postgres.checks.inspection import workers_of  # noqa: PLC0415 - its driver is an extra

        return await workers_of(url)
    path = file_of(url)
    return () if path is None else health.workers_of(path)
